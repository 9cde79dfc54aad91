"""Data sets on the nodes, and the proof that the nodes share what a run with real data needs them to share."""

from pyinfra.context import host as current_host

from shakedown.desired.models import TOGETHER
from shakedown.operations import dataset, shared_folder
from shakedown.recipes.datasets import files_of, known, variables_of
from shakedown.recipes.options import choose
from shakedown.recipes.recipe import recipes
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.session import session
from shakedown.state.node import is_unreadable


def datasets() -> None:
    """Have the data sets of the current host's desired state."""
    current = session()
    name = current_host.name
    desired = current.examination.desired[name]
    if not desired.datasets or not current.may_change(name, as_root=False):
        return
    if not invocation.dry:
        current.open_run()
    engine = current.examination.states[name].containers.engine
    for label, wanted in desired.datasets.items():
        shipped = known().get(label)
        if shipped is None or shipped.files:
            dataset.download(name=f"Data set {label}", files=files_of(label, wanted), folder=wanted.folder)
            continue
        assert wanted.image is not None
        dataset.prepare(
            name=f"Data set {label}",
            image=desired.images[wanted.image].reference,
            command=shipped.command,
            folder=wanted.folder,
            workdir=shipped.workdir,
            variables=variables_of(label, wanted),
            engine="docker" if is_unreadable(engine) else engine,
            run_id="dry" if invocation.dry else current.open_run().run_id,
        )


def shared_cache() -> None:
    """Before a run with real data over several nodes: each must see in the data cache what the first has put there."""
    current = session()
    name = current_host.name
    smoke = current.examination.desired[name].smoke
    excluded = current.excluded
    taking_part = [node for node in current.examination.states if node not in excluded]
    if smoke is None or TOGETHER not in smoke.scope or smoke.recipe not in recipes():
        return
    if len(taking_part) < 2 or name not in taking_part:
        return
    # The plan of a job, which a deploy without one does not need.
    from shakedown.jobs.plan.container import cache_folder

    chosen, _problems = choose(recipes()[smoke.recipe], smoke)
    folder = cache_folder(chosen, smoke.volumes)
    if folder is None or invocation.dry:
        return
    token = current.open_run().run_id
    shared_folder.write_token(name="Data cache: a token of each node", folder=folder, token=token)
    shared_folder.see_token(name="Data cache: every node sees the first one's", folder=folder, token=token)
    shared_folder.remove_token(name="Data cache: tokens removed", folder=folder, token=token)
