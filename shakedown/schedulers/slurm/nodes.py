"""Slurm's nodes as typed values, from `scontrol --oneliner show nodes`. Every version has this text, and 22.05 and
24.11 write it alike; `scontrol --json` begins with 23.02, a build may lack it, and its shapes differ."""

import contextlib
import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from shakedown.common.frozen import Frozen, first_problem
from shakedown.common.text import printable
from shakedown.schedulers.slurm import commands
from shakedown.schedulers.slurm.commands import SlurmError

_KINDS = ("draining", "gone", "taken", "idle", "beside")
DRAINING, GONE, TAKEN, IDLE, BESIDE = (frozenset(commands.WORDS["node"][kind]) for kind in _KINDS)
_MARKS: dict[str, str] = commands.WORDS["mark"]


def _listed(value: str) -> list[str]:
    return [part for part in value.split(",") if part]


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$")]
Text = Annotated[str, AfterValidator(lambda text: printable(text, 500))]
Count = Annotated[int, Field(ge=0, le=1 << 40)]


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
        return bool(DRAINING & set(self.states))

    @property
    def down(self) -> bool:
        """Tell whether the node cannot take jobs now: down, silent, powered down, or wrongly registered."""
        return bool(GONE & set(self.states))

    @property
    def allocated(self) -> bool:
        return bool(TAKEN & set(self.states)) or self.allocated_cpus > 0

    @property
    def gpus(self) -> int:
        """Count the GPUs that the node is configured with, of all types: "gpu:mi300x:8(S:0-1)" has 8."""
        return sum(map(int, re.findall(r"(?:^|,)gpu:(?:[^:,()]+:)?(\d{1,4})(?=[(,]|$)", self.gres)))

    def why_not(self, allow_allocated: bool = False) -> str:
        """Return why the node cannot be used, for a person; empty: it can."""
        state = "+".join(self.states).lower()
        if self.drained or self.down:
            who = f" [{self.reason_by}]" if self.reason_by else ""
            return f"{state}: {self.reason}{who}" if self.reason else state
        if self.allocated and not allow_allocated:
            return f"{state}: a job is on it"
        usable = IDLE | TAKEN | BESIDE
        if not (set(self.states) <= usable and (self.allocated or IDLE & set(self.states))):
            return f"{state}: shakedown does not know this state, so the node counts as taken"
        return ""


def read(names: Iterable[str] = ()) -> list[Node]:
    """Return all nodes, or the named ones, in Slurm's order. Raise SlurmError, and Absent for an unknown name."""
    wanted = list(names)
    nodes = _from_listing(wanted)
    there = {node.name for node in nodes}
    if absent := [name for name in wanted if name not in there]:
        raise commands.Absent(f"Slurm has no node {', '.join(absent)}; what it has is shown by: scontrol show nodes")
    return nodes


def jobs_on(names: Iterable[str], but: int | None = None) -> dict[str, list[str]]:
    """Return the jobs that hold each node now, as "4711 of alice", without the job `but`. Free nodes are absent; a node
    whose job squeue hides from this user is held by its own state. Raise SlurmError."""
    if not (wanted := set(names)):
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


def _show(wanted: list[str]) -> str:
    return commands.run("scontrol", "--oneliner", "show", "nodes", *([commands.as_list(wanted)] if wanted else []))


def _from_listing(wanted: list[str]) -> list[Node]:
    """Read the text. Where a node's own words may hold another node's line, request every node alone."""
    if len(wanted) != 1:
        text = _show(wanted)
        if not wanted or sorted(_BEGIN.findall(text)) == sorted(set(wanted)):
            with contextlib.suppress(SlurmError):
                return from_text(text)
    there = wanted or commands.run("sinfo", "--noheader", "--Node", "--format=%N").split()
    return [_alone(name) for name in dict.fromkeys(there)]


def _alone(name: str) -> Node:
    node = _node(" ".join(_show([name]).split("\n")))
    if node.name != name:
        raise commands.Absent(f"Slurm has no node {name}: it answered with {node.name}")
    return node


def from_text(text: str) -> list[Node]:
    """Read `scontrol --oneliner show nodes`. Raise SlurmError."""
    if text.strip() == "No nodes in the system":
        return []
    unique: dict[str, Node] = {}
    for node in map(_node, _lines(text)):
        if node.name in unique:
            raise SlurmError(f"Slurm's records of its nodes cannot be read: {node.name} is there twice")
        unique[node.name] = node
    return list(unique.values())


def _lines(text: str) -> list[str]:
    """Return one line for each node: a reason may have line ends in it."""
    records = re.split(r"\n(?=NodeName=)", text)
    return [" ".join(line for line in record.split("\n") if line.strip()) for record in records if record.strip()]


def _without_own_words(line: str) -> tuple[str, bool]:
    """Return a record without the node's own words, and whether it is clear which fields are Slurm's."""
    if (head := _HEAD.match(line)) is None:
        return line, True
    name, _, rest = head[0].partition(" ")
    tail, middle = line[head.end() :], list(_MIDDLE.finditer(f" {rest}"))
    if len(middle) != 1:
        return name + tail, False
    fields = f" {rest}"[middle[0].start() :]
    if own_words := _AT_ITS_END.search(fields):
        fields = fields[: own_words.start()]
    return name + fields + tail, True


def _node(line: str) -> Node:
    line, clear = _without_own_words(line)
    reason = _REASON.search(line) or re.search(r"\sReason=(.*)$", line)
    rest = line if reason is None else line[: reason.start()] + line[reason.end() :]
    values: dict[str, str] = {}
    for field, value in _FIELD.findall(rest):
        values.setdefault(field, "" if value in ("(null)", "N/A") else value)
    parts = reason.groups() if reason is not None else ("",)
    fields = {
        "name": values.get("NodeName"),
        "states": _states(values.get("State", "") + ("" if clear else "+INVALID_REG")),
        "reason": parts[0].strip(),
        "reason_by": parts[1] if len(parts) > 1 else "",
        "partitions": _listed(values.get("Partitions", "")),
        "reservation": values.get("ReservationName", ""),
        "features": _listed(values.get("ActiveFeatures", "")),
        "gres": values.get("Gres", ""),
        "allocated_cpus": values.get("CPUAlloc", "0"),
    }
    try:
        return Node.model_validate(fields)
    except ValidationError as error:
        name = printable(repr(fields["name"]), 100)
        raise SlurmError(f"Slurm's record of its node {name} cannot be read: {first_problem(error)}") from None


def _states(text: str) -> list[str]:
    states: list[str] = []
    for word in text.upper().split("+"):
        marks = [_MARKS[mark] for mark in word if mark in _MARKS]
        states += [state for state in (word.rstrip("*~#!%$@^-"), *marks) if state and state not in states]
    return [printable(state, 40) for state in states]
