"""What every fact of this package is."""

import re
from typing import Any, TypeVar

from pyinfra.api import FactBase, FactProcessError, OperationValueError
from typing_extensions import override

from shakedown.common.text import printable

T = TypeVar("T")
WORDS = 600  # characters of an error


class Fact(FactBase[T]):
    """A fact whose answer may be anything: what it cannot make sense of fails its host alone. Any other exception than
    FactProcessError in `process` ends pyinfra's run for all hosts."""

    @override
    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        process = cls.process

        def guarded(self: Any, output: list[str]) -> T:
            try:
                return process(self, output)
            except FactProcessError as error:
                raise FactProcessError(printable(str(error), WORDS)) from None  # pyinfra would show the cause
            except Exception as error:
                words = printable(" ".join(output[:3]), 200)
                why = f"{cls.name}: no sense in {words!r} ({type(error).__name__}: {error})"
                raise FactProcessError(printable(why, WORDS)) from None

        cls.process = guarded  # type: ignore[method-assign]


def expect(pattern: str | re.Pattern[str], what: str, *texts: str) -> None:
    """Raise OperationValueError for a text that could mean something else to a shell, a file or a path."""
    for text in texts:
        if not re.fullmatch(pattern, text):
            raise OperationValueError(f"not {what}: {text!r}")
