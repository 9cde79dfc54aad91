"""Why there is no plan: everything at once."""

from __future__ import annotations

from collections.abc import Sequence

from shakedown.desired.problems import Problem


class PlanError(ValueError):
    """A job that cannot be derived from the nodes or does not fit them. `problems` holds every error, not the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        count = f"{len(self.problems)} error{'s' if len(self.problems) != 1 else ''}"
        super().__init__("\n".join([f"the launch plan has {count}:", *(f"  {p}" for p in self.problems)]))
