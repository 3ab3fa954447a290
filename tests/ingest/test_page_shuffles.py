"""What shuffles a whole warp stands outside of branches that only some lanes take; inside, it hangs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from kwiki_ingest.truth import fences as code_fences

ROOT = Path(__file__).parents[2]
SHUFFLES = {"warp_idx", "make_warp_uniform", "shuffle_sync", "shuffle_sync_bfly", "shuffle_sync_up"} | {
    "shuffle_sync_down", "warp_reduction", "warp_reduction_sum", "warp_reduction_max"
}  # fmt: skip


def shuffles_of_some_lanes(code: str) -> list[str]:
    """Calls of a shuffle in the body of an `if` (or of `elect_one`) that asks for the lane or thread."""
    return [
        f"{call.func.attr} in `{ast.unparse(branch).splitlines()[0]}`"
        for branch in ast.walk(ast.parse(code))
        if isinstance(branch, ast.If | ast.With) and takes_some_lanes(branch)
        for statement in branch.body
        for call in ast.walk(statement)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in SHUFFLES
    ]


def takes_some_lanes(branch: ast.If | ast.With) -> bool:
    if isinstance(branch, ast.With):
        return any("elect_one" in ast.unparse(item) for item in branch.items)
    names = {node.id for node in ast.walk(branch.test) if isinstance(node, ast.Name)}
    return bool(names & {"lane", "peer", "tidx"}) or "lane_idx" in ast.unparse(branch.test)


def codes() -> Iterator[tuple[str, str]]:
    for page in sorted((ROOT / "wiki").glob("*/*.md")):
        for fence in code_fences.fences(page.read_text()):
            if fence.is_python and fence.info.startswith("compiles"):
                yield page.stem, fence.code
    for file in sorted((ROOT / "kernels").rglob("*.py")):
        yield str(file.relative_to(ROOT)), file.read_text()


def test_no_page_and_no_kernel_shuffles_where_only_some_lanes_go() -> None:
    found = {name: calls for name, code in codes() if (calls := shuffles_of_some_lanes(code))}
    assert found == {}


@pytest.mark.parametrize("branch", ["if cute.arch.lane_idx() == 0:", "if tidx == 0:", "with elect_one():"])
def test_a_shuffle_in_a_branch_of_some_lanes_is_found(branch: str) -> None:
    assert shuffles_of_some_lanes(f"{branch}\n    partial[cute.arch.warp_idx()] = value\n")
    assert not shuffles_of_some_lanes(f"warp = cute.arch.warp_idx()\n{branch}\n    partial[warp] = value\n")
