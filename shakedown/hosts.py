"""What an inventory file needs: ranges of hosts, and the nodes that Slurm or Kubernetes has.

    from shakedown.hosts import nodes

    rack7 = (nodes("node[01-08].rack7"), {"gpu": "mi300x", "nic": "thor2"})

A range is written as ClusterShell writes it, and `folded` writes one of many names.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable
from typing import Any

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from shakedown.schedulers import registry
from shakedown.schedulers.interface import SchedulerError


def nodes(*patterns: str) -> list[str]:
    """Return the hosts of the patterns in order, in ClusterShell's notation ("node[01-32]", "rack[1-2]n[1-8]", "a,b").

    Raises ValueError for a pattern that cannot be read or that names no host: an inventory without hosts must never
    look like a healthy rack. "@name" is a name, and no group of a ClusterShell configuration.
    """
    try:
        names = [name for pattern in patterns for name in NodeSet(pattern, resolver=RESOLVER_NOGROUP)]
    except NodeSetException as error:
        form = 'expected a range from low to high, as "node[01-08]"'
        raise ValueError(f"nodes({', '.join(map(repr, patterns))}): {error}; {form}") from error
    if not names:
        raise ValueError(f"nodes({', '.join(map(repr, patterns))}): no host is named")
    return list(dict.fromkeys(names))


def slurm(*conditions: str, allow_allocated: bool = False) -> list[tuple[str, dict[str, object]]]:
    """Return the nodes that Slurm has in service and free. The others are named on standard error with their reason.

    A node comes with its name in Slurm as the host's own layer, so that Slurm is queried again before anything is
    changed there.

    + conditions: all of them hold: "partition=mi300x", "reservation=maintenance", "feature=rack7", "nodes=node[01-08]"
    + allow_allocated: take nodes on which jobs run as well. Nothing is changed there all the same unless the desired
      state allows it, `slurm.allow_allocated`

    Raises ValueError where Slurm does not answer, or has no such node to give.
    """
    names = scheduled("slurm", *conditions, allow_allocated=allow_allocated)
    return [(name, {"slurm": {"node": name}}) for name in names]


def kubernetes(*labels: str, context: str | None = None, allow_allocated: bool = False) -> list[str]:
    """Return the nodes of a cluster that are in service and free, by their names there.

    The others are named on standard error with their reason.

    + labels: selectors that all hold, as kubectl has them: "amd.com/gpu.product-name=AMD_Instinct_MI300X_OAM"
    + context: one of the kubeconfig; None: its current one, or the account of the pod that this runs in
    + allow_allocated: take nodes on which jobs run as well

    Raises ValueError where the API server does not answer or refuses, and where it has no such node to give.
    """
    settings = {} if context is None else {"context": context}
    return scheduled("kubernetes", *labels, allow_allocated=allow_allocated, **settings)


def scheduled(scheduler: str, *conditions: str, allow_allocated: bool = False, **settings: Any) -> list[str]:
    """Return the nodes that a scheduler has in service and free, by their names there. The others are left out, and
    named on standard error with their reason.

    + scheduler: the name of its folder in shakedown/schedulers
    + conditions: which nodes, as that scheduler reads them
    + allow_allocated: take nodes on which jobs run as well
    + settings: keys of the scheduler's section in the desired state

    Raise ValueError where the scheduler does not answer or refuses, and where it has no such node to give.
    """
    call = f"{scheduler}({', '.join(map(repr, conditions))})"
    try:
        reasons = registry.connect(scheduler, settings).choose(conditions, allow_allocated)
    except (SchedulerError, ValueError) as error:
        raise ValueError(f"{call}: {error}") from error
    lines = tuple(_left_out({name: reason for name, reason in reasons.items() if reason}))
    free = [name for name, reason in reasons.items() if not reason]
    if not free:
        problem = f"none of these nodes can be used: {'; '.join(lines)}" if lines else "there is no such node"
        raise ValueError(f"{call}: {problem}")
    _report(lines, scheduler.capitalize())
    return free


def _left_out(reasons: dict[str, str]) -> list[str]:
    """Yield a line for each reason, with the nodes that have it."""
    having: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        having.setdefault(reason, []).append(name)
    return [f"{named(names)}: {reason}" for reason, names in having.items()]


@functools.cache  # an inventory may be read more than once
def _report(lines: tuple[str, ...], who: str) -> None:
    for line in lines:
        print(f"left out, as {who} has it: {line}", file=sys.stderr)


# What is folded: ordinary names with at most four numbers (an IPv4 address has as many); more would cost seconds.
_FOLDABLE = re.compile(r"[A-Za-z0-9._-]{1,253}", re.ASCII)
_NUMBERS = re.compile(r"[0-9]+")
_MOST_NUMBERS, _LONGEST_NUMBER = 4, 15
# A name that looks like several, or like none, is quoted: it must not be read as a range that it is not.
_MISLEADING = re.compile(r"""[][,"'\s]|^$""")


def folded(names: Iterable[str]) -> str:
    """Return the names as ranges: "node[001-127,129],head", without repetition, whatever their order.

    What ClusterShell cannot fold stands alone behind the ranges, in quotation marks where it could be read as several
    names.
    """
    return _folded(tuple(dict.fromkeys(names)))


def named(names: Iterable[str], most: int = 8, longest: int = 240) -> str:
    """Return the names for a line of text: one by one up to `most`, as ranges beyond that.

    Ranges longer than `longest` characters become the first names and how many more there are.
    """
    own = list(dict.fromkeys(names))
    if len(own) <= most:
        return ", ".join(own)
    ranges = folded(own)
    return ranges if len(ranges) <= longest else f"{', '.join(own[:most])} and {len(own) - most} more"


@functools.lru_cache(maxsize=256)  # the same nodes are named with one finding after the other
def _folded(names: tuple[str, ...]) -> str:
    foldable = [name for name in names if _folds(name)]
    others = [name for name in names if not _folds(name)]
    ranges = []
    if foldable:
        try:
            ranges = [str(NodeSet.fromlist(foldable, resolver=RESOLVER_NOGROUP))]
        except NodeSetException:
            others = list(names)
    return ",".join([*ranges, *map(_as_one, others)])


def _as_one(name: str) -> str:
    return '"{}"'.format(name.replace('"', '\\"')) if _MISLEADING.search(name) else name


def _folds(name: str) -> bool:
    if not _FOLDABLE.fullmatch(name):
        return False
    numbers = _NUMBERS.findall(name)
    return len(numbers) <= _MOST_NUMBERS and all(len(number) <= _LONGEST_NUMBER for number in numbers)
