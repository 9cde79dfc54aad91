"""A dry run's plan: changes, time, the job, and a look at what it needs on every node. Nothing is changed by it."""

import statistics
from collections.abc import Iterator

from gevent.pool import Pool

from shakedown.common.text import duration
from shakedown.facts.node import connector_arguments
from shakedown.jobs.answers import NoAnswer, Refused
from shakedown.jobs.launch import LaunchPlan, NodePlan
from shakedown.jobs.plan import render
from shakedown.jobs.remote import lacking
from shakedown.ledger.compared import earlier
from shakedown.operations import images
from shakedown.operations.smoke import Remote
from shakedown.recipes.recipe import recipes
from shakedown.report.preview import Duration, Preview, changes_of, gaps, lines
from shakedown.runner.examine import PREFLIGHT, PULL, arguments_of, logs_in
from shakedown.runner.progress import progress
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.session import Session
from shakedown.runner.training import preview_of
from shakedown.state.findings import Finding, FixedBy, Remedy, Risk, Verdict
from shakedown.state.mounts import host_path

_RUNS = 5  # earlier runs whose median is expected
_ASKED = 200  # runs of the ledger that are looked through for them


def show(current: Session) -> None:
    """Make, keep and show the plan of the run. What nodes lack for the job are findings, and count in the verdict."""
    current.preview = preview = _made(current, invocation.changes, invocation.trains)
    for line in lines(preview, len(current.hosts), whole=invocation.verbose):
        current.say(line, soft_wrap=True)
    if invocation.verbose:
        for name, plan in preview.jobs.items():
            current.say(render(plan, name), soft_wrap=True)
    current.out.print()


def _made(current: Session, changes: bool, trains: bool) -> Preview:
    fixable = [finding for host in current.hosts for finding in current.fixable(host.name)] if changes else []
    desired = current.examination.desired
    boots = {f.node for f in fixable if f.verdict == Verdict.DRIFT and f.remedy and f.remedy.risk == Risk.REBOOT}
    pending = {f.node for f in current.examination.all_findings() if f.fixed_by == FixedBy.REBOOT} if changes else set()
    reboots = [node for node in desired if node in boots and desired[node].system.reboot == "when needed"]
    logins = dict.fromkeys(f.node for f in fixable if f.new_login and f.node not in reboots)
    trains_some = trains and any(state.smoke for state in desired.values())
    jobs, hindrances = preview_of(current.examination) if trains_some else ({}, [])
    looked_at, texts = _preflight(current, jobs)
    return Preview(
        changes=changes_of(fixable),
        reboots=reboots,
        waiting=[node for node in desired if node in boots | pending and node not in reboots],
        logins=[node for node in logins if logs_in(current.host(node))],
        by_hand=[node for node in logins if not logs_in(current.host(node))],
        duration=_duration(current, len(reboots), jobs, trains),
        jobs=jobs,
        hindrances=hindrances,
        looked_at=looked_at,
        lacking=gaps(texts),
    )


def _duration(current: Session, reboots: int, jobs: dict[str, LaunchPlan], trains: bool) -> Duration:
    """Return how long such a run takes: as earlier ones did by the ledger, else by what is stated of its job."""
    first = next(iter(current.examination.desired.values())).system
    rounds = -(-reboots // first.reboot_at_once)
    more = f"; reboots come on top, at most {duration(rounds * first.reboot_timeout_s)}" if reboots else ""
    try:
        runs = earlier(_ASKED)
        reason = "no earlier run of this inventory is in the ledger"
    except (OSError, ValueError) as error:
        runs, reason = [], f"the ledger could not be read ({error})"
    alike = [
        (run.finished_at - run.at).total_seconds()
        for run in runs
        if run.finished_at and run.kind == "run" and run.verdict == Verdict.OK
        if run.inventory == invocation.inventory and run.nodes == len(current.hosts) and bool(run.jobs) == trains
    ][:_RUNS]
    if alike:
        source = f"median of {len(alike)} earlier passed runs over as many nodes, by the ledger"
        return Duration(seconds=statistics.median(alike), source=source + more)
    if seconds := [time for plan in jobs.values() if (time := _published_s(plan)) is not None]:
        words = "the iterations alone, by the recipe's published figure"
        return Duration(seconds=max(seconds), source=f"{words}; {reason}{more}")
    limit = max((plan.timeout_s for plan in jobs.values()), default=0.0)
    most = f"; the job has at most {duration(limit)} (smoke.timeout_s)" if limit else ""
    return Duration(source=f"{reason}{', and no figure is published for the job' if jobs else ''}{most}{more}")


def _published_s(plan: LaunchPlan) -> float | None:
    """Return the seconds of the iterations by the figures that the recipe or the site states; None: there are none. A
    GPU's work is the same on any number of nodes, unless the site changed the model."""
    recipe = recipes().get(plan.recipe)
    changed = any("the recipe's own" in derived.why for derived in plan.derived)
    fitting = [] if changed or recipe is None else [e for e in recipe.entry.expect if set(plan.gpus) <= set(e.gpus)]
    figures = {**(fitting[0].figures if fitting and plan.gpus else {}), **plan.expect}
    if elapsed_ms := figures.get("elapsed_time_per_iteration"):
        return plan.iterations * elapsed_ms / 1000
    rate = figures.get("tokens_per_gpu")
    tokens = plan.iterations * plan.global_batch * plan.seq_length
    return tokens / (rate * plan.world_size) if rate and plan.world_size else None


def _preflight(current: Session, jobs: dict[str, LaunchPlan]) -> tuple[list[str], dict[str, list[str]]]:
    """Look for what each node's part of a job needs, images too. Return the nodes, and what each lacks."""
    parts = {node.name: (plan, node) for plan in reversed(jobs.values()) for node in plan.nodes}
    parts = {name: parts[name] for name in current.examination.desired if name in parts}
    pool = Pool(current.state.config.PARALLEL or None)
    found = dict(zip(parts, pool.imap(lambda part: list(_lacking(current, *part)), parts.values()), strict=True))
    for name, findings in found.items():
        for finding in findings:
            current.examination.findings[name].append(finding)
            current.run_of(name).settle("failed", str(finding.actual))
    return list(parts), {name: [str(finding.actual) for finding in found[name]] for name in found if found[name]}


def _lacking(current: Session, plan: LaunchPlan, node: NodePlan) -> Iterator[Finding]:
    host = current.host(node.name)
    remote = Remote({node.name: host}, {node.name: connector_arguments(host)})
    fixable = current.fixable(node.name)
    names = {finding.name for finding in fixable}
    desired = current.examination.desired[node.name]
    try:
        lacks = lacking(node, plan.runtime == "container", remote)
    except (NoAnswer, Refused) as error:
        yield _finding(node.name, "look", f"could not be looked at: {error}", Verdict.UNKNOWN)
        return
    for lack in lacks:
        image = f"images.{desired.smoke.image}" if desired.smoke else ""
        comes = lack.kind == "image" and bool(names & {image, "container_engine"})
        folders = [wanted.folder for wanted in desired.datasets.values()] if lack.kind == "data" else []
        comes |= any(host_path(word, {folder: "/"}) for word in lack.text.split() for folder in folders)
        if not comes:  # with the image, or with a data set, which the run brings before its job
            yield _finding(node.name, lack.kind, lack.text)
    for finding in fixable:
        pulls = finding.remedy is not None and finding.remedy.operation == PULL
        if pulls and not images.pullable(current.state, host, **arguments_of(current.examination, finding)):
            reason = progress(current.state).hosts[node.name].message
            yield _finding(node.name, finding.name, reason or "the image cannot be pulled")


def _finding(node: str, kind: str, text: str, verdict: Verdict = Verdict.FAIL) -> Finding:
    remedy = Remedy(text="bring to the node what the text names, or correct the inventory; then run again")
    wanted = "what the job needs"
    return Finding(name=f"{PREFLIGHT}{kind}", node=node, verdict=verdict, wanted=wanted, actual=text, remedy=remedy)
