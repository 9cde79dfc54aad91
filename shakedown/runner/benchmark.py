"""PyTorch training on each node alone: the section `benchmark` of the desired state, run as the recipe that it is."""

from pyinfra.context import host as current_host

from shakedown.operations import checkout as checkouts
from shakedown.runner import stages
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.session import Session, session


def checkout() -> None:
    """Have the benchmark's scripts at their commit."""
    current = session()
    wanted = current.examination.desired[current_host.name].benchmark
    if wanted is None or not current.may_change(current_host.name, as_root=False):
        return
    checkouts.git(name=f"{wanted.checkout}: checkout", url=wanted.url, path=wanted.checkout, commit=wanted.commit)


def run() -> None:
    """Run the benchmark on every node that is fit."""
    current = session()
    current.once("benchmark: the smoke run that it is", lambda: _translate(current))
    stages.smoke()


def _translate(current: Session) -> None:
    if not invocation.dry:
        current.open_run()  # which keeps the digest of the desired states as they were given
    desired = current.examination.desired
    for name, state in desired.items():
        desired[name] = state.model_copy(update={"smoke": state.benchmark.smoke() if state.benchmark else None})
