"""pyinfra INVENTORY tests/lab/smoke/deploy.py: the job of $SMOKE_PLAN on all hosts; see job.py."""

from shakedown.operations import smoke
from tests.lab.smoke.job import JOB

smoke.run(name="Train together", jobs=[JOB])
smoke.require(name="The job must have completed", job=JOB)
