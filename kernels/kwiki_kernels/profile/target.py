"""What a profiler runs: `python -m kwiki_kernels.profile.target REQUEST.json WARM_UP_CALLS`.

Builds the job's one candidate, calls it on the job's one workload so often that everything is loaded,
and once more between profiler start and stop.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kwiki_kernels.build import BuildError, build_candidate
from kwiki_kernels.messages import Request


def main(request_path: Path, warm_up_calls: int) -> None:
    """Serve one request; what fails is printed on stderr with exit code 1."""
    request = Request.model_validate_json(request_path.read_bytes())
    job, candidate = request.job, request.candidate
    assert candidate is not None
    task = request.task
    workload = task.workload(job.workload_uuids[0])
    path = Path.cwd() / "kernel.py"
    try:
        (build,) = build_candidate(
            candidate, task, (workload,), arch=job.arch, path=path, building=lambda _: None
        )
    except BuildError as error:
        sys.exit(str(error))
    if build.launch is None:
        sys.exit(build.log)

    import torch

    from kwiki_kernels.contestant import Runner
    from kwiki_kernels.examination import Examination
    from kwiki_kernels.inputs import poisoned_outputs
    from kwiki_kernels.terms import load_reference

    reference, terms = load_reference(task, Path.cwd())
    examination = Examination(
        task.definition, workload, reference=reference, seed=job.seed, device="cuda", terms=terms
    )
    outputs = poisoned_outputs(task.definition, workload, "cuda")
    runner = Runner(build.launch, examination.values(0), outputs)
    for _ in range(warm_up_calls):
        runner.call()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    runner.call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
