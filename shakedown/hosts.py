"""Hosts by name: ranges for an inventory file, the nodes that Slurm or Kubernetes has, and a person's choice of hosts.

    from shakedown.hosts import nodes

    rack7 = (nodes("node[01-08].rack7"), {"gpu": "mi300x", "nic": "thor2"})

A range is written as ClusterShell writes it. `folded` writes many names as ranges, and `select` reads what a person
writes to choose hosts: what the one writes, the other reads.
"""

import difflib
import functools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException
from ClusterShell.RangeSet import RangeSet, RangeSetException

from shakedown.common.lists import grouped
from shakedown.schedulers import registry
from shakedown.schedulers.interface import SchedulerError

_SPAN = re.compile(r"(?<=[\[,])(\d+)-(\d+)")
_MOST = 200_000  # hosts


def nodes(*patterns: str) -> list[str]:
    """Return the patterns' hosts in order, in ClusterShell's notation ("node[01-32]", "a,b"); "@name" is no group.
    Raises ValueError for an unreadable pattern or one without hosts."""
    ranges = [abs(int(high) - int(low)) for low, high in _SPAN.findall(" ".join(patterns))]
    try:
        sets = [NodeSet(text, resolver=RESOLVER_NOGROUP) for text in patterns if sum(ranges) <= _MOST]
        if sum(map(len, sets)) > _MOST or sum(ranges) > _MOST:
            raise ValueError(f"nodes({', '.join(map(repr, patterns))[:100]}): more than {_MOST} hosts")
        names = [name for found in sets for name in found]
        if apart := next((name for name in names if len(name.split()) > 1), ""):
            raise ValueError(
                f"nodes({', '.join(map(repr, patterns))[:100]}): {apart!r}: expected a comma between hosts"
            )
    except NodeSetException as error:
        form = 'expected a range from low to high, as "node[01-08]"'
        raise ValueError(f"nodes({', '.join(map(repr, patterns))}): {error}; {form}") from error
    if not names:
        raise ValueError(f"nodes({', '.join(map(repr, patterns))}): no host is named")
    return list(dict.fromkeys(names))


def slurm(*conditions: str, allow_allocated: bool = False) -> list[tuple[str, dict[str, object]]]:
    """Return the nodes that Slurm has in service and free. The others are named on standard error with their reason.

    A node has its name in Slurm as the host's own layer, so that Slurm is queried again before changes.

    + conditions: all of them hold: "partition=mi300x", "reservation=maintenance", "feature=rack7", "nodes=node[01-08]"
    + allow_allocated: nodes with jobs, too; changes there need `slurm.allow_allocated` as well

    Raises ValueError where Slurm does not answer, or has no such node to give.
    """
    names = scheduled("slurm", *conditions, allow_allocated=allow_allocated)
    return [(name, {"slurm": {"node": name}}) for name in names]


def kubernetes(*labels: str, context: str | None = None, allow_allocated: bool = False) -> list[str]:
    """Return a cluster's nodes in service and free. The others are named on standard error with their reason.

    + labels: selectors that all hold, as kubectl has them: "amd.com/gpu.product-name=AMD_Instinct_MI300X_OAM"
    + context: one of the kubeconfig; None: its current one, or the account of the pod that this runs in
    + allow_allocated: nodes with jobs, too

    Raises ValueError where the API server refuses or does not answer, or has no such node to give.
    """
    settings = {} if context is None else {"context": context}
    return scheduled("kubernetes", *labels, allow_allocated=allow_allocated, **settings)


def scheduled(scheduler: str, *conditions: str, allow_allocated: bool = False, **settings: Any) -> list[str]:
    """Return a scheduler's nodes in service and free; the others are named on standard error with their reason.

    + scheduler: the name of its folder in shakedown/schedulers
    + conditions: which nodes, as that scheduler reads them
    + allow_allocated: nodes with jobs, too
    + settings: keys of the scheduler's section in the desired state

    Raises ValueError where the scheduler refuses or does not answer, or has no such node to give.
    """
    call = f"{scheduler}({', '.join(map(repr, conditions))})"
    try:
        reasons = registry.find(scheduler)(settings).choose(conditions, allow_allocated)
    except (SchedulerError, ValueError) as error:
        raise ValueError(f"{call}: {error}") from error
    left_out = grouped((reason, name) for name, reason in reasons.items() if reason)
    lines = tuple(f"{named(names)}: {reason}" for reason, names in left_out.items())
    free = [name for name, reason in reasons.items() if not reason]
    if not free:
        problem = f"none of these nodes can be used: {'; '.join(lines)}" if lines else "there is no such node"
        raise ValueError(f"{call}: {problem}")
    _report(lines, scheduler.capitalize())
    return free


@functools.cache  # an inventory may be read more than once
def _report(lines: tuple[str, ...], who: str) -> None:
    for line in lines:
        print(f"left out, as {who} has it: {line}", file=sys.stderr)


# What is folded: ordinary names with at most four numbers (an IPv4 address has as many); more would cost seconds.
_FOLDABLE = re.compile(r"[A-Za-z0-9._-]{1,253}", re.ASCII)
_NUMBERS = re.compile(r"[0-9]+")
_MOST_NUMBERS, _LONGEST_NUMBER = 4, 15
_MANY = 32
# A name that looks like several, or like none, is quoted: it must not be read as a range that it is not.
_MISLEADING = re.compile(r"""[][,"'\s]|^$""")


def folded(names: Iterable[str]) -> str:
    """Return the names folded to ranges: "node[001-127,129],head"; others stand behind, quoted if ambiguous."""
    return _folded(tuple(dict.fromkeys(names)))


def named(names: Iterable[str], most: int = 8, longest: int = 240) -> str:
    """Return the names for a line: up to `most`, else as ranges; beyond `longest` characters the first and a count."""
    own = list(dict.fromkeys(names))
    if len(own) <= most:
        return ", ".join(own)
    ranges = folded(own)
    return ranges if len(ranges) <= longest else f"{', '.join(own[:most])} and {len(own) - most} more"


def few(names: Iterable[str], longest: int = 72) -> str:
    """Return the names for a line that has to stay short: one by one, else as ranges, else the first ones."""
    own = list(dict.fromkeys(names))
    text = named(own)
    if len(text) <= longest or len(text := folded(own)) <= longest:
        return text
    shown = list(own[:1])
    while len(", ".join(own[: len(shown) + 1])) <= longest - 15:
        shown.append(own[len(shown)])
    return f"{', '.join(shown)} and {len(own) - len(shown)} more"


@functools.lru_cache(maxsize=256)  # the same nodes are named with one finding after the other
def _folded(names: tuple[str, ...]) -> str:
    foldable = [name for name in names if _folds(name)]
    others = [name for name in names if not _folds(name)]
    ranges = []
    if row := _row(foldable):
        ranges = [row]
    elif foldable:
        try:
            ranges = [str(NodeSet.fromlist(foldable, resolver=RESOLVER_NOGROUP))]
        except NodeSetException:
            others = list(names)
    quoted = ['"{}"'.format(name.replace('"', '\\"')) if _MISLEADING.search(name) else name for name in others]
    return ",".join([*ranges, *quoted])


def _row(names: Sequence[str]) -> str:
    """Return many names that differ in one number of one width as ranges. ClusterShell takes a millisecond a name."""
    shapes = {_NUMBERS.sub("#", name) for name in names} if len(names) > _MANY else set()
    columns = list(zip(*map(_NUMBERS.findall, names), strict=True)) if len(shapes) == 1 else []
    varying = [at for at, column in enumerate(columns) if len(set(column)) > 1]
    if len(varying) != 1 or len({len(number) for number in columns[varying[0]]}) > 1:
        return ""
    numbers = [number[0] for number in columns]
    numbers[varying[0]] = f"[{RangeSet.fromlist(sorted(columns[varying[0]]))}]"
    first, *rest = shapes.pop().split("#")
    return first + "".join(number + text for number, text in zip(numbers, rest, strict=True))


def _folds(name: str) -> bool:
    if not _FOLDABLE.fullmatch(name):
        return False
    numbers = _NUMBERS.findall(name)
    return len(numbers) <= _MOST_NUMBERS and all(len(number) <= _LONGEST_NUMBER for number in numbers)


# A person's words for hosts, between commas. A comma in brackets or quotation marks separates nothing.
_TERM = re.compile(r"""(?:"[^"]*"|\[[^]]*\]|[^,])+""")
_RANGE = re.compile(r"\[([^][]*)\]")


def select(words: Iterable[str], names: Sequence[str], groups: Mapping[str, Iterable[str]] | None = None) -> list[str]:
    """Return the hosts among `names` that the words choose, in the order of `names`.

    Between commas stand names, ranges ("node[01-24,30]"), globs ("*.rack7"; only "*" is a wildcard), groups, "all",
    and names without their last parts where one host alone begins so. "!" before any of these leaves its hosts out.

    Raises ValueError with every part that chooses no host, and the nearest names, and where no host is left.
    """
    choice = _Choice(names, dict(groups or {}))
    wanted: set[str] = set()
    unwanted: set[str] = set()
    terms = [term for word in words for term in ([word] if choice.is_name(word) else _terms(word))]
    for term in terms:
        (unwanted if term.startswith("!") else wanted).update(choice.hosts(term.removeprefix("!").strip()))
    if choice.problems:
        raise ValueError("\n".join(choice.problems))
    if terms and all(term.startswith("!") for term in terms):
        wanted = set(names)
    chosen = wanted - unwanted
    if not chosen:
        raise ValueError(f"{','.join(terms) or 'nothing'}: leaves no host")
    return [name for name in names if name in chosen]


def globs(word: str) -> list[str]:
    """Return a person's words as globs of shells and pyinfra, with "!". Raises ValueError for an unreadable range."""
    try:
        return [name for term in _terms(word) for name, _ in _expanded(term)]
    except RangeSetException as error:
        raise ValueError(str(error)) from error


def _terms(word: str) -> list[str]:
    return [term.strip() for term in _TERM.findall(word) if term.strip()]


class _Choice:
    """Hosts to choose from, and what is wrong with the words for them."""

    def __init__(self, names: Sequence[str], groups: dict[str, Iterable[str]]) -> None:
        self.problems: list[str] = []
        self._names = dict.fromkeys(names)
        self._groups = {"all": names, **groups}

    def is_name(self, word: str) -> bool:
        """Return whether the whole word is a host or a group."""
        return word in self._names or word in self._groups

    def hosts(self, term: str) -> Iterable[str]:
        """Return the hosts of one term. What is wrong with it goes to the problems."""
        if f"{term[:1]}{term[-1:]}" == '""':
            term = term[1:-1].replace('\\"', '"')
        if term in self._names:
            return [term]
        if term in self._groups:
            return self._groups[term]
        try:
            wanted = list(_expanded(term))
        except (RangeSetException, ValueError):
            self.problems.append(f"{term}: expected numbers from low to high in brackets, as node[01-24,30]")
            return []
        found = {name: list(self._matching(name, glob)) for name, glob in wanted}
        if missing := [name for name, hosts in found.items() if not hosts]:
            self.problems.append(f"{term if len(missing) == len(found) else folded(missing)}: {self._nearest(missing)}")
        several = {n: hosts for n, hosts in found.items() if len(hosts) > 1 and "*" not in n and n not in self._groups}
        if several:
            longer = named(host for hosts in several.values() for host in hosts)
            short = folded(several)
            self.problems.append(f"{short}: {longer} begin so: give more of the name, or {short}.* for all of them")
        return [host for hosts in found.values() for host in hosts]

    def _matching(self, name: str, glob: re.Pattern[str]) -> Iterable[str]:
        if "*" in name:
            return filter(glob.fullmatch, self._names)
        if name in self._names:
            return [name]
        return self._groups.get(name) or self._beginnings.get(name, [])

    @functools.cached_property
    def _beginnings(self) -> dict[str, list[str]]:
        """Hosts by what their names may be shortened to: whole labels, but no part of an address."""
        names = [(name, name.split(".")) for name in self._names]
        return grouped(
            (".".join(labels[:count]), name)
            for name, labels in names
            for count in range(1, len(labels) if not labels[0].isdigit() else 1)
        )

    def _nearest(self, missing: Sequence[str]) -> str:
        numbers = {_numbers(name.rstrip("*")) for name in missing}
        short = {name: name if (first := name.partition(".")[0]).isdigit() else first for name in self._names}
        near = folded(name for name in short if {_numbers(name), _numbers(short[name])} & numbers)  # node1, NODE01
        words = dict.fromkeys([*self._groups, *short, *short.values()])
        near = near or ", ".join(difflib.get_close_matches(missing[0], words, n=3))
        hint = f"; the nearest: {near}" if near else ""
        groups = [group for group in self._groups if group != "all"]
        more = f", and the group{'s' if len(groups) > 1 else ''} {', '.join(groups)}" if groups else ""
        sign = "; only * is a wildcard" if "?" in missing[0] else ""
        return f"no such host{sign}{hint} (there are {named(self._names)}{more})"


def _numbers(name: str) -> str:
    """Return the name in small letters with its numbers as numbers, without zeros before them."""
    return re.sub("0*([0-9]+)", r"\1", name.lower())


def _expanded(term: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield the names that a term with ranges stands for, each with a pattern for what is around its numbers."""
    parts = _RANGE.split(term)  # text, range, text, range, text
    if any(sign in text for text in parts[::2] for sign in "[]"):
        raise ValueError("a bracket without its other half")
    for choice in product(*([part] if number % 2 == 0 else RangeSet(part) for number, part in enumerate(parts))):
        yield "".join(choice), _glob(choice)


def _glob(parts: Sequence[str]) -> re.Pattern[str]:
    """Return the pattern of text, number, text, and so on. A number is a whole one: 1* has no 10 among its names."""
    pattern = ""
    for number, part in enumerate(parts):
        if number % 2 == 0:
            pattern += re.escape(part).replace(r"\*", ".*")
        else:
            before, after = parts[number - 1][-1:], parts[number + 1][:1]
            pattern += ("(?<![0-9])" if before == "*" else "") + part + ("(?![0-9])" if after == "*" else "")
    return re.compile(pattern)
