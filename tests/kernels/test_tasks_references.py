"""The references against slow formulations from the equations, token by token and head by head."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from kwiki_kernels.build import load_module
from kwiki_kernels.inputs import expected_outputs, make_layout
from kwiki_kernels.task import Task, load_task
from kwiki_kernels.terms import load_reference

from tests.kernels.shrunk_tasks import SMALL, TASKS, shrunk

Named = dict[str, Any]


def oracle(task: Task, folder: Path, spread: float = 1.0) -> tuple[Named, list[torch.Tensor]]:
    """Inputs of the small workload by name, and the reference's outputs in float64."""
    reference, terms = load_reference(task, folder)
    (workload,) = task.workloads
    inputs = terms.inputs(task.definition, workload, 3, "cpu", spread)
    return dict(zip(task.definition.inputs, inputs, strict=True)), expected_outputs(reference, inputs)


def agree(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert got.dtype is torch.float64
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))


def step(x: Named, t: int, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One token of the gated delta rule, head by head: output [HV, V] and new state [HV, V, K]."""
    heads = state.shape[0]
    after, output = torch.empty_like(state), state.new_empty(heads, state.shape[1])
    for h in range(heads):
        q, k = x["q"][t, h // 2], x["k"][t, h // 2]
        softplus = math.log1p(math.exp(float(x["a"][t, h] + x["dt_bias"][h])))
        decayed = math.exp(-math.exp(float(x["A_log"][h])) * softplus) * state[h]
        beta = 1 / (1 + math.exp(-float(x["b"][t, h])))
        after[h] = decayed + torch.outer(beta * (x["v"][t, h] - decayed @ k), k)
        output[h] = x["scale"] * (after[h] @ q)
    return output, after


def doubles(x: Named) -> Named:
    return {
        name: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
        for name, v in x.items()
    }


@pytest.mark.parametrize("spread", [1.0, 4.0])
def test_gdn_prefill_in_chunks_equals_a_loop_over_tokens(spread: float, tmp_path: Path) -> None:
    given, (output, new_state) = oracle(shrunk("gdn_prefill"), tmp_path, spread)
    x, bounds = doubles(given), given["cu_seqlens"].tolist()
    for n, (first, last) in enumerate(itertools.pairwise(bounds)):
        state = x["state"][n]
        for t in range(first, last):
            expected, state = step(x, t, state)
            agree(output[t], expected)
        agree(new_state[n], state)


def test_gdn_prefill_gives_an_empty_sequence_zeros_and_starts_from_them_without_a_state(
    tmp_path: Path,
) -> None:
    task = shrunk("gdn_prefill")
    x, _ = oracle(task, tmp_path)
    reference, _ = load_reference(task, tmp_path)
    x["cu_seqlens"] = torch.tensor([0, 100, 100, 164, 300])
    x["scale"] = 0.0
    _, emptied = reference(**x, dtype=torch.float64)
    assert not emptied[1].any()
    zeros = reference(**x | {"state": torch.zeros_like(x["state"])}, dtype=torch.float64)
    none = reference(**x | {"state": None, "scale": None}, dtype=torch.float64)
    assert all(map(torch.equal, zeros, none))


def test_gdn_decode_equals_one_token_of_the_loop(tmp_path: Path) -> None:
    given, (output, new_state) = oracle(shrunk("gdn_decode"), tmp_path)
    x = doubles(given)
    flat = {name: x[name][:, 0] for name in ("q", "k", "v", "a", "b")}
    for n in range(len(output)):
        expected, state = step(x | flat, n, x["state"][n])
        agree(output[n, 0], expected)
        agree(new_state[n], state)


def moe_row(x: Named, t: int) -> tuple[torch.Tensor, int]:
    """One token through its experts, and how many of them are on this rank."""
    scores = x["routing_logits"][t].sigmoid()
    biased = (scores + x["routing_bias"]).tolist()
    size = len(biased) // 8
    groups = [sorted(range(g * size, (g + 1) * size), key=lambda e: -biased[e]) for g in range(8)]
    kept = sorted(groups, key=lambda g: -(biased[g[0]] + biased[g[1]]))[:4]
    chosen = sorted((e for group in kept for e in group), key=lambda e: -biased[e])[:8]
    block = torch.arange(x["hidden_states"].shape[1]) // 128
    hidden = x["hidden_states"][t] * x["hidden_states_scale"][block, t]
    out, here = torch.zeros_like(hidden), 0
    for e in chosen:
        local = e - x["local_expert_offset"]
        if not 0 <= local < len(x["gemm1_weights"]):
            continue
        first, second = (
            x[f"gemm{n}_weights"][local]
            * torch.kron(x[f"gemm{n}_weights_scale"][local], torch.ones(128, 128, dtype=torch.float64))
            for n in (1, 2)
        )
        both = first @ hidden
        half = len(both) // 2
        gated = both[half:] / (1 + torch.exp(-both[half:])) * both[:half]
        weight = x["routed_scaling_factor"] * scores[e] / (sum(scores[c] for c in chosen) + 1e-20)
        out, here = out + weight * (second @ gated), here + 1
    return out, here


def test_moe_equals_a_loop_over_tokens_and_the_work_counts_its_pairs(tmp_path: Path) -> None:
    task = shrunk("moe_fp8")
    given, (output,) = oracle(task, tmp_path)
    x = doubles(given)
    rows, counts = zip(*(moe_row(x, t) for t in range(len(output))), strict=True)
    agree(output, torch.stack(rows))
    assert 0 in counts
    (workload,) = task.workloads
    work = load_reference(task, tmp_path)[1].work(task.definition, workload)
    assert work.flops == sum(counts) * 6 * 512 * 256


def test_moe_routing_is_the_same_in_float32(tmp_path: Path) -> None:
    task = load_task(TASKS / "moe_fp8")
    _, terms = load_reference(task, tmp_path)
    route = load_module(task.reference, tmp_path / "plain.py").route
    for workload in task.workloads:
        made = make_layout(task.definition, workload, terms.contents)
        logits, bias = made["routing_logits"], made["routing_bias"]
        wide, narrow = (
            route(logits.to(t), bias.to(t))[0].sort().values for t in (torch.float64, torch.float32)
        )
        assert torch.equal(wide, narrow)


def test_dsa_attention_equals_a_loop_over_heads_and_slots(tmp_path: Path) -> None:
    given, (output, lse) = oracle(shrunk("dsa_attention"), tmp_path)
    x = doubles(given)
    for t in range(len(output)):
        slots = [s for s in given["sparse_indices"][t].tolist() if s >= 0]
        keys = torch.stack([x["ckv_cache"][s // 64, s % 64] for s in slots])
        rotary = torch.stack([x["kpe_cache"][s // 64, s % 64] for s in slots])
        for h in range(output.shape[1]):
            logits = x["sm_scale"] * ((keys * x["q_nope"][t, h]).sum(1) + (rotary * x["q_pe"][t, h]).sum(1))
            powers = torch.exp2(logits / math.log(2) - lse[t, h])
            torch.testing.assert_close(float(powers.sum()), 1.0, rtol=1e-9, atol=0.0)
            agree(output[t, h], (powers[:, None] * keys).sum(0))


def test_dsa_attention_without_any_slot_gives_zeros_and_minus_infinity(tmp_path: Path) -> None:
    task = shrunk("dsa_attention")
    x, _ = oracle(task, tmp_path)
    x["sparse_indices"][1] = -1
    output, lse = load_module(task.reference, tmp_path / "plain.py").run(**x)
    assert not output[1].any()
    assert lse[1].eq(-math.inf).all()
    assert (output.dtype, lse.dtype) == (torch.bfloat16, torch.float32)


def test_the_dsa_indexer_scores_each_position_and_keeps_the_best(tmp_path: Path) -> None:
    task = shrunk("dsa_indexer")
    x, (chosen,) = oracle(task, tmp_path)
    slots, scores = load_reference(task, tmp_path)[1].candidates(**x, dtype=torch.float64)  # type: ignore[misc]
    raw = x["k_index_cache_fp8"].view(torch.uint8).flatten(1)
    for row, length in enumerate(x["seq_lens"].tolist()):
        for position in {0, length // 2, length - 1}:
            page, offset = int(x["block_table"][row, position // 64]), position % 64
            key = raw[page, 128 * offset : 128 * (offset + 1)].clone().view(torch.float8_e4m3fn).double()
            start = 64 * 128 + 4 * offset
            key *= raw[page, start : start + 4].clone().view(torch.float32).double()
            heads = (x["q_index_fp8"][row].double() @ key).clamp_min(0)
            expected = float((x["weights"][row].double() * heads).sum())
            assert int(slots[row, position]) == page * 64 + offset
            assert math.isclose(float(scores[row, position]), expected, rel_tol=1e-9, abs_tol=1e-9)
        many = min(2048, length)
        picked = chosen[row][chosen[row] >= 0].tolist()
        there = dict(zip(slots[row, :length].tolist(), scores[row, :length].tolist(), strict=True))
        assert len(set(picked)) == many
        assert min(there[s] for s in picked) >= max(
            (v for s, v in there.items() if s not in picked), default=-9e9
        )


def test_grouped_gemm_equals_a_loop_over_rows(tmp_path: Path) -> None:
    given, (c,) = oracle(shrunk("grouped_gemm"), tmp_path)
    ends = given["group_ends"].tolist()
    for row in range(len(c)):
        group = next(g for g, end in enumerate(ends) if row < end)
        agree(c[row], (given["b"][group].double() * given["a"][row].double()).sum(-1))


def test_gemm_and_softmax_equal_their_sums(tmp_path: Path) -> None:
    given, (c,) = oracle(shrunk("gemm"), tmp_path)
    agree(c, torch.einsum("mk,nk->mn", given["a"].double(), given["b"].double()))
    given, (p,) = oracle(shrunk("softmax"), tmp_path)
    powers = torch.exp(given["logits"].double())
    agree(p, powers / powers.sum(-1, keepdim=True))


@pytest.mark.parametrize("name", sorted(SMALL.keys() - {"rmsnorm"}))
def test_the_run_of_a_reference_gives_the_definitions_dtypes(name: str, tmp_path: Path) -> None:
    task = shrunk(name)
    _, terms = load_reference(task, tmp_path)
    run = load_module(task.reference, tmp_path / "plain.py").run
    outputs = run(*terms.inputs(task.definition, task.workloads[0], 0, "cpu", 1.0))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    dtypes = [getattr(torch, spec.dtype) for spec in task.definition.outputs.values()]
    assert [output.dtype for output in outputs] == dtypes
