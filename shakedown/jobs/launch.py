"""The launch plan, derived from the nodes' states and never typed by hand, and the job that it is of, as data.

A plan is data. `shakedown/jobs/plan` makes it, `operations/smoke.py` starts exactly what stands here, `shakedown plan`
prints it, and `run.json` keeps it.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Literal

from pydantic import Field

from shakedown.common.frozen import Frozen
from shakedown.desired.models import EACH, TOGETHER
from shakedown.evidence.results import JobResult
from shakedown.evidence.stragglers.model import Limits
from shakedown.logs.iterations import Iteration
from shakedown.logs.kept_logs import LogQuota
from shakedown.node.launcher.folder import OWN

# The label of every container that this project starts, with the run's id as its value: only these are ever removed.
CONTAINER_LABEL = "io.shakedown.run"
CONTAINER_FOLDER = "/shakedown"  # the run's folder as a container sees it


def run_folders() -> dict[str, str]:
    """Return a container's mounts of the run's folder. The launcher's own files are not for its root to write."""
    return {"{run_dir}": CONTAINER_FOLDER, f"{{run_dir}}/{OWN}": f"{CONTAINER_FOLDER}/{OWN}:ro"}


class Need(Frozen):
    """Something that a job needs of its node; `shakedown/node/launcher/needs.py` looks whether it is there."""

    kind: Literal["python", "program", "image", "data", "room", "port"]
    path: str = ""  # of the interpreter, program or data; of an image the engine; of room the folder
    modules: list[str] = []  # that the interpreter has to find
    image: str = ""
    address: str = ""
    port: int = 0
    size: int = 0  # bytes, in the folder, or where the run folder is to be


class NodePlan(Frozen):
    """What one node runs. `{run_dir}` in command, environment, upload and log stands for the node's own folder of this
    run (made by the launcher, 0700, removed afterwards)."""

    name: str  # in the inventory
    node_rank: int = 0
    ranks: int = 0  # processes on this node
    address: str = ""  # IPv4 of the interface below
    names: list[str] = []  # its host name and its other addresses, as lines of other nodes' logs may name it
    interface: str = ""  # NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME
    hca: list[str] = []  # ACTIVE RDMA devices in PCI order; empty: sockets
    gid_index: int | None = None
    links: list[str] = []  # names and PCI addresses of the network ports that the job uses
    command: list[str]  # argv of the job's leader, run in the foreground
    environment: dict[str, str] = {}  # of the process (process runtime) or the env file (container runtime)
    secrets: list[str] = []  # names of variables whose values come from the controller at launch, never stored
    files: dict[str, str] = {}  # text files written into the run folder before the start, by name
    upload: list[str] = []  # folders of the package (dotted) that travel into the run folder: "shakedown.jobs.workload"
    needs: list[Need] = []  # looked at first: without one of them nothing starts
    setup: list[list[str]] = []  # argv to run first, in order; a failure stops everything before it starts
    cleanup: list[list[str]] = []  # argv to run when the job is stopped or over; idempotent
    logs: list[str] = []  # further files on the node that belong to the evidence

    def shell(self) -> str:
        """Return the command as a person would type it, with its environment."""
        assignments = [f"{name}={shlex.quote(value)}" for name, value in sorted(self.environment.items())]
        return " ".join([*assignments, shlex.join(self.command)])


class Derived(Frozen):
    """One derived value with the reason, for the person who reads the plan."""

    name: str
    value: str
    why: str


class LaunchPlan(Frozen):
    """One distributed job over `nodes`, in rank order."""

    run_id: str
    recipe: str
    parser: str = "training"  # of gates/parsers.py: what reads the logs
    runtime: Literal["container", "process"]
    image: str | None = None  # pinned by digest where the nodes know one
    declared_image: str | None = None  # as images has it: with the tag, which a pinned one has not
    nodes: list[NodePlan]
    missing: dict[str, str] = {}  # nodes of the inventory that take no part -> why
    world_size: int = 0  # 0, as all that follows from it: the program alone knows
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    micro_batch: int = 0
    global_batch: int = 0
    seq_length: int = 0
    iterations: int = 0
    parameters: dict[str, str] = {}  # further options and site's variables that the figures depend on
    hidden: str = ""  # keyed digest of those of the parameters whose values are secrets
    master_address: str = ""
    master_port: int = 0
    derived: list[Derived] = []
    expect: dict[str, float] = {}  # metric -> bound, judged in the metric's own direction
    recorded: list[str] = []  # metrics of the recipe that are recorded and not judged
    start_timeout_s: float
    stall_timeout_s: float
    timeout_s: float
    unreachable_s: float = 20.0  # without an answer of a node
    warmup: int = Field(default=2, ge=0)  # iterations that are not steady
    telemetry_s: float | None = None  # seconds between two samples on each node; None: none are taken
    no_throttling: list[str] = []  # reasons for which no GPU may be throttled in steady iterations
    kernel_log_clean: bool = False  # whether the kernel log of each node has to be seen
    gpus: list[str] = []  # profiles of the nodes' GPUs
    steady: bool = False  # whether the iterations are to follow each other evenly
    stragglers: Limits | None = None  # how ranks' own times are held against each other; None: they are not

    @property
    def has_report(self) -> bool:
        """Whether the program measures itself: it chooses its sizes, and its own report is what is judged."""
        return self.parser != "training"

    @property
    def ranks(self) -> dict[str, range]:
        """Node -> the global ranks that it is given."""
        return {node.name: range(node.node_rank * node.ranks, (node.node_rank + 1) * node.ranks) for node in self.nodes}

    @property
    def driver(self) -> str:
        return self.nodes[0].name

    @property
    def reporter(self) -> str:
        """The node of the last global rank: the only one that prints iteration lines."""
        return self.nodes[-1].name


# An engine that does not answer, or a container that is there again, is an exit code other than 0 and words: what
# cannot be shown to be gone may still hold the GPUs. What `rm` says decides nothing. A client that was killed while
# the engine made its container leaves one that comes a moment later: it has to be absent twice, a second apart.
_REMOVE = (files("shakedown.jobs") / "remove.sh").read_text("utf-8")


def remove_containers(engine: str, run_id: str, name: str) -> list[str]:
    """Return a command that removes the containers of a run on its node whose names match a regular expression. It
    removes them running or not, and nothing else. It fails where one may still be there."""
    listing = _listing(engine, f"label={CONTAINER_LABEL}={run_id}", f"name=^/?{name}$")
    return ["sh", "-c", _REMOVE.replace("LISTING", listing).replace("ENGINE", shlex.quote(engine))]


def remove_stopped_containers(engine: str) -> list[str]:
    """Return a command that removes stopped containers of earlier runs, which a node that lost its power leaves. They
    hold only disk: the log of the cleanup names one that stays, and this run does not fail for it."""
    listing = _listing(engine, f"label={CONTAINER_LABEL}", "status=exited")
    return ["sh", "-c", f"{listing} | xargs --no-run-if-empty {shlex.quote(engine)} rm || true"]


def _listing(engine: str, *filters: str) -> str:
    return shlex.join([engine, "ps", "--all", "--quiet", *(word for label in filters for word in ("--filter", label))])


@dataclass(frozen=True)
class Event:
    """Something that a person who watches wants to see."""

    kind: Literal["phase", "node", "iteration", "device", "failure", "end"]
    text: str
    node: str | None = None
    iteration: Iteration | None = None
    at: float | None = None  # Unix time, where the event is older than its report


@dataclass(frozen=True)
class Timeouts:
    """Times in seconds."""

    poll_s: float = 1.0  # between two polls of a node
    poll_timeout_s: float = 8.0  # for one command on a node
    unreachable_s: float = 20.0  # without an answer until the job is stopped for it
    lease_s: float = 45.0  # without a poll until the node ends the job
    grace_s: float = 3.0  # between SIGTERM and SIGKILL
    prepare_s: float = 300.0  # for uploads and the setup commands
    last_exit_s: float = 30.0  # for all leaders to exit after the first one has
    stop_s: float = 60.0  # for ending, cleanup and collecting; of a long log, without anything new of it
    collect_s: float = 900.0  # the same in all: a gibibyte at little more than a megabyte in a second
    answer_s: float = 5.0  # for other nodes to show the same fault before the first iteration, until one is named
    echo_s: float = 1.5  # a failure that can be the echo of another node's waits so long for that one

    @classmethod
    def of(cls, unreachable_s: float) -> Timeouts:
        """Those of a plan: two polls may go unanswered, and a node holds out for longer than the controller. One that
        is slow to answer is asked less often, since each answer costs it."""
        return cls(
            poll_s=0.05 * unreachable_s,
            poll_timeout_s=0.4 * unreachable_s,
            unreachable_s=unreachable_s,
            lease_s=2.25 * unreachable_s,
            stop_s=max(cls.stop_s, unreachable_s),
            answer_s=0.25 * unreachable_s,
        )


def job_name(node: str | None, trials: str = "") -> str:
    """Return the name of a job: of a single node, or (None) over all; of a kind of `trials`, or a training."""
    return trials or TOGETHER if node is None else f"{trials or EACH}/{node}"


@dataclass
class Job:
    """One of the jobs that a deploy hands to `operations.smoke.run`. The plan is made when the job runs: after the
    changes. `node` has it for itself; None: it is over all nodes that are ready. `result` is None as long as no job has
    run: an absent result is a failed smoke run, never a passed one."""

    make_plan: Callable[[], LaunchPlan]
    log_dir: Path  # on the controller
    node: str | None = None
    trials: str = ""  # the kind of a job of trials (shakedown/trials); empty: it trains
    on_event: Callable[[Event], None] = lambda event: None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # variable -> value
    timeouts: Timeouts | None = None  # None: the plan's
    quota: LogQuota = field(default_factory=LogQuota)  # for the logs that are kept; the jobs of a run share one
    plan: LaunchPlan | None = None
    result: JobResult | None = None
    error: str | None = None  # why there is no result
    allocated: bool = True  # False: there was no place to start it, so that nothing of it ever ran

    @property
    def name(self) -> str:
        return job_name(self.node, self.trials)


class Clock:
    """The controller's time. Every duration and every order goes by the monotonic clock, which no user can set. The
    wall clock is read once, so that a step of it during the run changes nothing, not even the times that are shown."""

    def __init__(self) -> None:
        self._wall, self._began = time.time(), time.monotonic()

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def at(self, when: float) -> datetime:
        """Return the time of day of a moment of `now`, in UTC."""
        return datetime.fromtimestamp(self._wall + when - self._began, UTC)

    def when(self, moment: datetime) -> float:
        """Return the moment of `now` of a time of day."""
        return moment.timestamp() - self._wall + self._began


_KILL_S = 10.0  # for so long a node repeats SIGKILL (_KILL_S in node/launcher/watchdog.py)


def busy_after(jobs: Sequence[Job]) -> dict[str, float]:
    """Return the nodes of jobs that were left running, and the seconds within which each node ends its part alone: the
    lease that the last poll began, and the time that processes have to end."""
    held: dict[str, float] = {}
    for job in jobs:
        if job.plan is None or job.result is not None or job.error:
            continue
        times = job.timeouts or Timeouts.of(job.plan.unreachable_s)
        held |= {node.name: times.lease_s + times.grace_s + _KILL_S for node in job.plan.nodes}
    return held
