"""The job of a test, read from the environment. pyinfra runs a deploy once per host, so the one job stands here."""

from __future__ import annotations

import atexit
import os
from pathlib import Path

from shakedown.jobs.launch import Job, LaunchPlan, Timeouts
from shakedown.jobs.progress import Progress

OUT = Path(os.environ["SMOKE_OUT"])


def make_plan() -> LaunchPlan:
    """The plan that the test has written. Raises FileNotFoundError where there is none."""
    return LaunchPlan.model_validate_json((OUT / "plan.json").read_text())


def keep() -> None:
    """Whatever becomes of pyinfra, what the job left behind is there for the test."""
    if JOB.result:
        (OUT / "result.json").write_text(JOB.result.model_dump_json(indent=1))


JOB = Job(
    make_plan=make_plan,
    log_dir=OUT / "logs",
    on_event=Progress(every_s=0),
    secrets={"HF_TOKEN": "hf_lab_secret"},
    timeouts=Timeouts(poll_timeout_s=4, unreachable_s=8, lease_s=15),
)
atexit.register(keep)
