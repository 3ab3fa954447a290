"""The tasks at sizes that a CPU judges in a moment: same code, fewer experts, pages and columns."""

from __future__ import annotations

from pathlib import Path

from kwiki_kernels.definition import ConstAxis
from kwiki_kernels.task import Task, load_task

TASKS = Path(__file__).parents[2] / "kernels" / "tasks"
SMALL: dict[str, dict[str, int]] = {
    "dsa_attention": {"num_tokens": 3, "num_pages": 128},
    "dsa_indexer": {"batch_size": 3, "max_num_pages": 40, "num_pages": 150},
    "gdn_decode": {"batch_size": 2},
    "gdn_prefill": {"total_seq_len": 300, "num_seqs": 4, "len_cu_seqlens": 5},
    "gemm": {"M": 100, "N": 136, "K": 264},
    "grouped_gemm": {"total_rows": 100, "groups": 7, "N": 40, "K": 72},
    "moe_fp8": {
        "seq_len": 25, "num_experts": 64, "num_local_experts": 16, "hidden_size": 512,
        "intermediate_size": 256, "gemm1_out_size": 512, "num_hidden_blocks": 4,
        "num_intermediate_blocks": 2, "num_gemm1_out_blocks": 4,
    },
    "rmsnorm": {"num_tokens": 5, "hidden_size": 2048},
    "softmax": {"rows": 5, "width": 1024},
}  # fmt: skip


def shrunk(name: str) -> Task:
    """The shipped task with one workload of the sizes above, constant axes changed where named."""
    task = load_task(TASKS / name)
    sizes = SMALL[name]
    axes = {
        axis: ConstAxis(type="const", value=sizes[axis])
        if isinstance(spec, ConstAxis) and axis in sizes
        else spec
        for axis, spec in task.definition.axes.items()
    }
    first = task.workloads[0]
    inputs = dict(first.inputs)
    if "local_expert_offset" in inputs:
        inputs["local_expert_offset"] = {"type": "scalar", "value": 16}
    workload = first.model_copy(update={"axes": sizes, "inputs": inputs})
    definition = task.definition.model_copy(update={"axes": axes})
    return task.model_copy(update={"definition": definition, "workloads": (workload,)})
