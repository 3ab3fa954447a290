"""Mistakes made in the kernels of pages, by replacing a line or two."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from tests.ingest.page_faults.frame import HANGS, LUCK, RIGHT, WRONG, Numbers, edited_page
from tests.ingest.page_kernels.frame import F32, empty, normal, view

# Who arrives, and how often
edited_page(
    "group-of-threads-for-warps",
    "pipeline-tma-async",
    "Agent.Thread, CONSUMERS // 32)",
    "Agent.Thread, CONSUMERS)",
    HANGS,
)
edited_page(
    "empty-barrier-counts-lanes",
    "mbarriers",
    "mbarrier_init(empty + stage, CONSUMER_WARPS)",
    "mbarrier_init(empty + stage, 32 * CONSUMER_WARPS)",
    HANGS,
)
edited_page(
    "half-the-arrivals",
    "hangs",
    "mbarrier_init(full, PRODUCERS)",
    "mbarrier_init(full, PRODUCERS // 2)",
    "unspecified launch failure",
)
edited_page(
    "named-barrier-count",
    "named-barriers",
    "num_threads=GROUP_THREADS)",
    "num_threads=GROUP_THREADS + 32)",
    HANGS,
)
edited_page(
    "cta-barrier-for-two-groups",
    "named-barriers",
    "mine = pipeline.NamedBarrier(barrier_id=1 + group, num_threads=GROUP_THREADS)",
    "mine = pipeline.NamedBarrier(barrier_id=1, num_threads=2 * GROUP_THREADS)",
    HANGS,
)
edited_page(
    "sync-threads-for-two-groups",
    "named-barriers",
    "mine.arrive_and_wait()",
    "cute.arch.sync_threads()",
    RIGHT,
    count=-1,
)
edited_page("missing-cluster-arrive", "clusters", "cute.arch.cluster_arrive_relaxed()", "", LUCK)
edited_page(
    "multicast-to-one-cta",
    "tma-multicast",
    "mask = cpasync.create_tma_multicast_mask(cta_layout_vmnk, (0, rank, 0, 0), mcast_mode=1)",
    "mask = cutlass.Int16(1)",
    HANGS,
)

# Bytes and phases
edited_page("too-many-bytes", "pipeline-tma-async", "tx_count=stage_bytes", "tx_count=2 * stage_bytes", HANGS)
edited_page("too-few-bytes", "pipeline-tma-async", "tx_count=stage_bytes", "tx_count=stage_bytes // 2", WRONG)
edited_page(
    "too-many-bytes-from-peers",
    "clusters",
    "mbarrier_arrive_and_expect_tx(mbar, WARPS * CLUSTER * 4)",
    "mbarrier_arrive_and_expect_tx(mbar, WARPS * CLUSTER * 8)",
    HANGS,
)
edited_page("same-parity", "mbarriers", "(row // STAGES + 1) % 2", "(row // STAGES) % 2", HANGS)
edited_page(
    "bulk-copy-by-every-lane",
    "mbarriers",
    "                src, dst = cpasync.group_bulk_copy_modes(gX[0, None, row], sX[None, stage])\n    ",
    "            src, dst = cpasync.group_bulk_copy_modes(gX[0, None, row], sX[None, stage])\n",
    HANGS,
)
_COPY = "cute.copy(loadX, tXgX[None, tile], tXsX[None, handle.index], tma_bar_ptr=handle.barrier)"
edited_page(
    "tma-inside-elect-one",
    "pipeline-tma-async",
    f"            {_COPY}",
    f"            with cute.arch.elect_one():\n                {_COPY}",
    HANGS,
)

# The ring
edited_page("missing-commit", "pipeline-async", "            handle.commit()\n", "", HANGS)
edited_page("one-turn-less", "pipeline-async", "cutlass.range(rows)", "cutlass.range(rows - 1)", HANGS)
edited_page("missing-release", "pipeline-tma-async", "            handle.release()\n", "", HANGS)
edited_page(
    "missing-release-in-gemm",
    "warp-specialised-gemm",
    "            mainloop.consumer_release(done)\n",
    "",
    HANGS,
)
edited_page(
    "missing-last-release",
    "persistent-gemm-on-hopper",
    "mainloop.consumer_release(done)  # the last tile too, since the producer goes on",
    "",
    HANGS,
)
edited_page(
    "missing-skip", "cooperative-and-ping-pong", "            state = skip(state, k_tiles)\n", "", HANGS
)
edited_page(
    "release-before-reading",
    "pipeline-async",
    "            total += sX[tidx, handle.index]\n            handle.release()\n",
    "            handle.release()\n            total += sX[tidx, handle.index]\n",
    LUCK,
)
edited_page(
    "release-before-products-end",
    "warp-specialised-gemm",
    "            warpgroup.wait_group(1)",
    "            # no wait",
    LUCK,
)
edited_page("more-registers-than-left", "register-reallocation", "increase(232)", "increase(256)", HANGS)

# Waits and fences left out
edited_page("missing-barrier", "bank-conflicts", "    cute.arch.sync_threads()\n", "", WRONG)
edited_page(
    "missing-wait-for-bytes",
    "mbarriers",
    "            cute.arch.mbarrier_wait(full + stage, (row // STAGES) % 2)\n",
    "",
    "unspecified launch failure",
)
edited_page(
    "missing-cp-async-wait",
    "cp-async",
    "        cute.arch.cp_async_wait_group(STAGES - 2)",
    "        # no wait",
    WRONG,
)
edited_page("missing-products-wait", "warp-specialised-gemm", "        warpgroup.wait_group(0)\n", "", WRONG)
edited_page(
    "store-buffer-reused",
    "tma-store",
    "            stores.producer_acquire()",
    "            # no wait",
    LUCK,
)
edited_page(
    "missing-proxy-fence-before-store",
    "tma-store",
    "        cute.arch.fence_view_async_shared()\n",
    "",
    LUCK,
)
edited_page(
    "missing-proxy-fence-before-wgmma",
    "wgmma",
    '        cute.arch.fence_proxy("async.shared", space="cta")',
    "        # no fence",
    WRONG,
)
edited_page(
    "missing-gpu-fence",
    "fences",
    "        cute.arch.fence_acq_rel_gpu()  # the sum is",
    "        # the sum is",
    LUCK,
)
edited_page(
    "missing-dependent-wait-for-a-slow-kernel",
    "launch-overhead",
    "    mY[bidx, tidx] = mX[bidx, tidx] * mX[bidx, tidx]",
    "    primitives.nanosleep(20_000)\n    mY[bidx, tidx] = mX[bidx, tidx] * mX[bidx, tidx]",
    WRONG,
    also=(
        ("    cute.arch.griddepcontrol_wait()", "    # no wait"),
        ("import cutlass\n", "import cutlass\nfrom cutlass.experimental import primitives\n"),
    ),
)
edited_page(
    "late-reader-released-before",
    "pipeline-async",
    "            total += sX[tidx, handle.index]\n            handle.release()\n",
    "            handle.release()\n            primitives.nanosleep(20_000)\n"
    "            total += sX[tidx, handle.index]\n",
    WRONG,
    also=(("import cutlass\n", "import cutlass\nfrom cutlass.experimental import primitives\n"),),
)
edited_page(
    "missing-dependent-wait", "launch-overhead", "    cute.arch.griddepcontrol_wait()", "    # no wait", LUCK
)
edited_page(
    "peers-not-waited-for",
    "clusters",
    "    cute.arch.cluster_wait()\n",
    "",
    LUCK,
)
edited_page(
    "exit-before-peers-have-written",
    "clusters",
    "    cute.arch.mbarrier_wait(mbar, 0)\n",
    "    if rank == 0:\n        cute.arch.mbarrier_wait(mbar, 0)\n",
    "unspecified launch failure",
)
edited_page(
    "write-to-absent-peer",
    "clusters",
    "if peer < CLUSTER:",
    "if peer < 2 * CLUSTER:",
    "unspecified launch failure",
)

# Layouts and numbers
edited_page(
    "swizzle-on-one-side",
    "tma-store",
    "smem_layout.outer, byte_alignment=1024, swizzle=smem_layout.inner)",
    "smem_layout.outer, byte_alignment=1024)",
    WRONG,
)
edited_page(
    "swizzled-tile-at-128-bytes",
    "warp-specialised-gemm",
    "sA: cute.struct.Align[cute.struct.MemRange[BF16, TILE[0] * TILE[2] * STAGES], 1024]",
    "sA: cute.struct.Align[cute.struct.MemRange[BF16, TILE[0] * TILE[2] * STAGES], 128]",
    WRONG,
)
edited_page("accumulate-from-the-start", "wgmma", "Field.ACCUMULATE, False)", "Field.ACCUMULATE, True)", LUCK)
edited_page(
    "minimum-of-floats-by-tma", "tma-reduce", "ReductionKind.ADD", "ReductionKind.MIN", "illegal instruction"
)


def _masked_chunk(page: ModuleType, stream: Any) -> Numbers:
    """The first 256 elements of each row are masked."""
    x, w, y = normal(64, 2048), normal(2048), empty(64, dtype=F32)
    x[:, :256] = -torch.inf
    page.expectation(*map(view, (x, w, y)), stream)
    return y, x.double().softmax(-1) @ w.double()


edited_page(
    "infinity-minus-infinity",
    "online-softmax",
    "LOWEST = -3.0e38",
    "LOWEST = -math.inf",
    WRONG,
    _masked_chunk,
)
