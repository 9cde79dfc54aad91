"""System calls that Python has no function for, without the whole of `ctypes`, which takes 1 ms of CPU to import."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union


def call(function: str, *arguments: Union[int, bytes, None]) -> int:
    """What a function of the C library returns. A number goes as an int, bytes as a pointer to them: what it writes
    there is in them afterwards, so nobody else may have them: `bytes(256)` makes such."""
    try:
        from _ctypes import call_function, dlopen, dlsym  # CPython's own

        itself = dlopen(None, 0)  # type: ignore[arg-type]  # None: what this process has loaded
        result: int = call_function(dlsym(itself, function), arguments)
    except ImportError:
        import ctypes

        result = getattr(ctypes.CDLL(None), function)(*arguments)
    return result
