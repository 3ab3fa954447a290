"""A lesson, an effect and a run summary that satisfy every rule; a test changes what it is about."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from kwiki_ingest.page import Effect, Evidence, Knob, Lesson

DAY = dt.date(2026, 11, 30)


def lesson(**changes: Any) -> Lesson:
    values: dict[str, Any] = {
        "id": "wide-loads",
        "title": "Wide loads",
        "arch": ("sm_90a",),
        "dtype": ("bfloat16",),
        "op": "rmsnorm",
        "kind": "tuning",
        "technique": "vector-width",
        "claim": "Load 128 bits per thread where rows are aligned to 16 bytes.",
        "knobs": (Knob(name="vector_bits", op="==", value=128),),
        "created": DAY,
        "last_verified": DAY.replace(),
    }
    return Lesson.model_validate(values | changes)


def effect(ratio: float = 0.8, **changes: Any) -> Effect:
    values: dict[str, Any] = {
        "metric": "latency_us",
        "before": 100.0,
        "after": 100.0 * ratio,
        "unit": "us",
        "ci95": (ratio - 0.02, ratio + 0.02),
        "n": 150,
        "baseline": "default knobs",
    }
    return Effect.model_validate(values | changes)


def measured(run: str, ratio: float = 0.8, **changes: Any) -> Lesson:
    proof = {"effect": effect(ratio), "evidence": (Evidence(run=run, candidates=(f"hash-of-{run}",)),)}
    return lesson(**(proof | changes))


def summary(run: str) -> dict[str, bytes]:
    return {run: json.dumps({"run": run, "candidates": [{"code_hash": f"hash-of-{run}"}]}).encode()}
