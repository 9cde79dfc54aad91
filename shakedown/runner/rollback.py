"""The way back, as a deploy runs it."""

from shakedown.operations import agent, rollback
from shakedown.runner.pyinfra.invocation import invocation


def restore() -> None:
    """Restore what stood on the current host before the first change to each setting, and remove what was written."""
    invocation.examined = True  # it needs no findings: the records on the node say what there is to do
    agent.absent(name="No agent")
    rollback.rollback(name="Restore what stood there before")
