"""The stages of a deploy, each a function that can be called alone. They declare an operation on a host only where a
finding of that host says that something differs, so a rack in its desired state costs one reading and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyinfra.api import Host, State
from pyinfra.context import host as current_host
from pyinfra.operations import python

from deploy.examine import reread
from deploy.session import Session, session
from deploy.training import conclude_run, start_run
from operations import boot, cmdline, provider, services, tuning
from operations import devices as device_operations
from operations import images as image_operations
from operations import reboot as reboots
from operations import smoke as smoke_operations
from shakedown.findings import Finding, Risk, Verdict
from shakedown.guard import invocation
from shakedown.images import agreed_digest, parse
from shakedown.state import is_unreadable


def examine() -> None:
    """Read every node once, compare it with its desired state, and show what differs."""
    current = session()
    name = current_host.name
    if name in current.examination.readings and name not in current.examination.states:
        _fail_here(current, "could not be examined")
    elif current.examination.blockers(name) and not current.would_change(name):
        _fail_here(current, "not in its desired state, and no operation would change that")


def drifted() -> None:
    """Fail the current host if it is not in its desired state. Declares nothing."""
    current = session()
    name = current_host.name
    different = [f for f in current.examination.findings.get(name, []) if f.verdict != Verdict.OK]
    if different or name not in current.examination.states:
        current.fail(current.host(name), f"drifted in {len(different)} findings", different)


def tune() -> None:
    """Host settings: now, and at every boot."""
    mend(tuning.numa_balancing)
    mend(tuning.sysctl)
    mend(tuning.limits)
    mend(tuning.groups)
    mend(tuning.modules)
    mend(boot.settings)
    mend(services.running)
    mend(cmdline.kernel_parameters)


def devices() -> None:
    """/dev/kfd, /dev/dri and /dev/infiniband, and the GPUs' partitions."""
    mend(device_operations.kfd)
    mend(device_operations.dri)
    mend(device_operations.infiniband)
    mend(device_operations.gpu_partition)


def drivers() -> None:
    """The RDMA provider library on the host."""
    mend(provider.library)
    mend(provider.driver)


def images() -> None:
    """Container images, by digest."""
    mend(image_operations.pull, as_root=False, more=_agreed_digest)


def reboot() -> None:
    """Boot the nodes whose kernel lacks parameters, where the desired state allows it, a few at a time."""
    current = session()
    name = current_host.name
    system = current.examination.desired[name].system
    if system.reboot != "when needed" or not current.may_change(name):
        return
    for finding in current.examination.findings.get(name, []):
        if finding.verdict == Verdict.DRIFT and finding.remedy and finding.remedy.risk == Risk.REBOOT:
            arguments = {
                "parameters": list(finding.wanted),
                "at_once": system.reboot_at_once,
                "timeout_s": system.reboot_timeout_s,
            }
            _declare(current, reboots.when_needed, finding, "reboot", arguments)


def settle() -> None:
    """Read the nodes that were changed once more, and fail those that are not fit to train."""
    current = session()
    if current.changes.get(current_host.name):
        python.call(name="Examine the node again", function=_settle)


def smoke() -> None:
    """Train together: one job over all nodes that are fit."""
    current = session()
    if current.examination.desired[current_host.name].smoke is None:
        return
    current.once("show the plan", lambda: start_run(current))
    assert current.job is not None
    smoke_operations.run(name="Smoke run", job=current.job)


def conclude() -> None:
    """Judge the run: nothing passes without its record."""
    current = session()
    if current.examination.desired[current_host.name].smoke is None:
        return
    python.call(name="Judge the smoke run", function=_conclude)


def mend(
    operation: Callable[..., Any],
    as_root: bool = True,
    more: Callable[[Session, dict[str, Any]], dict[str, Any]] = lambda _current, _arguments: {},
) -> None:
    """Declare an operation on the current host for each of its findings that the operation would mend. What needs root
    stays a finding where we are not root. `more` adds arguments that only a look at the other nodes can tell."""
    current = session()
    name = current_host.name
    if not current.may_change(name, as_root):
        return
    known_as = f"{operation.__module__.removeprefix('operations.')}.{operation.__name__}"
    for finding in current.examination.mendable(name, known_as):
        assert finding.remedy is not None
        arguments = finding.remedy.arguments
        _declare(current, operation, finding, finding.remedy.text, {**arguments, **more(current, arguments)})


def _agreed_digest(current: Session, arguments: dict[str, Any]) -> dict[str, Any]:
    """The digest that other nodes already hold under a tag, so that a tag which has moved does not split the nodes."""
    images = [state.containers.images for state in current.examination.states.values()]
    stores = [store for store in images if not is_unreadable(store)]
    digest = agreed_digest(stores, parse(arguments["reference"]))
    return {"digest": digest} if digest else {}


def _declare(
    current: Session, operation: Callable[..., Any], finding: Finding, what: str, arguments: dict[str, Any]
) -> None:
    if not invocation.dry:
        current.open_run()
    try:
        operation(name=f"{finding.name}: {what}", **arguments)
    except Exception as error:  # one node's exception would end the run for all (PYINFRA_NOTES, trap 5)
        _fail_here(current, f"{finding.name}: {type(error).__name__}: {error}")
        return
    current.changes[finding.node].append(finding.name)


def _fail_here(current: Session, why: str) -> None:
    host: Host = current.host(current_host.name)
    current.fail(host, why, current.examination.blockers(host.name))


def _settle(state: State, host: Host) -> bool:
    current = session()
    reread(state, current.examination, [host])
    blockers = current.examination.blockers(host.name)
    left = [f for f in current.examination.findings[host.name] if f.verdict == Verdict.DRIFT]
    for finding in left:
        pending = " (reboot pending)" if finding.reboot_pending else ""
        host.log_styled(f"{finding.name}: still drift{pending}: {finding.evidence}", fg="yellow")
    if blockers:
        current.left_out.setdefault(host.name, "not in its desired state after the changes")
        for finding in blockers:
            remedy = f" -> {finding.remedy.text}" if finding.remedy else ""
            host.log_styled(f"{finding.name}: {finding.verdict}: {finding.evidence}{remedy}", fg="red")
    current.save()
    return not blockers


def _conclude(state: State, host: Host) -> bool:
    current = session()
    current.once("judge the run", lambda: conclude_run(current))
    return (
        current.record is not None
        and bool(current.record.gates)
        and all(gate.verdict == Verdict.OK for gate in current.record.gates)
    )
