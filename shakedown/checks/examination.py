"""What all nodes of an inventory were found to be: the states, those that gave none, and the findings.

Pure: the states come in, the findings go out. `runner/examine.py` reads the nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import Any

from pydantic import ValidationError

from shakedown import checks
from shakedown.checks import cabling, fleet, kernel
from shakedown.checks.compare import comparison
from shakedown.checks.fleet_facts import follows
from shakedown.checks.missing import name_missing
from shakedown.checks.waivers import on_node, waive
from shakedown.common.lists import grouped
from shakedown.common.text import counted, printable
from shakedown.desired.models import DesiredState
from shakedown.desired.resolve import at_home
from shakedown.hosts import few
from shakedown.state.findings import Finding, FixedBy, Remedy, Verdict, worst
from shakedown.state.memory import Memory
from shakedown.state.node import NodeState, share_texts

HOME_SHOWN = 200
"""Characters of a home that a node names."""


@dataclass(frozen=True)
class Reading:
    """One node's answer: its state, or why there is none, what was `tried` and at which `address`.

    `clock_offset_s` is the node's clock minus the controller's, at the middle of the exchange; it can be off by
    `clock_error_s`, half the time that the exchange took besides the probe's own work.
    """

    state: NodeState | None = None
    why: str = ""
    tried: str = "connection"
    address: str = ""  # name or address that was connected to; empty: no other than the node's name
    clock_offset_s: float = 0.0
    clock_error_s: float = 0.0
    signed: Any = None  # the node's signature on it (runs/signing/nodes.py); None: runs are not signed


@dataclass
class Examination:
    """The nodes in inventory order, with what each should be, what it is, and the comparison of the two."""

    desired: dict[str, DesiredState]
    groups: Mapping[str, str] = field(default_factory=dict)  # node -> the group it is compared within
    readings: dict[str, Reading] = field(default_factory=dict)
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    uncompared: bool = False  # whether a node was read, and judged alone, since all were compared with each other

    def __post_init__(self) -> None:
        self.desired = dict(self.desired)  # our own: no other holder sees what is kept below
        self._alone: dict[str, tuple[Reading, list[Finding]]] = {}  # node -> its findings without the other nodes
        self._memory = Memory()
        self._found_by = cache(self._found_by_each)
        self._alike: dict[tuple[Any, ...], tuple[DesiredState, ...]] = {}  # the given ones, those at home, the common
        self._common: dict[str, DesiredState] = {}  # node -> the first with the same values in all that checks read
        self._shared: dict[str, DesiredState] = {}  # what checks read of a desired state -> the first such
        self._beside: dict[str, list[Finding]] = defaultdict(list)  # node -> its findings beside the other nodes

    def keep(self, node: str, reading: Reading) -> None:
        """Keep a node's answer. It says where the {home} of its desired state is; an answer with which that state would
        be invalid counts as none."""
        if reading.state is not None:
            home = reading.state.account.home
            try:
                given = self.desired[node]
                place = id(given), home
                if place not in self._alike:
                    at = at_home(given, home)
                    self._alike[place] = given, at, self._first(at)
                _, self.desired[node], self._common[node] = self._alike[place]
            except ValidationError as error:
                key = ".".join(map(str, error.errors()[0]["loc"][:2]))  # what follows may be the node's own words
                why = f"it names {printable(repr(home), HOME_SHOWN)} as its user's home, which {key} cannot have"
                reading = Reading(None, why, tried="probe")
        self.readings[node] = reading

    def judge(self) -> None:
        """Compare again after readings came in. Raise nothing for a bad node."""
        offsets = {n: (r.clock_offset_s, r.clock_error_s) for n, r in self.readings.items() if r.state is not None}
        states = self.states
        groups = {node: self.groups.get(node, "") for node in states}
        try:
            found = self._accepted(fleet.outliers(states, groups, self.desired | self._common, offsets), groups)
            found += kernel.own_lines(states, groups, self.desired)
            found += cabling.swapped(states, self.desired)
        except Exception as error:
            evidence = f"the comparison of the nodes with each other failed: {type(error).__name__}: {error}"
            failed = comparison(Verdict.UNKNOWN, None, None, evidence, checks.REPORT)
            found = [failed.finding("fleet", node) for node in states]
        self._beside.clear()
        for finding in found:
            share_texts(finding)
            self._beside[finding.node].append(finding)
        for node, beside in self._beside.items():
            if self.desired[node].waivers:
                desired = on_node(self.desired[node], node)
                self._beside[node] = waive(beside, desired, states.get(node), checks.not_waivable())
        self.findings = {}
        for node in self.desired:
            if node in self.readings:
                self.judge_alone(node)
        name_missing(states, groups, self.findings)
        self.uncompared = False

    def _accepted(self, found: list[Finding], groups: Mapping[str, str]) -> list[Finding]:
        """Accept a node that differs from most where its own finding is ok and that of most is not: of those the fault
        is named, and a remedy that leads to their value would spread it."""
        own = {node: {f.name: f.verdict.passes for f in self._own(node)} for node in groups}
        size, names = Counter(groups.values()), dict.fromkeys(name for verdicts in own.values() for name in verdicts)

        @cache
        def right(group: str, subject: str) -> Collection[str]:
            patterns = follows(subject)
            causes = {name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)}
            here = {node: [own[node][name] for name in causes if name in own[node]] for node in own}
            wrong = sum(not all(here[node]) for node in here if groups[node] == group)
            return {node for node in here if here[node] and all(here[node])} if 2 * wrong > size[group] else ()

        return [
            finding.model_copy(update={"verdict": Verdict.OK, "wanted": finding.actual, "remedy": None})
            if finding.verdict in (Verdict.FAIL, Verdict.WARN)
            and finding.node in right(groups[finding.node], finding.name.removeprefix("fleet."))
            else finding
            for finding in found
        ]

    def compare(self) -> None:
        """Compare again if a node was read, and judged alone, since all were compared."""
        if self.uncompared:
            self.judge()

    def judge_alone(self, node: str) -> None:
        """Compare one node again after it was read. What it is beside the other nodes stands until `judge`, which
        costs as much as there are nodes."""
        self.findings[node] = [*self._own(node), *self._beside.get(node, ())]

    def _own(self, node: str) -> list[Finding]:
        """Return what a node is without the other nodes, worked out once for each reading."""
        reading = self.readings[node]
        if node not in self._alone or self._alone[node][0] is not reading:
            if reading.state is None:
                found = [unreached(node, reading.why, reading.tried)]
            else:
                desired = on_node(self.desired[node], node)
                common = self._common.get(node) if desired is self.desired[node] else None
                ask = partial(self._ask, common or self._first(desired))
                found = checks.evaluate(desired, reading.state, node, ask)
            self._alone[node] = reading, found
            self.uncompared = True
        return self._alone[node][1]

    def _first(self, desired: DesiredState) -> DesiredState:
        content = desired.model_dump_json(include=checks.sections(), exclude={"rdma": {"cabling"}})
        return self._shared.setdefault(content, desired)

    def _ask(
        self, shared: DesiredState, module: checks.Module, desired: DesiredState, state: NodeState, node: str
    ) -> list[Finding]:
        """Return the findings of a module's checks. Of 5,000 nodes there are 300,000, and most are those of another
        node but for its name: they are made, and looked through, once. Where each node has its own, single checks may
        still find the same. `shared`: the desired state of the first node with the same values in all that checks
        read, but for the cables of each node, which one module reads."""
        if ("cabling", cabling.cabling) in module:
            return checks.findings_of(module, desired, state, node)
        found = self._memory.ask(self._found_by(module), shared, state)
        return [finding.of(node) for finding in found]

    def _found_by_each(self, module: checks.Module) -> Callable[[DesiredState, NodeState], list[Finding]]:
        """Return the function that returns what a module's checks find, for a node without a name."""
        alone = [partial(checks.findings_of, ((name, check),), node="") for name, check in module]
        return lambda desired, state: [found for ask in alone for found in self._memory.ask(ask, desired, state)]

    def state_of(self, node: str) -> NodeState | None:
        """Return the state of a node that answered; None of another."""
        return self.readings[node].state if node in self.desired and node in self.readings else None

    @property
    def states(self) -> dict[str, NodeState]:
        """Return the nodes that answered, in inventory order."""
        found = {node: self.state_of(node) for node in self.desired}
        return {node: state for node, state in found.items() if state is not None}

    @property
    def answered(self) -> int:
        """Count how many nodes answered: with their state, or with findings of their own."""
        return sum(all(finding.name != "reachable" for finding in found) for found in self.findings.values())

    def not_secret(self) -> frozenset[str]:
        """Return the variables that the sites declare to be no secrets, whatever their names look like."""
        smokes = [desired.smoke for desired in self.desired.values() if desired.smoke is not None]
        return frozenset(name for smoke in smokes for name in smoke.not_secret)

    def all_findings(self) -> list[Finding]:
        """Every finding, node by node in inventory order."""
        return [finding for node in self.desired for finding in self.findings.get(node, [])]

    def verdict(self) -> Verdict:
        """Return the worst of all findings; unknown when there are none."""
        return worst([finding.verdict for finding in self.all_findings()])

    def verdict_of(self, node: str) -> Verdict:
        """Return a node's worst finding. A node without a requested check is ok as long as it answered."""
        verdicts = [finding.verdict for finding in self.findings.get(node, [])]
        if not verdicts and self.state_of(node) is not None:
            return Verdict.OK
        return worst(verdicts)

    def blockers(self, node: str) -> list[Finding]:
        """Return the findings that keep a node out of the smoke run: what failed, and what could not be read."""
        return [f for f in self.findings.get(node, []) if f.verdict in (Verdict.FAIL, Verdict.UNKNOWN)]

    def warnings(self) -> dict[str, list[str]]:
        """Return the names of the findings that are advice, by node; they have no part in any verdict."""
        every = ((node, finding) for node, findings in self.findings.items() for finding in findings)
        return grouped((node, f.name) for node, f in every if f.verdict == Verdict.WARN and not f.waiver)

    def fixable(self, node: str) -> list[Finding]:
        """Return the findings of a node that an operation would fix."""
        return [finding for finding in self.findings.get(node, []) if finding.fixed_by == FixedBy.OPERATION]


def resting(findings: Iterable[Finding]) -> str:
    """Return which nodes' verdicts rest on which waivers, in a sentence; nothing where none does."""
    nodes = grouped(dict.fromkeys((finding.waiver, finding.node) for finding in findings if finding.waiver))
    count = len({node for held in nodes.values() for node in held})
    what = ", ".join(f"{printable(name)} ({few(held)})" for name, held in nodes.items())
    rest = "verdict of 1 node rests" if count == 1 else f"verdicts of {count} nodes rest"
    return f"the {rest} on {counted(len(nodes), 'waiver')}: {what}" if nodes else ""


def unreached(node: str, why: str, tried: str) -> Finding:
    """Return the finding of a node that could not be examined. `tried`: the address, or `connection` where there is
    none (this machine, or an allocation of a scheduler)."""
    elsewhere = tried == "connection"
    wanted = "answers and runs the probe" if elsewhere else "answers over SSH and runs the probe"
    remedy = (
        "repair what the reason names"
        if elsewhere and why
        else "see whether the node is up, and what its console shows"
        if elsewhere
        else f"log in to {node} by hand with the inventory's user and key"
    )
    return comparison(Verdict.FAIL, wanted, why or "no answer", tried, Remedy(text=remedy)).finding("reachable", node)
