"""Barriers that some never come to."""

from __future__ import annotations

import time
from typing import Any

import torch

from tests.ingest.page_faults.frame import HANGS, RIGHT, Numbers, fault
from tests.ingest.page_kernels.frame import view


@fault(HANGS)
def two_barriers_for_one_meeting(stream: Any, broken: bool) -> Numbers:
    import cutlass

    from tests.ingest.page_faults import kernels

    y = torch.zeros(128, device="cuda")
    kernels.meet(view(y), cutlass.Int32(1), cutlass.Int32(2 if broken else 1), stream)
    return y, torch.ones_like(y)


@fault(RIGHT)
def cta_barrier_in_one_warp(stream: Any, broken: bool) -> Numbers:
    """The other warps have ended, and the barrier no longer waits for them."""
    from tests.ingest.page_faults import kernels

    y = torch.zeros(128, device="cuda")
    kernels.branch(view(y), broken, stream)
    return y, torch.ones_like(y)


@fault(HANGS)
def mbarrier_counts_warps_that_left(stream: Any, broken: bool) -> Numbers:
    from tests.ingest.page_faults import kernels

    y = torch.zeros(128, device="cuda")
    kernels.early_leavers(view(y), 128 if broken else 96, True, stream)
    return y, torch.ones_like(y)


@fault(HANGS)
def mbarrier_never_initialised(stream: Any, broken: bool) -> Numbers:
    from tests.ingest.page_faults import kernels

    y = torch.zeros(128, device="cuda")
    kernels.early_leavers(view(y), 96, not broken, stream)
    return y, torch.ones_like(y)


@fault(HANGS)
def barrier_across_more_ctas_than_fit(stream: Any, broken: bool) -> Numbers:
    import cutlass

    from tests.ingest.page_faults import kernels

    sms = torch.cuda.get_device_properties(0).multi_processor_count
    ctas = 4 * sms if broken else sms
    y, counter = torch.zeros(ctas, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    kernels.all_meet(view(counter), view(y), cutlass.Int32(ctas), stream)
    return y, torch.ones_like(y)


@fault(HANGS)
def progress_in_pinned_memory(stream: Any, broken: bool) -> Numbers:
    """What the host sees of a kernel that hangs: a number in its own memory, and no `printf`."""
    from tests.ingest.page_faults import kernels

    seen = torch.zeros(2).pin_memory()
    kernels.progress(view(seen), 129 if broken else 128, stream)
    time.sleep(1)
    print(f"seen after a second: {seen.tolist()}", flush=True)
    return seen, torch.ones_like(seen)
