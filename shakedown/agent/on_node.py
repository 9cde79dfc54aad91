"""Start the agent on a node: hand the checks, which travelled with it, to the part that runs them."""

from __future__ import annotations

from typing import Any, List, Sequence  # noqa: UP035 - runs on the node's own python3, 3.8 and newer

from shakedown.node.agent import run


def evaluate(desired: Any, state: Any, node: str) -> List[Any]:  # noqa: UP006
    from shakedown.checks import evaluate as checks  # imports what `models.stand_in` has put there by now

    return list(checks(desired, state, node))


def worst(verdicts: Sequence[Any]) -> str:
    from shakedown.state.findings import worst as worst_of  # likewise

    return str(worst_of(list(verdicts)))


def main() -> int:
    return run.main(evaluate, worst)
