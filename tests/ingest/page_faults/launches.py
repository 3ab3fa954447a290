"""Launches that the driver refuses, and accesses that the GPU refuses."""

from __future__ import annotations

from typing import Any

import torch

from tests.ingest.page_faults.frame import RIGHT, WRONG, Numbers, fault
from tests.ingest.page_kernels.frame import BF16, F32, empty, module, normal, page_code, view


def _fill(
    stream: Any,
    grid: tuple[int, int, int] = (1, 1, 1),
    block: int = 128,
    cluster: int = 1,
    smem_bytes: int = 0,
    first: int = 0,
    device: str = "cuda",
) -> Numbers:
    """Write ones to a vector of 1,024, or as many as there are threads."""
    import cutlass

    from tests.ingest.page_faults import kernels

    y = torch.zeros(1024, device=device)
    kernels.fill(view(y), cutlass.Int64(first), grid, block, cluster, smem_bytes, True, stream)
    want = torch.zeros(1024)
    want[: grid[0] * block] = 1
    return y.cuda(), want.cuda()


@fault("CUDA_LAUNCH_INVALID_CONFIG")
def block_of_2048_threads(stream: Any, broken: bool) -> Numbers:
    return _fill(stream, block=2048 if broken else 1024)


@fault("CUDA_LAUNCH_INVALID_CONFIG")
def empty_grid(stream: Any, broken: bool) -> Numbers:
    return _fill(stream, grid=(0 if broken else 1, 1, 1))


@fault("CUDA_LAUNCH_INVALID_CONFIG")
def grid_y_of_70000(stream: Any, broken: bool) -> Numbers:
    return _fill(stream, grid=(1, 70000 if broken else 1, 1))


@fault("launch shared memory exceeds current GPU arch")
def too_much_shared_memory(stream: Any, broken: bool) -> Numbers:
    return _fill(stream, smem_bytes=(300 if broken else 200) * 1024)


@fault(RIGHT)
def cluster_of_16(stream: Any, broken: bool) -> Numbers:
    """More than the 8 that every GPU takes."""
    return _fill(stream, grid=(16, 1, 1), block=64, cluster=16 if broken else 8)


@fault("cudaErrorInvalidClusterSize")
def cluster_of_32(stream: Any, broken: bool) -> Numbers:
    return _fill(stream, grid=(32, 1, 1), block=32, cluster=32 if broken else 16)


@fault("cudaErrorInvalidClusterSize")
def grid_not_of_whole_clusters(stream: Any, broken: bool) -> Numbers:
    return _fill(stream, grid=(6, 1, 1), cluster=4 if broken else 2)


@fault("CUDA_LAUNCH_INVALID_CONFIG")
def block_at_run_time_of_2048(stream: Any, broken: bool) -> Numbers:
    import cutlass

    from tests.ingest.page_faults import kernels

    y = torch.zeros(1024, device="cuda")
    kernels.fill_at_run_time(view(y), cutlass.Int32(1), cutlass.Int32(2048 if broken else 1024), stream)
    return y, torch.ones_like(y)


@fault("CUDA_LAUNCH_INVALID_CONFIG")
def empty_grid_at_run_time(stream: Any, broken: bool) -> Numbers:
    import cutlass

    from tests.ingest.page_faults import kernels

    y = torch.zeros(1024, device="cuda")
    kernels.fill_at_run_time(view(y), cutlass.Int32(0 if broken else 1), cutlass.Int32(1024), stream)
    return y, torch.ones_like(y)


@fault("cudaErrorLaunchOutOfResources")
def registers_for_1024_threads(stream: Any, broken: bool) -> Numbers:
    import cutlass

    from tests.ingest.page_faults import kernels

    threads = 1024 if broken else 256
    x, y = normal(16, 1024, dtype=F32), torch.zeros(1024, 192, device="cuda")
    kernels.hungry(view(x), view(y), cutlass.Int32(threads), stream)
    return y[:threads], (x.double().T @ x.double())[:threads, :192]


@fault("illegal memory access")
def address_far_outside(stream: Any, broken: bool) -> Numbers:
    return _fill(stream, first=1 << 40 if broken else 0)


@fault("illegal memory access")
def tensor_of_the_host(stream: Any, broken: bool) -> Numbers:
    return _fill(stream, device="cpu" if broken else "cuda")


@fault("illegal memory access")
def shared_memory_far_outside(stream: Any, broken: bool) -> Numbers:
    import cutlass

    from tests.ingest.page_faults import kernels

    y = torch.zeros(128, device="cuda")
    kernels.scratch(view(y), cutlass.Int32(1 << 20 if broken else 0), stream)
    return y, torch.ones_like(y)


@fault("illegal memory access")
def shared_memory_just_outside(stream: Any, broken: bool) -> Numbers:
    """2 KiB above an allocation of 1 KiB."""
    import cutlass

    from tests.ingest.page_faults import kernels

    y = torch.zeros(128, device="cuda")
    kernels.scratch(view(y), cutlass.Int32(512 if broken else 0), stream)
    return y, torch.ones_like(y)


def _rows(rows: int, columns: int, shift: int) -> torch.Tensor:
    """A bf16 matrix that begins `shift` elements after an aligned address."""
    return normal(rows * columns + 8)[shift:][: rows * columns].view(rows, columns)


@fault("not aligned to 16 bytes")
def alignment_of_16_promised(stream: Any, broken: bool) -> Numbers:
    from cutlass.cute.runtime import from_dlpack

    page = module(page_code("vector-width-and-alignment"))
    x, y = _rows(4, 8192, 1 if broken else 8), empty(4, 8192)
    page.relu(from_dlpack(x, assumed_align=16), view(y), 128, stream)
    return y, x.double().relu()


@fault("misaligned address")
def compiled_for_aligned_tensors(stream: Any, broken: bool) -> Numbers:
    from cutlass import cute

    page = module(page_code("vector-width-and-alignment"))
    x, y = _rows(4, 8192, 1 if broken else 8), empty(4, 8192)
    compiled = cute.compile(page.relu, view(y), view(y), 128, stream)
    compiled(view(x), view(y), stream)
    return y, x.double().relu()


@fault(WRONG)
def tma_compiled_for_aligned_tensors(stream: Any, broken: bool) -> Numbers:
    from cutlass import cute

    page = module(page_code("tma-store"))
    x, y = normal(128, 4096), _rows(128, 4096, 1 if broken else 8)
    compiled = cute.compile(page.relu, view(x), view(x), stream)
    compiled(view(x), view(y), stream)
    return y, x.double().relu()


@fault(WRONG)
def tma_to_rows_of_8200_bytes(stream: Any, broken: bool) -> Numbers:
    """The pitch of a row must be a multiple of 16 bytes."""
    from cutlass.cute.runtime import from_dlpack

    page = module(page_code("tma-store"))
    x, y = normal(128, 4096), empty(128, 4100 if broken else 4104)[:, :4096]
    page.relu(view(x), from_dlpack(y, assumed_align=16).mark_layout_dynamic(leading_dim=1), stream)
    return y, x.double().relu()


@fault("does not have a valid execution engine")
def built_for_blackwell(stream: Any, broken: bool) -> Numbers:
    import cutlass
    from cutlass import cute

    from tests.ingest.page_faults import kernels

    y = torch.zeros(1024, device="cuda")
    arch = "sm_100a" if broken else "sm_90a"
    arguments = (view(y), cutlass.Int32(1), cutlass.Int32(1024))
    cute.compile(kernels.fill_at_run_time, *arguments, stream, options=f"--gpu-arch {arch}")(
        *arguments, stream
    )
    return y, torch.ones_like(y)


@fault("nobody completes full")
def wait_that_speaks(stream: Any, broken: bool) -> Numbers:
    """The page on hangs, with the count that it warns of."""
    from cutlass import cute

    code = page_code("hangs")
    page = module(
        code.replace("mbarrier_init(full, PRODUCERS)", "mbarrier_init(full, 33)") if broken else code
    )
    x, y = normal(32, dtype=F32), empty(96, dtype=F32)
    arguments = (view(x), view(y), stream)
    cute.compile(page.hand_over, *arguments, options="--enable-assertions")(*arguments)
    return y, x.repeat(3)


@fault(RIGHT)
def wait_that_speaks_without_assertions(stream: Any, broken: bool) -> Numbers:
    """It gives up waiting, long after the data is there."""
    code = page_code("hangs").replace("TRIES = 32, 96, 1 << 16", "TRIES = 32, 96, 1 << 6")
    page = module(
        code.replace("mbarrier_init(full, PRODUCERS)", "mbarrier_init(full, 33)") if broken else code
    )
    x, y = normal(32, dtype=F32), empty(96, dtype=F32)
    page.hand_over(view(x), view(y), stream)
    return y, x.repeat(3)


@fault(RIGHT)
def barrier_number_16_at_run_time(stream: Any, broken: bool) -> Numbers:
    import cutlass

    from tests.ingest.page_faults import kernels

    y, number = torch.zeros(128, device="cuda"), cutlass.Int32(16 if broken else 15)
    kernels.meet(view(y), number, number, stream)
    return y, torch.ones_like(y)


@fault(RIGHT)
def barrier_numbers_1_and_17(stream: Any, broken: bool) -> Numbers:
    """Two halves of a CTA at one barrier, if the number counts modulo 16."""
    import cutlass

    from tests.ingest.page_faults import kernels

    y = torch.zeros(128, device="cuda")
    kernels.meet(view(y), cutlass.Int32(1), cutlass.Int32(17 if broken else 1), stream)
    return y, torch.ones_like(y)


@fault("out of memory")
def more_memory_than_there_is(stream: Any, broken: bool) -> Numbers:
    del stream
    y = torch.zeros(1 << (38 if broken else 10), dtype=BF16, device="cuda")
    return y, torch.zeros_like(y)
