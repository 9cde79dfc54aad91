"""The top of the page: times (of the site, with their zone), figures, and the nodes as squares, rack by rack."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from markupsafe import Markup

from shakedown.common.lists import grouped
from shakedown.common.text import counted, decimal, printable
from shakedown.logs.metrics import METRICS
from shakedown.report.overview import Overview
from shakedown.runs.directory import JobRecord
from shakedown.state.findings import Verdict, worst


def moment(text: str) -> datetime | None:
    """Return a time of a record; one without a zone is UTC, as in the ledger. None for a text that is no time."""
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone()
    except (ValueError, OverflowError):
        return None


def local(time: str | datetime) -> Markup:
    """Return a time as an element of the page; a text that is no time as it stands."""
    at = moment(time) if isinstance(time, str) else time.astimezone()
    if at is None:
        return Markup("{}").format(printable(str(time), 100))
    shape = '<time datetime="{}">{}</time>'
    return Markup(shape).format(at.isoformat(timespec="seconds"), f"{at:%Y-%m-%d %H:%M:%S %Z}")


def span(first: str, last: str) -> str:
    """Return the time from one to the other in words; nothing where either is missing."""
    begin, end = moment(first), moment(last)
    return words(end - begin) if begin and end and end >= begin else ""


def words(time: timedelta) -> str:
    """Return a span of time in its two largest units: "9 min 12 s"."""
    minutes, seconds = divmod(round(time.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{n} {unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")) if n]
    return " ".join(parts[:2]) or "0 s"


LABELLED = 512
"""Nodes of a page whose squares have their short names in them."""
LONGEST = 6  # characters of a short name
LINKS = 500  # squares that lead somewhere: a keyboard goes through all of them
_ADDRESS = re.compile(r"[0-9.]+|.*:.*")
_NUMBER = re.compile(r"(?<=:)[^:]+$|[0-9]+(?=[^0-9:]*$)")


@dataclass(frozen=True)
class Square:
    """One node. `word` is what became of it, and `text` what is wrong."""

    name: str
    verdict: Verdict | None  # None: it was neither judged ok nor bad
    word: str
    text: str = ""
    link: str = ""
    label: str = ""


@dataclass(frozen=True)
class Rack:
    """The nodes of one rack, in inventory order."""

    name: str
    squares: Sequence[Square]
    words: str  # how many are what


def squares(shown: Overview, links: Mapping[str, tuple[str, str]]) -> list[Square]:
    """Return a square for each node. `links`: node -> the place on the page that says what is wrong, and what it is."""
    if shown.fleet:
        return [_square(seen[0].node, seen[0].verdict, "", links) for seen in shown.fleet]
    found = shown.isolation.result.suspects if shown.isolation and shown.isolation.result else []
    suspects = {node for suspect in found if suspect.kind == "node" for node in suspect.nodes}
    made: list[Square] = []
    for node in shown.nodes:
        lost = node.part if node.part in ("excluded", "unreached") else "stopped" if node.stopped else ""
        if node.name in suspects:
            made.append(_square(node.name, Verdict.FAIL, "suspect", links))
        else:
            neutral = bool(lost) and node.verdict.passes
            made.append(_square(node.name, None if neutral else node.verdict, lost, links))
    if made:
        return made
    of_node = grouped((finding.node, finding.verdict) for finding in shown.findings)
    return [_square(name, worst(of_node.get(name, [])), "", links) for name in shown.names]


def _square(name: str, verdict: Verdict | None, word: str, links: Mapping[str, tuple[str, str]]) -> Square:
    link, text = links.get(name, ("", ""))
    return Square(name, verdict, word or str(verdict), text, link)


def racks(found: Iterable[Square], groups: Mapping[str, str]) -> list[Rack]:
    """Return the squares by rack, the rack with the worst nodes first."""
    of_rack = grouped((groups.get(square.name, ""), square) for square in found)
    count = sum(map(len, of_rack.values()))
    order = sorted(of_rack.items(), key=lambda item: -max(s.verdict.severity if s.verdict else 0 for s in item[1]))
    made, linked = [], 0
    for name, own in order:
        words = Counter(square.word for square in own).most_common()
        text = f"{counted(len(own), 'node')}: {', '.join(f'{number} {word}' for word, number in words)}"
        labels = _short([square.name for square in own]) if count <= LABELLED else [""] * len(own)
        shown = []
        for square, label in zip(own, labels, strict=True):
            linked += bool(square.link)
            link = square.link if linked <= LINKS else ""
            shown.append(Square(printable(square.name, 200), square.verdict, square.word, square.text, link, label))
        made.append(Rack(printable(name, 60), shown, text))
    return made


def _short(names: Sequence[str]) -> list[str]:
    """Return short names that tell a rack's nodes apart: the last number of each, else the part that differs."""
    hosts = [name if _ADDRESS.fullmatch(name) else name.partition(".")[0] for name in names]
    for found in (map(_NUMBER.search, hosts), _differing(hosts)):
        shown = [part[0] if part and len(part[0]) <= LONGEST else "" for part in found]
        if len(set(shown)) == len(names):
            return shown
    return [""] * len(names)


def _common(words: Sequence[str]) -> str:
    alike = takewhile(lambda signs: len(set(signs)) == 1, zip(*words, strict=False))
    return "".join(signs[0] for signs in alike)


def _differing(hosts: Sequence[str]) -> Iterator[tuple[str]]:
    """Yield what stands between the beginning and the end that all have in common, with whole numbers and words."""
    start, end = _common(hosts), _common([host[::-1] for host in hosts])[::-1]
    whole = "[0-9]*$|[A-Za-z]*$" if any(host[len(start) :][:1].isalpha() for host in hosts) else "[0-9]*$"
    begin = re.search(whole, start).start()  # type: ignore[union-attr]
    end = re.sub("^[^_-]*", "", end)
    yield from ((host[begin : len(host) - len(end)],) for host in hosts)


@dataclass(frozen=True)
class Tile:
    """One of them; `verdict` gives it a colour and a mark."""

    label: str
    value: str
    note: str = ""
    unit: str = ""
    verdict: Verdict | None = None


def tiles(shown: Overview, squares: Sequence[Square]) -> list[Tile]:
    """Return those of which something is known."""
    jobs = sorted((job for job in shown.jobs if job.plan), key=lambda job: job.node is not None)
    runs = shown.history.runs if shown.history else ()
    made = [Tile("Runs passed", f"{sum(run.verdict.passes for run in runs)} of {len(runs)}")] if runs else []
    made += [*_nodes(shown, squares), *(_throughput(shown, jobs[0]) if jobs else ())]
    if (duration := span(shown.started, shown.finished)) and shown.jobs:
        made.append(Tile("Duration", duration))
    made += [*_gpus(shown, jobs), *(_image(jobs[0]) if jobs else ())]
    versions = Counter(finding.actual for finding in shown.findings if finding.name == "rocm_version")
    if versions:
        texts = [printable(str(version or "not read"), 60) for version, _ in versions.most_common(3)]
        made.append(Tile("ROCm", ", ".join(texts), counted(len(versions), "version") if len(versions) > 1 else ""))
    return made


def _nodes(shown: Overview, squares: Sequence[Square]) -> Iterator[Tile]:
    if squares:
        words = Counter(square.word for square in squares)
        passed = words.pop(Verdict.OK.value, 0)
        label = "Nodes passed" if shown.jobs or shown.fleet else "Nodes in the desired state"
        note = ", ".join(f"{count} {word}" for word, count in words.most_common())
        verdict = worst([square.verdict or shown.verdict for square in squares])
        yield Tile(label, f"{passed} of {len(squares)}", note, verdict=verdict)


def _throughput(shown: Overview, job: JobRecord) -> Iterator[Tile]:
    """Yield the first figure that the job has, beside what is expected of it."""
    for name, metric in METRICS.items():
        figure = job.figures.get(name) if job.figures else None
        if figure is None or metric.direction != "at least":
            continue
        bound = job.plan.expect.get(name) if job.plan else None
        gate = next((gate for gate in shown.gates if (gate.job, gate.name) == (job.name, name)), None)
        value = gate.actual if gate and isinstance(gate.actual, int | float) else figure.mean
        share = f"expected {metric.direction} {decimal(bound, 4)}: {value / bound:.0%}" if bound else ""
        of = f" of {printable(job.node, 60)}" if job.node else ""
        verdict = gate.verdict if gate else None
        yield Tile(f"Throughput{of}", decimal(value, 4), share or "no expectation", metric.unit, verdict)
        return


def _gpus(shown: Overview, jobs: Sequence[JobRecord]) -> Iterator[Tile]:
    found = [finding.actual for finding in shown.findings if finding.name == "gpu_count"]
    counts = [count for count in found if isinstance(count, int)]
    plan = jobs[0].plan if jobs else None
    models = ", ".join(printable(gpu, 40).upper() for gpu in plan.gpus) if plan else ""
    if plan and not counts:
        yield Tile("GPUs", models or "none", f"{counted(plan.world_size, 'rank')} on the CPUs" if not models else "")
    elif counts:
        note = f"{counted(plan.world_size, 'rank')} on {counted(len(plan.nodes), 'node')}" if plan else ""
        yield Tile("GPUs", f"{sum(counts)} {models}".strip(), note)


def _image(job: JobRecord) -> Iterator[Tile]:
    plan = job.plan
    if plan and plan.image:
        name, _, digest = plan.image.partition("@")
        yield Tile("Image", printable(name, 120), printable(digest[:19], 40))
    elif plan:
        yield Tile("Image", "none", "the job runs as a process of the node")
