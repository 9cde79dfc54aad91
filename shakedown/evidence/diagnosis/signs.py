"""Signs of failure, out of what was kept of a job: what the controller saw, lines of the logs and of the kernel, and
which nodes of the run a line names. What the controller's own observations prove is data: `signs.toml`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache, partial
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from shakedown.catalogue import Role, entry
from shakedown.common.data import kept_toml
from shakedown.common.frozen import Frozen
from shakedown.common.text import printable
from shakedown.evidence.diagnosis.model import Sign
from shakedown.evidence.hangs.analysis import Hang
from shakedown.evidence.results import Failure
from shakedown.logs.lines import unprefixed
from shakedown.logs.signatures import Match

data = partial(kept_toml, "shakedown.evidence.diagnosis", "signs.toml")
_ADDRESS = re.compile(
    r"(?<![\w.-])(\d{1,3}(?:\.\d{1,3}){3})(?![\w-])"
    r"|(?<![0-9a-fA-F:.])((?:[0-9a-fA-F]{0,4}:){2,7}(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]{0,4}))(?![\w:.])"
)
# A name with a port: "node2<45678>" (RCCL), "(node1, 29500)" and "[node1]:29500" (the store).
_HOST = re.compile(r"(?<![\w.-])([A-Za-z0-9][\w.-]{0,252})\]?(?:[:<]\d{1,5}(?![\w.])|, \d{1,5}\))")


class Node(Protocol):
    """A node of a job, with all the names under which the logs of a job know it."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def names(self) -> Iterable[str]: ...


def names_in(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the node of each name and address in a job."""
    return known_names((name, node.name) for node in nodes for name in (node.name, node.address, *node.names))


def known_names(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the node of each name or address as `named` looks for it. What several nodes have in common names none,
    nor does an address that each machine has."""
    known: dict[str, set[str]] = defaultdict(set)
    short: dict[str, set[str]] = defaultdict(set)
    for name, node in pairs:
        address = _address(name)
        known[name.lower() if address is None else address].add(node)
        if address is None:
            short[name.lower().partition(".")[0]].add(node)
    every = {**short, **known}
    return {name: nodes.pop() for name, nodes in every.items() if len(nodes) == 1 and not name.isdigit() and name}


def named(line: str, names: Mapping[str, str], speaker: str | None = None) -> tuple[str, ...]:
    """Return the nodes that a line names beside the one that wrote the line."""
    found = (_node(word, names) for word in _words(line))
    return tuple(dict.fromkeys(node for node in found if node is not None and node != speaker))


def of_another(line: str, names: Mapping[str, str], speaker: str) -> bool:
    """Return whether a launcher writes here how another node ended, or a node that is not known."""
    return any(_node(host, names) != speaker for form in _forms("launcher") for host in form.findall(line))


def _words(line: str) -> Iterator[str]:
    text = unprefixed(line)
    for form in _forms("speaker"):
        text = form.sub("", text)
    for found in _ADDRESS.findall(text):
        yield found[0] or found[1]
    yield from _HOST.findall(text)
    for form in _forms("launcher"):
        yield from form.findall(line)


def _node(word: str, names: Mapping[str, str]) -> str | None:
    address = _address(word)
    if address is not None:
        return names.get(address)
    host = word.lower().rstrip(".")
    return names.get(host) or names.get(host.partition(".")[0])


def _address(text: str) -> str | None:
    """Return an address in the one form in which it is known; empty: each machine has it. None: it is no address."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return "" if address.is_loopback or address.is_unspecified else str(address)


@cache
def _forms(kind: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(form["pattern"]) for form in kept_toml("shakedown.catalogue", "names.toml")[kind])


class _Proof(Frozen):
    role: Role
    symptom: bool = False
    cause: str = ""
    remedy: str


@cache
def proofs() -> dict[str, _Proof]:
    """Return what each kind of failure proves that the controller saw itself."""
    return {kind: _Proof(**proof) for kind, proof in data()["seen"].items()}


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


def of_failure(failure: Failure, file: str | None = None, addresses: Mapping[str, str] | None = None) -> Sign:
    """Make a sign of a failure that was seen while the job ran."""
    known = entry(failure.kind)
    if known is None:
        kind = "signalled" if failure.kind == "exit" and "signal" in failure.text else failure.kind
        proof = proofs().get(kind, proofs()["other"])
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
    other = place if node is not None and place != node else None  # another node's line: no failure of its own
    role, blames = known.role, named(line, addresses, node)
    if other or known.warns or (node and (of_another(line, addresses, node) or (role == "either" and blames))):
        role = "echo"  # whatever stands there, the line speaks of another node, or a healthy node may have it too
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
        blames=(other,) if other else blames if role == "echo" else (),
    )


_PROCESS = re.compile(r".{1,400} \(([A-Za-z])\)")


def not_running(running: Mapping[str, Sequence[str]]) -> Iterator[Sign]:
    """Make a sign of the first process on each node that did not run at the end of a hang. `running`: node -> its
    processes as the launcher writes them, "123 python3 (T)"."""
    states = data()["not_running"]
    for node, processes in running.items():
        for process in processes:
            state = _PROCESS.fullmatch(process)
            if state and state[1] in states:
                yield Sign(
                    node=node,
                    name="not running",
                    role="origin",
                    text=f"{node}: this process did not run: {process}",
                    cause=f"a process of the job was {states[state[1]]}, and the others waited for it",
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
            **data()["hang"][hang.why],
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
