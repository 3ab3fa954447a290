"""What the code of the pages computes on a GPU is what torch computes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch

from tests.ingest.page_kernels import CASES
from tests.ingest.page_kernels.frame import LIMIT_S

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

Run = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, Future[Run]]]:
    """Every case in a process of its own; they compile side by side, and one that hangs ends itself."""

    def start(name: str) -> Run:
        command = [sys.executable, "-m", "tests.ingest.page_kernels", name]
        return subprocess.run(command, capture_output=True, text=True, timeout=2 * LIMIT_S, check=False)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {name: pool.submit(start, name) for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_of_a_page_computes_the_right_numbers(runs: dict[str, Future[Run]], name: str) -> None:
    run = runs[name].result()
    assert run.returncode == 0, run.stderr[-3000:]
    print(run.stdout.splitlines()[-1])
