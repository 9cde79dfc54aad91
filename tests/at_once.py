"""Many small cases as one test: pytest takes 4 ms of CPU for each test, beside what the test itself does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., None]


def at_once(argument: str, values: Iterable[Any]) -> Callable[[Test], Test]:
    """Call the test with each value; what fails is named together, each case with its value."""
    cases = list(values)

    def decorated(test: Test) -> Test:
        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name != argument]

        def every(**fixtures: Any) -> None:
            failed = []
            for value in cases:
                try:
                    test(**{argument: value}, **fixtures)
                except AssertionError as error:
                    failed.append(f"{value}: {error}")
            assert cases and not failed, f"{len(failed)} of {len(cases)}:\n" + "\n".join(failed[:20])

        every.__name__, every.__doc__, every.__module__ = test.__name__, test.__doc__, test.__module__
        every.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
        every.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return every

    return decorated
