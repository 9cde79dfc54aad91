"""The rule: which rank do the others wait for? A rank that did not enter a collective in which others wait, and that
waits in no collective itself. Pure; where the records leave it open, no rank is named."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Literal

from shakedown.common.frozen import Frozen
from shakedown.common.text import counted, some

Why = Literal["missing", "other collective", "other sizes", "no answer", "all entered", "link", "open"]


class Collective(Frozen):
    """One collective as a rank has it in its record: `sequence` counts those of its process group, from 1."""

    group: str
    sequence: int
    operation: str  # "all_reduce", whatever backend
    sizes: tuple[tuple[int, ...], ...] = ()  # of the inputs
    over: bool  # it is through with it

    def __str__(self) -> str:
        sizes = " and ".join("x".join(map(str, size)) or "one number" for size in self.sizes)
        of = f" (inputs: {sizes})" if sizes else ""
        return f"{self.operation} number {self.sequence}{of} in process group {self.group}"


class Rank(Frozen):
    """What is known of one rank. Without a flight record it has not answered, or has none."""

    rank: int
    node: str
    answered: bool = False  # its flight record is there
    state: str = ""  # of its process: R, S, D, T
    wchan: str = ""  # what it waits for in the kernel
    last: dict[str, int] = {}  # process group -> the last collective that it came to; 0: none
    collectives: tuple[Collective, ...] = ()
    groups: dict[str, tuple[int, ...]] = {}  # process group -> its ranks, as far as this one knows
    unacknowledged: tuple[str, ...] = ()  # addresses whose end of a connection does not acknowledge
    stacks: str = ""

    @property
    def waits_in(self) -> list[Collective]:
        """The collectives that it has come to and is not through with: the oldest of each group."""
        waiting: dict[str, Collective] = {}
        for collective in self.collectives:
            if not collective.over and (
                collective.group not in waiting or collective.sequence < waiting[collective.group].sequence
            ):
                waiting[collective.group] = collective
        return list(waiting.values())


class Hang(Frozen):
    """What a standstill comes to. `culprits` are the ranks that others wait for, for certain; where there are none, the
    `nodes` are those that come into question."""

    why: Why
    culprits: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()  # of these; of a link its ends
    collective: Collective | None = None  # that the others stand in
    entered: tuple[int, ...] = ()  # the ranks that came to it
    missing: tuple[int, ...] = ()  # those that did not
    text: str  # in a sentence
    facts: tuple[str, ...] = ()  # of the culprits: state, stack


_NAMED = 8
_STOPPED = {"T": "is stopped", "t": "is being traced", "D": "is in uninterruptible sleep", "Z": "has ended"}
_FRAMES = 3
_WITNESSES = 2  # ranks, and nodes, that agree, before a third one is said to differ


def analyse(
    ranks: Sequence[Rank],
    addresses: Mapping[str, str] | None = None,
    world_size: int = 0,
    given: Mapping[str, range] | None = None,
    differ: Sequence[str] = (),
) -> Hang | None:
    """Find the ranks that the others wait for; None where no rank has a record and nothing else is known.

    `addresses`: address of a node -> its name; `world_size`: of the job, which may have ranks that left nothing;
    `given`: node -> its ranks; `differ`: the nodes on which a rank was ended because it got other sizes than it asked
    for.
    """
    known = {rank.rank: rank for rank in ranks}
    everybody = range(max(world_size, max(known, default=-1) + 1))
    silent = [number for number in everybody if number not in known or not known[number].answered]
    if not any(rank.answered for rank in ranks):
        return _of_states(ranks)
    groups = _members(ranks, everybody)
    if differ:  # they have ended: which collective they did not enter shows nothing any more
        return _of_others(known, groups) or _of_differing(known, given or {}, differ)
    return (
        _of_others(known, groups)
        or _of_waiting(known, groups, silent)
        or _of_links(known, addresses or {})
        or _of_states([known[number] for number in silent if number in known])
        or _open(known)
    )


def _members(ranks: Sequence[Rank], everybody: range) -> dict[str, set[int]]:
    """Return the ranks of each process group: the job's ranks that any rank knows, and all that have a record of the
    group. "0" is the first group that PyTorch makes, of all ranks."""
    groups: dict[str, set[int]] = defaultdict(set)
    for rank in ranks:
        for name, members in rank.groups.items():
            groups[name] |= {number for number in members if number in everybody}
        for name in rank.last:
            groups[name].add(rank.rank)
    if "0" in groups:
        groups["0"] |= set(everybody)
    return groups


def _of_others(known: Mapping[int, Rank], groups: Mapping[str, set[int]]) -> Hang | None:
    """Find a rank in another collective than all others of its group, or in the same collective with other sizes."""
    stuck = {(collective.group, collective.sequence) for rank in known.values() for collective in rank.waits_in}
    at: dict[tuple[str, int], dict[int, Collective]] = defaultdict(dict)
    for rank in known.values():
        for collective in rank.collectives:  # also of who is through with it: the root of a broadcast only sends
            if (collective.group, collective.sequence) in stuck:
                at[collective.group, collective.sequence][rank.rank] = collective
    for (group, _), found in sorted(at.items()):
        uneven = any(word in item.operation.lower() for item in found.values() for word in _UNEVEN)
        for why, key in (("other collective", attrgetter("operation")), ("other sizes", attrgetter("sizes"))):
            kinds = Counter(key(collective) for collective in found.values())
            if len(kinds) < 2 or (why == "other sizes" and uneven):
                continue
            usual, count = kinds.most_common(1)[0]
            odd = sorted(rank for rank, collective in found.items() if key(collective) != usual)
            normal = next(collective for collective in found.values() if key(collective) == usual)
            decided = len(odd) == 1 and count >= _WITNESSES and _is_witnessed(known, odd[0], found.keys() - {*odd})
            others = "; ".join(f"rank {rank} entered {found[rank]}" for rank in odd[:_NAMED])
            entered = sorted(found)
            missing = sorted(groups.get(group, set()) - set(found))
            text = f"{_stand(count)} in {normal}; {others}"
            return _made(why, odd if decided else [], known, text, normal, entered, missing, odd + entered)
    return None


def _is_witnessed(known: Mapping[int, Rank], odd: int, others: Collection[int]) -> bool:
    """Return whether ranks of two nodes, or of the odd one's own, agree: the ranks of one node are one node's word."""
    nodes = {known[rank].node for rank in others}
    return known[odd].node in nodes or len(nodes) >= _WITNESSES


def _of_differing(known: Mapping[int, Rank], given: Mapping[str, range], differ: Sequence[str]) -> Hang | None:
    """Find the rank that gloo ended because it got more than it had asked for. That rank left no record. It had other
    sizes where all others were in the same collective with the same sizes."""
    (node, *more) = dict.fromkeys(differ)
    silent = [rank for rank in given.get(node, ()) if rank not in known or not known[rank].answered]
    others = [rank for name, ranks in given.items() if name != node for rank in ranks]
    stood = [_stood_in(known[rank]) for rank in others if rank in known and known[rank].answered]
    if more or not silent or len(stood) < max(_WITNESSES, len(others)) or None in stood or len(set(stood)) > 1:
        return None
    first = stood[0]
    text = f"{_stand(len(stood))} in {first}; {_ranks(silent)} ({node}) got more data there than requested"
    culprits = silent if len(silent) == 1 else []
    found = _made("other sizes", culprits, known, text, first, others, silent, silent)
    return found.model_copy(update={"nodes": (node,)})


def _stood_in(rank: Rank) -> Collective | None:
    """Return the collective in which a rank was when it ended: the newest that was not complete. PyTorch may report a
    collective as complete where the peer is gone."""
    waits = rank.waits_in
    newest = [collective for collective in rank.collectives if rank.last.get(collective.group) == collective.sequence]
    return waits[0] if len(waits) == 1 else newest[-1].model_copy(update={"over": False}) if newest else None


# Where ranks may give tensors of different sizes: the root's, or one for each.
_UNEVEN = ("scatter", "gather", "all_to_all", "alltoall", "broadcast", "barrier", "send", "recv")


def _of_waiting(known: Mapping[int, Rank], groups: Mapping[str, set[int]], silent: Sequence[int]) -> Hang | None:
    """Find the ranks that did not enter a collective in which others wait, and that wait in none themselves."""
    waited_for: dict[int, Collective] = {}
    waiting: dict[int, list[int]] = defaultdict(list)  # rank -> the ranks that wait for it
    entered: dict[Collective, list[int]] = defaultdict(list)
    for rank in known.values():
        for collective in rank.waits_in:
            entered[collective].append(rank.rank)
            own = {*rank.groups.get(collective.group, ())} if collective.group != "0" else set()
            for number in groups.get(collective.group, set()):
                other = known.get(number)
                if own and number not in own and not (other and collective.group in other.last):
                    continue  # only ranks outside of the group report that this rank belongs to it
                entered_last = other.last.get(collective.group, 0) if other and other.answered else -1
                if number != rank.rank and entered_last < collective.sequence:
                    waited_for.setdefault(number, collective)
                    waiting[number].append(rank.rank)
    culprits = sorted(number for number in waited_for if number not in known or not known[number].waits_in)
    return _of_culprits(culprits, waited_for, waiting, entered, known, silent) if culprits else None


def _of_culprits(
    culprits: Sequence[int],
    waited_for: Mapping[int, Collective],
    waiting: Mapping[int, Sequence[int]],
    entered: Mapping[Collective, Sequence[int]],
    known: Mapping[int, Rank],
    silent: Sequence[int],
) -> Hang:
    """Name the ranks for which two nodes wait, or another rank of their own node, or which do not run."""
    first = waited_for[culprits[0]]
    missing = sorted(number for number, collective in waited_for.items() if collective == first)
    came = sorted(entered[first])
    text = f"{_stand(len(came))} in {first}, which {_ranks(culprits)} did not enter"
    stopped = {number for number, rank in known.items() if rank.state in _STOPPED}
    left = [number for number in culprits if number in silent and number not in stopped]
    if left:  # it may have come there: nobody can say, so it is not said to be the one
        text += f" ({_ranks(left)} left no record)"
    open_ones = [number for number in culprits if number not in {*left, *stopped}]
    alone = [number for number in open_ones if not _is_witnessed(known, number, waiting[number])]
    if alone:
        text += f" (one node alone reports that it waits for {_ranks(alone)})"
    sure = [number for number in culprits if number not in {*left, *alone}]
    found = _made("missing" if sure or alone else "no answer", sure, known, text, first, came, missing, culprits)
    asked = [*left, *alone, *(rank for number in alone for rank in waiting[number])]
    return found if sure else found.model_copy(update={"nodes": _nodes(asked, known)})


def _nodes(numbers: Sequence[int], known: Mapping[int, Rank]) -> tuple[str, ...]:
    return tuple(sorted({known[number].node for number in numbers if number in known}))


def _of_links(known: Mapping[int, Rank], addresses: Mapping[str, str]) -> Hang | None:
    """Find two nodes between which data is not acknowledged, where all ranks entered the collective."""
    pairs = {
        frozenset((rank.node, addresses[peer]))
        for rank in known.values()
        for peer in rank.unacknowledged
        if peer in addresses and addresses[peer] != rank.node
    }
    if not pairs:
        return None
    ends = Counter(node for pair in pairs for node in pair)
    first = next((collective for rank in known.values() for collective in rank.waits_in), None)
    shown = ", ".join(" and ".join(sorted(pair)) for pair in sorted(pairs, key=sorted)[:_NAMED])
    common = [node for node, count in ends.items() if count == len(pairs)]
    nodes = common if len(pairs) > 1 and len(common) == 1 else sorted(ends)
    at = f"all ranks are in {first}, and " if first else ""
    text = f"{at}data is not acknowledged between {shown}"
    entered = sorted(rank.rank for rank in known.values() if rank.waits_in)
    return Hang(why="link", nodes=tuple(nodes), collective=first, entered=tuple(entered), text=text)


def _of_states(ranks: Sequence[Rank]) -> Hang | None:
    stopped = sorted(rank.rank for rank in ranks if rank.state in _STOPPED)
    if not stopped:
        return None
    known = {rank.rank: rank for rank in ranks}
    text = f"{_ranks(stopped)}: its process {_STOPPED[known[stopped[0]].state]}"
    return _made("no answer", stopped, known, text, None, [], stopped, stopped)


def _open(known: Mapping[int, Rank]) -> Hang:
    waiting = sorted(rank.rank for rank in known.values() if rank.waits_in)
    first = next((collective for rank in known.values() for collective in rank.waits_in), None)
    if waiting:
        text = f"{counted(len(waiting), 'rank')} wait in different collectives"
        return Hang(why="all entered", collective=first, entered=tuple(waiting), text=text)
    return Hang(why="open", text="no rank was in a collective: the ranks went on alone, or wait for something else")


def _made(
    why: str,
    culprits: Sequence[int],
    known: Mapping[int, Rank],
    text: str,
    collective: Collective | None,
    entered: Sequence[int],
    missing: Sequence[int],
    shown: Sequence[int],
) -> Hang:
    return Hang.model_validate(
        {
            "why": why,
            "culprits": tuple(culprits),
            "nodes": _nodes(culprits, known),
            "collective": collective,
            "entered": tuple(entered),
            "missing": tuple(missing),
            "text": text,
            "facts": tuple(fact for number in shown[:_NAMED] if number in known for fact in _facts(known[number])),
        }
    )


def _facts(rank: Rank) -> list[str]:
    state = f"rank {rank.rank} ({rank.node}): its process {_STOPPED[rank.state]}" if rank.state in _STOPPED else ""
    frames = [  # of py-spy, "    spin (train.py:9)", or of faulthandler, '  File "train.py", line 9 in spin'
        line.strip()
        for line in main_thread(rank.stacks)
        if line.startswith("  File ") or (line.startswith("    ") and line.rstrip().endswith(")"))
    ][:_FRAMES]
    stack = f"rank {rank.rank} ({rank.node}): {'; '.join(frames)}" if frames else ""
    return [fact for fact in (state, stack) if fact]


def main_thread(stacks: str) -> list[str]:
    """Return the lines of the main thread. py-spy names that thread; faulthandler writes it last, and appends one
    record after the other to the same file."""
    threads: list[list[str]] = [[]]
    for line in stacks.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            threads.append([])
        threads[-1].append(line)
    named = [thread for thread in threads if thread and thread[0].startswith("Thread ") and "MainThread" in thread[0]]
    return (named or threads)[-1]


def _stand(count: int) -> str:
    return f"{counted(count, 'rank')} {'is' if count == 1 else 'are'}"


def _ranks(numbers: Sequence[int]) -> str:
    return f"rank{'' if len(numbers) == 1 else 's'} {some(numbers, _NAMED)}"
