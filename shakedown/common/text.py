"""Text that comes from outside: a node, a log, a registry, a file, an inventory. It is input, not truth.

Whatever is shown to a person goes through `printable`, whatever names a file through `file_name`, and JSON through
`load_json`: one place each, so that no room has a rule of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

# ECMA-48: a control sequence, also by its one character; an operating system command; any other escape.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b(?:\][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)|[ -/]{0,8}[0-Z\\-~])"
)
# C0 and C1 controls, what reorders text (bidirectional marks), line and paragraph separators, lone surrogates, and what
# is there and not seen, by which two names look the same (Default_Ignorable_Code_Point and
# category Cf of Unicode 15.1).
_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_INCOMING = re.compile(_CONTROLS.pattern.replace("\x00-\x1f", "\x00-\x08\x0a-\x1f"))  # all of them but the tab
_UNSEEN = re.compile(_CONTROLS.pattern.replace("\x00-\x1f", "\x00-\x08\x0b\x0c\x0e-\x1f"))  # but also line ends
_BLANKS = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_SAFE_NAME = re.compile(r"[A-Za-z0-9@_][A-Za-z0-9@._-]{0,99}")
_UNSAFE = re.compile(r"[^A-Za-z0-9@._-]")


def strip_escapes(text: str) -> str:
    """Return the text without terminal escape sequences."""
    return _ESCAPES.sub("", text) if "\x1b" in text or "\x9b" in text else text


def incoming(line: str) -> str:
    """Return a line as it may come in from a node: no escape sequences, each control character but the tab as U+FFFD,
    which is also what stands for bytes that are no UTF-8. A line end of the other kind (CR LF) goes."""
    return _INCOMING.sub("\ufffd", strip_escapes(line.rstrip("\r\n")))


def unhidden(line: str) -> str:
    """Return the line as a reader of words sees it: no escape sequences, no characters that are not seen, and ordinary
    blanks; a page or a chat puts such characters into a log that somebody copies from it."""
    line = strip_escapes(line)
    return line if line.isascii() and "\0" not in line else _BLANKS.sub(" ", _UNSEEN.sub("", line))


def printable(text: str, limit: int | None = None, *, lines: bool = False) -> str:
    """Return the text as it may reach a terminal: no escape sequences, each control character as U+FFFD, at most
    `limit` characters. Tabs become blanks; line ends stay with `lines`, and are blanks otherwise."""
    if limit is not None and len(text) > 4 * limit + 64:  # the rest cannot be seen: it must not cost time either
        text = text[: 4 * limit + 64]
    text = strip_escapes(text).replace("\r\n", "\n").replace("\t", " ")
    kept = "\n".join(_CONTROLS.sub("\ufffd", line) for line in text.split("\n")) if lines else _one_line(text)
    return kept if limit is None or len(kept) <= limit else f"{kept[: max(limit - 3, 0)]}..."


def _one_line(text: str) -> str:
    if text.isascii() and text.isprintable():  # as most are: nothing is to be looked for
        return text
    return _CONTROLS.sub("\ufffd", text.replace("\n", " "))


def counted(count: int, one: str, more: str = "") -> str:
    """Return a number with its noun: "1 log", "2 logs"; `more` where the plural is not the singular with an s."""
    return f"{count} {one if count == 1 else more or one + 's'}"


QUOTED = 8  # items of a list that are named before the text says how many more there are


def some(items: Sequence[Any], most: int = QUOTED) -> str:
    """Format the items, the first few of many."""
    text = ", ".join(str(item) for item in items[:most])
    return f"{text} and {len(items) - most} more" if len(items) > most else text


def ranges(numbers: Iterable[int], one: str = "") -> str:
    """Format numbers, those in a row as a range, with the noun of one of them: "3, 12-20", "iterations 3, 12-20"."""
    rows: list[list[int]] = []
    for number in sorted(set(numbers)):
        if rows and number == rows[-1][-1] + 1:
            rows[-1] = [rows[-1][0], number]
        else:
            rows.append([number])
    noun = f"{one}{'' if rows == [rows[0][:1]] else 's'} " if one and rows else ""
    return noun + some(["-".join(str(number) for number in row) for row in rows])


def duration(seconds: float) -> str:
    """Return a duration as a person says it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


_COUNTED = re.compile(r"\b([A-Za-z]{2,}?)(ies|s)\b")  # of a unit, what is counted: "nodes", and not "ms" or "TFLOPS"


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LONGEST_NUMBER = 16  # characters; a longer number has a power of ten


def decimal(value: float | None, digits: int = 6) -> str:
    """Return a number with the digits that count, as people write it: 1370, not 1.37e+03."""
    if value is None:
        return "-"
    rounded = f"{value:.{digits}g}"
    mantissa, _, power = rounded.partition("e")
    if not power or len(text := f"{Decimal(rounded):f}") <= _LONGEST_NUMBER:
        return text if power else rounded
    return f"{mantissa}·10{str(int(power)).translate(_RAISED)}"


def short(value: float) -> str:
    """Return an uncertainty as people write it: with two digits that count."""
    return decimal(value, 2)


def wrapped(text: str, width: int, indent: str = "    ") -> list[str]:
    """Return a text as lines that end between words, all but the first set in. A list of names that is longer than a
    line ends behind a comma; a path is whole, however long."""
    lists = {word for word in text.split(" ") if len(word) > width - len(indent) and ("/" not in word or ",/" in word)}
    words = " ".join(word.replace(",", ", ") if word in lists else word for word in text.split(" "))
    options = {"break_on_hyphens": False, "break_long_words": "/" not in text}
    return textwrap.wrap(words, width, subsequent_indent=indent, **options) or [""]  # type: ignore[arg-type]


def columns() -> int:
    """Return the width of the terminal, as $COLUMNS has it; of a pipe 100, as mail may carry."""
    return max(shutil.get_terminal_size((100, 25)).columns, 40)


def complaint(message: object) -> str:
    """Return a note or a refusal as a command writes it to stderr: in lines of a terminal, or of 100 columns."""
    lines = printable(f"shakedown: {message}", lines=True).split("\n")
    return "\n".join(part for line in lines for part in wrapped(line, min(columns(), 100)))


def in_unit(value: str, unit: str) -> str:
    """Return a value as text, with its unit: "1 log", "2 logs", "1 link up", "1 frame/s/GPU"."""
    if value == "1" and len(unit) > 2:
        unit = _COUNTED.sub(lambda found: found[1] + ("y" if found[2] == "ies" else ""), unit, count=1)
    return f"{value} {unit}"


def file_name(name: str) -> str:
    """Return a name of a node as the name of a file or folder: never a path, never hidden, and no two names become one.

    A name that is safe stays as it is; any other gets a digest behind "~", which no safe name holds.
    """
    if _SAFE_NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{_UNSAFE.sub('_', name).lstrip('.-')[:60]}~{digest}"


def load_json(text: str | bytes, limit: int, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the document, its objects made by `pairs` where that is given. Raises ValueError for what is no JSON, is
    nested too deeply, or is longer than `limit` (characters or bytes, whichever the text is in)."""
    if len(text) > limit:
        raise ValueError(f"{len(text)} long, where at most {limit} are taken")
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError("nested too deeply") from None


DEEPEST = 64  # levels of a document; the probe's has six
LONGEST = 256 << 10  # characters of one text in it; a longer one is cut
_LARGEST = 1 << 64  # of a number: the largest counters of the kernel are below


def sound(value: Any, path: str = "", depth: int = 0) -> Any:
    """Return a document of JSON as it may be worked with: its texts without control characters (but tabs and line ends)
    and not too long, its numbers finite and of 64 bits. Raises ValueError, with the place, for numbers that are not,
    and for what is nested too deeply."""
    if isinstance(value, str):
        plain = value.isascii() and value.isprintable() and len(value) <= LONGEST  # what is not seen may be "printable"
        return value if plain else "\n".join(incoming(line) for line in value[:LONGEST].split("\n"))
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not -_LARGEST <= value <= _LARGEST:  # which is also false of NaN
            raise ValueError(f"{path.lstrip('.')}: not a number of 64 bits")
        return value
    if depth >= DEEPEST and isinstance(value, dict | list):
        raise ValueError(f"{path.lstrip('.')}: nested too deeply")
    if isinstance(value, dict):
        return {sound(key, path, depth): sound(item, f"{path}.{key}"[:200], depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [sound(item, path, depth + 1) for item in value]
    return value


def load_sound(text: str | bytes, limit: int) -> Any:
    """Return a document of JSON as `sound` leaves it."""
    return sound(load_json(text, limit))


_NESTED = (dict, list)


def shallow(document: Any) -> Any:
    """Return a document that is nested at most DEEPEST levels, so that any walk of it ends. Raises ValueError."""
    level: list[Any] = [[document]]
    for _ in range(DEEPEST + 1):
        inner = (value.values() if type(value) is dict else value for value in level)
        level = [item for items in inner for item in items if type(item) in _NESTED]
        if not level:
            return document
    raise ValueError("nested too deeply")


_MARKS = re.compile("^0x|[-: ]")  # in a number
VERDICT = 10
NAME = 255  # of a node, a job, a serial number
TEXT = 500  # of what a person reads
DIGEST = 64


def line(value: object, limit: int = TEXT) -> str:
    """Anything as one line that a database takes and a terminal shows."""
    text = " ".join(printable(str(value), 4 * limit).split())
    return printable(text.encode("utf-8", "replace").decode(), limit)


def plain(serial: str) -> str:
    """Return a number without what tools write into it differently: case, colons, 0x and zeros in front."""
    return _MARKS.sub("", serial.strip().lower()).lstrip("0")


def name(value: object) -> str:
    """Return a name, by which things are also looked for."""
    return line(value, NAME)
