"""What trials asked, what they measured, and what that came to: `RunRecord.trials`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

NODES: Literal["trials"] = "trials"  # each node by itself
PAIRS: Literal["pairs"] = "pairs"  # between nodes
AGAIN: Literal["pairs-again"] = "pairs-again"  # between nodes that stood out and others

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
    figure: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.>-]{0,60}$")] = ""  # empty: of the trial as a whole
    state: State = "ok"
    value: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None = None
    wrong: Annotated[int, Field(ge=0)] | None = None  # results that were not what they had to be
    rail: Word | None = None  # the HCA that a pair was held to
    note: Text = ""


class Limits(_Part):
    """What is asked of figures besides what the fleet says."""

    slower: float = 0.10  # fraction below its peers from which a part is named
    floors: dict[str, float] = {}  # TRIAL.FIGURE -> bound, as the site says it
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
    earlier: int = 0  # runs that it was compared with
    floor: float | None = None
    floor_source: str = ""
    ceiling: float | None = None
    standing: Standing
    why: str = ""


class Named(_Part):
    """Something that stands out of the rounds between nodes."""

    kind: Literal["sender", "receiver", "node", "link", "block", "unnamed"]
    what: str  # the node, "A > B", or the block
    nodes: list[str]  # that it comes down to
    figure: str
    cells: int  # slow cells that it accounts for
    of: int  # of so many that it has
    evidence: str


class Matrix(_Part):
    """A figure between all nodes: sender, receiver -> the repetitions."""

    figure: str
    unit: str
    rail: str = ""
    nodes: list[str]
    cells: dict[str, dict[str, list[float]]]  # sender -> receiver -> values
    median: float | None = None
    slow: list[list[str]] = []  # [sender, receiver] that are slow in every repetition
    missing: list[list[str]] = []  # asked, and nothing came
    named: list[Named] = []


class TrialsRecord(_Part):
    """The trials of a run: enough to judge them again with the logs."""

    asked: list[str]
    repetitions: int
    limits: Limits = Limits()
    groups: dict[str, str] = {}  # node -> GPU profile: like is compared with like
    places: list[str] = []  # the nodes of the rounds, as their places in the readings count them
    rounds: int = 0
    readings: Annotated[list[Reading], FailFast()] = []
    judged: Annotated[list[Judged], FailFast()] = []
    matrices: list[Matrix] = []
    incomplete: dict[str, dict[str, str]] = {}  # kind of job -> node -> why its readings are not whole
