"""`NAME broken|honest` runs one fault here; `--all FILE` runs all and adds a line of JSON for each."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from tests.ingest.page_faults import FAULTS, Outcome, honest_runs, observe
from tests.ingest.page_faults.frame import HANGS, run
from tests.ingest.page_faults.outcome import HANGING


def run_all(file: Path) -> None:
    may_hang = [name for name, fault in FAULTS.items() if fault.expected == HANGS]
    others = [name for name in FAULTS if name not in may_hang]
    cores = os.cpu_count() or 1
    with (
        ThreadPoolExecutor(HANGING) as few,
        ThreadPoolExecutor(cores) as many,
        file.open("a") as out,
    ):
        futures = [few.submit(observe, name, True) for name in may_hang]
        futures += [many.submit(observe, name, True) for name in others]
        futures += [many.submit(observe, name, False) for name in honest_runs()]
        for future in as_completed(futures):
            outcome: Outcome = future.result()
            expected = FAULTS[outcome.name].expected if outcome.broken else "right"
            out.write(json.dumps({**asdict(outcome), "expected": expected}) + "\n")
            out.flush()
            print(
                outcome.name, "broken" if outcome.broken else "honest", outcome.outcome, "expected:", expected
            )


if sys.argv[1] == "--all":
    run_all(Path(sys.argv[2]))
else:
    run(sys.argv[1], sys.argv[2] == "broken")
