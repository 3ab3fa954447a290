"""A diagnosis as rows for people: what speaks for it, and where each warp role's time goes."""

from __future__ import annotations

from kwiki_kernels.profile.diagnose import Diagnosis
from kwiki_kernels.profile.iket import Pipeline

Rows = list[tuple[str, ...]]


def evidence_rows(diagnosis: Diagnosis) -> Rows:
    """A header, then each figure with the threshold that made it one; empty where there is none."""
    rows = [(e.symptom, e.metric, f"{e.value:.4g}", f"{e.op} {e.threshold:g}") for e in diagnosis.evidence]
    return [("symptom", "metric", "value", "threshold"), *rows] if rows else []


def role_rows(pipeline: Pipeline) -> Rows:
    """A header, then each role: means over its warps, in us, and the share of that time which is waiting."""
    header = ("role", "warps", "busy us a warp", "waiting us a warp", "waiting")
    rows = [
        (
            role.role,
            str(role.warps),
            f"{role.busy_us / role.warps:.2f}",
            f"{role.waiting_us / role.warps:.2f}",
            f"{role.wait_share:.0%}",
        )
        for role in pipeline.roles
    ]
    return [header, *rows]


def trace_line(pipeline: Pipeline) -> str:
    """How long the traced launch took, and how far its roles work at the same time."""
    both = ", ".join(f"{pair} {share:.0%}" for pair, share in sorted(pipeline.overlap.items()))
    overlap = f" Of the less busy role's work, this much lies beside the other's: {both}." if both else ""
    return f"Traced: one cluster, {pipeline.duration_us:,.1f} us.{overlap}"
