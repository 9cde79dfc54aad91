"""A drift check that is kept like a run."""

from pyinfra.api import State
from pyinfra.api.exceptions import PyinfraError

from shakedown.checks.examination import Examination
from shakedown.runner.progress import progress
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.session import Session
from shakedown.state.findings import Verdict


def keep_check(state: State, examination: Examination, verdict: Verdict) -> None:
    """Keep a drift check like a run: a directory with the findings and the states, and the ledger. A check that cannot
    be kept has failed (`invocation.unrecorded`)."""
    current = Session(state, examination)
    try:
        current.open_run("drift")
    except PyinfraError as error:
        invocation.unrecorded = f"the check is not kept: {error}"
        return
    current.close(verdict)
    if current.directory is not None and not invocation.unrecorded:
        progress(state).evidence = str(current.directory.path)
    for notice in current.notices:
        current.out.print(notice, style="yellow", markup=False, highlight=False)
