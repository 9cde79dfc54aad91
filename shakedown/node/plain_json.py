"""Documents of JSON, by the parts of `json` that are written in C: the rest of it costs 7 to 10 ms to import."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


class _Context:
    """What JSON's scanner asks of its context: nothing but plain values."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None  # the last from Python 3.15 on
    parse_float, parse_int = float, int

    @staticmethod
    def parse_constant(name: str) -> float:
        raise ValueError(name)


def parse(text: str) -> Any:
    """The document. Raises ValueError."""
    try:
        from _json import make_scanner
    except ImportError:  # another Python than CPython
        import json

        return json.loads(text)
    text = text.strip()
    try:
        value, end = make_scanner(_Context)(text, 0)  # type: ignore[arg-type]  # a context, as json's decoder is one
    except StopIteration:
        raise ValueError("no JSON") from None
    if end != len(text):
        raise ValueError("more than one document")
    return value


def _refuse(value: Any) -> Any:
    raise TypeError("{} is nothing that JSON has".format(type(value).__name__))


def written(document: Dict[str, Any]) -> str:
    """The document on one line."""
    try:
        from _json import encode_basestring_ascii, make_encoder

        return "".join(
            make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, True)(document, 0)
        )
    except (ImportError, TypeError):  # of another Python than CPython, or a later one
        import json

        return json.dumps(document, separators=(",", ":"))
