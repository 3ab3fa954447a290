"""Process a spool folder: `python -m kwiki_kernels.worker DIR [--once]`.

Needs torch, numpy, pydantic and the DSL, and no network. It may be killed at any time: started
again, it goes on with the first candidate that has no verdict.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from kwiki_kernels import spool
from kwiki_kernels.account import Account
from kwiki_kernels.errors import JudgeError, MachineError, SpoolError
from kwiki_kernels.evaluation import Evaluation
from kwiki_kernels.executor import run_spooled
from kwiki_kernels.judge import run_job

POLL_S = 2.0


def process(folder: Path) -> bool:
    """Process every pending job of a folder once; True where none failed.

    Raises:
        MachineError: the GPU does not answer; the job stays pending.
        OSError: a result cannot be written.
    """
    succeeded = True
    for path in spool.read_jobs(folder):
        try:
            run_spooled(folder, spool.read_job(path), partial(run_job, on_result=_say, on_account=_say_time))
        except MachineError:
            raise
        except JudgeError as error:
            spool.write_failure(folder, path, str(error))
            print(f"{path.name}: {error}", file=sys.stderr)
            succeeded = False
    return succeeded


def main(arguments: list[str] | None = None) -> int:
    """0: all jobs are done; 1: something failed; 2: wrong usage; 130: stopped by Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="python -m kwiki_kernels.worker", description="Process a spool folder."
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder that holds jobs/")
    parser.add_argument("--once", action="store_true", help="stop when no job is pending instead of waiting")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is not a folder")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # how a batch scheduler says stop
    try:
        with alone(options.folder):
            succeeded = process(options.folder)
            while not options.once:
                time.sleep(POLL_S)
                succeeded &= process(options.folder)
    except KeyboardInterrupt:
        print("stopped; start the worker again to go on", file=sys.stderr)
        return 130
    except (JudgeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0 if succeeded else 1


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep a second worker out: it would judge everything again.

    Raises:
        SpoolError: another worker of this machine processes the folder.
    """
    with (folder / ".worker.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SpoolError(f"another worker processes {folder}: stop it or leave it to its work") from error
        yield


def _say(evaluation: Evaluation) -> None:
    print(f"{evaluation.job_id} {evaluation.candidate_id} {evaluation.status}", file=sys.stderr, flush=True)


def _say_time(account: Account) -> None:
    print(account.sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
