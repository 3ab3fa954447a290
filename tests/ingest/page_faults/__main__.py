"""`FILE [NAME...]` runs all faults, or those named, and adds a line of JSON to the file for each outcome."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from tests.ingest.page_faults import FAULTS, honest_runs
from tests.ingest.page_faults.frame import HANGS
from tests.ingest.page_faults.outcome import HANGING, observe, server


def main(file: Path, names: list[str]) -> None:
    may_hang = [name for name in names if FAULTS[name].expected == HANGS]
    others = [name for name in names if name not in may_hang]
    context = server()
    with (
        ThreadPoolExecutor(HANGING) as few,
        ThreadPoolExecutor(os.cpu_count()) as many,
        file.open("a") as out,
    ):
        futures = [few.submit(observe, context, name, True) for name in may_hang]
        futures += [many.submit(observe, context, name, True) for name in others]
        futures += [many.submit(observe, context, name, False) for name in honest_runs(names)]
        for future in as_completed(futures):
            seen = future.result()
            expected = FAULTS[seen.name].expected if seen.broken else "right"
            out.write(json.dumps({**asdict(seen), "expected": expected}) + "\n")
            out.flush()
            print(seen.name, "broken:" if seen.broken else "honest:", seen.outcome, "expected:", expected)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(FAULTS))
