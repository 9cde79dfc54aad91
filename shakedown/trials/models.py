"""What trials asked, what they measured, and what that came to: `RunRecord.trials`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

NODES: Literal["trials"] = "trials"  # each node by itself
PAIRS: Literal["pairs"] = "pairs"  # between nodes
NODES_AGAIN: Literal["trials-again"] = "trials-again"  # a fresh run of what was named, and of peers
AGAIN: Literal["pairs-again"] = "pairs-again"  # the same between nodes
FRESH = (NODES_AGAIN, AGAIN)
KINDS = (NODES, PAIRS, *FRESH)
"""Of jobs of trials; their logs lie in folders of these names."""

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.>-]{1,60}$")]
Text = Annotated[str, Field(max_length=300)]
State = Literal["ok", "wrong", "absent", "timeout", "crashed"]
Standing = Literal["ok", "notice", "named", "undecided", "unknown"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Reading(_Part):
    """One figure of one repetition on one part of a node, or why there is none."""

    node: str = ""  # the controller's name of it: a node does not say whose reading it gives
    trial: Word
    part: Word  # gpu3, cpu, numa1, node; of a pair the two places, sender first: 0>2
    repetition: Annotated[int, Field(ge=0, le=10_000)]
    fresh: bool = False  # of the second run, in which what the first one named is measured again
    figure: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.>-]{0,60}$")] = ""  # empty: of the trial as a whole
    state: State = "ok"
    value: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None = None
    wrong: Annotated[int, Field(ge=0)] | None = None  # results that were not what they had to be
    missed: bool = False  # a tool of somebody else's says that it is too little; the note says what it asks for
    rail: Word | None = None  # the HCA that a pair was held to
    note: Text = ""


class Limits(_Part):
    """What is asked of figures besides what the fleet says."""

    slower: float = 0.10  # fraction below its peers from which a part is named
    floors: dict[str, float] = {}  # TRIAL.FIGURE -> bound, as the site says it
    ceilings: dict[str, float] = {}  # the same -> the most that there can be, by the rate of the nodes' NICs
    blocks: dict[str, str] = {}  # node -> what it hangs on together with others: a rack, a leaf switch


class Judged(_Part):
    """A figure of a part of a node, with every repetition, and how it stands."""

    trial: str
    figure: str
    node: str
    part: str
    unit: str
    values: list[float]  # as they were taken
    median: float | None
    peers: int = 0
    of_peers: float | None = None  # their median
    shortfall: float | None = None  # fraction by which it is worse than that; negative: better
    again: list[float] | None = None  # the same in a fresh run, where the first one named it; empty: nothing came
    earlier: int = 0  # runs that it was compared with
    floor: float | None = None
    floor_source: str = ""
    ceiling: float | None = None
    standing: Standing
    wrong_results: bool = False  # named for results that were not what they had to be
    why: str = ""


class Named(_Part):
    """Something that stands out of the rounds between nodes."""

    kind: Literal["sender", "receiver", "node", "link", "block", "unnamed"]
    what: str  # the node, "A > B", or the block
    nodes: list[str]  # that it comes down to
    figure: str
    confirmed: bool | None = None  # by a fresh run; None: there was none
    cells: int  # slow cells that it accounts for
    of: int  # of so many that it has
    evidence: str


class Matrix(_Part):
    """A figure between all nodes: sender, receiver -> the repetitions."""

    trial: str = PAIRS
    figure: str
    unit: str
    rail: str = ""
    nodes: list[str]
    cells: dict[str, dict[str, list[float]]]  # sender -> receiver -> values
    median: float | None = None
    slow: list[list[str]] = []  # [sender, receiver] that are slow in every repetition
    missing: list[list[str]] = []  # asked, and nothing came
    named: list[Named] = []
    impossible: float | None = None  # the highest value, where that is more than there can be


class TrialsRecord(_Part):
    """The trials of a run: enough to judge them again with the logs."""

    asked: list[str]
    repetitions: int
    limits: Limits = Limits()
    confirm: bool = False  # what a run names is named only where a fresh one names it again
    groups: dict[str, str] = {}  # node -> GPU profile: like is compared with like
    places: list[str] = []  # the nodes of the rounds, as their places in the readings count them
    places_again: list[str] = []  # the same of the fresh rounds
    rounds: int = 0
    readings: Annotated[list[Reading], FailFast()] = []
    judged: Annotated[list[Judged], FailFast()] = []
    matrices: list[Matrix] = []
    matrices_again: list[Matrix] = []  # of the fresh rounds
    incomplete: dict[str, dict[str, str]] = {}  # kind of job -> node -> why its readings are not whole
