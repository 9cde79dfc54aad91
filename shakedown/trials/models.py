"""The trials of a run (`RunRecord.trials`): readings, bounded in number and size; judged figures; references."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated, Literal

from pydantic import FailFast, Field, ValidationError

from shakedown.common.data import read_toml
from shakedown.common.frozen import Frozen
from shakedown.common.text import load_json, printable
from shakedown.trials.workload.registry import MARK

NODES: Literal["trials"] = "trials"  # each node alone
PAIRS: Literal["pairs"] = "pairs"  # between nodes
NODES_AGAIN: Literal["trials-again"] = "trials-again"  # a fresh run of the named trials, with peers
AGAIN: Literal["pairs-again"] = "pairs-again"  # the same between nodes
FRESH = (NODES_AGAIN, AGAIN)
KINDS = (NODES, PAIRS, *FRESH)
"""Of jobs of trials; their logs lie in folders of these names."""

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.>-]{1,60}$")]
Text = Annotated[str, Field(max_length=300)]
State = Literal["ok", "wrong", "absent", "timeout", "crashed"]
Standing = Literal["ok", "notice", "named", "undecided", "unknown"]


class Reading(Frozen):
    """One figure of one repetition on one part of a node, or why there is none."""

    node: str = ""  # by the controller: a reading on the node does not name its node
    trial: Word
    part: Word  # gpu3, cpu, numa1, node; of a pair the two places, sender first: 0>2
    repetition: Annotated[int, Field(ge=0, le=10_000)]
    fresh: bool = False  # of the second run, which measures again what the first run named
    figure: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.>-]{0,60}$")] = ""  # empty: of the trial as a whole
    state: State = "ok"
    value: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None = None
    wrong: Annotated[int, Field(ge=0)] | None = None  # wrong results
    missed: bool = False  # an external tool reports a missed target; the note has the target
    rail: Word | None = None  # the HCA that a pair used
    note: Text = ""


class Limits(Frozen):
    """The bounds for figures besides the fleet's own figures."""

    slower: float = 0.10  # fraction below its peers from which a part is named
    floors: dict[str, float] = {}  # TRIAL.FIGURE -> the site's bound
    ceilings: dict[str, float] = {}  # TRIAL.FIGURE -> the physical limit, by the rate of the nodes' NICs
    blocks: dict[str, str] = {}  # node -> its rack or leaf switch


class Judged(Frozen):
    """A figure of a part of a node, with every repetition and its judgement."""

    trial: str
    figure: str
    node: str
    part: str
    unit: str
    values: list[float]  # in the order of the repetitions
    median: float | None
    peers: int = 0
    of_peers: float | None = None  # their median
    shortfall: float | None = None  # fraction by which the figure is worse than its peers' median; negative: better
    again: list[float] | None = None  # values of the fresh run, where the first run named the figure
    earlier: int = 0  # runs that the figure was compared with
    floor: float | None = None
    floor_source: str = ""
    ceiling: float | None = None
    standing: Standing
    wrong_results: bool = False  # named for wrong results
    why: str = ""


class Named(Frozen):
    """A slow cause in the rounds between nodes."""

    kind: Literal["sender", "receiver", "node", "link", "block", "unnamed"]
    what: str  # the node, "A > B", or the block
    nodes: list[str]  # of the cause
    figure: str
    confirmed: bool | None = None  # by a fresh run; None: there was none
    cells: int  # slow cells of the cause
    of: int  # all cells of the cause
    evidence: str


class Matrix(Frozen):
    """A figure between all nodes: sender, receiver -> repetitions."""

    trial: str = PAIRS
    figure: str
    unit: str
    rail: str = ""
    nodes: list[str]
    cells: dict[str, dict[str, list[float]]]  # sender -> receiver -> values
    median: float | None = None
    slow: list[list[str]] = []  # [sender, receiver] that are slow in every repetition
    missing: list[list[str]] = []  # tried, without a value
    named: list[Named] = []
    impossible: float | None = None  # the highest value, where it exceeds the physical limit


class TrialsRecord(Frozen):
    """The trials of a run: with the logs, enough to judge them again."""

    asked: list[str]
    repetitions: int
    limits: Limits = Limits()
    confirm: bool = False  # a fresh run has to name again what the first run names
    groups: dict[str, str] = {}  # node -> GPU profile: only like nodes are compared
    places: list[str] = []  # the nodes of the rounds, in the order of their numbers in the readings
    places_again: list[str] = []  # the nodes of the fresh rounds
    rounds: int = 0
    readings: Annotated[list[Reading], FailFast()] = []
    judged: Annotated[list[Judged], FailFast()] = []
    matrices: list[Matrix] = []
    matrices_again: list[Matrix] = []  # of the fresh rounds
    incomplete: dict[str, dict[str, str]] = {}  # kind of job -> node -> why readings are missing


LINES = 200_000  # 8 GPUs, 40 figures, 100 repetitions are 32,000
PARTS = 128  # of one node: GPUs, memory, rails. Each part is compared with all others
_LINE = 4096
_OVER = "trials: over after "
REPORT = (MARK, _OVER)  # what the lines begin with that say something


@dataclass
class Read:
    """The readings of a log."""

    readings: list[Reading] = field(default_factory=list)
    over: bool = False  # the program reports its own end
    wrong: str = ""  # why some readings could not be read


def read_log(node: str, lines: Iterable[str]) -> Read:
    """Read the readings of one node's log. `wrong` reports the first invalid line."""
    result, parts = Read(), set[str]()
    for number, line in enumerate(lines, 1):
        if line.startswith(_OVER):
            result.over = True
        if not line.startswith(MARK):
            continue
        if len(result.readings) >= LINES:
            result.wrong = f"more than {LINES} readings"
            break
        try:
            if len(line) > _LINE:
                raise ValueError("too long")
            document = load_json(line[len(MARK) :], _LINE)
            reading = Reading.model_validate(document)
            parts.add(f"> {reading.rail}" if ">" in reading.part else reading.part)
            if len(parts) > PARTS:
                result.wrong = f"more than {PARTS} parts"
                break
            clean = {"node": node, "note": printable(reading.note, 200)}
            result.readings.append(reading.model_copy(update=clean))
        except (ValidationError, ValueError) as error:
            if not result.wrong:
                reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
                result.wrong = f"line {number} is no reading: {printable(reason, 120)}"
    return result


MEASURED = 1.02  # clocks differ between a device's timer and the host's by less


class Floor(Frozen):
    """A published figure. A part fails below `value` times `factor`."""

    figure: str
    gpus: list[str]
    value: float = Field(gt=0)
    unit: str
    factor: float = Field(gt=0, le=1)
    source: str
    date: date
    disputed: str = ""  # why the floor fails no part

    @property
    def bound(self) -> float:
        """Return the value that a figure must reach."""
        return self.value * self.factor

    @property
    def origin(self) -> str:
        """Write the value with its source."""
        return f"{self.value:g} {self.unit} x {self.factor:g}, {self.source} ({self.date})"


class References(Frozen):
    """The whole file. `ceilings`: GPU profile -> figure or pattern of figures -> physical limit."""

    floors: list[Floor]
    ceilings: dict[str, dict[str, float]]

    def floor(self, gpu: str, figure: str) -> Floor | None:
        """Look up the published floor of a figure (TRIAL.FIGURE) on a GPU model."""
        return next((floor for floor in self.floors if floor.figure == figure and gpu in floor.gpus), None)

    def ceiling(self, gpu: str, figure: str) -> float | None:
        """Look up the physical limit of a figure, with room for the error of clocks."""
        limits = self.ceilings.get(gpu, {})
        return next((most * MEASURED for pattern, most in limits.items() if fnmatchcase(figure, pattern)), None)


@cache
def references() -> References:
    return References.model_validate(read_toml("shakedown.trials", "references.toml"))
