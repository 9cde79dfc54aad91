"""The stages of a deploy, each a function that can be called alone. They declare an operation on a host only where a
finding of that host says that something differs, so a rack in its desired state costs one reading and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyinfra.api import Host, State
from pyinfra.context import host as current_host
from pyinfra.operations import python

from deploy.examine import reread
from deploy.session import Session, once, session
from deploy.training import conclude_run, start_run
from operations import boot, cmdline, devices as device_operations, images as image_operations, provider, reboot as reboots
from operations import smoke as smoke_operations
from operations import tuning
from shakedown.findings import Finding, Verdict
from shakedown.guard import invocation


def examine() -> None:
    """Read every node once, compare it with its desired state, and show what differs."""
    current = session()
    name = current_host.name
    if name in current.examination.readings and name not in current.examination.states:
        _fail_here(current, "could not be examined")
    elif current.examination.blockers(name) and not current.examination.has_remedies(name):
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


def images() -> None:
    """Container images, by digest."""
    mend(image_operations.pull)


def reboot() -> None:
    """Boot the nodes that wait for it, where the desired state allows it, a few at a time."""
    mend(reboots.when_needed)


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
    once(current, "show the plan", lambda: start_run(current))
    smoke_operations.run(name="Smoke run", job=current.job)


def conclude() -> None:
    """Judge the run: nothing passes without its record."""
    current = session()
    if current.examination.desired[current_host.name].smoke is None:
        return
    python.call(name="Judge the smoke run", function=_conclude)


def mend(operation: Callable[..., Any]) -> None:
    """Declare an operation on the current host for each of its findings that the operation would mend."""
    current = session()
    name = current_host.name
    if name in current.left_out:
        return
    known_as = f"{operation.__module__.removeprefix('operations.')}.{operation.__name__}"
    for finding in current.examination.mendable(name, known_as):
        _declare(current, operation, finding)


def _declare(current: Session, operation: Callable[..., Any], finding: Finding) -> None:
    assert finding.remedy is not None
    if not invocation.dry:
        current.open_run()
    try:
        operation(name=f"{finding.name}: {finding.remedy.text}", **finding.remedy.arguments)
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
    once(current, "judge the run", lambda: conclude_run(current))
    return current.record is not None and bool(current.record.gates) and all(
        gate.verdict == Verdict.OK for gate in current.record.gates
    )
