"""The stages of a deploy, each a function that can be called alone. They declare an operation on a host only where a
finding of that host says that something differs, so a rack in its desired state costs one reading and nothing else."""

from typing import Any

from pyinfra import logger
from pyinfra.api import Host, State
from pyinfra.api.arguments_typed import PyinfraOperation
from pyinfra.api.exceptions import NestedOperationError, PyinfraError
from pyinfra.context import host as current_host
from pyinfra.operations import python

from shakedown import operations
from shakedown.operations import boot, cmdline, engine, provider, services, tuning
from shakedown.operations import devices as device_operations
from shakedown.operations import images as image_operations
from shakedown.operations import reboot as reboots
from shakedown.operations import smoke as smoke_operations
from shakedown.report import terminal
from shakedown.runner.examine import PREFLIGHT, arguments_of, logs_in, reread
from shakedown.runner.jobs import holders
from shakedown.runner.pyinfra.invocation import NO_HOSTS, invocation
from shakedown.runner.session import Session, call_once, session
from shakedown.state.findings import Finding, FixedBy, Risk, Verdict, worst


def examine() -> None:
    """Read every node once, compare it with its desired state, and show what differs."""
    current = session()
    name = current_host.name
    if invocation.dry and (invocation.changes or invocation.trains):
        from shakedown.runner import preview  # the plan of a job, which a deploy without one does not need

        current.once("preview", lambda: preview.show(current))
    # What a node lacks for the job alone, the end of a dry run says.
    unfit = any(not finding.name.startswith(PREFLIGHT) for finding in current.examination.blockers(name))
    if name in current.examination.readings and current.examination.state_of(name) is None:
        _fail_here(current, "could not be examined")
    elif unfit and not current.fixable(name):
        _fail_here(current, "not in its desired state, and no operation would change that")
    elif holders.takes_jobs(invocation.trains):
        holders.leave_alone()


def drifted() -> None:
    """Fail the current host if it is not in its desired state. Declares nothing."""
    current = session()
    name = current_host.name
    different = [f for f in current.examination.findings.get(name, []) if not f.verdict.passes]
    if different or current.examination.state_of(name) is None:
        names = ", ".join(finding.name for finding in different) or "not examined"
        current.fail(current.host(name), f"drifted: {names}", different)


def tune() -> None:
    """Apply host settings: now, and at every boot."""
    for operation in tuning.OF_SETTINGS:
        fix(operation)
    fix(tuning.sysctl)
    fix(tuning.limits)
    fix(tuning.groups)
    fix(tuning.modules)
    fix(boot.settings)
    fix(services.running)
    fix(cmdline.kernel_parameters)


def devices() -> None:
    """Apply the permissions of /dev/kfd, /dev/dri and /dev/infiniband, and the GPUs' partitions."""
    fix(device_operations.kfd)
    fix(device_operations.dri)
    fix(device_operations.infiniband)
    fix(device_operations.gpu_partition)


def drivers() -> None:
    """Have the RDMA provider library on the host."""
    fix(provider.library)
    fix(provider.driver)


def images() -> None:
    """Have a container engine, and pull container images, by digest."""
    fix(engine.installed)
    fix(image_operations.pull)


def reboot() -> None:
    """Boot the nodes whose kernel lacks parameters, where the desired state allows it, a few at a time."""
    current = session()
    name = current_host.name
    system = current.examination.desired[name].system
    if system.reboot != "when needed":
        return
    _known(current, reboots.when_needed)
    for finding in current.fixable(name):
        if finding.verdict == Verdict.DRIFT and finding.remedy and finding.remedy.risk == Risk.REBOOT:
            arguments: dict[str, Any] = {"parameters": list(finding.wanted)}
            arguments |= {"at_once": system.reboot_at_once, "timeout_s": system.reboot_timeout_s}
            _declare(current, reboots.when_needed, finding, "reboot", arguments)


def recheck() -> None:
    """Read the nodes that were changed once more, and fail those that are not fit to train."""
    current = session()
    if current.run_of(current_host.name).declared:
        python.call(name="Examine the node again", function=_recheck)
        python.call(name="Compare the nodes again", function=_recompare)


def smoke() -> None:
    """Train: each node alone, at the same time, where the scope asks for that; then one job over all that are
    fit. Where that fails, the search for the node that makes it fail, if the desired state asks for it."""
    current = session()
    if (smoke := current.examination.desired[current_host.name].smoke) is None:
        return
    from shakedown.runner import preview, training  # 150 ms that a deploy without a job does not need

    current.once("show the plan", lambda: training.start_run(current))
    if invocation.dry:
        current.once("preview", lambda: preview.show(current))
    trainings = [job for job in current.jobs if not job.trials]
    where = holders.where_of(current, holders.via_of(current))
    if alone := [job for job in trainings if job.node is not None]:
        smoke_operations.run(name="Smoke run, each node alone", jobs=alone, where=where)
        call_once("Judge each node alone", training.judge_each)  # one that failed is reported at the end
    if together := [job for job in trainings if job.node is None]:
        smoke_operations.run(name="Smoke run", jobs=together, where=where)
        if smoke.isolate:
            from shakedown.runner import isolation  # numpy, which it needs, is optional

            isolation.after_failure()


def conclude() -> None:
    """Judge the run: nothing passes without its record."""
    current = session()
    if current.examination.desired[current_host.name].smoke is None:
        return
    python.call(name="Judge the smoke run", function=_conclude)


def fix(operation: PyinfraOperation[...]) -> None:
    """Declare an operation for each finding of the current host that it would fix, as the user that we are there."""
    current = session()
    name = _known(current, operation)
    for finding in current.fixable(current_host.name):
        if finding.remedy and finding.remedy.operation == name:
            _declare(current, operation, finding, finding.remedy.text, arguments_of(current.examination, finding))


def _known(current: Session, operation: PyinfraOperation[...]) -> str:
    """Note that this deploy has a stage for an operation. Return its name as remedies have it: module and function. A
    finding is data, which knows no operations; this is the one place where the name and the function meet."""
    function = operation._inner
    name = f"{function.__module__.removeprefix(f'{operations.__name__}.')}.{function.__name__}"
    current.remediations.setdefault(name, operation)
    return name


def _declare(
    current: Session, operation: PyinfraOperation[...], finding: Finding, what: str, arguments: dict[str, Any]
) -> None:
    if not invocation.dry:
        current.open_run()
    run = current.run_of(finding.node)
    try:
        # A dry run shows what it can: a fact that cannot be read (yet) is told, and ends nothing.
        on_error = {"_ignore_errors": True} if invocation.dry else {}
        run.declaring = finding.name
        operation(name=f"{finding.name}: {what}", **{**arguments, **on_error})
        run.declaring = ""
    except Exception as error:  # one node's exception would end the run for all (docs/developers/pyinfra.md)
        if str(error) == NO_HOSTS:
            raise  # each has its reason already, also the one that was the last
        _fail_here(current, f"{finding.name}: {type(error).__name__}: {error}")
        return
    _note_change(current, finding)


def _note_change(current: Session, finding: Finding) -> None:
    current.run_of(finding.node).declared.append(finding.name)
    current.declared.add(_key(finding))


def _key(finding: Finding) -> tuple[str, str, str]:
    return finding.node, finding.name, (finding.remedy.operation if finding.remedy else None) or ""


def _fail_here(current: Session, why: str) -> None:
    host: Host = current.host(current_host.name)
    current.fail(host, why, current.examination.blockers(host.name))


def _recheck(state: State, host: Host) -> bool:
    """Read the node again. What came up only now, as devices of a driver that was loaded, is fixed too, once."""
    current = session()
    _read_again(current, host)
    new = [finding for finding in _fixable_drift(current, host.name) if _key(finding) not in current.declared]
    if new:
        if not all(_fix_now(current, host, finding) for finding in new):
            current.exclude(host.name, "an operation failed", Verdict.FAIL)
            return False
        _read_again(current, host)
    _log_in_again(current, host)
    if current.notes is not None:
        current.notes.again(host.name, current.run_of(host.name).changed(), current.examination.findings[host.name])
    current.save_soon()
    return True


def _read_again(current: Session, host: Host) -> None:
    reread(current.state, current.examination, [host])
    current.examination.judge_alone(host.name)


def _log_in_again(current: Session, host: Host) -> None:
    """Connect anew where changes wait for that alone (limits, groups), and read the node again over the new session. It
    is the session of the job, too. What outlives a login, as a daemon or this machine's own session, stays pending."""
    waits = any(finding.fixed_by == FixedBy.LOGIN for finding in current.examination.findings[host.name])
    if not (logs_in(host) and waits):
        return
    try:
        smoke_operations.connect_again(host, "again: limits and groups count for new sessions")
    except PyinfraError as error:
        host.log_styled(f"no new login after the changes: {error}", fg="red", log_func=logger.error)
    _read_again(current, host)


def _recompare(state: State, host: Host) -> bool:
    """Judge the changed node, once all of them were read. What its operations were to fix must be fixed: pyinfra's exit
    code 0 would otherwise be said of a node that is not as it was asked for. What waits for a login, for a reboot that
    the desired state does not allow, for root or for a person is no failure of this run: it is shown, and its verdict
    is `drift`."""
    current = session()
    current.examination.compare()
    remaining, blockers = _fixable_drift(current, host.name), current.examination.blockers(host.name)
    for finding in current.examination.findings[host.name]:
        if finding in remaining:
            why = "although its operation ran" if _key(finding) in current.declared else "came up only now: run again"
            _tell(host, finding, f"still drift, {why}", "red")
        elif finding in blockers:
            _tell(host, finding, str(finding.verdict), "red")
        elif finding.verdict == Verdict.DRIFT:
            anew = finding.fixed_by == FixedBy.LOGIN and logs_in(host)
            why = f" ({finding.pending})" if finding.pending else ""
            why += ", also in a new session: see its sshd's UsePAM, and pam_limits" if anew else ""
            _tell(host, finding, f"still drift{why}", "yellow")
    if remaining or blockers:
        verdict = Verdict.FAIL if remaining else worst([finding.verdict for finding in blockers])
        current.exclude(host.name, "not in its desired state after the changes", verdict)
    current.save_soon()
    return not (remaining or blockers)


def _tell(host: Host, finding: Finding, what: str, colour: str) -> None:
    host.log_styled(terminal.finding_line(finding, what), fg=colour)


def _fixable_drift(current: Session, name: str) -> list[Finding]:
    """Return the drift of a node that an operation of this deploy would fix, and may fix there."""
    fixable = [finding for finding in current.fixable(name) if finding.verdict == Verdict.DRIFT]
    return [finding for finding in fixable if finding.remedy and finding.remedy.operation in current.remediations]


def _fix_now(current: Session, host: Host, finding: Finding) -> bool:
    """Run the operation of a finding while another one runs, as pyinfra allows in `python.call`."""
    assert finding.remedy is not None and finding.remedy.operation is not None
    operation = current.remediations[finding.remedy.operation]
    _note_change(current, finding)
    try:
        operation(name=f"{finding.name}: {finding.remedy.text}", **arguments_of(current.examination, finding))
    except NestedOperationError:
        return False  # pyinfra has said why
    except Exception as error:  # of an operation's own check of its arguments: pyinfra would show a traceback
        host.log_styled(f"{finding.name}: {type(error).__name__}: {error}", fg="red")
        return False
    return True


def _conclude(state: State, host: Host) -> bool:
    from shakedown.runner import training

    current = session()
    current.once("judge the run", lambda: training.conclude_run(current))
    (why, verdict), run = training.shortfall(current, host.name), current.run_of(host.name)
    if why and (other := training.elsewhere(current, host.name)):
        host.log_styled(f"smoke run: {other}", fg="yellow")
        run.settle("unknown" if other.endswith(training.UNDECIDED) else "stopped", other)
        return True
    if why:  # pyinfra knows of failed hosts alone; what is not known is no failure in our own verdict
        host.log_styled(f"smoke run: {why}", fg="red", log_func=logger.error)
        run.verdict = run.verdict or verdict
    return not why
