"""The figures at the top of the page: what a person asks first of a run."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shakedown.common.text import counted, decimal, printable
from shakedown.logs.metrics import METRICS
from shakedown.report.overview import Overview
from shakedown.report.page import times
from shakedown.report.page.squares import Square
from shakedown.runs.records import JobRecord
from shakedown.state.findings import Verdict


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
    made = [*_runs(shown), *_nodes(shown, squares), *(_throughput(shown, jobs[0]) if jobs else ())]
    if (duration := times.span(shown.started, shown.finished)) and shown.jobs:
        made.append(Tile("Duration", duration))
    made += [*_gpus(shown, jobs), *(_image(jobs[0]) if jobs else ())]
    versions = Counter(finding.actual for finding in shown.findings if finding.name == "rocm_version")
    if versions:
        texts = [printable(str(version or "not read"), 60) for version, _ in versions.most_common(3)]
        made.append(Tile("ROCm", ", ".join(texts), counted(len(versions), "version") if len(versions) > 1 else ""))
    return made


def _runs(shown: Overview) -> Iterator[Tile]:
    if shown.history and shown.history.runs:
        passed = sum(run.verdict.passes for run in shown.history.runs)
        yield Tile("Runs passed", f"{passed} of {len(shown.history.runs)}")


def _nodes(shown: Overview, squares: Sequence[Square]) -> Iterator[Tile]:
    if squares:
        words = Counter(square.word for square in squares)
        passed = words.pop(Verdict.OK.value, 0)
        label = "Nodes passed" if shown.jobs or shown.fleet else "Nodes in the desired state"
        note = ", ".join(f"{count} {word}" for word, count in words.most_common())
        verdict = Verdict.OK if passed == len(squares) else shown.verdict
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
        expected = (
            f"expected {metric.direction} {decimal(bound, 4)}: {value / bound:.0%}" if bound else "no expectation"
        )
        of = f" of {printable(job.node, 60)}" if job.node else ""
        verdict = gate.verdict if gate else None
        yield Tile(f"Throughput{of}", decimal(value, 4), expected, metric.unit, verdict)
        return


def _gpus(shown: Overview, jobs: Sequence[JobRecord]) -> Iterator[Tile]:
    """Yield the GPUs that the nodes have, and those that take part in the job."""
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
