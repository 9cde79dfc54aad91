"""Read every node once, at the same time, and compare."""

import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gevent.pool import Pool
from paramiko import SSHException
from pydantic import ValidationError
from pyinfra.api import Host, State
from pyinfra.api.exceptions import PyinfraError
from pyinfra.connectors.ssh import SSHConnector
from rich.console import Console

from shakedown.checks.examination import Examination, Reading
from shakedown.common.frozen import first_problem
from shakedown.common.secrets import masked_model, values_of
from shakedown.facts.node import SIGNED, read_node
from shakedown.hosts import named
from shakedown.node.sign import ASKED
from shakedown.report import screen, terminal
from shakedown.report.formats import Findings
from shakedown.runner.inventory import desired_states, group_of, hosts_in_limit
from shakedown.runner.progress import progress, waiting_for
from shakedown.runner.pyinfra import host_keys
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runs.directory import RunRecord, distinct, new_run_id
from shakedown.runs.signing import nodes as signatures
from shakedown.state.findings import Finding
from shakedown.state.images import parse
from shakedown.state.node import NodeState

log = logging.getLogger("shakedown")

PULL = "images.pull"  # as findings name the operation
PREFLIGHT = "preflight."  # what the names of findings about a job's needs begin with
_IN_WORDS = (OSError, EOFError, SSHException, PyinfraError, signatures.WrongSignature)


def examine(state: State, answers: dict[str, dict[str, Any]] | None = None) -> Examination:
    """Examine every host of the run: one exec channel each, in parallel (pyinfra's --parallel bounds it). `answers`
    takes what each node answered the probe, raw."""
    hosts = hosts_in_limit(state)
    desired = desired_states(state).states
    if any(desired[host.name].signing for host in hosts):
        kept = progress(state)
        kept.run_id = new_run_id()
        kept.nonce = f"{kept.run_id}.{secrets.token_hex(16)}"
    examination = unread(state)
    began = time.monotonic()
    reread(state, examination, hosts, answers)
    examination.judge()
    seconds = round(time.monotonic() - began, 2)
    log.info("examined", extra={"nodes": len(hosts), "answered": len(examination.states), "seconds": seconds})
    return examination


def unread(state: State) -> Examination:
    """Return an examination of the hosts of the run, before any of them was read."""
    hosts, desired = hosts_in_limit(state), desired_states(state).states
    return Examination({host.name: desired[host.name] for host in hosts}, {host.name: group_of(host) for host in hosts})


def in_words(error: Exception) -> str:
    """Return why a reading failed: whatever a node brings about is its own reading that failed."""
    return str(error) if isinstance(error, _IN_WORDS) and str(error) else f"{type(error).__name__}: {error}"


def reread(
    state: State, examination: Examination, hosts: list[Host], answers: dict[str, dict[str, Any]] | None = None
) -> None:
    """Read the given hosts (again). Pool slots of pyinfra are not used: this also runs inside them."""
    pool = Pool(state.config.PARALLEL or None)
    requested = [examination.desired[host.name].requested_readings for host in hosts]
    raw = [None if answers is None else answers.setdefault(host.name, {}) for host in hosts]
    signings = [examination.desired[host.name].signing for host in hosts]
    signed = [signing is not None and signing.require_readings for signing in signings]
    for host, reading in zip(hosts, pool.imap(read, hosts, requested, raw, signed), strict=True):
        examination.keep(host.name, reading)
        run = progress(host.state).hosts[host.name]
        run.examined = True
        if reading.state is not None:
            run.answer()
            continue
        run.lose(reading.why)
        log.info("no node state", extra={"node": host.name, "why": reading.why})


def read(
    host: Host, requested: Sequence[str] = (), answers: dict[str, Any] | None = None, required: bool = False
) -> Reading:
    """One node's state, or why there is none. `requested`: what is asked of it besides what always is. `answers`: as
    `read_node` has it. `required`: the node's signature on its state."""
    if not host.connected:
        return _none(host, progress(host.state).hosts[host.name].lost or "could not connect")
    before = time.time()
    try:
        with waiting_for(host, "reading the node"):
            nonce, key = progress(host.state).nonce if answers is None else "", host_keys.shown(host)
            question = f"{ASKED}{nonce}:{key.partition(' ')[0]}" if nonce and key else ""
            state = read_node(host, requested, answers=answers, question=question)
        reading = _reading(state, before, time.time())
        if not nonce:
            return reading
        signed = signatures.taken(host.connector_data.pop(SIGNED, {}), key, nonce)
        if required and signed.signature.reason:
            return _none(host, f"its reading is not signed: {signed.signature.reason}")
        return replace(reading, signed=signed)
    except ValidationError as error:
        return _none(host, f"the probe's document is malformed: {first_problem(error)}")
    except Exception as error:
        return _none(host, in_words(error))


def _reading(state: NodeState, before: float, after: float) -> Reading:
    # The reading was stamped when the probe started, somewhere in what the exchange took besides the probe's own work.
    uncertain = max(after - before - state.probe.wall_s, 0.0) / 2
    return Reading(state, clock_offset_s=state.system.epoch_s - (before + uncertain), clock_error_s=uncertain)


def _none(host: Host, why: str) -> Reading:
    return Reading(why=why, tried=tried(host), address=host_keys.address_of(host))


def secret_values(examination: Examination) -> set[str]:
    """Return the values of secrets in the desired states."""
    desired = [state.model_dump(mode="json") for state in distinct(examination.desired.values())]
    return values_of(desired, examination.not_secret())


def without_secrets(record: RunRecord, examination: Examination) -> RunRecord:
    """Return the record without the values of secrets, wherever a site wrote or a node repeated them."""
    values = secret_values(examination)
    return masked_model(record, examination.not_secret(), values) if values else record


def logs_in(host: Host) -> bool:
    """Return whether connecting to a host is a login."""
    return isinstance(host.connector, SSHConnector)


def tried(host: Host) -> str:
    """Return what was connected to, as the inventory has it: a name that DNS does not know is not the node's."""
    if not logs_in(host):
        return "connection"
    port = host.data.get("ssh_port")
    return f"ssh to {host.data.get('ssh_hostname') or host.name}" + (f", port {port}" if port else "")


def show_screen(
    examination: Examination, out: Console | None = None, quiet: bool = False, advises: bool = True
) -> None:
    """Show the causes of what differs, on stderr if on no other console."""
    out = out or terminal.console(stderr=True)
    verdict, nodes, findings = examination.verdict(), len(examination.desired), examination.all_findings()
    columns, inventory = screen.columns(out), invocation.inventory
    shown = Findings(verdict, nodes, findings, inventory=inventory, quiet=quiet, columns=columns, advises=advises)
    for line in screen.table(shown):
        out.print(line, soft_wrap=True)


def show_findings(out: Console, examination: Examination, fixable: Mapping[str, Sequence[Finding]]) -> None:
    """Show the findings of all nodes. `fixable`: those of each node that an operation would fix, as the user there."""
    out.print()
    show_screen(examination, out, advises=False)
    pending = [name for name, own in fixable.items() if own]
    out.print(f"to change: {named(pending)}" if pending else "nothing to change", markup=False)
    if few := [name for name, own in fixable.items() if len(own) < len(examination.fixable(name))]:
        out.print(f"{named(few)}: not root there, so what needs root stays (set _sudo)", markup=False)
    out.print()


def arguments_of(examination: Examination, finding: Finding) -> dict[str, Any]:
    """Return the arguments of a finding's operation; of a pull with the site's limit and the registry's mirror."""
    assert finding.remedy is not None
    arguments = finding.remedy.arguments
    if finding.remedy.operation != PULL:
        return arguments
    pulls = examination.desired[finding.node].pulls
    mirror = pulls.mirrors.get(parse(arguments["reference"]).registry)
    more = {"mirror": mirror.model_dump(exclude_none=True)} if mirror else {}
    return {**arguments, "at_once": pulls.at_once, **more}
