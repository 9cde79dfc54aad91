"""What each rank, and RAS, left behind of a hang, read with care: it comes from the nodes, and whoever runs there.

A flight record comes as JSON (of this project's workload) or as the pickle that PyTorch writes for NCCL and RCCL, of
which only plain values are read. What a record says differs between backends: gloo's entries stay `scheduled` for ever
and its `pg_config` is of no use, so `retired` and `pg_status` count, and who is in a group is taken from where it is
known.
"""

import io
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from shakedown.common.frozen import first_problem
from shakedown.common.text import DEEPEST, load_json, printable, shallow
from shakedown.evidence.hangs.analysis import Collective, Hang, Rank

_VALUES = 2_000_000  # that a document holds where each is counted as often as it stands there
# What PyTorch's pickler writes (torch/csrc/jit/serialization/pickler.h), and Python's own for the same values.
_READ = (
    "PROTO FRAME STOP MARK POP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE "
    "EMPTY_DICT SETITEM SETITEMS EMPTY_LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
    "BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET"
)
_CODES = frozenset(getattr(pickle, name)[0] for name in _READ.split())
_Python: Any = pickle._Unpickler  # the one in Python, whose memory is as large as its input


class _Plain(_Python):  # type: ignore[misc]
    """Reads plain values only: numbers, texts, lists, tuples and dictionaries. The table of codes has no other.

    Not to call anything is not enough. The C implementation of `pickle` follows a hostile pickle into a stack overflow
    (a tuple of tuples, a million deep, as a key) and reserves memory for any index; and a few dozen bytes can share
    values so that whoever walks them never comes to an end.
    """

    dispatch = {code: step for code, step in _Python.dispatch.items() if code in _CODES}

    def find_class(self, module: str, name: str) -> Any:  # no code that asks for one is read
        raise pickle.UnpicklingError("not a plain value")

    def load_setitem(self) -> None:
        _text_keys(self.stack[-2:-1])
        _Python.load_setitem(self)

    def load_setitems(self) -> None:
        _text_keys(self.stack[::2])
        _Python.load_setitems(self)

    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems


def _text_keys(keys: list[Any]) -> None:
    if not all(isinstance(key, str) for key in keys):
        raise pickle.UnpicklingError("a key of a dictionary is no text")


def load_plain(data: bytes) -> Any:
    """Load the document. Raises ValueError for a pickle of other values, for one that is nested too deeply, and for one
    that shares its values so often that they are too many."""
    try:
        found = cast(Callable[[], Any], _Plain(io.BytesIO(data)).load)()
    except KeyError as error:
        raise ValueError(f"{error.args[0]!r} is not part of a plain value"[:100]) from None
    except Exception as error:  # what a pickle that is none may raise is without number
        raise ValueError(str(error)[:200] or type(error).__name__) from None
    _bounded(found)
    return found


def _bounded(document: Any) -> None:
    level, left = [document] if isinstance(document, dict | list | tuple) else [], _VALUES
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for container in level:
            items = container.values() if isinstance(container, dict) else container
            left -= len(items)
            if left < 0:
                raise ValueError("too many values")
            inner += [item for item in items if isinstance(item, dict | list | tuple)]
        level = inner
        if not level:
            return
    raise ValueError("nested too deeply")


LIMIT = 8 << 20  # bytes of one file
_ENTRIES = 5000  # of a flight record; PyTorch keeps 2,000
_RANKS = 1 << 20
_STACKS = 20_000  # characters
_OVER = {"completed"}  # states of NCCL's entries that are through
_Name = Annotated[str, BeforeValidator(lambda text: printable(str(text), 100))]
_Count = Annotated[int, Field(ge=-1, le=1 << 62)]
_Size = Annotated[int, Field(ge=0, le=1 << 62)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)


class _Entry(_Part):
    process_group: Annotated[list[_Name] | tuple[_Name, ...], Field(min_length=1, max_length=4)]
    collective_seq_id: _Count = 0
    profiling_name: _Name = ""
    input_sizes: Annotated[list[Annotated[list[_Size], Field(max_length=16)]], Field(max_length=64)] = []
    state: _Name = ""
    retired: bool = False
    is_p2p: bool = False


class _Flight(_Part):
    entries: Annotated[list[_Entry], Field(max_length=_ENTRIES)] = []
    pg_status: dict[_Name, dict[str, Any]] = {}
    pg_config: dict[_Name, dict[str, Any]] = {}


class _Own(_Part):
    """flight-PID.json."""

    rank: Annotated[int, Field(ge=0, lt=_RANKS)]
    groups: dict[_Name, Annotated[list[Annotated[int, Field(ge=0, lt=_RANKS)]], Field(max_length=_RANKS)]] = {}
    flight: _Flight


class _Connection(_Part):
    peer: _Name


class _Process(_Part):
    """process-PID.json."""

    pid: int
    inner_pid: int
    command: _Name = ""
    state: _Name = ""
    rank: Annotated[int, Field(ge=0, lt=_RANKS)] | None = None
    wchan: _Name = ""
    unacknowledged: Annotated[list[_Connection], Field(max_length=1000)] = []
    stacks: str = ""


class _Node(_Part):
    """node.json."""

    ras: str = ""


def ras_of(data: bytes) -> str:
    """Return the answer of RAS on a node, from node.json. Raises ValueError."""
    return _Node.model_validate(shallow(load_json(data, LIMIT))).ras


def flight_of(data: bytes) -> _Flight:
    """Read a flight record in either form. Raises ValueError."""
    if len(data) > LIMIT:
        raise ValueError(f"{len(data)} bytes, where at most {LIMIT} are read")
    try:
        found = load_json(data, LIMIT) if data[:1] == b"{" else load_plain(data)
        return _Flight.model_validate(shallow(found))
    except ValueError as error:
        raise ValueError(f"no flight record: {first_problem(error)}") from None


def collectives(flight: _Flight) -> Iterator[Collective]:
    """Yield the collectives of a record, without point-to-point ones. gloo marks them `retired` only; NCCL marks them
    `completed` before they are retired."""
    for entry in flight.entries:
        if not entry.is_p2p and entry.collective_seq_id > 0:
            yield Collective(
                group=entry.process_group[0],
                sequence=entry.collective_seq_id,
                operation=entry.profiling_name.partition(":")[2] or entry.profiling_name,
                sizes=tuple(map(tuple, entry.input_sizes)),
                over=entry.retired or entry.state in _OVER,
            )


def _last(flight: _Flight, found: Iterable[Collective]) -> dict[str, int]:
    last: dict[str, int] = {}
    for collective in found:
        last[collective.group] = max(last.get(collective.group, 0), collective.sequence)
    for group, status in flight.pg_status.items():
        text = str(status.get("last_enqueued_collective", ""))
        if re.fullmatch(r"-?\d{1,18}", text):
            last[group] = max(last.get(group, 0), int(text), 0)
    return last


def _members(flight: _Flight) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each group as NCCL lists them, where it does: "[0, 1]"."""
    found = {}
    for name, config in flight.pg_config.items():
        numbers = re.findall(r"\d{1,7}", str(config.get("ranks", ""))[:1_000_000])
        if numbers and name:
            found[name] = tuple(map(int, numbers))
    return found


def rank_of(rank: int, node: str, flight: _Flight, groups: Mapping[str, Iterable[int]] | None = None) -> Rank:
    """Make a rank from its flight record."""
    every = tuple(collectives(flight))
    known = _members(flight) | {name: tuple(ranks) for name, ranks in (groups or {}).items()}
    return Rank(rank=rank, node=node, answered=True, last=_last(flight, every), collectives=every, groups=known)


def _checked(rank: int, given: range | None) -> int:
    """Return the rank of a file. Raises ValueError where that rank is not the node's."""
    if given is not None and rank not in given:
        ranks = f"rank {given.start}" if len(given) == 1 else f"ranks {given.start} to {given.stop - 1}"
        raise ValueError(f"refused: the file is of rank {rank}, and the node has {ranks if given else 'none'}")
    return rank


def ranks_of(node: str, files: Mapping[str, bytes], problems: list[str], given: range | None = None) -> list[Rank]:
    """Read the ranks of a node from its files (name -> content); what cannot be read goes to `problems`.

    `given`: the ranks that the launch plan gave the node; None: not known. A file of another rank is refused: a node
    reports on its own ranks only.
    """
    flights: dict[int, Rank] = {}  # by the pid that the process itself sees
    by_rank: dict[int, Rank] = {}
    stacks: dict[int, str] = {}
    numbers: dict[int, int] = {}  # pid -> rank
    documents: list[_Process] = []
    for name, data in sorted(files.items()):
        try:
            if match := re.fullmatch(r"(?:flight|failed)-(\d{1,10})\.json", name):
                own = _Own.model_validate(shallow(load_json(data, LIMIT)))
                flights[int(match[1])] = rank_of(_checked(own.rank, given), node, own.flight, own.groups)
            elif match := re.fullmatch(r"nccl_(\d{1,7})", name):
                by_rank[int(match[1])] = rank_of(_checked(int(match[1]), given), node, flight_of(data))
            elif match := re.fullmatch(r"stacks-(\d{1,10})-(\d{1,7})\.txt", name):
                numbers[int(match[1])] = _checked(int(match[2]), given)
                stacks[int(match[1])] = data[-_STACKS:].decode("utf-8", "replace")
            elif name.startswith("process-"):
                document = _Process.model_validate(shallow(load_json(data, LIMIT)))
                if document.rank is not None:
                    _checked(document.rank, given)
                documents.append(document)
        except ValueError as error:
            problems.append(f"{node}: hang/{printable(name, 100)}: {first_problem(error)}")
    found = {rank.rank: rank for rank in [*by_rank.values(), *flights.values()]}
    for document in documents:
        flight = flights.get(document.inner_pid)
        number = flight.rank if flight else numbers.get(document.inner_pid, document.rank)
        if number is None:  # torchrun's agent, a helper
            continue
        known = found.get(number) or Rank(rank=number, node=node)
        # A rank's children have the number of the rank too.
        if flight is None and known.state and document.inner_pid not in numbers:
            continue
        found[number] = known.model_copy(
            update={
                "state": document.state,
                "wchan": document.wchan,
                "unacknowledged": tuple(dict.fromkeys(connection.peer for connection in document.unacknowledged)),
                "stacks": (document.stacks or stacks.get(document.inner_pid, ""))[:_STACKS],
            }
        )
    return list(found.values())


_LIMIT = 256 << 10  # characters of one answer, as a node keeps them
_LINES = 2000
_SHOWN = 8
_ACCUSERS = 2  # nodes whose answers say so, where it is said of another one: anybody may answer at RAS's port
_SECTION = re.compile(r"(Errors|Warnings)\s*")
_PROCESS = re.compile(r"\s+Process (\d{1,10}) on node (\S{1,255}) managing GPUs? ")
_RANK = re.compile(r"\s+Rank (\d{1,7}) -- GPU \S{1,40} managed by process (\d{1,10}) on node (\S{1,255})\s*")


class Missing(NamedTuple):
    """A process that does not answer: on a host (an address), and its ranks where they are told."""

    host: str
    pid: int
    rank: int | None = None


def missing(text: str) -> set[Missing]:
    """Read the processes that one answer of RCCL's or NCCL's RAS reports as missing.

    Each process of a job has a RAS thread, and any of them answers for the whole job with a text for people: "Errors"
    names processes and ranks whose data is missing, or that are considered dead (docs.nvidia.com/deeplearning/nccl,
    troubleshooting/ras; the same in RCCL 2.28.3 of ROCm 7). "Warnings" are not read: counts of operations that differ
    are usual while a job runs, and how newer versions write them has no documented sample.
    """
    found, section = set[Missing](), ""
    for line in text[:_LIMIT].splitlines()[:_LINES]:
        if header := _SECTION.fullmatch(line):
            section = header[1]
        elif section == "Errors" and (process := _PROCESS.match(line)):
            found.add(Missing(process[2], int(process[1])))
        elif section == "Errors" and (rank := _RANK.fullmatch(line)):
            found.add(Missing(rank[3], int(rank[2]), int(rank[1])))
    return found


def of_answers(
    answers: Mapping[str, str], addresses: Mapping[str, str], given: Mapping[str, range] | None = None
) -> Hang | None:
    """Compare the nodes' answers; None: no process is missing. A node is named if the answers report no other node, and
    come from that node or from two others. Otherwise every node is in question that an answer comes from or reports.
    `addresses`: address -> node; `given`: the ranks of each node."""
    silent = {node: missing(text) for node, text in answers.items()}
    accused = {process.host: addresses.get(process.host) for absent in silent.values() for process in absent}
    if not accused:
        return None
    tell = sorted(node for node, absent in silent.items() if absent)
    processes = sorted({(process.host, process.pid) for absent in silent.values() for process in absent})
    shown = ", ".join(
        f"process {pid} on {addresses.get(host, printable(host, 60))}" for host, pid in processes[:_SHOWN]
    )
    text = f"RAS on {', '.join(tell[:_SHOWN])} has no answer from {shown}"
    names = {name for name in accused.values() if name}
    if len(names) != len(accused):  # an address that is no node's
        return Hang(why="no answer", text=text)
    if len(names) == 1:
        (name,) = names
        if name in tell or len(tell) >= _ACCUSERS:
            ranks = {process.rank for absent in silent.values() for process in absent if process.rank is not None}
            mine = [rank for rank in sorted(ranks) if given is None or rank in given.get(name, ())]
            return Hang(why="no answer", culprits=tuple(mine), nodes=(name,), missing=tuple(mine), text=text)
    return Hang(why="no answer", nodes=tuple(sorted({*names, *tell})), text=text)


def together(records: Hang | None, ras: Hang | None) -> Hang | None:
    """Join the findings of the ranks' own records and of RAS: RAS decides where the records name no rank, or the same
    node."""
    if records is None or ras is None:
        return records or ras
    decides = len(ras.nodes) == 1 and not records.culprits
    if decides and (not records.nodes or ras.nodes[0] in records.nodes):
        return ras.model_copy(update={"facts": (records.text, *records.facts), "collective": records.collective})
    return records.model_copy(update={"facts": (*records.facts, ras.text)})
