"""pyinfra INVENTORY tests/lab/smoke/deploy.py: the job of $SMOKE_PLAN on all hosts; see job.py."""

from pyinfra.operations import python

from shakedown.operations import smoke
from tests.lab.smoke.job import JOB

smoke.run(name="Train together", jobs=[JOB])
python.call(
    name="The job must have completed",
    function=lambda state, host: JOB.result is not None and JOB.result.completed,
)
