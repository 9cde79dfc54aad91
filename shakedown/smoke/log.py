"""The iteration lines of a Megatron-LM log, in every dialect that is about.

Upstream Megatron-LM, the ROCm fork, Primus (old and new), Megatron-DeepSpeed and forks that add tokens per second all
print one line per iteration: `iteration N/M |` and then `name: value |` fields, in any order. Only the last global
rank prints them. A field counts only when it is complete: `elapsed time per iteration (ms): 65` at the end of a log
that was cut is no measurement of 65 ms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from shakedown.smoke.lines import LineSplitter


class Iteration(BaseModel):
    """One iteration line. None: the line has no (complete) such field.

    Megatron leaves the loss out when it is NaN, and in iterations that the loss scaler skipped.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    iteration: int
    total_iterations: int
    consumed_samples: int | None = None
    elapsed_ms: float | None = None
    tflops_per_gpu: float | None = None
    tokens_per_gpu_per_s: float | None = None
    memory_fraction: float | None = None  # of the GPU of the rank that printed the line, 0 to 1
    learning_rate: float | None = None
    global_batch_size: int | None = None  # samples
    lm_loss: float | None = None
    loss_scale: float | None = None
    grad_norm: float | None = None
    skipped_iterations: int | None = None  # since the line before
    nan_iterations: int | None = None


class Summary(BaseModel):
    """What the ROCm training scripts print at the end: means without the first two and the last iteration.

    NaN on every node but the last, since the means are taken from iteration lines that only the last rank prints.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    throughput_per_gpu: float | None = None  # TFLOP/s/GPU
    elapsed_time_per_iteration: float | None = None  # ms
    tokens_per_gpu: float | None = None  # tokens/s/GPU
    mem_usage: float | None = None  # fraction


NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|[iI][nN][fF](?:inity)?|[nN][aA][nN])"
_INTEGER = re.compile(r"(\d{1,18})")
_NUMBER = re.compile(f"({NUMBER})")
_INSTANT = re.compile(rf"({NUMBER})(?:\s*/\s*{NUMBER}|\s*\(avg\s*{NUMBER}\))?")  # Primus: "instant/average"
_USAGE = re.compile(rf"(?:{NUMBER}\s*[KMGT]?i?B/){{3}}({NUMBER})%")  # Primus: "used/free/total/ratio"


class _Field(NamedTuple):
    """How one `name: value` is read, and where it goes."""

    target: str  # of Iteration
    value: re.Pattern[str]
    scale: float = 1.0
    preference: int = 0  # two names for one target on the same line: the lowest wins
    at_line_end: bool = False  # may stand last in a dialect that does not close its last field with "|"

    def read(self, text: str) -> float:
        """The value in the target's unit."""
        if self.value is _INTEGER:
            return int(text)
        return float(text) if self.scale == 1.0 else round(float(text) * self.scale, 9)


_FIELDS = {
    "consumed samples": _Field("consumed_samples", _INTEGER),
    "elapsed time per iteration (ms)": _Field("elapsed_ms", _INSTANT),
    "elapsed time per iteration (s)": _Field("elapsed_ms", _INSTANT, scale=1000.0),
    "throughput per gpu (tflop/s/gpu)": _Field("tflops_per_gpu", _INSTANT),
    "compute per gpu (tflop/s/gpu)": _Field("tflops_per_gpu", _INSTANT, preference=1),
    "tflops": _Field("tflops_per_gpu", _INSTANT, preference=2),  # Megatron-DeepSpeed, per GPU
    "tokens per gpu (tokens/s/gpu)": _Field("tokens_per_gpu_per_s", _INSTANT, at_line_end=True),
    "tokens/s/gpu inst/harmonic mean": _Field("tokens_per_gpu_per_s", _INSTANT, at_line_end=True),
    "tokens/sec/gpu": _Field("tokens_per_gpu_per_s", _INSTANT, at_line_end=True),
    "tokens/gpu/s": _Field("tokens_per_gpu_per_s", _INSTANT, at_line_end=True),
    "tokens per second per gpu (tok/s/gpu)": _Field("tokens_per_gpu_per_s", _INSTANT, at_line_end=True),
    "tokens-per-second-per-gpu": _Field("tokens_per_gpu_per_s", _INSTANT, at_line_end=True),
    "tgs (tokens/gpu/second)": _Field("tokens_per_gpu_per_s", _INSTANT, at_line_end=True),
    "mem usages": _Field("memory_fraction", _NUMBER),
    "hip mem usage/free/total/usage_ratio": _Field("memory_fraction", _USAGE, 0.01, preference=1, at_line_end=True),
    "rocm mem usage/free/total/usage_ratio": _Field("memory_fraction", _USAGE, 0.01, preference=2, at_line_end=True),
    "learning rate": _Field("learning_rate", _NUMBER),
    "global batch size": _Field("global_batch_size", _INTEGER),
    "lm loss": _Field("lm_loss", _NUMBER),
    "loss scale": _Field("loss_scale", _NUMBER),
    "grad norm": _Field("grad_norm", _NUMBER),
    "number of skipped iterations": _Field("skipped_iterations", _INTEGER),
    "number of nan iterations": _Field("nan_iterations", _INTEGER, at_line_end=True),
}
_HEADER = re.compile(r"\biteration\s+(\d{1,18})\s*/\s*(\d{1,18})\s*\|")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")

_SUMMARY = {
    "throughput per GPU": "throughput_per_gpu",
    "elapsed time per iteration": "elapsed_time_per_iteration",
    "tokens/GPU/s": "tokens_per_gpu",
    "mem usages": "mem_usage",
}
_SUMMARY_HINT = re.compile(r"(?:PU|tion|/s|ges): ")  # cheap: most lines end here
_SUMMARY_LINE = re.compile(rf"^\s*(?:\[[^\[\]]*\]:?\s*|\d+:\s*)*({'|'.join(_SUMMARY)}): ({NUMBER})\s*$")


def strip_ansi(line: str) -> str:
    """The line without terminal escape sequences."""
    return _ANSI.sub("", line) if "\x1b" in line else line


def _split(segment: str) -> tuple[str, _Field | None, str]:
    """A field's name, how it is read (None: not one of ours), and its text."""
    name, _, text = segment.partition(":")
    name = " ".join(name.split()).lower()
    return name, _FIELDS.get(name), text.strip()


class _Record:
    """The fields behind one `iteration N/M |`, as far as they can be trusted."""

    def __init__(self, header: re.Match[str], body: str, terminated: bool) -> None:
        self._values: dict[str, tuple[int, float]] = {}  # target -> (preference, value)
        self._garbled = False
        self._names: set[str] = set()
        *closed, tail = body.split("|")
        for segment in closed:
            self._take(segment)
        self._take_tail(tail, terminated)
        values: dict[str, float] = {target: value for target, (_, value) in self._values.items()}
        self.iteration = Iteration.model_validate(
            {"iteration": int(header[1]), "total_iterations": int(header[2]), **values}
        )

    @property
    def damaged(self) -> bool:
        """True where the line was cut, or another rank's output landed in it: a missing field then says nothing."""
        return self._garbled or not self._complete

    def _take(self, segment: str) -> None:
        name, field, text = _split(segment)
        if field is None or text == "None":
            return
        match = field.value.fullmatch(text)
        if match is None or name in self._names:  # the same field twice: a second line runs through this one
            self._garbled = True
            return
        self._names.add(name)
        known = self._values.get(field.target)
        if known is None or field.preference < known[0]:
            self._values[field.target] = (field.preference, field.read(match[1]))

    def _take_tail(self, tail: str, terminated: bool) -> None:
        """The text behind the last `|`: nothing, a last field that the dialect leaves open, or somebody else's."""
        _, field, text = _split(tail)
        closes_itself = field is not None and field.value is _USAGE
        whole = field is not None and field.at_line_end and field.value.fullmatch(text) is not None
        if whole and (terminated or closes_itself):
            self._take(tail)
            self._complete = True
        else:
            # Upstream's last field: whatever follows it is another rank's output, and the line is all there.
            upstream_end = "nan_iterations" in self._values
            self._complete = (terminated and not tail.strip()) or (upstream_end and field is None)


def _records(line: str) -> Iterator[_Record]:
    if "iteration" not in line or "|" not in line:
        return
    terminated = line.endswith("\n")
    line = strip_ansi(line)
    headers = list(_HEADER.finditer(line))
    ends = [header.start() for header in headers[1:]] + [len(line)]
    for header, end in zip(headers, ends, strict=False):  # without a header there is still one end
        yield _Record(header, line[header.end() : end], terminated and end == len(line))


def parse_line(line: str) -> Iteration | None:
    """The iteration line in `line` (the first one where two ranks' output is glued), or None.

    Fields that were cut, or that another rank's output runs through, are None. A last field that is not closed with
    `|` counts only when the line has its line end.
    """
    return next((record.iteration for record in _records(line)), None)


class LogReader:
    """Reads a log while it grows: feed it chunks as they come, it gives back the iterations they complete.

    `lines` counts line ends (and a last line without one), `summary` is what the script printed at the end so far, and
    `damaged` holds the numbers of the iterations whose line was cut or mixed with other output.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.summary = Summary()
        self.damaged: list[int] = []
        self._splitter = LineSplitter()

    def feed(self, chunk: bytes | str) -> list[Iteration]:
        """The iterations whose lines this chunk completes."""
        return [iteration for line in self._splitter.feed(chunk) for iteration in self.line(line)]

    def close(self) -> list[Iteration]:
        """The end of the log: what a last line without a line end still says."""
        return [iteration for line in self._splitter.close() for iteration in self.line(line)]

    def line(self, line: str) -> list[Iteration]:
        """The iterations in one line, for those who have split the log already."""
        self.lines += 1
        if "|" not in line:
            if _SUMMARY_HINT.search(line):
                self._summarise(line)
            return []
        records = list(_records(line))
        self.damaged += [record.iteration.iteration for record in records if record.damaged]
        return [record.iteration for record in records]

    def _summarise(self, line: str) -> None:
        match = _SUMMARY_LINE.match(strip_ansi(line)) if line.endswith("\n") else None
        if match:
            self.summary = self.summary.model_copy(update={_SUMMARY[match[1]]: float(match[2])})


def parse(lines: Iterable[str | bytes]) -> Iterator[Iteration]:
    """The iteration lines of a log, one after the other, holding one line in memory (open files yield lines)."""
    reader = LogReader()
    for line in lines:
        yield from reader.line(line.decode("utf-8", "replace") if isinstance(line, bytes) else line)
