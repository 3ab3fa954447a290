from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from kwiki_kernels.errors import ProfileError
from kwiki_kernels.profile import ncu

CAPTURES = Path(__file__).parent / "captures"
IDENTITY = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Block Size", "Grid Size", "CC")


def raw_page(*kernels: dict[str, str], units: dict[str, str] | None = None) -> str:
    """What ncu prints around and in a raw page; every kernel is its name and metric values."""
    names = [name for name in kernels[0] if name != "kernel"]
    text = io.StringIO()
    write = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow
    write([*IDENTITY, *names])
    write([*[""] * len(IDENTITY), *[(units or {}).get(name, "") for name in names]])
    for number, kernel in enumerate(kernels):
        place = (str(number), "7", "python", "host", kernel["kernel"], "(256, 1, 1)", "(128, 1, 1)", "9.0")
        write([*place, *[kernel[name] for name in names]])
    return f"==PROF== Connected to process 7\na line of the program\n{text.getvalue()}"


def test_every_kernel_of_a_raw_page_is_read_with_numbers_as_numbers() -> None:
    page = raw_page(
        {"kernel": "first", ncu.DURATION: "2,848", ncu.DRAM_SHARE: "14.26"},
        {"kernel": "second", ncu.DURATION: "31,744", ncu.DRAM_SHARE: "91.5"},
        units={ncu.DURATION: "ns", ncu.DRAM_SHARE: "%"},
    )
    first, second = ncu.read_csv(page)
    assert (first.kernel, first.grid, first.block) == ("first", "(128, 1, 1)", "(256, 1, 1)")
    assert first.metrics == {ncu.DURATION: 2848.0, ncu.DRAM_SHARE: 14.26}
    assert ncu.dominant([first, second]) is second


def test_scaled_units_are_brought_to_nanoseconds_and_bytes() -> None:
    page = raw_page(
        {"kernel": "k", ncu.DURATION: "31.7", "dram__bytes_read.sum": "4.5"},
        units={ncu.DURATION: "us", "dram__bytes_read.sum": "Mbyte"},
    )
    (only,) = ncu.read_csv(page)
    assert only.metrics[ncu.DURATION] == pytest.approx(31_700)
    assert only.metrics["dram__bytes_read.sum"] == pytest.approx(4_500_000)


@pytest.mark.parametrize("absent", ["n/a", "(!) n/a", "", "nan"])
def test_what_the_gpu_does_not_count_is_absent_rather_than_zero(absent: str) -> None:
    (only,) = ncu.read_csv(raw_page({"kernel": "k", ncu.DURATION: "5", ncu.TENSOR_SHARE: absent}))
    assert only.metrics == {ncu.DURATION: 5.0}


def test_of_several_waves_a_cluster_in_the_middle_is_traced_and_of_one_the_first() -> None:
    rows = ncu.KernelCounters(kernel="k", grid="(16384, 1, 1)", block="", metrics={ncu.WAVES: 15.5})
    assert rows.middle_cluster == (8192, 0, 0)
    paired = rows.model_copy(update={"metrics": {ncu.WAVES: 15.5, "launch__cluster_dim_x": 2.0}})
    assert paired.middle_cluster == (4096, 0, 0)
    (persistent,) = ncu.read_csv((CAPTURES / "gemm_8192_h200.ncu.csv").read_text(encoding="utf-8"))
    assert persistent.middle_cluster == (0, 0, 0)


def test_a_mean_over_accesses_that_never_happened_is_absent() -> None:
    (gemm,) = ncu.read_csv((CAPTURES / "gemm_8192_h200.ncu.csv").read_text(encoding="utf-8"))
    assert not set(ncu.NEVER_ZERO) & gemm.metrics.keys()  # it loads and stores by TMA
    assert gemm.metrics[ncu.stall("lg_throttle")] == 0.0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "holds no table"),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "ask the administrator"),
        ("==PROF== Connected\n==WARNING== No kernels were profiled.", "No kernels were profiled"),
        ('"ID","Kernel Name","Metric Name","Metric Value"\n"0","k","a__b","1"\n', "--page raw"),
        (raw_page({"kernel": "k", ncu.DURATION: "5"}).rstrip().rsplit(",", 1)[0] + "\n", "cut off"),
    ],
)
def test_a_capture_that_failed_says_why_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ProfileError, match=sentence) as raised:
        ncu.read_csv(text)
    assert "\n" not in str(raised.value)


def test_the_command_leaves_the_clocks_alone_and_counts_only_what_the_target_marks() -> None:
    line = ncu.command(["python", "kernel.py"])
    assert line[-2:] == ["python", "kernel.py"]
    assert line[line.index("--clock-control") + 1] == "none"
    assert line[line.index("--profile-from-start") + 1] == "off"
    assert line[line.index("--page") + 1] == "raw"
    assert set(line[line.index("--metrics") + 1].split(",")) == set(ncu.METRICS)
