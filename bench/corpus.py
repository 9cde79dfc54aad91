"""The corpora below tests/data/corpus: public job logs with their causes, kernel lines that report a fault or not, and
loss curves of public runs.

Half of each is held out: it measures what the catalogue names, and nobody reads it while entries are written.
`python -m bench.corpus` prints what of the kernel's lines the catalogue recognises, per part and per file.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isnan, sqrt
from pathlib import Path

from shakedown import catalogue
from shakedown.catalogue.kernel import matcher
from shakedown.catalogue.lines import read, records
from shakedown.evidence.telemetry.kernel import kernel_log
from shakedown.logs.iterations import Iteration
from shakedown.logs.signatures import FailureScanner
from shakedown.node.kernel_verdict import Events, judge

CORPUS = Path(__file__).resolve().parents[1] / "tests" / "data" / "corpus"
CURVES = CORPUS / "curves"
CATCH_ALLS = ("task_ended", "watchdog_abort", "scheduler_cancelled")
"""Entries that report an end and no cause of it, beside the general ones."""


@dataclass(frozen=True)
class Excerpt:
    """Lines of a job's log. `cause` is what the source found to be wrong, empty where the job went well."""

    source: str
    date: str
    text: str
    cause: str = ""
    note: str = ""


@dataclass(frozen=True)
class Incident:
    """Lines of a kernel that belong together. `corrected`: the fault is one that the hardware repaired itself."""

    source: str
    date: str
    part: str
    lines: tuple[str, ...]
    fault: bool
    corrected: bool = False


@dataclass(frozen=True)
class Run:
    """The figures of a training run's iteration lines, nan where a line has none. `times` are milliseconds."""

    name: str
    source: str
    date: str
    healthy: bool
    first: int
    interval: int
    losses: tuple[float, ...]
    norms: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
    times: tuple[float, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        return self.name

    def iterations(self) -> list[Iteration]:
        """Return the iteration lines that have these figures."""
        count = len(self.losses)

        def at(values: Sequence[float], index: int) -> float | None:
            return None if not values or isnan(values[index]) else values[index]

        return [
            Iteration(
                iteration=self.first + index * self.interval,
                total_iterations=self.first + (count - 1) * self.interval,
                lm_loss=at(self.losses, index),
                learning_rate=at(self.rates, index),
                grad_norm=self.norms[index] if self.norms else None,
                elapsed_ms=at(self.times, index),
                skipped_iterations=0,
                nan_iterations=0,
            )
            for index in range(count)
        ]


def runs(path: Path) -> list[Run]:
    """Return the training runs of one file."""
    found = []
    for entry in tomllib.loads(path.read_text("utf-8"))["run"]:
        lists = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
        found.append(Run(**{**entry, **lists}))
    return found


def causes() -> dict[str, tuple[str, ...]]:
    """Return for each cause of an excerpt the entries of the catalogue that name it."""
    document = tomllib.loads((CORPUS / "causes.toml").read_text("utf-8"))
    return {cause: tuple(names) for cause, names in document["cause"].items()}


def named(text: str) -> str | None:
    """Return the entry that the project gives as the root of a job's failure; None where it sees none."""
    lines = text.strip("\n").splitlines(keepends=True)
    scanner = FailureScanner()
    scanner.batch(lines)
    scanner.close()
    kernel = [line for line in lines if read(line).kernel]
    faults = [fault.name for fault in kernel_log(kernel)]
    if scanner.root and not (faults and _general(scanner.root.name)):
        return scanner.root.name
    of_programs = (line.name for line in judge(matcher(), [read(line) for line in kernel]) if line.severity == "user")
    return next(iter([*faults, *of_programs]), None)


def _general(name: str) -> bool:
    found = catalogue.entry(name)
    return found is not None and (found.general or name in CATCH_ALLS)


def reading(excerpt: Excerpt) -> str:
    """Return how an excerpt is read: "named", "catch-all", "unknown" or "wrong"; "healthy" or "alarm" where the job
    went well."""
    name = named(excerpt.text)
    if not excerpt.cause:
        return "alarm" if name else "healthy"
    if name is None:
        return "unknown"
    if name in causes()[excerpt.cause]:
        return "named"
    return "catch-all" if _general(name) else "wrong"


def excerpts(path: Path) -> list[Excerpt]:
    """The job logs of one file."""
    found = []
    for entry in tomllib.loads(path.read_text("utf-8"))["excerpt"]:
        if bool(entry.get("cause")) == bool(entry.pop("healthy", False)):
            raise ValueError(f"{path.name}: {entry['source']}: either a cause or healthy = true")
        found.append(Excerpt(**entry))
    return found


def incidents(path: Path) -> list[Incident]:
    """The kernel lines of one file."""
    found = []
    for entry in tomllib.loads(path.read_text("utf-8"))["incident"]:
        lines = tuple(line for line in entry.pop("lines").splitlines() if line.strip())
        found.append(Incident(lines=lines, **entry))
    return found


def wilson(count: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share. With nothing counted it is everything."""
    if not total:
        return 0.0, 1.0
    share, square = count / total, z * z
    middle = (share + square / (2 * total)) / (1 + square / total)
    reach = z * sqrt(share * (1 - share) / total + square / (4 * total * total)) / (1 + square / total)
    return max(0.0, middle - reach), min(1.0, middle + reach)


@dataclass
class Count:
    """Lines by part. `missed` and `flagged`: the lines themselves, with the entry that named them."""

    faults: Counter[str] = field(default_factory=Counter)
    recognised: Counter[str] = field(default_factory=Counter)
    harmless: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    flagged: list[str] = field(default_factory=list)


def measure(found: Iterable[Incident]) -> Count:
    """Return how many lines of faults have an entry that is no noise, and which harmless lines count as a fault."""
    count = Count()
    for incident in found:
        events = Events(matcher())
        for record, event in [
            (element, events.take(element.number, element.message, element.priority))
            for element in records(incident.lines)
        ]:
            name = event.entry["name"] if event else "-"
            if not incident.fault:
                count.harmless[incident.part] += 1
                count.flagged += [f"{name}: {record.line}"] if event and event.verdict != "ok" else []
                continue
            count.faults[incident.part] += 1
            if event and event.severity != "noise":
                count.recognised[incident.part] += 1
            else:
                count.missed.append(f"{name}: {record.line}")
    return count


def _share(count: int, total: int) -> str:
    low, high = wilson(count, total)
    return f"{count:4} of {total:4}  {count / total if total else 0:6.1%}  ({low:.1%} to {high:.1%})"


def show(paths: Iterable[Path]) -> None:
    """Print the table of each file, and of all."""
    files = {path.name: incidents(path) for path in paths}
    for name, found in {**files, "all": [element for every in files.values() for element in every]}.items():
        count = measure(found)
        print(name)
        for part in sorted(count.faults) if name == "all" else ():
            print(f"  {part:12} recognised {_share(count.recognised[part], count.faults[part])}")
        print(f"  {'faults':12} recognised {_share(count.recognised.total(), count.faults.total())}")
        print(f"  {'harmless':12} flagged    {_share(len(count.flagged), count.harmless.total())}")
        if name != "all":
            print(
                *(f"    missed {line}" for line in count.missed),
                *(f"    flagged {line}" for line in count.flagged),
                sep="\n",
            )


if __name__ == "__main__":
    show(sorted((CORPUS / "kernel").glob("*.toml")))
