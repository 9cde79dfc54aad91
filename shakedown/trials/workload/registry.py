"""The registry of trials.

    @trial(on="device", figures={"*": "TFLOPS"}, seconds=2)
    def gemm(place: Place) -> Iterator[Measured]:
        \"\"\"Measure this part, in a sentence.\"\"\"

A trial has its function's name, runs in a process of its own on each part that it is `on`, and yields figures. It
imports torch inside, as the controller imports these modules without torch.
"""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from .programs import Link

DEVICE = "device"  # each GPU; the CPU where there is none
HOST = "host"  # each NUMA node, with its own cores and memory
NODE = "node"  # all devices of a node together
PAIRS = "pairs"  # two nodes at a time
TOOL = "tool"  # an external program over a whole node; it runs only on request by name
PLACES = (DEVICE, HOST, NODE, TOOL, PAIRS)

MARK = "trial "  # in front of a reading in the job's log, which the controller collects over SSH
OK, WRONG, ABSENT, TIMEOUT, CRASHED = ("ok", "wrong", "absent", "timeout", "crashed")

LOWER = frozenset({"us", "ms", "s"})
"""Units of which less is better; of all other units more is better."""


@dataclass(frozen=True)
class Measured:
    """A figure. `wrong`: count of wrong results; None: unchecked. `part`: of several. `missed`: a tool's target."""

    figure: str
    value: float
    wrong: int | None = None
    note: str = ""
    part: str = ""
    missed: bool = False


def reading(trial: str, part: str, repetition: int, figure: str = "", state: str = OK, **more: Any) -> dict[str, Any]:
    """Return one reading as it stands in the log. Without a figure, `figure` is empty and `state` has the reason."""
    value = more.pop("value", None)
    finite = value if value is not None and math.isfinite(value) else None
    entry = {"trial": trial, "part": part, "repetition": repetition, "figure": figure, "state": state, "value": finite}
    return {**entry, **{name: value for name, value in more.items() if value not in (None, "")}}


def reading_of(measured: Measured, trial: str, part: str, repetition: int) -> dict[str, Any]:
    """Return the reading of a measured figure, on the part that it names or on this one."""
    state = WRONG if measured.wrong else OK if measured.value == measured.value else ABSENT
    more = {"wrong": measured.wrong, "note": measured.note, "missed": measured.missed or None}
    return reading(trial, measured.part or part, repetition, measured.figure, state, value=measured.value, **more)


@dataclass
class Place:
    """Where a trial runs, and how long it may measure."""

    part: str  # gpu3, cpu, numa1, node, or A>B of a pair
    device: torch.device | None  # None: of a tool, which opens devices itself
    seconds: float = 0.3  # of measuring, for each figure
    rank: int = 0
    ranks: int = 1
    numa: dict[str, list[int]] = field(default_factory=dict)  # NUMA node -> its CPUs
    gpus: int = 0  # of the whole node, for a tool
    model: str = ""  # of its GPUs, as profiles name them
    folders: Sequence[str] = ()  # of the data sets, for a tool
    link: Link | None = None  # of two nodes that measure with an external program

    @property
    def kind(self) -> str:
        """Return cuda (ROCm's torch uses this name too) or cpu."""
        return "cpu" if self.device is None else self.device.type

    @property
    def on_gpu(self) -> bool:
        """Return whether the device is a GPU."""
        return self.kind == "cuda"

    def wait(self) -> None:
        """Wait until the device has finished its work."""
        import torch

        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def time_of(self, call: Callable[[], Any]) -> float:
        """Return the mean seconds of a call: the first does not count, the second decides how many fit the time."""
        call()
        self.wait()
        began = time.perf_counter()
        call()
        self.wait()
        count = max(2, int(self.seconds / max(time.perf_counter() - began, 1e-6)))
        if self.ranks > 1:
            count = self._agreed(min(count, 1000))
        began = time.perf_counter()
        for _ in range(count):
            call()
        self.wait()
        return (time.perf_counter() - began) / count

    def _agreed(self, count: int) -> int:
        """Return the first rank's count on all ranks: with different numbers of calls the ranks would hang."""
        import torch
        from torch import distributed

        shared = torch.tensor([float(count)], device=self.device)
        distributed.broadcast(shared, 0)
        distributed.barrier()
        return int(shared)


@dataclass(frozen=True)
class Trial:
    """A registered trial. `figures`: the name of each figure (or "*": any other) -> its unit."""

    name: str
    on: str
    figures: Mapping[str, str]
    seconds: float  # of one repetition, start of the process not counted
    needs_gpu: bool
    needs_torch: bool
    function: Callable[[Place], Iterator[Measured]]

    @property
    def by_name(self) -> bool:
        """Return whether the trial runs only on request by name: external programs can take minutes."""
        return self.on == TOOL or not self.needs_torch

    @property
    def doc(self) -> str:
        """Return the first paragraph of the function's documentation, on one line."""
        return " ".join((inspect.getdoc(self.function) or "").partition("\n\n")[0].split())

    def unit(self, figure: str) -> str | None:
        """Return the unit of a figure; None: the trial has no such figure."""
        return self.figures.get(figure, self.figures.get("*"))


TRIALS: dict[str, Trial] = {}
_loaded: list[str] = []


def trial(
    *, on: str, figures: Mapping[str, str], seconds: float = 2.0, needs_gpu: bool = False, needs_torch: bool = True
) -> Callable[[Callable[[Place], Iterator[Measured]]], Callable[[Place], Iterator[Measured]]]:
    """Register a trial. `needs_torch`: False if it only starts a program. Raises ValueError for an incomplete one."""

    def register(function: Callable[[Place], Iterator[Measured]]) -> Callable[[Place], Iterator[Measured]]:
        name = function.__name__
        if on not in PLACES or not figures or not inspect.getdoc(function):
            raise ValueError(f"trial {name}: `on` ({', '.join(PLACES)}), `figures` and a docstring are needed")
        if name in TRIALS:
            raise ValueError(f"two trials are named {name}")
        TRIALS[name] = Trial(name, on, dict(figures), seconds, needs_gpu, needs_torch, function)
        return function

    return register


def trials() -> dict[str, Trial]:
    """Return every trial by name, in the order of the runs: by part, then by name."""
    if not _loaded:
        package = importlib.import_module(f"{__package__}.measures")
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
        _loaded.append(package.__name__)
    ordered = sorted(TRIALS.values(), key=lambda trial: (PLACES.index(trial.on), trial.name))
    return {trial.name: trial for trial in ordered}
