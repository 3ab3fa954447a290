from __future__ import annotations

from pathlib import Path

import pytest
from kwiki_kernels.errors import StaticReportError
from kwiki_kernels.evaluation import StaticReport
from kwiki_kernels.static_report import (
    SM_LIMITS,
    launch_smem_bytes,
    occupancy,
    static_reports,
)

from tests.kernels.rmsnorm_cubins import Compiled, compile_rmsnorm

POINTS = {
    "plain": (7168, {}),
    "cramped": (7168, {"min_ctas_per_sm": 8}),
    "wide": (7168, {"vector_bits": 256}),
    "narrow": (7168, {"vector_bits": 64}),
    "cluster": (8192, {"cluster_n": 2, "rows_per_cta": 2, "threads_per_row": 512}),
}


@pytest.fixture(scope="module", params=["sm_90a", "sm_100a"])
def arch(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def compiled(arch: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Compiled]:
    results, _ = compile_rmsnorm(arch, list(POINTS.values()), tmp_path_factory.mktemp("dump"))
    return dict(zip(POINTS, results, strict=True))


def report(compiled: Compiled, arch: str) -> StaticReport:
    smem = launch_smem_bytes(compiled.host_ir)
    (only,) = static_reports(compiled.cubin, arch, {"hidden_size": 7168}, smem)
    return only


def test_threads_registers_and_shared_memory_are_those_of_the_launch(
    compiled: dict[str, Compiled], arch: str
) -> None:
    plain = report(compiled["plain"], arch)
    assert plain.arch == arch
    assert plain.static_axes == {"hidden_size": 7168}
    assert plain.threads_per_cta == 256
    assert 32 <= plain.registers <= 80
    assert plain.smem_bytes == 2 * 8 * 4 + 2 * 8  # two sets of one float per warp, two barriers
    assert plain.occupancy == plain.ctas_per_sm * 256 / 2048


def test_shared_memory_grows_with_rows_and_cluster(compiled: dict[str, Compiled], arch: str) -> None:
    assert report(compiled["cluster"], arch).smem_bytes == 2 * 2 * (2 * 16) * 4 + 2 * 8


def test_dynamic_shared_memory_is_zero_when_nobody_tells(compiled: dict[str, Compiled], arch: str) -> None:
    (only,) = static_reports(compiled["plain"].cubin, arch, {})
    assert only.smem_bytes == 0


def test_a_kernel_with_too_few_registers_shows_its_spills(compiled: dict[str, Compiled], arch: str) -> None:
    plain, cramped = report(compiled["plain"], arch), report(compiled["cramped"], arch)
    assert (plain.spill_bytes, plain.local_loads, plain.local_stores) == (0, 0, 0)
    assert cramped.registers == 32
    assert cramped.spill_bytes > 0
    assert cramped.local_loads > 0
    assert cramped.local_stores > 0


def test_spills_are_told_from_arrays_and_name_their_lines(compiled: dict[str, Compiled], arch: str) -> None:
    cramped = report(compiled["cramped"], arch)
    assert cramped.spills == cramped.local_loads + cramped.local_stores
    assert sum(cramped.local_lines.values()) == cramped.spills
    assert all(line.startswith("kernel.py:") for line in cramped.local_lines)
    assert report(compiled["plain"], arch).local_lines == {}


def test_access_widths_are_those_asked_for_where_the_architecture_has_them(
    compiled: dict[str, Compiled], arch: str
) -> None:
    plain = report(compiled["plain"], arch)
    assert plain.global_load_bits == {128: 8}  # x and weight in four steps
    assert plain.global_store_bits == {128: 4}
    assert set(report(compiled["narrow"], arch).global_load_bits) == {64}
    assert set(report(compiled["wide"], arch).global_load_bits) == {256 if arch == "sm_100a" else 128}


def test_the_instruction_mix_adds_up_and_holds_the_reduction(
    compiled: dict[str, Compiled], arch: str
) -> None:
    plain = report(compiled["plain"], arch)
    assert sum(plain.instruction_mix.values()) == plain.instructions
    assert plain.instruction_mix["SHFL"] == 5
    assert plain.instruction_mix["BAR"] == 1
    assert plain.features == {}
    assert plain.tmem_columns == 0
    assert set(plain.smem_load_bits) <= {32, 64, 128}
    assert plain.smem_load_bits
    assert "NOP" not in plain.instruction_mix


@pytest.mark.parametrize(
    ("registers", "smem_bytes", "threads", "expected"),
    [
        (32, 0, 1024, (2, "threads")),
        (64, 0, 256, (4, "registers")),
        (168, 0, 384, (1, "registers")),
        (32, 40 * 1024, 128, (5, "shared memory")),
        (16, 0, 32, (32, "CTAs")),
        (255, 0, 1024, (0, "registers")),
    ],
)
def test_occupancy_is_bound_by_the_scarcest_resource(
    registers: int, smem_bytes: int, threads: int, expected: tuple[int, str]
) -> None:
    assert occupancy(registers, smem_bytes, threads, SM_LIMITS["sm_90a"]) == expected


@pytest.mark.parametrize("cubin", [b"", b"not an ELF file", b"\x7fELF" + bytes(100)])
def test_what_is_not_a_cubin_is_refused_in_one_sentence(cubin: bytes) -> None:
    with pytest.raises(StaticReportError, match="not a cubin"):
        static_reports(cubin, "sm_90a", {})


def test_an_unknown_architecture_is_refused_by_name() -> None:
    with pytest.raises(StaticReportError, match="sm_75"):
        static_reports(b"", "sm_75", {})


def test_a_missing_disassembler_is_named_with_the_package_that_brings_it(
    compiled: dict[str, Compiled], arch: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.path", [])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StaticReportError, match="pip install nvidia-cuda-nvdisasm"):
        static_reports(compiled["plain"].cubin, arch, {})
