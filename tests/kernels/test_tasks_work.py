"""Contents follow the published statistics, and work and floors follow from the contents."""

from __future__ import annotations

import itertools
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from kwiki_kernels.definition import Workload
from kwiki_kernels.errors import TaskError
from kwiki_kernels.inputs import Contents, make_layout
from kwiki_kernels.roofline import PEAKS, Work, floor_us, peaks_of, roofline_us
from kwiki_kernels.task import Task, load_task
from kwiki_kernels.terms import Terms, load_reference
from ruamel.yaml import YAML

from tests.kernels.shrunk_tasks import SMALL, TASKS, shrunk

H200 = PEAKS["H200"]
HARDWARE = Path(__file__).parents[2] / "wiki" / "hardware.yaml"


def terms_of(name: str, folder: Path) -> tuple[Task, Terms]:
    task = load_task(TASKS / name)
    return task, load_reference(task, folder)[1]


def layout(task: Task, terms: Terms, workload: Workload) -> dict[str, Any]:
    return make_layout(task.definition, workload, terms.contents)


def sized(task: Task, **axes: int) -> Workload:
    return task.workloads[0].model_copy(update={"axes": axes, "uuid": str(axes)})


@pytest.mark.parametrize("name", sorted(SMALL))
def test_timed_sets_share_a_layout_and_probes_have_their_own(name: str, tmp_path: Path) -> None:
    task = shrunk(name)
    terms = load_reference(task, tmp_path)[1]
    (workload,) = task.workloads
    layouts = {"cu_seqlens", "group_ends", "seq_lens", "block_table", "sparse_indices", "routing_logits"}
    first, again, probe = (
        terms.inputs(task.definition, workload, seed, "cpu", spread)
        for seed, spread in ((1, 1.0), (2, 1.0), (2, 4.0))
    )
    for n, (input_name, spec) in enumerate(task.definition.inputs.items()):
        if spec.shape is not None:
            assert torch.equal(first[n], again[n]) is (input_name in layouts or input_name == "routing_bias")
            assert not torch.equal(first[n], probe[n])


def test_gdn_splits_sequences_unevenly_and_normalises_q_and_k(tmp_path: Path) -> None:
    task, terms = terms_of("gdn_prefill", tmp_path)
    skews = []
    for workload in task.workloads:
        made = layout(task, terms, workload)
        lengths = made["cu_seqlens"].diff()
        assert int(made["cu_seqlens"][0]) == 0
        assert int(lengths.sum()) == workload.axes["total_seq_len"]
        assert int(lengths.min()) >= 1
        if len(lengths) >= 20:
            skews.append(float(lengths.max() / lengths.double().mean()))
    assert statistics.mean(skews) > 3
    shorter = shrunk("gdn_prefill")
    _, k, *_ = terms.inputs(shorter.definition, shorter.workloads[0], 0, "cpu", 4.0)
    norms = torch.linalg.vector_norm(k.double(), dim=-1)
    torch.testing.assert_close(norms, torch.ones_like(norms), rtol=5e-3, atol=0.0)


def test_more_sequences_than_tokens_leave_some_empty(tmp_path: Path) -> None:
    task, terms = terms_of("gdn_prefill", tmp_path)
    made = layout(task, terms, sized(task, total_seq_len=3, num_seqs=5, len_cu_seqlens=6))
    assert made["cu_seqlens"].diff().min() == 0
    assert made["cu_seqlens"][-1] == 3


def test_dsa_index_lists_follow_the_published_histogram(tmp_path: Path) -> None:
    task, terms = terms_of("dsa_attention", tmp_path)
    rows = layout(task, terms, sized(task, num_tokens=2000, num_pages=20_000))["sparse_indices"]
    lengths = (rows >= 0).sum(1)
    quartiles = torch.quantile(lengths.double(), torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64))
    published = torch.tensor([16.0, 33.0, 225.0], dtype=torch.float64)
    assert ((quartiles / published - 1).abs() < 0.25).all(), quartiles
    assert 230 < lengths.double().mean() < 350  # published: 289
    assert 0.02 < (lengths == 2048).double().mean() < 0.05  # published: 4 of 120
    assert int(lengths.min()) >= 1


def test_dsa_index_lists_are_prefixes_on_pages_of_their_own(tmp_path: Path) -> None:
    task, terms = terms_of("dsa_attention", tmp_path)
    seen: set[int] = set()
    for row in layout(task, terms, sized(task, num_tokens=60, num_pages=8462))["sparse_indices"]:
        length = int((row >= 0).sum())
        named = row[:length].long()
        assert (row[length:] == -1).all()
        assert len(named.unique()) == length
        if length < 2048:
            assert (named.diff() > 0).all()
            assert int(named[-1] - named[0]) <= 1.05 * length
        else:
            assert 2161 <= int(named.max() - named.min()) <= 2692
        pages = set((named // 64).tolist())
        assert not seen & pages
        seen |= pages
    assert min(seen) == 1


def test_the_dsa_table_gives_each_sequence_pages_of_its_own(tmp_path: Path) -> None:
    task, terms = terms_of("dsa_indexer", tmp_path)
    made = layout(task, terms, sized(task, batch_size=5, max_num_pages=40, num_pages=300))
    used = -(-made["seq_lens"] // 64)
    assert int(used.max()) == 40
    pages = [
        page for row, n in zip(made["block_table"].tolist(), used.tolist(), strict=True) for page in row[:n]
    ]
    assert len(set(pages)) == len(pages)


def test_moe_gives_a_rank_about_as_many_pairs_as_tokens(tmp_path: Path) -> None:
    task, terms = terms_of("moe_fp8", tmp_path)
    for workload in task.workloads:
        work, tokens = terms.work(task.definition, workload), workload.axes["seq_len"]
        pairs = work.flops / 88.08e6
        assert pairs >= 0.99
        if tokens >= 50:
            assert 0.5 < pairs / tokens < 1.6
        if tokens >= 900:
            published = 32 * 44.04e6 + tokens * (8416 + 14336)
            assert abs(work.bytes_moved / published - 1) < 0.04
    largest = max(task.workloads, key=lambda w: w.axes["seq_len"])
    assert roofline_us(terms.work(task.definition, largest), H200) == pytest.approx(628, rel=0.1)


@pytest.mark.parametrize(
    ("tokens", "sequences", "megabytes", "memory_us", "arithmetic_us"),
    [(134, 1, 1.9, 0.4, 0.2), (983, 2, 8.2, 1.7, 1.3), (2107, 1, 14.1, 2.9, 2.8), (5709, 2, 37.4, 7.8, 7.6),
     (8192, 20, 71.6, 14.9, 10.9), (8192, 57, 110.4, 23.0, 10.9)],
)  # fmt: skip
def test_gdn_prefill_costs_what_a_count_by_hand_gives(
    tokens: int, sequences: int, megabytes: float, memory_us: float, arithmetic_us: float, tmp_path: Path
) -> None:
    task, terms = terms_of("gdn_prefill", tmp_path)
    axes = {"total_seq_len": tokens, "num_seqs": sequences, "len_cu_seqlens": sequences + 1}
    work = terms.work(task.definition, sized(task, **axes))
    assert work.bytes_moved / 1e6 == pytest.approx(megabytes, abs=0.06)
    assert work.bytes_moved / H200.hbm_tbps / 1e6 == pytest.approx(memory_us, abs=0.06)
    assert work.flops / H200.tflops["bf16"] / 1e6 == pytest.approx(arithmetic_us, abs=0.06)


def test_dsa_attention_costs_what_its_valid_slots_cost(tmp_path: Path) -> None:
    task, terms = terms_of("dsa_attention", tmp_path)
    assert terms.work_of is not None
    full = torch.arange(8 * 2048, dtype=torch.int32).view(8, 2048)
    work = Work(
        **terms.work_of(
            task.definition.axis_values({"num_tokens": 8, "num_pages": 8462}), {"sparse_indices": full}
        )
    )
    assert work.bytes_moved / 1e6 == pytest.approx(19.2, abs=0.05)
    assert work.flops == 34_816 * 8 * 2048
    assert roofline_us(work, H200) == pytest.approx(4.0, abs=0.05)


def test_the_dsa_indexer_reads_no_keys_of_sequences_that_it_selects_whole(tmp_path: Path) -> None:
    task, terms = terms_of("dsa_indexer", tmp_path)
    assert terms.work_of is not None
    axes = task.definition.axis_values({"batch_size": 30, "max_num_pages": 91, "num_pages": 11923})
    longest = Work(**terms.work_of(axes, {"seq_lens": torch.full((30,), 91 * 64)}))
    assert longest.bytes_moved / 1e6 == pytest.approx(23.6, abs=0.05)
    assert longest.flops / 1e9 == pytest.approx(2.86, abs=0.01)
    short = Work(**terms.work_of(axes, {"seq_lens": torch.full((30,), 2048)}))
    assert (short.flops, short.bytes_read) == (0, 4 * 30 * 33)


def test_grouped_gemm_reads_no_matrix_of_an_empty_group(tmp_path: Path) -> None:
    task, terms = terms_of("grouped_gemm", tmp_path)
    workload = sized(task, total_rows=10, groups=64, N=8, K=8)
    ends = layout(task, terms, workload)["group_ends"].tolist()
    busy = sum(a < b for a, b in itertools.pairwise([0, *ends]))
    assert 1 < busy <= 10
    assert terms.work(task.definition, workload).bytes_read == 2 * (10 * 8 + busy * 64) + 4 * 64


def test_without_a_work_of_its_own_a_task_moves_each_tensor_once(tmp_path: Path) -> None:
    task, terms = terms_of("softmax", tmp_path)
    work = terms.work(task.definition, task.workload("w8192-r16384"))
    assert (work.bytes_read, work.bytes_written, work.flops) == (2**28, 2**28, 0)
    assert roofline_us(work, H200) == pytest.approx(111.8, abs=0.1)


def test_the_largest_gemm_is_bound_by_arithmetic(tmp_path: Path) -> None:
    task, terms = terms_of("gemm", tmp_path)
    work = terms.work(task.definition, task.workload("m8192-n8192-k8192"))
    assert floor_us(work, H200) == roofline_us(work, H200) == pytest.approx(1111, abs=1)


def test_outputs_that_fit_the_l2_do_not_raise_the_floor() -> None:
    small, large = (
        Work(bytes_read=48_000_000, bytes_written=48_000_000),
        Work(bytes_read=0, bytes_written=10**9),
    )
    assert floor_us(small, H200) == pytest.approx(10.0)
    assert roofline_us(small, H200) == pytest.approx(20.0)
    assert floor_us(large, H200) == pytest.approx((1e9 - H200.l2_bytes) / 4.8e6)


def test_the_peaks_are_those_of_the_hardware_table() -> None:
    table = YAML(typ="safe").load(HARDWARE.read_text(encoding="utf-8"))
    for name, peaks in PEAKS.items():
        facts = next(gpu["facts"] for word, gpu in table.items() if word.startswith(name))
        assert peaks.hbm_tbps == facts["hbm_bandwidth_tbps"]["value"]
        assert peaks.tflops == {p: facts[f"peak_{p}_tflops"]["value"] for p in peaks.tflops}
        assert peaks.l2_bytes >= facts.get("l2_bytes", {"value": 0})["value"]
    assert peaks_of("NVIDIA H200") is H200
    assert peaks_of("NVIDIA GeForce RTX 4090") is None


def counted(name: str, axes: dict[str, int], made: dict[str, Any]) -> tuple[int, int, int]:
    """Bytes read, bytes written and FLOPs, item by item from the operator's definition."""
    match name:
        case "dsa_attention":
            lists = [[slot for slot in row if slot >= 0] for row in made["sparse_indices"].tolist()]
            read = 1152 * len({slot for row in lists for slot in row})
            read += len(lists) * (16 * 1152 + 2048 * 4)
            pairs = sum(map(len, lists)) * 16
            return read, len(lists) * 16 * (512 * 2 + 4), pairs * (576 + 512) * 2
        case "dsa_indexer":
            read = flops = 0
            for length in made["seq_lens"].tolist():
                read += 4 + 4 * math.ceil(length / 64)
                if length > 2048:
                    read += 64 * 128 + 64 * 4 + length * 132
                    flops += length * 64 * 128 * 2
            return read, len(made["seq_lens"]) * 2048 * 4, flops
        case "gdn_decode":
            token = sum(heads * 128 * 2 for heads in (4, 4, 8)) + 2 * 8 * 2
            state = 8 * 128 * 128 * 4
            # The old value, the update and the output: a product of 128 x 128 each.
            return (
                axes["batch_size"] * (token + state) + 64,
                axes["batch_size"] * (2048 + state),
                (axes["batch_size"] * 8 * 3 * 128 * 128 * 2),
            )
        case "moe_fp8":
            first = int(made["local_expert_offset"])
            rows = [chosen(row, made["routing_bias"]) for row in made["routing_logits"]]
            here = [[e for e in row if first <= e < first + 32] for row in rows]
            expert = 4096 * 7168 + 7168 * 2048 + 4 * (32 * 56 + 56 * 16)
            read = expert * len({e for row in here for e in row}) + 512
            read += sum(1024 + (7168 + 4 * 56) * bool(row) for row in here)
            return read, len(rows) * 7168 * 2, sum(map(len, here)) * 2 * (4096 * 7168 + 7168 * 2048)
        case _:
            raise AssertionError(name)


def chosen(logits: torch.Tensor, bias: torch.Tensor) -> list[int]:
    """A token's experts: the best eight within the four groups whose best two sum highest."""
    scores = (logits.double().sigmoid() + bias.double()).tolist()
    groups = [range(32 * g, 32 * g + 32) for g in range(8)]
    worth = {g: sum(sorted((scores[e] for e in groups[g]), reverse=True)[:2]) for g in range(8)}
    kept = sorted(worth, key=lambda g: worth[g], reverse=True)[:4]
    return sorted((e for g in kept for e in groups[g]), key=lambda e: scores[e], reverse=True)[:8]


@pytest.mark.parametrize("name", ["dsa_attention", "dsa_indexer", "gdn_decode", "moe_fp8"])
def test_work_is_what_a_count_over_the_contents_gives(name: str, tmp_path: Path) -> None:
    task, terms = terms_of(name, tmp_path)
    some = [w for w in task.workloads if w.axes.get("seq_len", 0) < 1000]
    for workload in some[:: max(1, len(some) // 12)]:
        work = terms.work(task.definition, workload)
        made = layout(task, terms, workload)
        counts = counted(name, task.definition.axis_values(workload.axes), made)
        assert (work.bytes_read, work.bytes_written, work.flops) == counts


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        ({"q": torch.zeros(3)}, r"makes 'q' as float32 \[3\], must be bfloat16 \[2, 1, 4, 128\]"),
        ({"scale": 1.0}, "makes 'scale', which is no input tensor of gdn_decode"),
        ({"strange": torch.zeros(3)}, "makes 'strange', which is no input tensor"),
    ],
)
def test_contents_that_contradict_the_definition_are_the_tasks_fault(
    made: dict[str, Any], problem: str
) -> None:
    task = shrunk("gdn_decode")
    terms = Terms(contents=Contents(values=lambda *_: made))
    with pytest.raises(TaskError, match=problem):
        terms.inputs(task.definition, task.workloads[0], 0, "cpu", 1.0)


def test_work_that_is_not_understood_names_the_field() -> None:
    task = shrunk("gdn_decode")
    with pytest.raises(TaskError, match=r"work\(\) of gdn_decode.* returns a wrong 'bytes_written'"):
        Terms(work_of=lambda *_: {"bytes_read": 1}).work(task.definition, task.workloads[0])
    with pytest.raises(TaskError, match=r"work\(\) of gdn_decode.* fails: KeyError"):
        Terms(work_of=lambda axes, _: axes["?"]).work(task.definition, task.workloads[0])
