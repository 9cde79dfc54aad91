"""Signs of failure, out of what was kept of a job: what the controller saw, lines of the logs and of the kernel."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from shakedown.catalogue import Role, entry
from shakedown.common.text import printable
from shakedown.evidence.diagnosis.model import Sign
from shakedown.evidence.diagnosis.names import named, of_another
from shakedown.evidence.hangs.model import Hang
from shakedown.evidence.results import Failure
from shakedown.logs.signatures import Match


class _Seen(NamedTuple):
    role: Role
    symptom: bool
    cause: str
    remedy: str


# What the controller sees by itself. A node that is gone takes its ranks along: what the others say follows from that.
_KINDS: dict[str, _Seen] = {
    "busy": _Seen("origin", False, "another run holds the node", "wait for its end, or end it; then run again"),
    "unusable": _Seen("origin", False, "the node cannot hold a run", "correct what the text names, and run again"),
    "not ready": _Seen(
        "origin", False, "the node's preparation failed or took too long", "read setup.log of that node"
    ),
    "lacking": _Seen(  # the text is the cause
        "origin", False, "", "bring to the node what is missing, or correct the inventory or the image; then run again"
    ),
    "rebooted": _Seen(
        "origin",
        False,
        "the node rebooted or lost power during the run",
        "read the end of the node's kernel log and the BMC's event log",
    ),
    "unreachable": _Seen(
        "origin",
        False,
        "the node stopped answering: it hangs, lost power, or lost its network",
        "check the node's console, the BMC's event log and the switch port",
    ),
    "watchdog": _Seen(
        "origin",
        False,
        "the launcher on the node was ended or stopped during the run",
        "find out what ended or stopped the launcher (memory, a person, a shutdown)",
    ),
    "disk full": _Seen("origin", False, "the disk of the run folder is full", "make room on that node and run again"),
    "controller": _Seen(
        "origin", False, "the controller could not go on", "the text says what failed; no node is at fault"
    ),
    "interrupted": _Seen(
        "origin",
        False,
        "the run was stopped from outside",
        "run again; after a hang, logs/NODE/ shows what each rank was doing",
    ),
    "early exit": _Seen(
        "echo",
        True,
        "the job ended on one node while the other nodes went on",
        "compare the nodes' logs: the node that ended first may have run another program or number of iterations",
    ),
    "no start": _Seen(
        "echo",
        True,
        "the job reached no iteration in time",
        "the end of every node's log shows what that node waits for",
    ),
    "stall": _Seen(
        "echo",
        True,
        "the job hangs: one rank makes no progress, and the others wait for it",
        "look at what the ranks of each node did at the end; the hang's evidence names the rank where it can",
    ),
    "timeout": _Seen(
        "echo", True, "the job was not over in time", "raise timeout_s, or find out why the job was slow or hung"
    ),
}
_SIGNALLED = _Seen(
    "origin",
    True,
    "the job's leader on the node was ended by a signal from outside",
    "look for 'Out of memory: Killed process' in the node's kernel log; find out what else may end processes there",
)
_EXITED = _Seen(
    "either",
    True,
    "the job's leader on the node ended with an exit code that names no cause",
    "read the lines of that node's log before its end",
)
_UNKNOWN = _Seen("either", True, "a failure without an entry in the catalogue", "read the text and the node's log")


# Where a line itself says that the failure was: Ray's driver repeats the lines of its workers, "(train pid=7,
# ip=10.0.0.2) ..."; Slurm, pdsh and RCCL put the node's name in front, or say "on node2".
_PLACE = re.compile(
    r"\((?:[^()=]{1,80} )?pid=\d{1,10}, ip=([0-9A-Fa-f.:]{3,45})\)"
    r"|\bStepId=\S{1,40} on ([\w.-]{1,253})"
    r"|^(?:srun: error: )?\[?([A-Za-z0-9][\w.-]{0,252})\]?:(?=[\s\d])"
)


def place_of(line: str, addresses: Mapping[str, str]) -> str | None:
    """Return the node that a line says the failure was on; None: it names none of these."""
    places = (
        addresses.get(name.rstrip(".").lower()) for found in _PLACE.finditer(line) for name in found.groups() if name
    )
    return next((node for node in places if node is not None), None)


def seen(failure: Failure) -> _Seen:
    """Return what a failure without a signature proves of its node."""
    if failure.kind == "exit":
        return _SIGNALLED if "signal" in failure.text else _EXITED
    return _KINDS.get(failure.kind, _UNKNOWN)


def of_failure(failure: Failure, file: str | None = None, addresses: Mapping[str, str] | None = None) -> Sign:
    """Make a sign of a failure that was seen while the job ran."""
    known = entry(failure.kind)
    if known is None:
        proof = seen(failure)
        return Sign(
            node=failure.node,
            name=failure.kind,
            role=proof.role,
            symptom=proof.symptom,
            text=failure.text,
            since=failure.since,
            at=failure.at,
            file=file if failure.line_number else None,
            line_number=failure.line_number,
            cause=proof.cause or failure.text.removeprefix(f"{failure.node}: "),
            remedy=proof.remedy,
        )
    since = failure.since - timedelta(seconds=known.late_s) if failure.since else None
    return _of_signature(
        known.name, failure.node, failure.line or failure.text, failure.line_number, file, addresses or {}
    ).model_copy(update={"since": since, "at": failure.at})


def of_match(match: Match, node: str, file: str, addresses: Mapping[str, str] | None = None) -> Sign:
    """Make a sign of a log line whose time is unknown."""
    return _of_signature(match.name, node, match.line, match.line_number, file, addresses or {})


def _of_signature(
    name: str, node: str | None, line: str, number: int | None, file: str | None, addresses: Mapping[str, str]
) -> Sign:
    known = entry(name)
    assert known is not None and known.role is not None
    place = place_of(line, addresses)
    repeated = place is not None and node is not None and place != node  # another node's line: no failure of its own
    role, blames = known.role, named(line, addresses, node)
    if repeated or (node and (of_another(line, addresses, node) or (role == "either" and blames))):
        role = "echo"  # whatever stands there, the line speaks of another node
    return Sign(
        node=node,
        name=name,
        role=role,
        symptom=known.symptom,
        common=known.common,
        text=line,
        file=file,
        line_number=number,
        cause=known.cause,
        remedy=known.remedy,
        blames=(place,) if repeated and place else blames if role == "echo" else (),
    )


_NOT_RUNNING = {"T": "stopped", "t": "traced", "D": "in uninterruptible sleep"}
_PROCESS = re.compile(r".{1,400} \(([A-Za-z])\)")


def not_running(running: Mapping[str, Sequence[str]]) -> Iterator[Sign]:
    """Make a sign of the first process on each node that did not run at the end of a hang. `running`: node -> its
    processes as the launcher writes them, "123 python3 (T)"."""
    for node, processes in running.items():
        for process in processes:
            state = _PROCESS.fullmatch(process)
            if state and state[1] in _NOT_RUNNING:
                yield Sign(
                    node=node,
                    name="not running",
                    role="origin",
                    text=f"{node}: this process did not run: {process}",
                    cause=f"a process of the job was {_NOT_RUNNING[state[1]]}, and the others waited for it",
                    remedy="find out what stopped the process, or what it waits for in the kernel (storage, a driver)",
                )
                break


def of_hang(hang: Hang | None) -> Iterator[Sign]:
    """Make signs of what the ranks' own records show of a hang: one for each node that the others wait for, or that is
    in question; one for the job, where no node is."""
    if hang is None:
        return
    text = "; ".join([hang.text, *hang.facts])
    for node in hang.nodes or (None,):
        yield Sign(
            node=node,
            name="hang",
            role="origin" if node else "echo",
            symptom=not hang.culprits,
            text=printable(text, 1000),
            cause=_HANGS[hang.why],
            remedy=_OF_LINK if hang.why == "link" else _OF_RANK,
        )


def not_used(problem: str) -> Sign:
    """Make a sign of an evidence file that cannot be used: it was changed since, or claims another node's rank."""
    return Sign(
        node=None,
        name="not used",
        role="echo",
        symptom=True,
        text=printable(problem, 400),
        cause="a file of the evidence could not be used",
        remedy="run again, or copy the run directory again from where it was written",
    )


_OF_RANK = "the rank's stack and state are in the run directory (logs/NODE/process-PID.json, stacks-PID-RANK.txt)"
_OF_LINK = "check the cable, transceiver and switch port of both ends; run the pair alone"
_HANGS = {
    "missing": "a rank did not enter a collective in which the others wait for it",
    "other collective": "a rank entered another collective than the others",
    "other sizes": "a rank entered the collective with other sizes than the others",
    "no answer": "a rank does not run, or does not answer, and the others wait for it",
    "all entered": "all ranks wait in collectives, for one another",
    "link": "all ranks entered the collective, and data between nodes does not arrive",
    "open": "no rank was in a collective: the ranks went on alone, or wait for something else",
}
