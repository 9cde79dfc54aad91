"""The trials of a run, their readings and their judged figures: `RunRecord.trials`."""

from typing import Annotated, Literal

from pydantic import FailFast, Field

from shakedown.common.frozen import Frozen

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
