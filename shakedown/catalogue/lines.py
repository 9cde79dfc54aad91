"""Lines of a kernel's log in all the forms in which tools print them: the message, and the priority where there is one.

dmesg (plain, -T, -e, -x, --time-format iso, --json), /dev/kmsg, journalctl (short forms, json, json-pretty, export,
cat), syslog files, a console with or without priorities, Talos, and any of these behind a host name of pdsh, a file
name of grep, or the mark of a quotation.
"""

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from shakedown.common.data import read_patterns, read_toml
from shakedown.common.text import unhidden

LONGEST = 16_384  # characters of a line that are looked at
_BLOCK_LINES, _BLOCK_SIZE = 200, 65_536  # of a record over several lines
_LEVELS: dict[str, int] = read_toml("shakedown.catalogue", "lines.toml")["levels"]
_FORMS = read_patterns("shakedown.catalogue", "lines.toml")
_FIELD = _FORMS["field"]


class Record(NamedTuple):
    """One record. `kernel`: the line has the form of a kernel's log; otherwise its source is unknown."""

    number: int  # of the line in the file, from 1; the last one of a record over several lines
    line: str
    message: str
    priority: int | None = None
    kernel: bool = False
    program: str = ""  # of a line that another program than the kernel wrote


def records(lines: Iterable[str]) -> Iterator[Record]:
    """Yield a record for each line; one for several lines that are one record of JSON or of `journalctl -o export`."""
    block: list[str] = []
    begin, size = "", 0
    for number, raw in enumerate(lines, 1):
        line = unhidden(raw[: 4 * LONGEST].rstrip("\r\n"))
        mark = _opens(line, block)
        if mark and not block:
            begin, block, size = mark, [line], len(line)
            continue
        if not block:
            yield read(line, number)
            continue
        if mark and not line.strip().startswith("}"):  # an array of records begins with a record's brace
            yield from _of_block(block, begin, number - 1)
            block, size = [line], len(line)
            continue
        ended = line.strip().startswith("}") if begin == "json" else not _FIELD.match(line)
        block.append(line)
        size += len(line)
        if ended or len(block) > _BLOCK_LINES or size > _BLOCK_SIZE:
            yield from _of_block(block, begin, number)
            again = _opens(line, []) if ended else ""
            block, begin = ([line], again) if again else ([], "")
            size = len(line)
    if block:
        yield from _of_block(block, begin, number)


def _opens(line: str, block: list[str]) -> str:
    """Return what kind of record over several lines begins here: "json", "export", or nothing."""
    text = line.strip()
    if text in ("{", "[{", "},{", "}, {"):
        return "json"
    if not block and _FIELD.fullmatch(line) and line.lstrip().startswith(("__CURSOR=", "_TRANSPORT=", "__REALTIME")):
        return "export"
    return ""


def _of_block(block: list[str], begin: str, number: int) -> Iterator[Record]:
    """Yield the record that some lines are together, or a record for each where they are none."""
    first = number - len(block) + 1
    if begin == "json":
        text = "".join(block).strip()
        text = "{" + text.split("{", 1)[-1].rpartition("}")[0] + "}"
        found = _of_json(text, number)
    else:
        fields = {match[1]: match[2] for line in block if (match := _FIELD.fullmatch(line))}
        found = _of_fields(fields, fields.get("MESSAGE", ""), number) if "MESSAGE" in fields else None
    if found is not None:
        yield found
    else:
        yield from (read(line, first + index) for index, line in enumerate(block))


def _of_json(text: str, number: int) -> Record | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    if isinstance(document.get("msg"), str) and "pri" in document:  # dmesg --json
        return _record(number, document["msg"], _number(document["pri"]), kernel=True)
    message = document.get("MESSAGE")
    if isinstance(message, list):  # what is no UTF-8 comes as numbers
        message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode(
            "utf-8", "replace"
        )
    return _of_fields(document, message, number) if isinstance(message, str) else None


def _of_fields(fields: dict[str, Any], message: str, number: int) -> Record:
    program = str(fields.get("SYSLOG_IDENTIFIER") or fields.get("_COMM") or "kernel")
    kernel = fields.get("_TRANSPORT", "kernel") == "kernel" and program == "kernel"
    return _record(number, message, _number(fields.get("PRIORITY")), kernel, "" if kernel else program)


def _number(value: Any) -> int | None:
    text = str(value)
    return int(text) & 7 if text.isdigit() and len(text) <= 4 else None


def _record(number: int, message: str, priority: int | None, kernel: bool, program: str = "") -> Record:
    inner = read(message, number)  # rsyslog keeps the kernel's time behind its own
    message, priority = inner.message, inner.priority if priority is None else priority
    return Record(number, message, message, priority, kernel or inner.kernel, program)


def read(line: str, number: int = 0) -> Record:
    """Return the record of one line."""
    return _read(line)._replace(number=number)


@lru_cache(128)  # a storm repeats its lines
def _read(line: str) -> Record:
    text = line[:LONGEST].lstrip(" ")
    if text[:1] == "{" and text.rstrip().endswith("}") and (found := _of_json(text, 0)):
        return found._replace(line=line)
    if match := _FORMS["quoted"].match(text):
        text = text[match.end() :]
    if match := _FORMS["host"].match(text) or _FORMS["found"].match(text):
        text = text[match.end() :]
    priority, kernel, program = None, False, ""
    if match := _FORMS["kmsg"].match(text):
        return Record(0, line, text[match.end() :], int(match[1]) & 7, True)
    if match := _FORMS["priority"].match(text):
        priority, kernel, text = int(match[1]) & 7, True, text[match.end() :]
    if (match := _FORMS["decoded"].match(text)) and match[2] in _LEVELS:
        priority, kernel, text = _LEVELS[match[2]], True, text[match.end() :]
        program = "" if match[1] == "kern" else match[1]
    iso = _FORMS["bare_iso"].match(text)  # without a host's name
    if iso:
        kernel, text = True, text[iso.end() :]
    elif match := _FORMS["tagged"].match(text) or _FORMS["rfc5424"].match(text) or _FORMS["monotonic"].match(text):
        writer = match[match.lastindex or 2]
        if level := _FORMS["dotted"].search(text[: match.end()]):
            priority = _LEVELS.get(level[2], priority)
        text = text[match.end() :]
        if writer != "kernel":
            return Record(0, line, text, priority, False, writer)
        kernel = True
    elif match := _FORMS["bare"].match(text):
        kernel, text = True, text[match.end() :]
    text, priority, kernel = _behind_time(text, priority, kernel)
    return Record(0, line, text, priority, kernel, program)


def _behind_time(text: str, priority: int | None, kernel: bool) -> tuple[str, int | None, bool]:
    """Skip the kernel's time, and a priority or a second time behind it."""
    if (match := _FORMS["stamp"].match(text)) and (kernel or _FORMS["time"].match(text, match.end())):
        text = text[match.end() :]
    if (match := _FORMS["time"].match(text)) is None:
        return text, priority, kernel
    text = text[match.end() :].removeprefix("kernel: ")
    if match := _FORMS["priority"].match(text):
        return text[match.end() :], int(match[1]) & 7, True
    if match := _FORMS["time"].match(text):
        text = text[match.end() :]
    return text, priority, True
