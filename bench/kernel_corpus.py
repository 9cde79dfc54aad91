"""What of the kernel corpus the catalogue recognises, per part and per file: `python -m bench.kernel_corpus`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bench.corpus import CORPUS, Incident, incidents, wilson
from shakedown.catalogue.kernel import matcher
from shakedown.catalogue.lines import records
from shakedown.node.kernel_verdict import Events

FILES = sorted((CORPUS / "kernel").glob("*.toml"))


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
    show(FILES)
