"""What makes the findings of many nodes: each cause once, over a range of nodes, with its consequences folded under it.

Which finding follows from which is data of the checks (`follows` of a check, and of `checks/fleet.toml`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from shakedown import checks
from shakedown.checks.fleet_facts import follows
from shakedown.checks.missing import in_words, missing_devices
from shakedown.common.lists import grouped
from shakedown.common.text import counted, printable
from shakedown.hosts import folded
from shakedown.report.terminal import shown_values, value_text
from shakedown.state.findings import Finding, FixedBy, Risk, Verdict

if TYPE_CHECKING:
    from shakedown.gates import Gate


NAME = "NODE"
"""What stands in the texts of a row over several nodes where each had its own name."""


@dataclass(frozen=True)
class FoldedGate:
    """A gate that several nodes' own jobs came to; without `nodes` it is one of the job over all of them."""

    gate: Gate
    nodes: tuple[str, ...]

    @property
    def where(self) -> str:
        """The nodes as ranges; nothing for the job over all of them."""
        return folded(self.nodes)


def fold_gates(gates: Iterable[Gate]) -> list[FoldedGate]:
    """Return gates of the nodes' own jobs that came to the same as one; those of the job over all nodes as they are."""
    groups: dict[Hashable, tuple[Gate, dict[str, None]]] = {}
    for gate in gates:
        job = gate.job if gate.node is None else ""  # that of a node by itself has the node's name in it
        values = repr((gate.wanted, gate.actual))
        same = (gate.node is None, gate.name, gate.verdict, values, gate.unit, gate.evidence, gate.remedy, job)
        _, nodes = groups.setdefault(same, (gate, {}))
        if gate.node is not None:
            nodes[gate.node] = None
    return [FoldedGate(first, tuple(nodes)) for first, nodes in groups.values()]


def without_name(text: str, node: str) -> str:
    """Return the text with NODE where the node's own name stood as a word."""
    return _word(node).sub(NAME, text) if node and node in text else text


@functools.lru_cache(maxsize=4096)
def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)")


REACHABLE = "reachable"
VALUES = 3
"""Different values of one finding that are causes of their own; of more, and of what an operation fixes, one."""
LONGEST_DETAIL = 24
TEXT = 2000  # characters of one text of a node that are kept
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
_UNREADABLE = re.compile(r"unreadable \((.*?)\)(?=;|$)", re.MULTILINE)
_SEVERITY = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.DRIFT, Verdict.WARN)


@dataclass(frozen=True)
class Cause:
    """One cause: what is wrong, on which nodes, what is and what was wanted, and which findings follow from it. `names`
    are the findings that say it, `finding` is the first of them. `verdict` is the worst of it and of what follows: a
    module that is not loaded is drift, and the GPUs that are not there for it are a failure."""

    finding: Finding
    verdict: Verdict
    names: tuple[str, ...]
    nodes: tuple[str, ...]
    text: str
    action: str
    follows: tuple[str, ...] = ()

    @property
    def person(self) -> bool:
        """Whether a person has to do something."""
        return self.finding.fixed_by == FixedBy.PERSON and self.verdict != Verdict.WARN

    @property
    def fixable(self) -> bool:
        """Whether an operation fixes it."""
        return self.finding.fixed_by == FixedBy.OPERATION

    @property
    def name(self) -> str:
        """The names as one: "mtu.ens[0-7]np0", "sysctl (3)"."""
        check, _, detail = self.names[0].partition(".")
        if len(self.names) == 1:
            return self.names[0]
        details = folded(name.partition(".")[2] for name in self.names)
        return f"{check}.{details}" if detail and len(details) <= LONGEST_DETAIL else f"{check} ({len(self.names)})"

    @property
    def remedy(self) -> str:
        """What to do, with the node's name where there is only one."""
        return self.action.replace(NAME, self.nodes[0] if len(self.nodes) == 1 else "the node")

    @property
    def note(self) -> str:
        """How it is fixed, in a word or two: "fixable, reboot", "new login", "advice"; nothing for a person's work."""
        if self.verdict == Verdict.WARN:
            return "waived" if self.finding.waiver else "advice"
        by, remedy = self.finding.fixed_by, self.finding.remedy
        words = ["fixable"] if self.fixable else []
        if by == FixedBy.LOGIN or self.finding.new_login:
            words.append("new login")
        elif by == FixedBy.REBOOT or (self.fixable and remedy and remedy.risk == Risk.REBOOT):
            words.append("reboot")
        elif self.fixable and remedy and remedy.risk == Risk.DISRUPTIVE:
            words.append("stops jobs")
        return ", ".join(words)


def causes(findings: Iterable[Finding]) -> list[Cause]:
    """Return the causes of all findings that are not ok, the gravest first."""
    wrong: dict[str, dict[str, Finding]] = {}
    for finding in findings:
        if finding.verdict != Verdict.OK:
            wrong.setdefault(finding.node, {})[finding.name] = finding
    found = [cause for of_node in wrong.values() for cause in _roots(of_node)]
    # What is not shown divides nothing.
    shown = _combined(found, lambda cause: (cause.names, cause.text, cause.action), _of_all_nodes)
    together = _combined(_values_together(shown), _check_and_nodes, _of_several_names)
    together = _combined(together, _nodes_and_reason, _unread)
    return sorted((_with_what_follows(cause, wrong) for cause in together), key=_rank)


def _rank(cause: Cause) -> tuple[int, bool, bool, int, int]:
    """Return the place of a cause. A node that does not answer hides whatever else is wrong there. What was not read
    explains less than what was seen, whatever follows from either."""
    hides, unread = cause.names[0] == REACHABLE, cause.finding.verdict == Verdict.UNKNOWN
    return _SEVERITY.index(cause.verdict), not hides, unread, -len(cause.follows), -len(cause.nodes)


def _with_what_follows(cause: Cause, wrong: Mapping[str, Mapping[str, Finding]]) -> Cause:
    """Return the cause with the worst verdict of it and of what follows."""
    of_nodes = [wrong[node] for node in cause.nodes]
    verdicts = [found[name].verdict for found in of_nodes for name in (*cause.names, *cause.follows) if name in found]
    return replace(cause, verdict=max(verdicts, key=lambda verdict: verdict.severity))


# ---------------------------------------------------------------------------------------------------------- one node


def _roots(wrong: Mapping[str, Finding]) -> Iterator[Cause]:
    """Yield the causes of one node: the findings that no other finding of it brings about."""
    above = {name: _cause_of(finding, wrong) for name, finding in wrong.items()}
    below: dict[str, list[str]] = {}
    for name in wrong:
        root, seen = name, {name}
        while (higher := above[root]) is not None and higher not in seen:
            root = higher
            seen.add(root)
        if root != name:
            below.setdefault(root, []).append(name)
    for name, finding in wrong.items():
        if above[name] is None:
            text = printable(_words(finding), TEXT)
            follows = tuple(below.get(name, ()))
            yield Cause(finding, finding.verdict, (name,), (finding.node,), text, _remedy(finding), follows)


def _cause_of(finding: Finding, wrong: Mapping[str, Finding]) -> str | None:
    """Return the first of the other findings that brings this one about."""
    for pattern in _patterns(finding.name):
        name, _, part = pattern.partition("/")
        for cause in [wrong[name]] if name in wrong else wrong.values() if "*" in name else ():
            if cause.name != finding.name and _like(cause.name, name) and _explains(cause, finding, bool(part)):
                return cause.name
    return None


_like = functools.lru_cache(maxsize=65536)(fnmatchcase)


@functools.lru_cache(maxsize=4096)
def _patterns(name: str) -> tuple[str, ...]:
    """Return the patterns of the findings that bring about a finding of this name."""
    check, _, subject = name.partition(".")
    if check != "fleet":
        return checks.follows().get(check, ())
    return follows(subject)


def _explains(cause: Finding, finding: Finding, by_part: bool) -> bool:
    """Tell whether a fault accounts for another one: it is there now, and it is one of the same parts."""
    if cause.verdict == Verdict.WARN or str(cause.actual) == str(cause.wanted):
        return False
    parts = _parts(cause)
    if by_part:
        lines = finding.evidence.splitlines()
        return bool(parts and lines) and all(any(part in line for part in parts) for line in lines)
    if isinstance(finding.actual, Mapping):
        if isinstance(cause.actual, Mapping):
            return parts >= set(finding.actual)
        if isinstance(cause.actual, int):  # a missing device is no fault of one that is there, but may be one of all
            return len(finding.actual) >= cause.actual
    return True


def _parts(finding: Finding) -> set[str]:
    """Return the parts of the node that a finding names: they differ, or are missing."""
    if isinstance(finding.actual, Mapping):
        return set(map(str, finding.actual))
    return set(missing_devices(finding))


# -------------------------------------------------------------------------------------------------------- many nodes


def _groups(found: Sequence[Cause], key: Callable[[Cause], Hashable]) -> list[list[Cause]]:
    """Return the causes in groups of one verdict, one way to fix them and one key."""
    return list(grouped(((cause.verdict, cause.note, key(cause)), cause) for cause in found).values())


def _combined(
    found: Sequence[Cause], key: Callable[[Cause], Hashable], combine: Callable[[Sequence[Cause]], Cause]
) -> list[Cause]:
    """Return the causes of each group as one."""
    return [combine(group) for group in _groups(found, key)]


def _of_all_nodes(group: Sequence[Cause]) -> Cause:
    """Return the first cause of a group, over the nodes of all, with the consequences where there are most."""
    nodes = tuple(dict.fromkeys(node for cause in group for node in cause.nodes))
    return replace(group[0], nodes=nodes, follows=max((cause.follows for cause in group), key=len))


def _values_together(found: Sequence[Cause]) -> list[Cause]:
    """Return a finding with many values as one cause, which shows the most frequent of them."""
    together = []
    for group in _groups(found, lambda cause: cause.names):
        if len(group) <= (1 if group[0].fixable else VALUES):
            together += group
            continue
        group.sort(key=lambda cause: -len(cause.nodes))
        one = _of_all_nodes(group)
        others = len({cause.text for cause in group}) - 1
        together.append(replace(one, text=f"{one.text} and {counted(others, 'other value')}" if others else one.text))
    return together


def _of_several_names(group: Sequence[Cause]) -> Cause:
    """Return what one check finds of several things on the same nodes as one cause: an operation fixes them all, or
    they say the same."""
    texts = list(dict.fromkeys(cause.text for cause in group))
    if len(texts) > 1:
        texts = [f"{cause.names[0].partition('.')[2]}: {cause.text}" for cause in group]
    names = tuple(name for cause in group for name in cause.names)
    follows = tuple(dict.fromkeys(name for cause in group for name in cause.follows))
    return replace(group[0], names=names, text="; ".join(texts), follows=follows)


def _check_and_nodes(cause: Cause) -> Hashable:
    check, _, detail = cause.names[0].partition(".")
    if not detail or check == "fleet":
        return cause.names, cause.nodes, cause.text
    return check, cause.nodes, "" if cause.fixable else (cause.text, cause.action)


def _unread(group: Sequence[Cause]) -> Cause:
    """Return what could not be read on the same nodes for the same reason as one cause."""
    names = tuple(name for cause in group for name in (*cause.names, *cause.follows))
    return replace(group[0], follows=names[len(group[0].names) :])


def _nodes_and_reason(cause: Cause) -> Hashable:
    unread = cause.verdict == Verdict.UNKNOWN and cause.finding.actual is None
    return (cause.nodes, cause.action) if unread else (cause.nodes, cause.names, cause.text)


# ------------------------------------------------------------------------------------------------------------- words


def _words(finding: Finding) -> str:
    """Return what is and what was wanted, as people say it."""
    evidence = without_name(finding.evidence.partition("\n")[0], finding.node)
    if finding.verdict == Verdict.UNKNOWN and finding.actual is None:
        unread = _UNREADABLE.search(evidence)
        return f"not read: {unread[1]}" if unread else evidence or "not read"
    wanted, actual = shown_values(finding.model_copy(update={"persisted": None}))
    if isinstance(finding.actual, Mapping):
        actual = _of_parts(finding.actual, finding.unit)
    if isinstance(finding.wanted, list) and isinstance(finding.actual, list):
        now = finding.actual != finding.wanted
        lacking = [item for item in finding.wanted if item not in (finding.actual if now else finding.persisted or [])]
        return f"{'' if now else 'the next boot '}lacks {value_text(lacking)}"
    if str(finding.actual) == str(finding.wanted):
        later = value_text(finding.persisted, finding.unit)
        return f"{value_text(finding.actual, finding.unit)} now, {later} at the next boot"
    if finding.unit and wanted.endswith(f" {finding.unit}") and actual.endswith(f" {finding.unit}"):
        wanted = wanted.removesuffix(f" {finding.unit}")
    if not finding.name.startswith("fleet."):  # which name nodes and values of several nodes
        actual = without_name(actual, finding.node)
    if finding.name == REACHABLE:
        return _ADDRESS.sub("*", actual)
    if finding.name.endswith("kernel_log"):
        return f"{actual}: {evidence}"
    if wanted.startswith("no ") or _is_statement(finding):
        return actual
    if missing_devices(finding):
        return in_words(finding)
    return f"{actual}, wanted {without_name(wanted, finding.node)}"


def _is_statement(finding: Finding) -> bool:
    """Tell whether the actual value says what is wrong without the wanted one: "there is no /dev/kfd"."""
    texts = [value for value in (finding.actual, finding.wanted) if isinstance(value, str)]
    return len(texts) == 2 and min(text.count(" ") for text in texts) > 1 and not finding.name.startswith("fleet.")


def _of_parts(values: Mapping[str, Any], unit: str | None) -> str:
    """Return the parts that differ with what they have, those with one value together."""
    texts = []
    for value, parts in grouped((value_text(value, unit), str(part)) for part, value in values.items()).items():
        names = folded(parts)
        texts.append(f"{names if len(names) <= LONGEST_DETAIL else counted(len(parts), 'device')}: {value}")
    return ", ".join(texts)


def _remedy(finding: Finding) -> str:
    text = printable(without_name(finding.remedy.text, finding.node), TEXT).strip() if finding.remedy else ""
    return text and f"{text[0].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
