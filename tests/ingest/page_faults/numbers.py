"""Calls that nothing refuses and that compute something else."""

from __future__ import annotations

from typing import Any

import torch

from tests.ingest.page_faults.frame import WRONG, Numbers, fault
from tests.ingest.page_kernels.frame import BF16, F16, empty, normal, view


@fault(WRONG)
def missing_predicate(stream: Any, broken: bool) -> Numbers:
    """1,024 threads, a tensor of 1,000 elements, and another one behind it."""
    import cutlass

    from tests.ingest.page_faults import kernels

    both = torch.zeros(1024, device="cuda")
    kernels.fill(view(both[:1000]), cutlass.Int64(0), (8, 1, 1), 128, 1, 0, not broken, stream)
    want = torch.ones_like(both)
    want[1000:] = 0
    return both, want


@fault(WRONG)
def additions_without_atomics(stream: Any, broken: bool) -> Numbers:
    from tests.ingest.page_faults import kernels

    counter = torch.zeros(1, dtype=torch.int32, device="cuda")
    kernels.count(view(counter), not broken, stream)
    return counter, torch.full_like(counter, 64 * 128)


@fault(WRONG)
def compiled_for_another_dtype(stream: Any, broken: bool) -> Numbers:
    from cutlass import cute

    from tests.ingest.page_faults import kernels

    x, y = normal(16, 128), empty(16, 128)
    other = normal(16, 128, dtype=F16 if broken else BF16)
    compiled = cute.compile(kernels.halve, view(other), view(y), stream)
    compiled(view(x), view(y), stream)
    return y, x.double() / 2


@fault(WRONG)
def compiled_for_other_strides(stream: Any, broken: bool) -> Numbers:
    from cutlass import cute

    from tests.ingest.page_faults import kernels

    x, y = normal(128, 128), empty(128, 128)
    compiled = cute.compile(kernels.halve, view(x), view(y), stream)
    given = x.T.contiguous().T if broken else x
    compiled(view(given), view(y), stream)
    return y, x.double() / 2


@fault(WRONG)
def compiled_for_fewer_rows(stream: Any, broken: bool) -> Numbers:
    """A static layout takes its extents from the tensor at compile time."""
    from cutlass import cute

    from tests.ingest.page_faults import kernels

    x, y = normal(32, 128), torch.zeros(32, 128, dtype=BF16, device="cuda")
    first = slice(0, 16 if broken else 32)
    compiled = cute.compile(kernels.halve, view(x[first]), view(y[first]), stream)
    compiled(view(x), view(y), stream)
    return y, x.double() / 2


@fault(WRONG)
def another_stream_than_torch(stream: Any, broken: bool) -> Numbers:
    """The kernel does not wait for what torch has put into its own stream."""
    import cuda.bindings.driver as cuda

    from tests.ingest.page_faults import kernels

    other = torch.cuda.Stream()
    x, y, later = torch.zeros(16, 128, device="cuda"), torch.zeros(16, 128, device="cuda"), normal(16, 128)
    torch.cuda.synchronize()
    torch.cuda._sleep(20_000_000)  # about 10 ms
    x.copy_(later)
    kernels.halve(view(x), view(y), cuda.CUstream(other.cuda_stream) if broken else stream)
    return y, later.double() / 2
