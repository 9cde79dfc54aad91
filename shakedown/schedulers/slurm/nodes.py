"""Slurm's nodes as typed values, from whatever the build there is prints.

`scontrol show nodes --json` is there from 23.02 on, where the build has it; its shapes differ. In 23.02 and later
`state` is a list of words and a number may be {"set", "infinite", "number"}; in the document of 22.05 (`sinfo --json`)
`state` is a word, its flags stand apart, and numbers are numbers. `scontrol --oneliner show nodes` is there on all.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from shakedown.common.frozen import Frozen
from shakedown.common.text import load_json, printable, sound
from shakedown.schedulers.slurm import commands
from shakedown.schedulers.slurm.commands import SlurmError, Unknown

DRAINING = frozenset({"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"})
GONE = frozenset({"DOWN", "ERROR", "UNKNOWN", "INVALID", "INVAL", "INVALID_REG", "NOT_RESPONDING", "FUTURE", "BLOCKED"})
GONE |= {"POWERED_DOWN", "POWER_DOWN", "POWERING_DOWN", "POWER_DRAIN", "POWERING_UP", "POWER_UP"}
GONE |= {"REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED"}
TAKEN = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
IDLE = frozenset({"IDLE"})
# Flags of a node that is free all the same; whether a reservation is ours the inventory says. The words are those of
# sinfo.1 (22.05.8) and of the REST API's data model up to v0.0.42 (24.11).
BESIDE = frozenset({"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "PLANNED", "RESERVED", "MAINT", "MAINTENANCE"})
BESIDE |= {"REBOOT_CANCELED"}
# Behind a state in `sinfo`'s and older `scontrol`'s text: slurm, sinfo.1, "NODE STATE CODES".
_MARKS = {"*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "!": "POWER_DOWN", "%": "POWERING_DOWN"}
_MARKS |= {"$": "MAINTENANCE", "@": "REBOOT_REQUESTED", "^": "REBOOT_ISSUED"}


def _number(value: Any) -> Any:
    """Return a number, also from what newer versions write for one; None where it is not set."""
    if isinstance(value, dict):
        return value.get("number") if value.get("set") and not value.get("infinite") else None
    return value


def _listed(value: Any) -> Any:
    if isinstance(value, str):
        return [part for part in value.split(",") if part and part != "(null)"]
    return value or []


def _text(value: Any) -> Any:
    return "" if value is None else printable(value, 500) if isinstance(value, str) else value


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$")]
Text = Annotated[str, BeforeValidator(_text)]
Count = Annotated[int, BeforeValidator(lambda value: _number(value) or 0), Field(ge=0, le=1 << 40)]


class Node(Frozen):
    """A node as Slurm has it. `states`: its base state first, in capitals, then its flags."""

    name: Name
    states: Annotated[list[str], Field(min_length=1, max_length=32)]
    reason: Text = ""
    reason_by: Text = ""  # the user who set it
    partitions: list[Text] = []
    reservation: Text = ""
    features: list[Text] = []
    gres: Text = ""
    allocated_cpus: Count = 0

    @property
    def drained(self) -> bool:
        """Tell whether a person or a health check keeps new jobs away."""
        return bool(DRAINING & set(self.states))

    @property
    def down(self) -> bool:
        """Tell whether the node cannot take jobs now: down, silent, powered down, or wrongly registered."""
        return bool(GONE & set(self.states))

    @property
    def allocated(self) -> bool:
        """Tell whether a job is on the node, or is just ending there."""
        return bool(TAKEN & set(self.states)) or self.allocated_cpus > 0

    @property
    def gpus(self) -> int:
        """Count the GPUs that the node is configured with, of all types: "gpu:mi300x:8(S:0-1)" has 8."""
        counts = re.findall(r"(?:^|,)gpu:(?:[^:,()]+:)?(\d{1,4})(?=[(,]|$)", self.gres)
        return sum(map(int, counts))

    def why_not(self, allow_allocated: bool = False) -> str:
        """Return why the node cannot be used, for a person; empty: it can."""
        state = "+".join(self.states).lower()
        if self.drained or self.down:
            return f"{state}{self._why()}"
        if self.allocated and not allow_allocated:
            return f"{state}: a job is on it"
        usable = IDLE | TAKEN | BESIDE
        if not (set(self.states) <= usable and (self.allocated or IDLE & set(self.states))):
            return f"{state}: shakedown does not know this state, so the node counts as taken"
        return ""

    def _why(self) -> str:
        who = f" [{self.reason_by}]" if self.reason_by else ""
        return f": {self.reason}{who}" if self.reason else ""


def read(names: Iterable[str] = ()) -> list[Node]:
    """Return all nodes, or the named ones, in Slurm's order. Raise SlurmError, and Absent for a name that Slurm does
    not have."""
    wanted = list(names)
    try:
        nodes = from_json(commands.run("scontrol", "--json", *_which(wanted)))
    except Unknown:
        nodes = _from_listing(wanted)
    except SlurmError as error:
        if "json" not in str(error).split(": ", 1)[-1].lower():
            raise
        nodes = _from_listing(wanted)  # a build without its JSON serializer
    there = {node.name for node in nodes}
    if absent := [name for name in wanted if name not in there]:  # 24.11 leaves them out of its JSON without a word
        raise commands.Absent(f"Slurm has no node {', '.join(absent)}; what it has is shown by: scontrol show nodes")
    return nodes


def jobs_on(names: Iterable[str], but: int | None = None) -> dict[str, list[str]]:
    """Return the jobs that hold each node now, as "4711 of alice", without the job `but`. Free nodes are absent; a node
    whose job squeue hides from this user is held by its own state. Raise SlurmError."""
    wanted = set(names)
    if not wanted:
        return {}
    # --all: hidden partitions, and those that this user may not use, too
    options = ("--all", "--noheader", "--states=RUNNING,COMPLETING,SUSPENDED,CONFIGURING", "--format=%A|%u|%N")
    output = commands.run("squeue", *options, f"--nodelist={commands.as_list(wanted)}")
    jobs: dict[str, list[str]] = {}
    ours: set[str] = set()
    for line in filter(str.strip, output.splitlines()):
        job, sign, rest = line.partition("|")
        user, more, held = rest.partition("|")
        if not (sign and more):
            raise SlurmError(f"squeue: {printable(line, 200)!r} cannot be read")
        there = wanted.intersection(commands.names(held.strip()))
        if job.strip() == str(but):
            ours |= there
            continue
        for name in there:
            jobs.setdefault(name, []).append(printable(f"{job} of {user}", 100))
    if silent := sorted(wanted - jobs.keys() - ours):
        jobs |= {node.name: ["that squeue does not show (PrivateData?)"] for node in read(silent) if node.allocated}
    return jobs


def from_json(text: str) -> list[Node]:
    """Read `scontrol show nodes --json` or, of 22.05, `sinfo --json`. Raise SlurmError."""
    try:
        document = sound(load_json(text, commands.OUTPUT_BYTES))
    except ValueError as error:
        raise SlurmError(f"Slurm's JSON of its nodes cannot be read: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise SlurmError("Slurm's JSON of its nodes cannot be read: it has no list of nodes")
    if document.get("errors"):
        raise SlurmError(f"Slurm could not list its nodes: {printable(str(document['errors']), 400)}")
    return _unique(_node(_fields_of_json(entry)) for entry in document["nodes"])


def _fields_of_json(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise SlurmError(f"Slurm's JSON of its nodes cannot be read: {printable(repr(entry), 100)} is no node")
    state, flags = entry.get("state"), entry.get("state_flags") or []
    words = state if isinstance(state, list) else [state]
    reason = entry.get("reason") or ""
    return {
        "name": entry.get("name"),
        "states": _states([*words, *(flags if isinstance(flags, list) else [flags])]),
        "reason": reason,
        "reason_by": entry.get("reason_set_by_user") if reason else "",
        "partitions": _listed(entry.get("partitions")),
        "reservation": entry.get("reservation"),
        "features": _listed(entry.get("active_features", entry.get("features"))),
        "gres": entry.get("gres"),
        "allocated_cpus": entry.get("alloc_cpus"),
    }


# A field of a line of `scontrol -o show nodes`; the reason goes to the last "[who@when]", since anything may stand in
# it, another node's reason too.
_FIELD = re.compile(r"(?:^|\s)([A-Za-z_]+)=(\S*)")
# What a node says of itself when it registers (Arch, Version, OS) may look like fields: of the first of them the end is
# where CoresPerSocket begins, of the others the last place where the field that follows could begin.
_HEAD = re.compile(r".*(?=\sRealMemory=\d)", re.DOTALL)
_MIDDLE = re.compile(r"\sCoresPerSocket=\d")
_AT_ITS_END = re.compile(r"\s(?:Version|OS)=.*", re.DOTALL)
_BEGIN = re.compile(r"^NodeName=(\S*)", re.MULTILINE)
_REASON = re.compile(r"\sReason=(.*) \[([^\s\[\]@]*)@(?:[0-9T:-]{10,30}|Unknown)\](?=\s|$)", re.DOTALL)


def _which(wanted: list[str]) -> list[str]:
    return ["show", "nodes", *([commands.as_list(wanted)] if wanted else [])]


def _from_listing(wanted: list[str]) -> list[Node]:
    """Read the text for a person. Where a node's own words have a line end, and behind it what looks like another node,
    request every node alone: all of that answer is then the node's."""
    text = commands.run("scontrol", "--oneliner", *_which(wanted))
    begun = _BEGIN.findall(text)
    if len(wanted) != 1 and (not wanted or sorted(begun) == sorted(set(wanted))):
        with contextlib.suppress(SlurmError):
            return from_text(text)
    there = wanted or commands.run("sinfo", "--noheader", "--Node", "--format=%N").split()
    return [_alone(name) for name in dict.fromkeys(there)]


def _alone(name: str) -> Node:
    text = commands.run("scontrol", "--oneliner", *_which([name]))
    node = _node(_fields_of_line(" ".join(text.split("\n"))))
    if node.name != name:
        raise commands.Absent(f"Slurm has no node {name}: it answered with {node.name}")
    return node


def from_text(text: str) -> list[Node]:
    """Read `scontrol --oneliner show nodes`. Raise SlurmError."""
    if text.strip() == "No nodes in the system":
        return []
    return _unique(_node(_fields_of_line(line)) for line in _lines(text))


def _lines(text: str) -> Iterator[str]:
    """Yield one line for each node: a reason may have line ends in it."""
    parts: list[str] = []
    for line in text.split("\n"):
        if line.startswith("NodeName=") and parts:
            yield " ".join(parts)
            parts = []
        if line.strip():
            parts.append(line)
    if parts:
        yield " ".join(parts)


def _without_own_words(line: str) -> tuple[str, bool]:
    """Return a record without the node's own words, and whether it is clear which fields are Slurm's."""
    head = _HEAD.match(line)
    if head is None:
        return line, True
    name, _, rest = head[0].partition(" ")
    tail, middle = line[head.end() :], list(_MIDDLE.finditer(f" {rest}"))
    if len(middle) != 1:
        return name + tail, False
    fields = f" {rest}"[middle[0].start() :]
    if own_words := _AT_ITS_END.search(fields):
        fields = fields[: own_words.start()]
    return name + fields + tail, True


def _fields_of_line(line: str) -> dict[str, Any]:
    line, clear = _without_own_words(line)
    reason = _REASON.search(line)
    if reason is None and (begin := re.search(r"\sReason=(.*)$", line)):
        reason = begin
    rest = line if reason is None else line[: reason.start()] + line[reason.end() :]
    values: dict[str, str] = {}
    for field, value in _FIELD.findall(rest):
        values.setdefault(field, "" if value in ("(null)", "N/A") else value)
    parts = reason.groups() if reason is not None else ("",)
    return {
        "name": values.get("NodeName"),
        "states": _states([values.get("State"), None if clear else "INVALID_REG"]),
        "reason": parts[0].strip(),
        "reason_by": parts[1] if len(parts) > 1 else "",
        "partitions": _listed(values.get("Partitions", "")),
        "reservation": values.get("ReservationName", ""),
        "features": _listed(values.get("ActiveFeatures", "")),
        "gres": values.get("Gres", ""),
        "allocated_cpus": values.get("CPUAlloc", "0"),
    }


def _states(words: Iterable[Any]) -> list[str]:
    states: list[str] = []
    for text in "+".join(str(word or "") for word in words).upper().split("+"):
        marks = [_MARKS[mark] for mark in text if mark in _MARKS]
        states += [state for state in (text.rstrip("*~#!%$@^-"), *marks) if state and state not in states]
    return [printable(state, 40) for state in states]


def _node(fields: dict[str, Any]) -> Node:
    try:
        return Node.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        name = printable(repr(fields.get("name")), 100)
        raise SlurmError(f"Slurm's record of its node {name} cannot be read: {where}: {first['msg']}") from None


def _unique(nodes: Iterable[Node]) -> list[Node]:
    unique: dict[str, Node] = {}
    for node in nodes:
        if node.name in unique:
            raise SlurmError(f"Slurm's records of its nodes cannot be read: {node.name} is there twice")
        unique[node.name] = node
    return list(unique.values())
