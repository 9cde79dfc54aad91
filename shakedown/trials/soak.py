"""A soak: its stages for a length of time (`soak.toml`), and what of it a run has done (`RunRecord.soak`)."""

import json
import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Literal

from shakedown.common.data import read_toml
from shakedown.common.frozen import Frozen
from shakedown.common.nearest import refuse_unknown
from shakedown.desired.models import DesiredState, Soak
from shakedown.jobs.launch import LaunchPlan, Need, NodePlan
from shakedown.state.node import NodeState, is_unreadable

KIND = "soak"  # of its jobs: soak/STAGE-NUMBER
RECIPE = "soak"
LOOK = "look"  # the job that looks for the tools
SMOKE = "smoke"
REQUEST = "request.json"
SLACK_S = 120  # beyond a job's time: for the last tool to end, on a loaded node
SHORTEST_S, LONGEST_S = 10, 14 * 86400
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LARGEST_FOLDER = 64 << 20


class Tool(Frozen):
    """A program that loads a part of a node, and how its output reads."""

    program: str
    package: str
    command: list[str]
    figure: str
    unit: str
    source: str
    wrong: str = ""
    scale: float = 1.0
    mean: bool = False
    needs_gpu: bool = False
    prepare: bool = False


class Stage(Frozen):
    """A stage: tools on each node, a trial between nodes, or the smoke run."""

    name: str
    about: str
    tools: list[str] = []
    together: bool = False
    trial: str = ""


class Counter(Frozen):
    """A counter of errors; the files of `path` have a number, by `value`."""

    name: str
    path: str
    source: str
    value: str = r"^\s*(\d+)\s*$"
    uncorrectable: bool = False
    needed: list[str] = []  # stages after which a node without this counter was not seen


class Shares(Frozen):
    """How the time is shared among the stages, for soaks up to a length."""

    up_to: str
    shares: dict[str, float]
    trials: bool = False


class Limit(Frozen):
    """What a soak must not exceed."""

    source: str
    unit: str
    value: float = 0.0
    path: str = ""
    bound: str = ""
    reasons: list[str] = []


class Catalogue(Frozen):
    """The whole of `soak.toml`."""

    sample_s: float
    segment_s: float
    slices: int
    slice_s: tuple[float, float]
    scratch_bytes: int
    plan: list[Shares]
    stage: list[Stage]
    tool: dict[str, Tool]
    counter: list[Counter]
    limits: dict[str, Limit]


class SoakStage(Frozen):
    """A stage of a run's soak: its time, and how much of it every node has had."""

    name: str
    wanted_s: float
    done_s: float = 0.0
    unit: str = ""

    @property
    def left_s(self) -> float:
        """Return the seconds that are left; less than a sample counts as nothing."""
        left = self.wanted_s - self.done_s
        return left if left > min(5.0, 0.1 * self.wanted_s) else 0.0


class Figure(Frozen):
    """The throughput of a tool on a node: the medians of the first and the last tenth of its runs."""

    node: str
    stage: str
    tool: str
    unit: str
    count: int
    first: float
    last: float
    verdict: Literal["ok", "warn", "fail", "unknown"]


class Growth(Frozen):
    """A counter of errors of a part of a node over the soak."""

    node: str
    counter: str
    first: int
    last: int
    hours: float

    @property
    def grown(self) -> int:
        """Return by how much it grew; a counter that fell was reset and counts from there."""
        return self.last - self.first if self.last >= self.first else self.last

    @property
    def uncorrectable(self) -> bool:
        """Return whether it counts errors that could not be corrected."""
        return self.counter.endswith(" uncorrectable")

    @property
    def limit(self) -> float:
        """Return by how much it may grow in 24 hours."""
        return 0.0 if self.uncorrectable else catalogue().limits["correctable"].value

    @property
    def verdict(self) -> Literal["ok", "warn", "fail"]:
        """Return what its growth is: more than the limit in 24 hours, something, or nothing."""
        per_day = self.grown * min(1.0, 24 / max(self.hours, 1e-6))
        return "fail" if per_day > self.limit else "warn" if self.grown else "ok"


class SoakRecord(Frozen):
    """The soak of a run: with the logs, enough to judge it again."""

    total_s: float
    stages: list[SoakStage]
    left_out: dict[str, str] = {}  # stage -> why this soak has none
    absent: dict[str, dict[str, str]] = {}  # node -> tool -> why the node was not loaded by it
    nodes: list[str] = []
    only: list[str] = []
    gpus: bool = False  # whether nodes have GPUs, or should have some
    figures: list[Figure] = []
    growth: list[Growth] = []  # of counters that could be read
    hottest: dict[str, dict[str, tuple[float, float]]] = {}  # node -> GPU -> the highest temperature and its bound
    wrong: dict[str, list[str]] = {}  # node -> wrong results, and tools that failed
    rose: dict[str, str] = {}  # node -> the uncorrectable error that ended the soak
    ended: str = ""  # who ended it before its time
    samples: dict[str, int] = {}  # node -> readings of the counters

    @property
    def done_s(self) -> float:
        """Return the seconds under load that every node has had."""
        return sum(min(stage.done_s, stage.wanted_s) for stage in self.stages)

    @property
    def over(self) -> bool:
        """Return whether every stage has had its time."""
        return not any(stage.left_s for stage in self.stages)


@cache
def catalogue() -> Catalogue:
    """Return stages, tools, counters and limits."""
    return Catalogue.model_validate(read_toml("shakedown.trials", "soak.toml"))


def seconds_of(text: str) -> float:
    """Read a length of time, as 90s, 30m, 24h or 2d. Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,7}(?:\.[0-9]{1,3})?)([smhd])", text.strip())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise ValueError(f"{text!r} is no length of a soak: expected {SHORTEST_S}s to 14d, as 30m or 24h")
    return seconds


def length(seconds: float) -> str:
    """Write a length of time for a person."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"


def stage_of(name: str) -> Stage:
    """Return a stage of the catalogue."""
    return next(stage for stage in catalogue().stage if stage.name == name)


def shares_of(seconds: float) -> Shares:
    """Return the shares for a soak of so many seconds."""
    return next(plan for plan in catalogue().plan if seconds <= seconds_of(plan.up_to))


def chosen_stages(only: Collection[str]) -> list[str]:
    """Check the names of stages. Raises ValueError for an unknown one."""
    names = [stage.name for stage in catalogue().stage]
    refuse_unknown(only, names, "stage")
    return [name for name in names if not only or name in only]


def record_of(
    seconds: float, only: Collection[str], desired: Mapping[str, DesiredState], states: Mapping[str, NodeState]
) -> SoakRecord:
    """Plan a soak of these nodes: its stages with their times, and why others are left out. Raises ValueError."""
    shares = shares_of(seconds).shares
    left_out = {}
    for name in chosen_stages(only):
        reason = _not_possible(stage_of(name), desired, states)
        if reason or (not only and name not in shares):
            left_out[name] = reason or f"too short for it: a soak of {length(seconds)}"
    names = [name for name in chosen_stages(only) if name not in left_out]
    if not names:
        raise ValueError(f"nothing to do: {'; '.join(f'{name}: {why}' for name, why in left_out.items())}")
    weights = {name: shares.get(name, 1.0) for name in names}
    each_s = seconds / sum(weights.values())
    stages = [SoakStage(name=name, wanted_s=round(each_s * weights[name], 3)) for name in names]
    return SoakRecord(
        total_s=seconds,
        stages=stages,
        left_out=left_out,
        nodes=list(states),
        only=sorted(only),
        gpus=_gpus(desired, states),
    )


def _not_possible(stage: Stage, desired: Mapping[str, DesiredState], states: Mapping[str, NodeState]) -> str:
    if stage.name == SMOKE:
        return "" if any(state.smoke for state in desired.values()) else "the desired state has no section smoke"
    if stage.trial:
        if len(states) < 2:
            return "it needs two nodes"
        has = any(state.rdma.count for state in desired.values())
        return "" if has else "the desired state has no RDMA devices (rdma.count)"
    on_gpus = all(catalogue().tool[name].needs_gpu for name in stage.tools)
    return "no node has a GPU, nor should have one (gpu.count)" if on_gpus and not _gpus(desired, states) else ""


def _gpus(desired: Mapping[str, DesiredState], states: Mapping[str, NodeState]) -> bool:
    return any(state.gpu.count for state in desired.values()) or any(map(count_gpus, states.values()))


def count_gpus(state: NodeState) -> int:
    """Count the GPUs of a node."""
    return 0 if is_unreadable(state.gpus) else len(state.gpus)


def tools_of(record: SoakRecord, stage: str) -> list[str]:
    """Return the tools of a stage; those of GPUs only where the soak is about GPUs."""
    return [name for name in stage_of(stage).tools if record.gpus or not catalogue().tool[name].needs_gpu]


def plan_load(
    record: SoakRecord,
    stage: str,
    seconds: float,
    run_id: str,
    wanted: Soak,
    nodes: Mapping[str, tuple[DesiredState, NodeState]],
) -> LaunchPlan:
    """Plan a job that loads nodes for so many seconds; the stage `look` only looks for the tools."""
    data = catalogue()
    names = list(dict.fromkeys(tool for part in record.stages for tool in tools_of(record, part.name)))
    names = names if stage == LOOK else tools_of(record, stage)
    low, high = data.slice_s
    request: dict[str, Any] = {
        "seconds": seconds,
        "slack_s": SLACK_S / 2,
        "slice_s": min(max(seconds / data.slices, low), high),
        "sample_s": data.sample_s,
        "tools": [{"name": name, **data.tool[name].model_dump(exclude={"source", "unit"})} for name in names],
        "together": stage != LOOK and stage_of(stage).together,
        "counters": [counter.model_dump(exclude={"source", "needed"}) for counter in data.counter],
        "hotspot": data.limits["hotspot"].model_dump(include={"path", "bound"}),
        "scratch_bytes": data.scratch_bytes,
        "memory": wanted.memory,
    }
    scratch = f"{wanted.scratch or '{run_dir}'}/shakedown-soak-{run_id}"
    needs = [Need(kind="room", path=wanted.scratch, size=_LARGEST_FOLDER)] if wanted.scratch else []
    plans = [
        NodePlan(
            name=name,
            node_rank=rank,
            command=["python3", "{run_dir}/workload/run.py", "soak", f"{{run_dir}}/{REQUEST}", scratch],
            files={REQUEST: json.dumps({**request, "model": desired.gpu.profile, "gpus": count_gpus(state)})},
            upload=["shakedown.trials.workload"],
            needs=[Need(kind="room", size=_LARGEST_FOLDER), *needs],
            cleanup=[["rm", "-rf", "--", scratch]],
        )
        for rank, (name, (desired, state)) in enumerate(nodes.items())
    ]
    limit = seconds + SLACK_S
    return LaunchPlan(
        run_id=run_id,
        recipe=RECIPE,
        runtime="process",
        nodes=plans,
        world_size=len(plans),
        start_timeout_s=limit,
        stall_timeout_s=limit,
        timeout_s=limit,
        unreachable_s=max((state.smoke.unreachable_s for state, _ in nodes.values() if state.smoke), default=20),
        telemetry_s=None if stage == LOOK else data.sample_s,
    )
