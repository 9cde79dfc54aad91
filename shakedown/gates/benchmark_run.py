"""A benchmark on one node, judged by the gates that have evidence of it. What could not be seen never passes."""

from shakedown import gates
from shakedown.desired.models import Benchmark as Wanted
from shakedown.gates import Gate, Observed
from shakedown.gates.observed import Benchmark, ContainerEnd, Expected, Reading
from shakedown.jobs.benchmark.results import Results, figures_of
from shakedown.recipes.benchmark import document


def judge(node: str, results: Results, exit_code: int | None, wanted: Wanted, incomplete: str = "") -> list[Gate]:
    """Judge the results of one node against the requested benchmark.

    `incomplete` says why the log or the report is not whole: then only a failure that was seen stands.
    """
    steps_wanted = wanted.mode in document().models[wanted.model].steps
    observed = Observed(
        container=ContainerEnd(exit_code),
        benchmark=Benchmark(
            figures=figures_of(results),
            problems=results.problems,
            steps=results.steps if results.steps or steps_wanted else None,
            total_steps=results.total_steps,
        ),
        expected=Expected(wanted.expect),
        reading=Reading(cut=f"the log or the report is not whole: {incomplete}" if incomplete else ""),
    )
    return _gates(node, observed)


def not_run(node: str, reason: str) -> list[Gate]:
    """Judge a job that did not reach its end."""
    return _gates(node, Observed(container=ContainerEnd(stopped=reason)))


def _gates(node: str, observed: Observed) -> list[Gate]:
    return [gate.model_copy(update={"name": f"{gate.name}.{node}"}) for gate in gates.judge(observed)]
