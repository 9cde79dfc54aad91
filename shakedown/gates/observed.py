"""What one job is judged by, in groups. A group that is None was not observed, and gates that need it are skipped."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, FiniteFloat

from shakedown.common.frozen import Frozen
from shakedown.evidence.stragglers.model import Stragglers
from shakedown.evidence.telemetry.kernel import KernelWindow
from shakedown.evidence.telemetry.summary import NodeTelemetry
from shakedown.gates.baselines.model import Past, Value
from shakedown.gates.node_log import NodeLog
from shakedown.gates.steadiness import Paces
from shakedown.logs.figures import Figures
from shakedown.logs.iterations import Iteration
from shakedown.logs.job_shape import JobShape
from shakedown.logs.mad import Results


class OneAlone(Frozen):
    """What a node did by itself, in which runs: metric -> the figure per GPU (of several runs their median), and over
    how many ranks."""

    runs: list[str]
    ranks: int = Field(gt=0, le=10**6)
    figures: dict[str, Value]


class Alone(Frozen):
    """What each node of a job did by itself, as the gate was given it; a node that is missing did nothing, or nobody
    knows of it. `share` is what of the sum they are to do together, 0 to 1."""

    share: FiniteFloat = Field(gt=0)
    nodes: dict[str, OneAlone | None]


RESUME_RTOL = 0.05  # of the saved loss: CVS's loss_rtol (ROCm/cvs, megatron.rst at 01b906e8)
LogsByNode = Mapping[str, NodeLog | None]  # None: the node's log could not be had


@dataclass(frozen=True)
class JobEnd:
    """How a job ended on its nodes."""

    exit_codes: Mapping[str, int | None] | None = None  # of ranks or nodes; a code of None is not known
    participants: Collection[str] = ()
    stopped: str | None = None  # the reason, where the job was stopped before its end or never started
    started: bool = True
    stopped_nodes: Collection[str] = ()  # nodes that the controller stopped with the job
    left: Mapping[str, Collection[str]] | None = None  # node -> what of the job is left there, or may be


@dataclass(frozen=True)
class LogCopies:
    """The logs of a job that must be complete. `faults`: what is wrong with copies of the job's other files."""

    by_node: LogsByNode
    faults: Sequence[str] = ()
    unlogged: int = 0  # nodes of the job that are in none of the logs


@dataclass(frozen=True)
class Logs:
    """The logs of a job, and what decides the meaning of their lines."""

    by_node: LogsByNode
    unlogged: int = 0  # nodes of the job that are in none of the logs
    rdma: bool = False  # the job was to use RDMA between its nodes
    nccl_debug: str | None = None  # NCCL_DEBUG of the run, where it is known


@dataclass(frozen=True)
class Training:
    """The iteration lines of a run."""

    iterations: Sequence[Iteration]
    damaged: Collection[int] = ()  # iterations whose line was cut or mixed
    wanted: int | None = None  # how many iterations there should be; None: as the lines say
    shape: JobShape = field(default_factory=JobShape)
    resume_at: int | None = None  # iteration whose checkpoint the run was to read back; None: as the log says
    resume_rtol: float = RESUME_RTOL
    image: str | None = None  # that the nodes ran the job in
    printed: JobShape | None = None  # by the node alone whose iteration lines these are; None: `shape`
    silent: Sequence[str] = ()  # nodes whose containers printed no version, or whose logs are not there


@dataclass(frozen=True)
class Speed:
    """How fast a run was, and what bounds its speed."""

    figures: Figures
    timed: Sequence[Iteration] | None = None  # the steady lines; None: nothing in the log is a throughput
    all_gpus_tokens: float | None = None  # tokens/s/GPU, from lines that count the tokens of all GPUs
    gpus: Collection[str] = ()  # models, as the profiles name them; empty: as the log says
    shape: JobShape = field(default_factory=JobShape)
    paces: Paces | None = None  # None: too few lines to judge how even they are
    clock: str = ""  # how the times of the lines contradict the duration of an iteration
    ranks: int = 0  # of all nodes


@dataclass(frozen=True)
class Expected:
    """What the figures of a job are compared with."""

    bounds: Mapping[str, float] = field(default_factory=dict)  # by metric
    past: Past | None = None
    alone: Alone | None = None
    recipe: str = ""  # the recipe by which a log is to be judged, where the log is of another job
    differences: Sequence[str] = ()  # between that recipe and the log


@dataclass(frozen=True)
class Counters:
    """Error counters before and after a job: node -> counter -> count, or why it could not be read."""

    before: Mapping[str, Mapping[str, Any]]
    after: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class NodeWatch:
    """What was seen on the nodes while the job ran. None, for a node: there is no such file."""

    telemetry: Mapping[str, NodeTelemetry | None] = field(default_factory=dict)
    not_throttled: Sequence[str] = ()  # reasons for which no GPU may be throttled
    kernel: Mapping[str, KernelWindow | None] | None = None
    devices: Mapping[str, KernelWindow | None] = field(default_factory=dict)  # what happened to the nodes' devices
    kernel_wanted: bool = False  # every node's kernel log has to be seen
    links: Mapping[str, Collection[str]] = field(default_factory=dict)  # node -> network ports that the job uses


@dataclass(frozen=True)
class Reading:
    """How far the lines of the logs can be trusted."""

    unjudged: str = ""  # why nothing is known of the run's lines
    contradicted: bool = False  # since the logs are of several runs
    unread: bool = False  # since the log has no known form
    cut: str = ""  # why the log is not whole
    shows_failure: bool = True  # a failure on the lines that are there cannot change by the rest


@dataclass(frozen=True)
class Observed:
    """All evidence of one job. The name of a group is the name of the parameter by which a gate receives it."""

    end: JobEnd | None = None
    copies: LogCopies | None = None
    logs: Logs | None = None
    training: Training | None = None
    mlperf: NodeLog | None = None  # the log that has lines of MLPerf training
    speed: Speed | None = None
    expected: Expected = Expected()
    counters: Counters | None = None
    watch: NodeWatch | None = None
    stragglers: Stragglers | None = None
    benchmark: Results | None = None
    reading: Reading = Reading()
