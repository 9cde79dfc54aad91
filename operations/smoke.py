"""Jobs over the hosts that are still there: one distributed job over all, or a single-node job on each."""

import os
import signal
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import gevent
from paramiko import SSHException
from pyinfra import logger
from pyinfra.api import FunctionCommand, Host, QuoteString, State, StringCommand, operation
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS
from pyinfra.api.exceptions import PyinfraError
from pyinfra.connectors.util import clear_askpass_cache

from shakedown.jobs.launch import Event, Job
from shakedown.jobs.remote import Connected
from shakedown.jobs.supervise import run_job
from shakedown.schedulers.interface import Allocation, Answer, Interrupted

Work = Callable[[Allocation, Interrupted], None]

_CONTROL = {"_stdin", "_timeout", "_success_exit_codes", "_get_pty"}  # the calls here set them
_SLACK_S = 3.0  # over a command's own limit: for a channel that does not open, which `_timeout` does not cover
_SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "the terminal is gone (SIGHUP)"}


@operation(is_idempotent=False)
def run(jobs: Sequence[Job], where: Allocation | None = None) -> Generator[FunctionCommand, None, None]:
    """
    Run jobs over the hosts on which this operation is declared, all at the same time, and keep what became of each.

    + jobs: each makes its launch plan once every host is ready, and takes its result; one that is for a single host is
      left out where that host is no longer there
    + where: what brings them to the hosts; None: pyinfra's own connections

    Declare it on all participants on one line of the deploy. The first of them in the inventory's order that is still
    active drives the jobs, so that one Ctrl-C ends all; the others do not wait. A job that fails leaves the other jobs
    alone. The operation succeeds whenever there is a record of each job, `job.result` or `job.error`, so that evidence
    can still be read on every node.

    **Example:**

    .. code:: python

        job = Job(make_plan=lambda: make(...), log_dir=run.folder / "logs")
        smoke.run(name="Train together", jobs=[job])
    """
    if sys.stderr.isatty():
        os.environ["PYINFRA_PROGRESS"] = "off"  # its spinner and the job's live line would overwrite each other
    yield FunctionCommand(_drive, [jobs, where], {})


@operation(is_idempotent=False)
def rounds(work: Work, where: Allocation | None) -> Generator[FunctionCommand, None, None]:
    """
    Run jobs in rounds over the hosts on which this operation is declared: what a round trains depends on the last one.

    + work: called once, on the host that drives; it is given where the jobs run, and what says why it is to stop
      (Ctrl-C), for `carry_out`
    + where: what brings the jobs to the hosts; None: pyinfra's own connections

    **Example:**

    .. code:: python

        smoke.rounds(name="Search for bad nodes", work=search)
    """
    yield FunctionCommand(_rounds, [work, where], {})


def _drive(state: State, host: Host, jobs: Sequence[Job], where: Allocation | None) -> bool:
    """On the driver, run the jobs; elsewhere there is nothing to do."""

    def work(where: Allocation, interrupted: Interrupted) -> None:
        there = {other.name for other in _hosts(state, host)}
        carry_out([job for job in jobs if job.node is None or job.node in there], where, interrupted)

    return _rounds(state, host, work, where)


def _hosts(state: State, host: Host) -> list[Host]:
    """Those that are still active of the operation that runs."""
    active = set(state.inventory.get_active_hosts())
    operation_hash = host.executing_op_hash or ""
    return [other for other in state.inventory if other in active and operation_hash in state.ops[other]]


def _rounds(state: State, host: Host, work: Work, where: Allocation | None) -> bool:
    hosts = _hosts(state, host)
    if host is not hosts[0]:
        return True
    with interrupts() as interrupted:
        if where is None:
            operation_hash = host.executing_op_hash or ""
            datas = {other.name: state.get_op_data_for_host(other, operation_hash) for other in hosts}
            arguments = {name: dict(data.global_arguments) for name, data in datas.items()}
            where = Connected(Remote({other.name: other for other in hosts}, arguments))
        try:
            work(where, interrupted)
        finally:
            where.end(cancel=interrupted() is not None)
    return True


def carry_out(jobs: Sequence[Job], where: Allocation, interrupted: Interrupted) -> None:
    """Run the jobs at the same time, each to its own end, on nodes that are allocated once for all of them."""
    planned = []
    for job in jobs:
        try:
            job.plan = job.make_plan()
            planned.append(job)
        except Exception as error:
            _note_error(job, error)
    if not planned:
        return
    nodes = list(dict.fromkeys(node.name for job in planned if job.plan for node in job.plan.nodes))
    try:
        where.allocate(nodes, lambda text: planned[0].on_event(Event("phase", text)), interrupted)
    except Exception as error:
        for job in planned:
            job.allocated = False
            _note_error(job, error)
        return
    gevent.joinall([gevent.spawn(_carry_out, job, where, interrupted) for job in planned])


def _carry_out(job: Job, where: Allocation, interrupted: Interrupted) -> None:
    """Run the job. What goes wrong becomes its record: an exception would fail one innocent host."""
    assert job.plan is not None
    try:
        with where.start(job.plan.run_id, [node.name for node in job.plan.nodes]) as remote:
            # Not on pyinfra's pool: a job needs all its nodes at once.
            job.result = run_job(job, remote, interrupted=lambda: interrupted() or where.lost(), scheduler=gevent)
    except Exception as error:
        _note_error(job, error)


def _note_error(job: Job, error: Exception) -> None:
    job.error = str(error) or type(error).__name__
    job.on_event(Event("end", f"{'no result' if job.plan and job.allocated else 'not started'}: {job.error}", job.node))
    logger.debug("the job ended without a result", exc_info=True)


class Remote:
    """Runs the launcher's commands over pyinfra's connections, as the user that each host's `arguments` name."""

    def __init__(self, hosts: Mapping[str, Host], arguments: Mapping[str, Mapping[str, Any]]) -> None:
        self._hosts = hosts
        keys = [key for key in CONNECTOR_ARGUMENT_KEYS if key not in _CONTROL]
        self._arguments = {name: {key: given[key] for key in keys if key in given} for name, given in arguments.items()}

    def __call__(self, node: str, argv: list[str], stdin: str | None, timeout: float) -> Answer:
        if node not in self._hosts:
            return None, [], [f"{node} is not among the active hosts"]
        limit = ["timeout", "-k", "2", str(timeout)]  # `_timeout` would leave the command running on the node
        command = StringCommand(*(QuoteString(word) for word in [*limit, *argv]))
        host = self._hosts[node]
        try:
            with gevent.Timeout(timeout + _SLACK_S, TimeoutError(f"no answer within {timeout:g} s")):
                if connection_is_gone(host):
                    connect_again(host)
                how = {"_stdin": stdin, "_timeout": timeout + _SLACK_S, **self._arguments[node]}
                ok, output = host.run_shell_command(command, print_output=False, print_input=False, **how)
        except (TimeoutError, OSError, EOFError, SSHException, PyinfraError) as error:
            return None, [], [str(error) or type(error).__name__]
        return 0 if ok else 1, output.stdout_lines, output.stderr_lines


def connection_is_gone(host: Host) -> bool:
    """Tell whether an SSH connection was there and is none any more: the node or the way to it went down."""
    client = getattr(host.connector, "client", None)
    transport = client.get_transport() if client is not None else None
    return client is not None and (transport is None or not transport.is_active())


def connect_again(host: Host, reason: str = "again: the connection had broken") -> None:
    """Connect anew: a job outlives a broken connection or a reboot. Raise PyinfraError with the reason."""
    clear_askpass_cache(host)  # the script that it names may have gone with the node's /tmp
    host.disconnect()
    host.connect(reason=reason, show_errors=False, raise_exceptions=True)


@contextmanager
def interrupts() -> Generator[Interrupted, None, None]:
    """While it holds, the first Ctrl-C (or SIGTERM, SIGHUP) ends the job everywhere; the second ends the program: in
    the words of this package where it has taken the signal over, else at once."""
    received: list[str] = []

    def handle(number: int, frame: FrameType | None) -> None:
        prior: Any = before.get(number)
        managed = hasattr(prior, "note")  # of this package, not pyinfra's, which would exit with 0
        if received and managed:
            prior(number, frame)
            return
        if received:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif managed:
            prior.note()
        received.append(_SIGNALS[signal.Signals(number)])

    handled = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]  # nohup stays nohup
    before: dict[int, Any] = {number: signal.signal(number, handle) for number in handled}
    if any(hasattr(prior, "noted") and prior.noted() for prior in before.values()):
        received.append("an earlier signal")
    try:
        yield lambda: f"stopped by {received[0]}" if received else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
