"""The iteration lines of a Megatron-LM log, in every dialect that is about.

Upstream Megatron-LM, the ROCm fork, Primus (old and new), Megatron-DeepSpeed, GPT-NeoX, NeMo, Megatron-Bridge and
forks that add tokens per second all print one line per iteration (or per log interval): `iteration N/M |` and then
`name: value |` fields, in any order. Their names are data: `fields.toml`. Only one rank prints them, the last one
of most programs. A field counts only when it is complete: `elapsed time per iteration (ms): 65` at the end of a log
that was cut is no measurement of 65 ms.

Whatever the log holds, a line takes time and memory in proportion to its length.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cache, lru_cache
from typing import NamedTuple

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass

from shakedown.common.data import read_toml
from shakedown.common.frozen import Frozen
from shakedown.common.text import strip_escapes
from shakedown.logs.lines import LineSplitter, Marks, as_text, unprefixed

HEADED = "iteration"  # what every line of interest begins with, behind the date and the rank
NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|[iI][nN][fF](?:inity)?|[nN][aA][nN])"
VALUES = {
    "integer": re.compile(r"(\d{1,18})"),
    "number": re.compile(f"({NUMBER})"),
    "instant": re.compile(rf"({NUMBER})(?:\s*/\s*{NUMBER}|\s*\(avg\s*{NUMBER}\))?"),  # Primus: "instant/average"
    "usage": re.compile(rf"(?:{NUMBER}\s*[KMGT]?i?B/){{3}}({NUMBER})%"),  # Primus: "used/free/total/ratio"
    "tflops": re.compile(rf"({NUMBER})\s?TFLOPS"),  # GPT-NeoX
}
MAX_FIELDS = 100  # of one line, and
MAX_FIELD = 200  # characters of one: the most that any dialect has are 20 and 60. What is beyond is somebody else's


class Field(NamedTuple):
    """How one `name: value` is read, and where it goes."""

    target: str  # of Iteration, or global_step
    value: str  # of VALUES
    scale: float
    preference: int  # two names for one target on the same line: the lowest wins
    open: bool  # may stand last in a dialect that does not close its last field with "|"

    def match(self, text: str) -> re.Match[str] | None:
        """Match the value alone."""
        return VALUES[self.value].fullmatch(text)

    @property
    def read(self) -> Callable[[str], float]:
        """Return what reads the value in the target's unit."""
        if self.value == "integer":
            return int
        return float if self.scale == 1.0 else lambda text: round(float(text) * self.scale, 9)


@cache
def fields() -> dict[str, Field]:
    return {
        entry["name"]: Field(target, entry["value"], entry.get("scale", 1.0), preference, entry.get("open", False))
        for target, entries in read_toml("shakedown.logs", "fields.toml").items()
        for preference, entry in enumerate(entries)
    }


def words(name: str) -> str:
    """Return the part of a name before a number."""
    return re.split(r"[\d+.]", name, maxsplit=1)[0].rstrip()


def split_field(segment: str) -> tuple[str, Field | None, str]:
    """Split a field into its name, how it is read (None: not in fields.toml), and its text."""
    if len(segment) > MAX_FIELD:
        return "", None, segment
    name, colon, text = segment.partition(":")
    if not colon:  # before 2021: "lm loss 1.1E-1"
        name, _, text = segment.strip().rpartition(" ")
    return *_named(name), text.strip()


@lru_cache(maxsize=1024)
def _named(written: str) -> tuple[str, Field | None]:
    """Return a field's name in its normal form, and how it is read. Every line of a log has the same names."""
    name = " ".join(written.split()).lower()
    return name, fields().get(name) or _alike().get(_plain(name))


def _plain(name: str) -> str:
    return name.replace("-", " ").replace("_", " ")


@cache
def _alike() -> dict[str, Field]:
    """Return the fields by their names without hyphens: Megatron-DeepSpeed's 3D example prints "lm-loss"."""
    return {_plain(name): field for name, field in reversed(fields().items())}


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid", ser_json_inf_nan="strings", defer_build=True))
class Iteration:
    """One iteration line. None: the line has no (complete) such field.

    Megatron leaves the loss out when it is NaN, and in iterations that the loss scaler skipped.
    """

    # With slots: a log may have 100,000 lines, and one is 0.3 KB so, where a model's own dict and set make it 1.5 KB.
    iteration: int
    total_iterations: int
    consumed_samples: int | None = None
    elapsed_ms: float | None = None
    tflops_per_gpu: float | None = None
    tokens_per_gpu_per_s: float | None = None
    tokens_per_s: float | None = None  # of all GPUs, as samples_per_s
    samples_per_s: float | None = None
    memory_fraction: float | None = None  # of the GPU of the rank that printed the line, 0 to 1
    learning_rate: float | None = None
    global_batch_size: int | None = None  # samples
    lm_loss: float | None = None
    loss_scale: float | None = None
    grad_norm: float | None = None
    skipped_iterations: int | None = None  # since the line before
    nan_iterations: int | None = None

    def json(self) -> str:
        """As it is written to iterations.jsonl. As text, NaN equals NaN."""
        return _ITERATION.dump_json(self).decode()


_ITERATION = TypeAdapter(Iteration)


class Summary(Frozen):
    """What the ROCm training scripts print at the end: means without the first two and the last iteration.

    NaN on every node but the last, since the means are taken from iteration lines that only the last rank prints.
    """

    model_config = ConfigDict(ser_json_inf_nan="strings", defer_build=True)

    throughput_per_gpu: float | None = None  # TFLOP/s/GPU
    elapsed_time_per_iteration: float | None = None  # ms
    tokens_per_gpu: float | None = None  # tokens/s/GPU
    mem_usage: float | None = None  # fraction


MAX_ITERATIONS = 100_000  # lines of one log that are kept (0.03 GB); a smoke run has some tens

# NeMo's header has the epoch in front, and counts from 0.
_HEADER = re.compile(
    r"(?:\bTraining epoch (\d{1,9}), )?\biteration\s{1,20}(\d{1,18})\s{0,20}/\s{0,20}(\d{1,18})\s{0,20}\|"
)
_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)\] {1,4}iteration ")
# Megatron-Bridge prints the throughput on a line of its own, before the iteration line.
_STEP_TIME = re.compile(
    rf"\bStep Time ?: ({NUMBER})s\b[^|]{{0,60}}?\bGPU utilization: ({NUMBER}) ?(?:MODEL_)?TFLOP/s/GPU"
)
_SAME_STEP_MS, _SAME_STEP = 10.0, 0.001  # it gives the time of the step with two decimals of a second; or a share

_SUMMARY = {
    "throughput per GPU": "throughput_per_gpu",
    "elapsed time per iteration": "elapsed_time_per_iteration",
    "tokens/GPU/s": "tokens_per_gpu",
    "mem usages": "mem_usage",
}
_HINTS = ("PU: ", "tion: ", "/s: ", "ges: ")  # of a summary or a step's time: most lines have none
_SUMMARY_LINE = re.compile(rf"^\s{{0,20}}({'|'.join(_SUMMARY)}): ({NUMBER})\s*$")


class _Record:
    """The fields behind one `iteration N/M |`, as far as they can be trusted.

    Fields that were cut, or that another rank's output runs through, are None. A last field that is not closed with
    `|` counts only when the line has its line end.
    """

    def __init__(self, header: re.Match[str], body: str, terminated: bool) -> None:
        self._values: dict[str, tuple[int, float]] = {}  # target -> (preference, value)
        self._garbled = False
        self._names: set[str] = set()
        self.nemo = header[1] is not None
        *closed, tail = body.split("|", MAX_FIELDS)
        for segment in closed:
            self._take(segment)
        self._take_tail(tail, terminated)
        values: dict[str, float] = {target: value for target, (_, value) in self._values.items()}
        number, total = int(header[2]), int(header[3])
        if self.nemo:
            number, total = _from_one(int(header[1]), number, total, values.get("global_step"))
        values.pop("global_step", None)
        self.iteration = _ITERATION.validate_python({"iteration": number, "total_iterations": total, **values})

    @property
    def damaged(self) -> bool:
        """True where the line was cut, or another rank's output landed in it: a missing field then says nothing."""
        return self._garbled or not self._complete

    def _take(self, segment: str) -> None:
        name, field, text = split_field(segment)
        if field is None:  # "lm loss 1.1[rank5]: ..." is a field without a colon that somebody's output runs through
            self._garbled = self._garbled or words(name) in fields()
            return
        if text == "None":
            return
        match = field.match(text)
        if match is None or name in self._names:  # the same field twice: a second line runs through this one
            self._garbled = True
            return
        self._names.add(name)
        known = self._values.get(field.target)
        if known is None or field.preference < known[0]:
            self._values[field.target] = (field.preference, field.read(match[1]))

    def _take_tail(self, tail: str, terminated: bool) -> None:
        """Take the text behind the last `|`: nothing, a last field that the dialect leaves open, or foreign output."""
        _, field, text = split_field(tail)
        closes_itself = field is not None and field.value == "usage"
        whole = field is not None and field.open and field.match(text) is not None
        if whole and (terminated or closes_itself):
            self._take(tail)
            self._complete = True
        elif self.nemo:  # closes no field, and which one is the last differs from job to job
            self._complete = terminated and VALUES["number"].fullmatch(text) is not None
        else:
            # Upstream's last field: whatever follows it is another rank's output, and the line is all there.
            upstream_end = "nan_iterations" in self._values
            self._complete = (terminated and not tail.strip()) or (upstream_end and field is None)


def _from_one(epoch: int, number: int, total: int, global_step: float | None) -> tuple[int, int]:
    """NeMo's number and total as Megatron counts: from 1, over all epochs.

    NeMo prints number - 1 and total - 1; its first versions printed both as they are. global_step tells them apart.
    """
    if global_step is not None and global_step == number - 1 and epoch == 0:
        return number, total
    return (int(global_step) if epoch and global_step is not None else number) + 1, total + 1


def _records(line: str) -> Iterator[_Record]:
    if HEADED not in line:  # far cheaper than the expression
        return
    terminated = line.endswith("\n")
    line = strip_escapes(line)
    header = _HEADER.search(line)
    while header:
        following = _HEADER.search(line, header.end())
        end = following.start() if following else len(line)
        yield _Record(header, line[header.end() : end], terminated and following is None)
        header = following


_BLANKS = r"[ \t\r]{0,20}+"
_MAX_LAYOUTS = 4  # of one log
_LONGEST_NAME = 40  # characters: with a value of any form the field is no longer than MAX_FIELD
_UNKNOWN = rf"(?:(?!{HEADED})[^|\n]){{0,{MAX_FIELD}}}+"
_BOUNDS = ((r"\d+", r"\d{1,12}+"), (r"\d*", r"\d{0,12}+"), (r"\s*", r"\s{0,9}+"))


class _Layout:
    """The fields of a line, by which one expression reads the next line: 13,000 lines of a log have the same ones."""

    def __init__(self, line: str) -> None:
        """Learn from a line with one record that is not damaged. Raises ValueError where a field has no plain form."""
        header = _HEADER.search(line)
        *closed, tail = line[header.end() if header else 0 :].split("|", MAX_FIELDS)
        best: dict[str, tuple[int, Field]] = {}
        parts, group = [], 2
        for segment in [*closed, tail] if tail.strip() else closed:
            name, (_, field, _) = segment.partition(":")[0], split_field(segment)
            if not 0 < len(name) <= min(_LONGEST_NAME, len(segment) - 1) or (field is None and segment is tail):
                raise ValueError(segment)
            value = VALUES[field.value].pattern if field else _UNKNOWN
            if field:
                group += 1
                known = best.get(field.target)
                best[field.target] = known if known and known[1].preference <= field.preference else (group, field)
                for anywhere, here in _BOUNDS:
                    value = value.replace(anywhere, here)
            parts.append(f"{re.escape(name)}:{_BLANKS}{value}{_BLANKS}")
        end = "" if tail.strip() else rf"\|{_BLANKS}"
        self._read = [(target, at - 1, field.read) for target, (at, field) in best.items() if target != "global_step"]
        header_form = _HEADER.pattern.rpartition(")?")[2]
        self._form = re.compile(header_form + r"\|".join(parts) + end + r"\n")

    def read(self, line: str) -> Iteration | None:
        """Return the iteration; None where the line has another layout."""
        at = line.find(HEADED)
        found = self._form.fullmatch(line, at) if at >= 0 else None
        if found is None or "\x1b" in line or line.find("Training epoch", 0, at) >= 0:
            return None
        groups = found.groups()
        values: dict[str, float] = {target: read(groups[at]) for target, at, read in self._read}
        values |= {"iteration": int(groups[0]), "total_iterations": int(groups[1])}
        return _ITERATION.validate_python(values)


MARKS = (HEADED, *_HINTS)
"""A line that a LogReader has anything to read of holds one of these."""


@cache
def _marks() -> Marks:
    return Marks(MARKS)


class LogReader:
    """Reads a log while it grows: feed it chunks as they come, it gives back the iterations they complete.

    `summary` is what the script printed at the end so far, and `damaged` holds the numbers of the iterations whose line
    was cut or mixed with other output.
    """

    def __init__(self) -> None:
        self.summary = Summary()
        self.damaged: list[int] = []
        self.stamps: list[tuple[int, float]] = []  # iteration, and the time that its line has, in seconds
        self._splitter = LineSplitter()
        self._layouts: list[_Layout] = []
        self._step: tuple[float, float] | None = None  # ms and TFLOP/s/GPU that Megatron-Bridge said of the next line

    def feed(self, chunk: bytes | str) -> list[Iteration]:
        """Return the iterations whose lines this chunk completes."""
        return self._block(self._splitter.block(chunk))

    def close(self) -> list[Iteration]:
        """End the log: return the iteration of a last line without a line end."""
        return self._block(self._splitter.rest())

    def _block(self, block: bytes) -> list[Iteration]:
        """Return the iterations of several lines. Only lines that can say something are looked at one by one."""
        return [
            iteration for start, end, _ in _marks().spans(block) for iteration in self.line(as_text(block[start:end]))
        ]

    def line(self, line: str) -> list[Iteration]:
        """Return the iterations in one line, for callers that have split the log already."""
        if "|" not in line:
            if any(hint in line for hint in _HINTS):
                self._summarise(line)
            return []
        for layout in self._layouts:
            if iteration := layout.read(line):
                self._stamp(line, iteration)
                return [self._with_step(iteration)]
        records = list(_records(line))
        if not records and any(hint in line for hint in _HINTS):  # docker compose puts "trainer-1  | " before it
            self._summarise(line)
        if records:
            self._stamp(line, records[0].iteration)
            self._learn(line, records)
        if len(self.damaged) < MAX_ITERATIONS:
            self.damaged += [record.iteration.iteration for record in records if record.damaged]
        return [self._with_step(record.iteration) for record in records]

    def _learn(self, line: str, records: Sequence[_Record]) -> None:
        if len(self._layouts) < _MAX_LAYOUTS and len(records) == 1 and not (records[0].damaged or records[0].nemo):
            with suppress(ValueError):
                self._layouts.append(_Layout(strip_escapes(line)))

    def _stamp(self, line: str, iteration: Iteration) -> None:
        found = _STAMP.search(line)
        if found is None or len(self.stamps) >= MAX_ITERATIONS:
            return
        with suppress(ValueError):
            self.stamps.append((iteration.iteration, datetime.fromisoformat(found[1] + "+00:00").timestamp()))

    def _with_step(self, iteration: Iteration) -> Iteration:
        """Return the iteration with the throughput of the line before it, where that was of the same step."""
        step, self._step = self._step, None
        ms = iteration.elapsed_ms
        if step is None or ms is None or iteration.tflops_per_gpu is not None:
            return iteration
        same = abs(step[0] - ms) <= max(_SAME_STEP_MS, _SAME_STEP * ms)
        return replace(iteration, tflops_per_gpu=step[1]) if same else iteration

    def _summarise(self, line: str) -> None:
        if not line.endswith("\n"):
            return
        line = unprefixed(strip_escapes(line))
        if step := _STEP_TIME.search(line):
            self._step = (float(step[1]) * 1000.0, float(step[2]))
        elif match := _SUMMARY_LINE.match(line):
            self.summary = self.summary.model_copy(update={_SUMMARY[match[1]]: float(match[2])})


def has_preview(iterations: Sequence[Iteration]) -> bool:
    """Whether the first line is one ahead of its time: with a log interval above 1, newer versions of Megatron-LM
    (is_first_iteration in training.py) print the first iteration at once, and count it again in the first interval."""
    numbers = [line.iteration for line in iterations[:3]]
    return len(numbers) == 3 and numbers[0] == 1 and numbers[1] > 2 and numbers[2] == 2 * numbers[1]
