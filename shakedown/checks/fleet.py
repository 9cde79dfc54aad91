"""Across nodes: every value that should be equal on the nodes of a group, and the odd one out.

The others are held to what at least half of a group's nodes have, and more than have any other value. Without such a
value no node can be called right, so every node of the group is a suspect. No operation fixes a difference in what a
node is made of, so an odd one out is a fail, or advice where `fleet.toml` says so.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from itertools import accumulate, islice
from operator import itemgetter
from statistics import median

from shakedown.checks import machines
from shakedown.checks.compare import comparison, read_again
from shakedown.checks.fleet_facts import (
    NONE,
    Facts,
    Values,
    different,
    equal_facts,
    is_asked,
    is_listed,
    knowledge,
    of_gpus,
)
from shakedown.common.lists import grouped
from shakedown.common.text import counted
from shakedown.desired.hca import library_digest
from shakedown.desired.models import DesiredState
from shakedown.desired.values import format_size
from shakedown.hosts import named
from shakedown.state import images as references
from shakedown.state.findings import Finding, Remedy, Verdict
from shakedown.state.memory import Memory
from shakedown.state.node import Lossless, NodeState, RdmaDevice, Reading, is_unreadable

_MOST_VALUES = 8  # of a subject, in one finding
_MOST_BLOCKS = 256  # of firmware, on one node: each GPU may name others, and a GPU has some 25
_MOST_ROWS = 1000  # of one table of one node: each becomes a row of all nodes
_LAYOUTS = {
    "gpu_count": ("gpu_numa", "gpu_slots"),
    "nic_count": ("nic_numa", "nic_slots", "nic_names", "nic_network", "link.*"),
    "nic_interfaces": ("nic_network",),
    "nic_netmask": ("nic_network",),
    "netmask": ("network",),
}
"""Facts about the order of devices, of networks, or of interfaces that are no NIC's: comparable where the count, or the
netmask, is the usual one."""


def outliers(
    states: Mapping[str, NodeState],
    groups: Mapping[str, str],
    desired: Mapping[str, DesiredState],
    clock_offsets: Mapping[str, tuple[float, float]] | None = None,
) -> list[Finding]:
    """Compare the nodes of `states`; only nodes of one group (node -> group) are compared with each other.

    `desired` says which images and which provider are meant. `clock_offsets` are the seconds that a node's clock
    was ahead of the controller's when its state was taken (the readings of different nodes are minutes apart), and how
    far that can be off: the clocks of all nodes are compared. A node without a difference has one finding, `fleet`,
    that says what was compared.
    """
    identities = {node: machines.identities(state) for node, state in states.items()}
    several = machines.repeated(identities)
    findings: list[Finding] = []
    for group, nodes in grouped((groups.get(node, ""), node) for node in states).items():
        values = comparable({node: states[node] for node in nodes}, desired)
        kinds = {id(of_node): of_node for of_node in values.values()}
        wanted = [desired[node] for node in nodes if node in desired]
        found = [
            finding
            for subject in _subjects(kinds.values())
            for finding in _odd(subject, group, values, declared=is_asked(subject, wanted))
        ]
        findings += found
        odd = {finding.node for finding in found}
        if len(nodes) > 1:
            equal = {kind: _equal(group, of_node, len(nodes)) for kind, of_node in kinds.items()}
            findings += [equal[id(values[node])].of(node) for node in nodes if node not in odd]
    alone = {node: state for node, state in states.items() if node not in several or several[node][0][0] == node}
    return [
        *findings,
        *machines.findings(identities, several),
        *machines.shared(alone),
        *_clock_skew(clock_offsets or {}, desired),
    ]


def comparable(states: Mapping[str, NodeState], desired: Mapping[str, DesiredState]) -> dict[str, Values]:
    """Return, for each node of one group, the texts that should be the same on all; nodes that agree in all of them
    share one dictionary. A fact that a node does not have is left out."""
    ask, images = Memory().ask, _images(states, desired)
    kinds: dict[str, tuple[Facts, list[str]]] = {}
    for node, state in states.items():
        held = equal_facts(desired.get(node), state, ask)
        held.texts |= ask(_parts, desired.get(node), state)
        kinds.setdefault(repr((held, images[node])), (held, []))[1].append(node)
    facts = {nodes[0]: held for held, nodes in kinds.values()}  # of the first node of each kind
    sizes = {nodes[0]: len(nodes) for _, nodes in kinds.values()}
    values = {node: dict(held.texts) for node, held in facts.items()}
    for subject in dict.fromkeys(subject for held in facts.values() for subject in held.amounts):
        for node, label in _classes(subject, facts, sizes).items():
            values[node][subject] = label
    for node, rows in _rows(facts).items():
        values[node] |= rows
    for count, layouts in _LAYOUTS.items():
        usual = Counter(str(values[nodes[0]].get(count)) for _, nodes in kinds.values() for _ in nodes).most_common(1)
        for texts in values.values():
            if str(texts.get(count)) != usual[0][0]:
                for subject in [name for name in texts if any(fnmatchcase(name, layout) for layout in layouts)]:
                    del texts[subject]
    for node, texts in values.items():
        texts |= images[node]
    first = {node: nodes[0] for _, nodes in kinds.values() for node in nodes}
    return {node: values[first[node]] for node in states}


def _classes(subject: str, facts: Mapping[str, Facts], sizes: Mapping[str, int]) -> Values:
    """Return the same text for amounts that agree within the subject's share: those of most nodes, and apart from them
    the others by the smallest. `sizes`: how many nodes have the same facts."""
    here = {node: held.amounts[subject] for node, held in facts.items() if subject in held.amounts}
    labels: Values = {node: amount for node, amount in here.items() if is_unreadable(amount)}
    most = 1 + knowledge()["share"][subject]
    ordered = sorted((amount, node) for node, amount in here.items() if not is_unreadable(amount))
    ends = [bisect_right(ordered, amount * most, key=itemgetter(0)) for amount, _ in ordered]
    held = list(accumulate((sizes[node] for _, node in ordered), initial=0))
    at = max(range(len(ordered)), key=lambda begin: held[ends[begin]] - held[begin], default=0)
    end = ends[at] if ordered else 0
    label, known = "", set[str]()
    for part in (ordered[at:end], ordered[:at], ordered[end:]):
        least = None
        for amount, node in part:
            if least is None or amount > least * most:
                least, shown = amount, format_size(amount)
                label = shown if shown not in known else f"{amount} bytes"
                known.add(label)
            labels[node] = label
    return labels


def _rows(facts: Mapping[str, Facts]) -> dict[str, Values]:
    """Return the rows of all tables; a row that other nodes have is "none" where a node lacks it."""
    rows: dict[str, Values] = {node: {} for node in facts}
    for table in dict.fromkeys(table for held in facts.values() for table in held.tables):
        here = {node: held.tables[table] for node, held in facts.items() if table in held.tables}
        for name in dict.fromkeys(name for readings in here.values() for name in islice(readings, _MOST_ROWS)):
            for node, readings in here.items():
                rows[node][f"{table}.{name}"] = readings.get(name, NONE)
    return rows


def _parts(desired: DesiredState | None, state: NodeState) -> Values:
    """Return firmware, settings of the fabric and libraries of a node."""
    values: Values = {}
    if not is_unreadable(state.gpus) and state.gpus:
        blocks = {block for gpu in state.gpus if not is_unreadable(gpu.firmware) for block in gpu.firmware}
        for block in sorted(blocks)[:_MOST_BLOCKS]:
            firmware = [held if is_unreadable(held := gpu.firmware) else held.get(block, NONE) for gpu in state.gpus]
            values[f"gpu_firmware.{block}"] = of_gpus(state.gpus, firmware)
        unread = next((gpu.firmware for gpu in state.gpus if is_unreadable(gpu.firmware)), None)
        # Without a name there is no block to miss it by, so that it was read at all is compared too.
        values["gpu_firmware"] = "read" if blocks or unread is None else unread
    devices = [] if is_unreadable(state.rdma) else state.rdma
    if devices:
        values |= _lossless(devices)
    if devices or (desired and desired.rdma.count):  # without a NIC nothing loads libibverbs
        abi = state.verbs.abi
        values["libibverbs"] = abi if is_unreadable(abi) else f"provider ABI {abi}"
    provider = desired.rdma.provider if desired else None
    if provider and (digest := library_digest(provider, state.verbs)):
        values[f"provider_library.{provider.name}"] = digest
    return values


_SILENT = "not reported"  # by the driver


def _lossless(devices: Sequence[RdmaDevice]) -> Values:
    """Read how the ports keep RoCE from losing packets. A port whose driver reports nothing differs from one whose
    driver does; where no port of the node reports anything, or one could not be read, the node cannot be compared."""
    ports = [device.lossless for device in devices if device.bdf]
    if ports and ports.count(ports[0]) == len(ports):
        ports = ports[:1]
    subjects: dict[str, Callable[[Lossless], Reading[str]]] = {
        "nic_pfc": lambda port: port.pfc if is_unreadable(port.pfc) else f"priorities {port.pfc}",
        "nic_dscp": lambda port: port.dscp if is_unreadable(port.dscp) else _pairs(port.dscp, ":"),
        "nic_trust": lambda port: port.trust if is_unreadable(port.trust) else ", ".join(port.trust or [_SILENT]),
        "nic_congestion": _congestion,
    }
    values: Values = {}
    for subject, read in subjects.items():
        readings = [port if is_unreadable(port) else read(port) for port in ports]
        unread = [reading for reading in readings if is_unreadable(reading)]
        hidden = next((reading for reading in unread if reading.unreadable != "missing"), None)
        if readings:
            silent = unread[0] if len(unread) == len(readings) else None
            values[subject] = hidden or silent or different(_SILENT if is_unreadable(r) else r for r in readings)
    return values


def _congestion(port: Lossless) -> Reading[str]:
    if is_unreadable(port.congestion):
        return port.congestion
    unread = next((value for value in port.congestion.values() if is_unreadable(value)), None)
    return unread or _pairs(port.congestion, "=")


def _pairs(values: Mapping[str, Reading[int]], sign: str) -> str:
    return " ".join(f"{name}{sign}{value}" for name, value in sorted(values.items())) or "none"


def _images(states: Mapping[str, NodeState], desired: Mapping[str, DesiredState]) -> dict[str, Values]:
    """Name the image that every node holds for a declared one, in words that are the same for the same image."""
    values: dict[str, Values] = {node: {} for node in states}
    declared = {node: desired[node].images if node in desired else {} for node in states}
    for name in dict.fromkeys(name for images in declared.values() for name in images):
        held, names = {}, dict[str, None]()
        for node, state in states.items():
            if name not in declared[node]:
                continue
            reference = references.parse(declared[node][name].reference)
            store, engine = state.containers.images, state.containers.engine
            if is_unreadable(store):
                values[node][f"image.{name}"] = store
            elif images := references.held(store, reference, engine):
                held[node] = images[0]
                names |= dict.fromkeys(reference.names(engine))
        for node, label in references.same(held, list(names)).items():
            values[node][f"image.{name}"] = label
    return values


def _subjects(kinds: Iterable[Values]) -> list[str]:
    """List what not all that have it have alike: a part's firmware that could not be read on one node is not there by
    name."""
    subjects = dict.fromkeys(subject for of_node in kinds for subject in of_node)
    return [name for name in subjects if len({of_node[name] for of_node in kinds if name in of_node}) > 1]


def _odd(subject: str, group: str, values: Mapping[str, Values], *, declared: bool) -> Iterator[Finding]:
    """Yield the findings of one subject: the minority, or all where there is no majority and the desired state does not
    say which is right (`declared`), and readings that failed there although they worked elsewhere."""
    here = {node: of_node[subject] for node, of_node in values.items() if subject in of_node}
    read = {node: value for node, value in here.items() if not is_unreadable(value)}
    advice = is_listed(subject, "advice")
    if not read or (advice and 2 * len(read) < len(here)):  # advice that most nodes cannot answer for holds up no node
        return
    ranking = Counter(read.values()).most_common()
    unread = {node: value for node, value in here.items() if is_unreadable(value) and not declared}
    if unread:
        wanted, where = _some([value for value, _ in ranking]), named(read)
        for node, reading in unread.items():
            evidence = f"{reading}; it was read on {where}"
            found = comparison(Verdict.UNKNOWN, wanted, None, evidence, read_again(reading))
            yield found.finding(f"fleet.{subject}", node)
    if len(ranking) == 1:
        return
    split = ranking[0][1] == ranking[1][1] or 2 * ranking[0][1] < len(read)
    if (split and declared) or (is_listed(subject, "majority") and 2 * ranking[0][1] <= len(read)):
        return
    usual = ranking[0][0]
    holders = grouped((value, node) for node, value in read.items())
    # The text stands in the finding of each node that differs, so it is as long for 4,000 nodes as for 40: every node
    # has its own value in a finding of its own.
    sides = _some([f"{value}: {named(holders[value])}" for value, _ in ranking])
    wanted = f"one value on {group or 'all nodes'}, there is no majority" if split else usual
    remedy = Remedy(
        text=f"decide which value of {subject} is right, since no value has a majority, and change the others"
        if split
        else f"bring {subject} to {usual}, as on {named(node for node, value in read.items() if value == usual)}"
    )
    for node, value in read.items():
        if split or value != usual:
            found = comparison(Verdict.WARN if advice else Verdict.FAIL, wanted, value, sides, remedy)
            yield found.finding(f"fleet.{subject}", node)


def _some(texts: Sequence[str]) -> str:
    more = f"and {len(texts) - _MOST_VALUES} more values"
    return "; ".join([*texts[:_MOST_VALUES], more] if len(texts) > _MOST_VALUES + 1 else texts)


def _equal(group: str, values: Values, nodes: int) -> Finding:
    """State that the comparison was made, and of what: silence would not tell equal from not compared."""
    seen = [subject for subject, value in values.items() if not is_unreadable(value)]
    wanted = f"as the other nodes of {group}" if group else "as the other nodes"
    evidence = f"compared over {counted(nodes, 'node')}: {', '.join(seen) or 'nothing could be read'}"
    remedy = Remedy(text="repair what keeps the other readings of this node, then check again")
    verdict, actual = (Verdict.OK, "as they are") if seen else (Verdict.UNKNOWN, None)
    return comparison(verdict, wanted, actual, evidence, remedy).finding("fleet", "")


@cache
def _agreeing(offsets: tuple[float, ...], limit: float) -> tuple[float, float]:
    """Return the bounds between which most clocks lie within the limit of each other, in each way of choosing as many;
    the bounds hold no clock where that is no majority. `offsets` are in order."""
    counts = [bisect_right(offsets, begin + limit) - at for at, begin in enumerate(offsets)]
    best = [at for at, count in enumerate(counts) if count == max(counts)]
    if 2 * max(counts) <= len(offsets):
        return math.inf, -math.inf
    return offsets[best[-1]], offsets[best[0] + counts[best[0]] - 1]


def _clock_skew(clocks: Mapping[str, tuple[float, float]], desired: Mapping[str, DesiredState]) -> Iterator[Finding]:
    """Check that the clocks lie within the limit. Where they do not, those further than half of it from the median are
    suspects, and outside the limit with most others: one wrong clock must not make the others look wrong, nor must a
    slow exchange."""
    if not clocks:
        return
    offsets = sorted(offset for offset, _ in clocks.values())
    middle, spread = median(offsets), max(offsets) - min(offsets)
    for node, (offset, error) in clocks.items():
        limit = desired[node].system.clock_skew_s if node in desired else None
        if limit is None:
            continue
        wanted = f"within {limit:g} s of each other"
        if len(clocks) == 1:
            alone = comparison(Verdict.OK, wanted, "no other", "the only node that was read")
            yield alone.finding("fleet.clock_skew", node)
            continue
        least, most = _agreeing(tuple(offsets), limit)
        right = spread <= limit or abs(offset - middle) <= limit / 2 or least <= offset <= most
        surely = abs(offset - middle) - error > limit / 2
        text = "start the node's time service, or step its clock" if surely else "read it again when less is going on"
        apart = f"against the median of {counted(len(clocks), 'node')}, {spread:.3f} s apart"
        evidence, off = f"{apart}; read to within {error:.3f} s", round(offset - middle, 3)
        verdict = Verdict.OK if right else Verdict.FAIL if surely else Verdict.UNKNOWN
        found = comparison(verdict, wanted, off, evidence, Remedy(text=text), unit="s")
        yield found.finding("fleet.clock_skew", node)
