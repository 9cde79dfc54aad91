"""What each host of a run is at, what was done to it, and why it failed: kept while pyinfra runs, shown at the end."""

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gevent
from pyinfra.api import BaseStateCallback, FunctionCommand, Host, State
from pyinfra.api.command import PyinfraCommand

from shakedown.checks.examination import Examination, resting
from shakedown.common.text import printable
from shakedown.operations.commands import RESTORES, refuse
from shakedown.report import terminal
from shakedown.report.summary import HostOutcome, Summary, fitted, summary_lines
from shakedown.runner.inventory import hosts_in_limit
from shakedown.runner.progress import RunEnd, look_on, progress
from shakedown.runner.pyinfra import host_keys
from shakedown.runner.pyinfra.folding import fold_lines
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.state.findings import Verdict

# Functions of operations that change no node: they read it, run the job, or only say that something cannot be done. By
# name, since a drift check comes by here and would load the smoke run for nothing.
_OPERATIONS = "shakedown.operations"
_NO_CHANGE = ("shakedown.runner.", f"{_OPERATIONS}.commands", f"{_OPERATIONS}.smoke", f"{_OPERATIONS}.shared_folder")

_CONNECTION = "the connection"

# So pyinfra repeats what a connection said inside a function of this package, after the connection has said it itself.
_NODE_ERROR = "Unexpected error in Python callback: NodeError("


def watch(state: State) -> None:
    """Keep the progress of a run. To be called once, before the first connection."""
    state.add_callback_handler(_Callbacks())
    progress(state).folding = fold_lines(state)
    out = terminal.console(stderr=True)
    show = functools.partial(out.print, markup=False, soft_wrap=True)
    gevent.spawn(look_on, state, lambda line: show(f"    {line}"))
    for host in state.inventory:
        host.log_styled = _keep_reason(host)  # type: ignore[method-assign]
    state.fail_hosts = _keep_failure(state)  # type: ignore[method-assign]


def _keep_reason(host: Host) -> Callable[..., None]:
    """Keep the last message in red, of pyinfra or of an operation: the reason why the host fails."""
    say = host.log_styled

    def log_styled(message: str, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("fg") == "red" and not message.startswith(_NODE_ERROR):
            progress(host.state).hosts[host.name].message = message
        say(printable(message, lines=True), *args, **kwargs)

    return log_styled


def _keep_failure(state: State) -> Callable[..., None]:
    """Note failures of hosts that pyinfra fails outside an operation, as where a fact cannot be read."""
    fail: Callable[..., None] = state.fail_hosts

    def fail_hosts(hosts: set[Host], *args: Any, **kwargs: Any) -> None:
        for host in hosts or ():
            run = progress(state).hosts[host.name]
            if run.kind is None:
                where = f"{run.declaring}: " if run.declaring else ""
                run.settle("failed", f"{where}{run.message or 'pyinfra gave no reason'}")
        fail(hosts, *args, **kwargs)

    return fail_hosts


class _Callbacks(BaseStateCallback):
    """pyinfra's callbacks. Nested operations come by here too, inside the one that runs them."""

    @staticmethod
    def host_before_connect(state: State, host: Host) -> None:
        progress(state).waits.setdefault(host.name, (_CONNECTION, time.monotonic()))

    @staticmethod
    def host_connect(state: State, host: Host) -> None:
        _connection_is_over(state, host, reached=True)

    @staticmethod
    def host_connect_error(state: State, host: Host, error: Exception) -> None:
        progress(state).hosts[host.name].lose(printable(str(error)))
        _connection_is_over(state, host, reached=False)

    @staticmethod
    def operation_start(state: State, op_hash: str) -> None:
        _note(state, "stage", _name(state, op_hash))

    @staticmethod
    def operation_end(state: State, op_hash: str) -> None:
        if progress(state).folding is not None:
            progress(state).folding.end_of(op_hash, _name(state, op_hash))

    @staticmethod
    def operation_host_start(state: State, host: Host, op_hash: str) -> None:
        if (data := state.ops[host].get(op_hash)) is None:
            return
        name = _name(state, op_hash)
        kept = progress(state)
        if kept.hosts[host.name].begin(name):
            kept.waits[host.name] = (name, time.monotonic())
        if not isinstance(data.command_generator, _Commands):
            data.command_generator = _Commands(data.command_generator, kept.hosts[host.name].changes, name)

    @staticmethod
    def operation_host_success(state: State, host: Host, op_hash: str, retry_count: int = 0) -> None:
        progress(state).ended(host.name)

    @staticmethod
    def operation_host_error(
        state: State, host: Host, op_hash: str, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        kept = progress(state)
        kept.ended(host.name)
        run = kept.hosts[host.name]
        run.message = printable(run.message, 500)
        _note(state, "failure", f"{_name(state, op_hash)}: {run.fail(_name(state, op_hash))}", host.name)


def _connection_is_over(state: State, host: Host, reached: bool) -> None:
    """Note that connecting is over. A new connection within an operation ends no wait for that operation."""
    waits = progress(state).waits
    if host.name in waits and waits[host.name][0] == _CONNECTION:
        del waits[host.name]
    if progress(state).folding is not None:
        progress(state).folding.connected(host.name, reached)


def _note(state: State, kind: Literal["stage", "failure"], text: str, node: str | None = None) -> None:
    """Write a note for who watches the run, once it has a directory."""
    if (notes := progress(state).notes) is not None:
        notes.note(kind, text, node=node)


@dataclass(frozen=True)
class _Commands:
    """An operation's commands. What the operation raises would end the run for all hosts, and fails this one alone."""

    made: Callable[[], Iterator[PyinfraCommand]]
    changed: list[str]
    name: str

    def __call__(self) -> Iterator[PyinfraCommand]:
        try:
            for command in self.made():
                if self.name not in self.changed and _changes(command):
                    self.changed.append(self.name)
                yield command
        except Exception as error:
            yield refuse(f"{type(error).__name__}: {error}")


def _changes(command: PyinfraCommand) -> bool:
    return not (isinstance(command, FunctionCommand) and command.function.__module__.startswith(_NO_CHANGE))


def _name(state: State, op_hash: str) -> str:
    return printable(", ".join(sorted(state.get_op_meta(op_hash).names)), 200)


def outcome(state: State, host: Host, examination: Examination | None) -> HostOutcome:
    """Return what became of a host."""
    run, interrupted = progress(state).hosts[host.name], invocation.interrupted
    if examination is None:
        ended = "the run ended before it was judged" if invocation.error else ""
        judged = not ended and host in state.active_hosts
        return run.outcome(host.name, interrupted, Verdict.OK if judged else None, ended)
    worst = examination.verdict_of(host.name)
    findings = examination.findings.get(host.name, [])
    different = [finding.name for finding in findings if finding.verdict == worst != Verdict.OK]
    return run.outcome(host.name, interrupted, worst, ", ".join(different))


def finish(state: State, examination: Examination | None = None, *lacking: str) -> Verdict:
    """End a run, however it ended: close the record and report, once, how it ended. A command without a session gives
    the `examination`, and what is `lacking` though the nodes may be healthy. Return the verdict."""
    kept = progress(state)
    invocation.ending = True
    end = kept.close() if kept.close else None
    if end is not None:
        examination = end.examination
    verdict = Verdict.FAIL if lacking else _verdict(state, end, examination)
    if kept.announced:
        return verdict
    kept.announced = True
    if kept.folding is not None:
        kept.folding.show()
    kept.write_reports()
    hosts = hosts_in_limit(state)
    record = end.record if end else None
    summary = Summary(
        verdict=verdict,
        outcomes=[outcome(state, host, examination) for host in hosts],
        changed={host.name: kept.hosts[host.name].changed() for host in hosts},
        restored={h.name: h.connector_data.get(RESTORES, []) for h in hosts if not kept.hosts[h.name].fails},
        unfinished=kept.unfinished(),
        error=invocation.error or invocation.unrecorded,
        lacking=lacking,
        notices=end.notices if end else (),
        warnings=examination.warnings() if examination else {},
        waived=resting(examination.all_findings()) if examination else "",
        new_keys=host_keys.new_keys(hosts),
        busy=end.busy if end else {},
        evidence=end.evidence if end else kept.evidence,
        dry=invocation.dry,
        plan=kept.plan,
        interrupted=invocation.interrupted,
        shown=kept.shown,
    )
    if end is not None and record is not None and not verdict.passes:
        from shakedown.report.failure import with_job  # 200 ms of gates, that a drift check does not need

        summary = with_job(summary, record, None if invocation.unrecorded else Path(end.evidence))
    out = end.out if end and not invocation.shows else terminal.console(stderr=True)
    out.print()
    lines = summary_lines(summary)
    for number, line in enumerate(lines if verdict.passes else fitted(lines)):
        style = terminal.COLOURS[verdict] if not number else None
        out.print(line, style=style, markup=False, soft_wrap=True)
    invocation.reported = True
    return verdict


def _verdict(state: State, end: RunEnd | None, examination: Examination | None) -> Verdict:
    """Judge the run. Only a run that requires no examination can be ok without; an ended soak is as its record says."""
    soak = end is not None and end.record is not None and end.record.soak is not None
    if (invocation.interrupted and not soak) or invocation.error or invocation.unrecorded:
        return Verdict.FAIL
    if end is not None:
        return end.verdict
    if examination is not None:
        return examination.verdict()
    reached = all(host in state.active_hosts for host in hosts_in_limit(state))
    return Verdict.OK if reached and invocation.examined else Verdict.FAIL
