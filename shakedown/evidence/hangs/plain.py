"""A pickle from elsewhere, of which only plain values are read: numbers, texts, lists, tuples and dictionaries.

That nothing of it is called is not enough. The C implementation of `pickle` follows a hostile one into a stack overflow
(a tuple of tuples, a million deep, as a key) and reserves memory for any index that it names; and a few dozen bytes
can share values so that whoever walks them never comes to an end.
"""

import io
import pickle
from collections.abc import Callable
from typing import Any, cast

from shakedown.common.text import DEEPEST

_VALUES = 2_000_000  # that a document holds where each is counted as often as it stands there
# What PyTorch's pickler writes (torch/csrc/jit/serialization/pickler.h), and Python's own for the same values.
_READ = (
    "PROTO FRAME STOP MARK POP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE "
    "EMPTY_DICT SETITEM SETITEMS EMPTY_LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
    "BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET"
)
_CODES = frozenset(getattr(pickle, name)[0] for name in _READ.split())
_Python: Any = pickle._Unpickler  # the one in Python, whose memory is as large as its input


class _Plain(_Python):  # type: ignore[misc]
    """Its table of codes has no other than `_READ`."""

    dispatch = {code: step for code, step in _Python.dispatch.items() if code in _CODES}

    def find_class(self, module: str, name: str) -> Any:  # no code that asks for one is read
        raise pickle.UnpicklingError("not a plain value")

    def load_setitem(self) -> None:
        _text_keys(self.stack[-2:-1])
        _Python.load_setitem(self)

    def load_setitems(self) -> None:
        _text_keys(self.stack[::2])
        _Python.load_setitems(self)

    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems


def _text_keys(keys: list[Any]) -> None:
    if not all(isinstance(key, str) for key in keys):
        raise pickle.UnpicklingError("a key of a dictionary is no text")


def load_plain(data: bytes) -> Any:
    """Load the document. Raises ValueError for a pickle of other values, for one that is nested too deeply, and for one
    that shares its values so often that they are too many."""
    try:
        found = cast(Callable[[], Any], _Plain(io.BytesIO(data)).load)()
    except KeyError as error:
        raise ValueError(f"{error.args[0]!r} is not part of a plain value"[:100]) from None
    except Exception as error:  # what a pickle that is none may raise is without number
        raise ValueError(str(error)[:200] or type(error).__name__) from None
    _bounded(found)
    return found


def _bounded(document: Any) -> None:
    level, left = [document] if isinstance(document, dict | list | tuple) else [], _VALUES
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for container in level:
            items = container.values() if isinstance(container, dict) else container
            left -= len(items)
            if left < 0:
                raise ValueError("too many values")
            inner += [item for item in items if isinstance(item, dict | list | tuple)]
        level = inner
        if not level:
            return
    raise ValueError("nested too deeply")
