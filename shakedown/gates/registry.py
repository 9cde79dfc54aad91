"""The registry of gates: a gate is a function with `@gate` in a module of this package, and that is all there is to it.

    @gate
    def no_negative_loss(iterations: Sequence[Iteration]) -> Outcome:
        \"\"\"What holds when it passes, in a sentence.\"\"\"

The function's name is the gate's. Its parameters are fields of `Observed`, and say what it needs: one without a default
must be there, or the gate is not asked; one with a default is given where it is there. Behind a `*` stand limits of its
own, which have defaults too. A gate that needs iteration lines is therefore asked of smoke runs and of logs from
anywhere, one that needs exit codes only of jobs that were run.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, ParamSpec, overload

from shakedown.evidence.stragglers.model import Stragglers
from shakedown.evidence.telemetry.kernel import KernelWindow
from shakedown.evidence.telemetry.summary import NodeTelemetry
from shakedown.gates.alone import Alone
from shakedown.gates.baselines.model import Past
from shakedown.gates.model import Gate, Outcome
from shakedown.gates.node_log import NodeLog
from shakedown.gates.steadiness import Paces
from shakedown.jobs.benchmark.results import Figure as BenchmarkFigure
from shakedown.jobs.benchmark.results import Step
from shakedown.logs.figures import Figures
from shakedown.logs.log import Iteration
from shakedown.logs.mlperf import MlperfRun
from shakedown.state.findings import Verdict

# In this order gates are shown; those of other modules of this package come after them, by the modules' names.
ORDER = (
    "ran_to_its_end",
    "exit_codes",
    "logs_complete",
    "recipe",
    "benchmark",
    "mlperf",
    "iterations",
    "loss_falling",
    "gradients",
    "figures",
    "possible",
    "steady",
    "baseline",
    "scaling",
    "log_lines",
    "counters",
    "throttling",
    "kernel_log",
    "stragglers",
    "nothing_left",
)

# What is read from the lines of a log: over a log that is not whole, a gate that needs it proves nothing by itself.
OF_LINES = {
    "iterations",
    "damaged",
    "normed",
    "timed",
    "figures",
    "paces",
    "steps",
    "total_steps",
    "reported",
    "problems",
}
OF_THE_END = frozenset(
    {"exit_codes", "logs_complete", "iterations_complete", "ran_to_its_end"}
)  # whether it came to it
_OF_EACH = {"metric", "bound", "past"}

Uncertain = Literal[Verdict.FAIL, Verdict.UNKNOWN]
P = ParamSpec("P")


@dataclass(frozen=True)
class Observed:
    """All that one job is judged by. None: there is no such evidence of this job, and what needs it is not asked."""

    stopped: str | None = None  # why a job was stopped before its end, or never started
    never_started: bool | None = None
    not_ended: str | None = None  # the same of a benchmark

    logs: Mapping[str, NodeLog | None] | None = None  # node -> its log; None: it could not be had
    to_be_whole: Mapping[str, NodeLog | None] | None = None  # the same, where it is asked whether they are
    unlogged: int | None = None  # how many nodes of the job are in none of the logs
    further: Sequence[str] | None = None  # what is wrong with the copies of other logs
    rdma: bool | None = None  # whether the job was to use RDMA between its nodes
    nccl_debug: str | None = None  # NCCL_DEBUG of the run

    iterations: Sequence[Iteration] | None = None  # the run's iteration lines
    mlperf: MlperfRun | None = None  # what MLPerf's own lines say, where there are some
    mlperf_cut: str = ""  # what is not whole of their log
    normed: Sequence[Iteration] | None = None  # the same, where any of them has the norm of the gradient
    damaged: Collection[int] | None = None  # the numbers of those that were cut or mixed
    wanted: int | None = None  # how many there should be
    loaded: int | None = None  # iteration of the checkpoint that the run went on from, as the log says
    exited: int | None = None  # iteration after which the program says that it was told to exit; 0: after a time
    vocabulary: int | None = None  # entries of the job's vocabulary
    reinforced: bool = False  # whether the job learns by reinforcement
    clock: str = ""  # how the times of the lines contradict what they tell of the time of an iteration
    figures: Figures | None = None
    timed: Sequence[Iteration] | None = None  # the judged lines, where there is a throughput
    gpus: Collection[str] | None = None  # models, as the profiles name them
    precision: str | None = None  # the fastest that the job computes in
    told_tokens: float | None = None  # tokens/s/GPU, by what lines tell of all GPUs
    token_flops: float | None = None  # that a token costs at least
    paces: Paces | None = None  # the time of each judged line, where there are enough to judge how even they are
    expect: Mapping[str, float] = field(default_factory=dict)  # metric -> its bound
    past: Mapping[str, Past] = field(default_factory=dict)  # metric that is judged by earlier runs -> those
    no_past: str | None = None  # why nobody knows of earlier runs, though the figures are to be judged by them
    alone: Alone | None = None  # what the nodes did each by itself, and which share of it they are to do together
    ranks: int | None = None  # of all nodes

    recipe: str | None = None  # that a log is to be judged by
    otherwise: Sequence[str] | None = None  # what the recipe has otherwise than the log

    codes: Mapping[str, int | None] | None = None  # rank or node -> its exit code
    participants: Collection[str] | None = None
    stopped_nodes: Collection[str] = ()  # of them, those that the controller stopped with the job
    before: Mapping[str, Mapping[str, Any]] | None = None  # node -> counter -> count, before the job
    after: Mapping[str, Mapping[str, Any]] | None = None
    left: Mapping[str, Collection[str]] | None = None  # node -> what of the job is left there, or may be
    telemetry: Mapping[str, NodeTelemetry | None] | None = None  # node -> its samples; None: there are none
    not_throttled: Sequence[str] | None = None  # reasons for which no GPU may be throttled
    kernel: Mapping[str, KernelWindow | None] | None = None  # node -> its kernel log of the job's window
    kernel_wanted: bool = False  # whether every node's has to be seen
    links: Mapping[str, Collection[str]] | None = None  # node -> the network ports that the job uses
    stragglers: Stragglers | None = None  # what the ranks' own times come to, where that is to be judged

    ended_with: Mapping[str, int | None] | None = None  # node -> the exit code of a benchmark's container
    reported: Sequence[BenchmarkFigure] | None = None  # the figures of a benchmark, as its report and its log have them
    problems: Sequence[str] | None = None  # what of a benchmark's report could not be read
    steps: Sequence[Step] | None = None  # the step lines of a benchmark that prints them
    total_steps: int | None = None

    unread: bool = False  # since the log is of no form that is read
    unjudged: str = ""  # why nobody can say which iteration lines, if any, are the run's
    contradicted: bool = False  # since the logs are of several runs
    cut: str = ""  # what is not whole of that which was read from lines
    shows_failure: bool = True  # whether what is wrong on the lines that are there cannot be otherwise in the whole


@dataclass(frozen=True)
class Rule:
    """A registered gate. `name` is empty where there is one for each metric of `over`: they have the metrics' names,
    with `prefix` before them."""

    name: str
    function: Callable[..., Outcome]
    stands: bool
    contradicted: Uncertain
    needs: frozenset[str]
    takes: frozenset[str]
    over: Literal["expect", "past"] = "expect"
    prefix: str = ""

    @property
    def holds_when(self) -> str:
        """The first paragraph of the function's documentation, on one line."""
        return " ".join((inspect.getdoc(self.function) or "").partition("\n\n")[0].split())

    def names(self, job: Observed) -> Iterator[str]:
        """The names of its gates on this job; none where something that it needs is not there."""
        if any(getattr(job, need) is None for need in self.needs):
            return
        if self.name:
            yield self.name
        else:
            yield from (f"{self.prefix}{metric}" for metric in getattr(job, self.over))

    def outcome(self, job: Observed, name: str) -> Outcome:
        """What it comes to on this job, as the gate of that name."""
        given = {each: getattr(job, each) for each in self.takes if getattr(job, each) is not None}
        if self.name:
            return self.function(**given)
        metric = name.removeprefix(self.prefix)
        return self.function(metric, getattr(job, self.over)[metric], **given)


@overload
def gate(function: Callable[P, Outcome]) -> Callable[P, Gate]: ...
@overload
def gate(
    *, stands: bool = False, contradicted: Uncertain = Verdict.UNKNOWN
) -> Callable[[Callable[P, Outcome]], Callable[P, Gate]]: ...
def gate(
    function: Callable[P, Outcome] | None = None,
    *,
    stands: bool = False,
    contradicted: Uncertain = Verdict.UNKNOWN,
) -> Any:
    """Register a gate under its function's name. Called by itself the function gives the gate.

    `stands`: a failure that is seen in a part of a log cannot be otherwise in the whole of it. `contradicted`: what it
    comes to where the logs are of several runs. Both are for gates over what is read from lines.
    """

    def register(function: Callable[P, Outcome]) -> Callable[P, Gate]:
        name = _add(function.__name__, function, stands, contradicted)

        @functools.wraps(function)
        def named(*args: P.args, **kwargs: P.kwargs) -> Gate:
            return called(name, function(*args, **kwargs))

        return named

    return register if function is None else register(function)


def gate_of_each_metric(
    *, stands: bool = False, over: Literal["expect", "past"] = "expect", prefix: str = ""
) -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
    """Register the gates of all metrics that are expected, or have a past: the function takes the `metric` and its
    `bound` (or `past`), in this order, besides what it needs."""

    def register(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
        _add("", function, stands, Verdict.UNKNOWN, over, prefix)
        return function

    return register


def rules() -> list[Rule]:
    """Every registered gate, in the order in which gates are shown."""
    _load()
    return [rule for module in sorted(_RULES, key=_place) for rule in _RULES[module]]


def called(name: str, outcome: Outcome) -> Gate:
    """An outcome as the gate of that name."""
    return Gate(name=name, **{each: getattr(outcome, each) for each in Outcome.model_fields})


_RULES: dict[str, list[Rule]] = {}


def _add(
    name: str,
    function: Callable[..., Outcome],
    stands: bool,
    contradicted: Uncertain,
    over: Literal["expect", "past"] = "expect",
    prefix: str = "",
) -> str:
    parameters = inspect.signature(function).parameters.values()
    known = {each.name for each in fields(Observed)}
    own = set() if name else _OF_EACH
    takes = frozenset(each.name for each in parameters if each.name not in own)
    needs = frozenset(each.name for each in parameters if each.name in takes and each.default is each.empty)
    of_its_own = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is not each.empty}
    if unknown := sorted(takes - known - of_its_own):
        raise TypeError(f"gate {function.__name__}: {', '.join(unknown)}: no field of Observed")
    if not needs:
        raise TypeError(f"gate {function.__name__}: it needs nothing, so it would be asked of everything")
    if any((rule.name, rule.prefix, rule.needs) == (name, prefix, needs) for rule in _registered()):
        raise ValueError(f"two gates are named {name or 'after the expected metrics'}, and need the same")
    rule = Rule(name, function, stands, contradicted, needs, takes & known, over, prefix)
    _RULES.setdefault(function.__module__, []).append(rule)
    return name


def _registered() -> Iterator[Rule]:
    for of_module in _RULES.values():
        yield from of_module


@functools.cache
def _load() -> None:
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")


def _place(module: str) -> tuple[int, str]:
    name = module.rpartition(".")[2]
    return (ORDER.index(name) if name in ORDER else len(ORDER)), name
