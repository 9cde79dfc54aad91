"""Plain lines for people."""

from collections.abc import Iterator

from shakedown.report.formats import Plans, shows


@shows(Plans)
def plans(document: Plans) -> Iterator[str]:
    from shakedown.jobs.plan import render  # desired state and recipes, 200 ms that other formats do without

    for name, plan in document.plans.items():
        yield render(plan, name)
