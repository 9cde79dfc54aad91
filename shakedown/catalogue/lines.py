"""Lines of a kernel's log in all the forms in which tools print them: the message, and the priority where there is one.

dmesg (plain, -T, -e, -x, --time-format iso, --json), /dev/kmsg, journalctl (short forms, json, json-pretty, export,
cat), syslog files, a console with or without priorities, Talos, and any of these behind a host name of pdsh, a file
name of grep, or the mark of a quotation.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from shakedown.common.text import unhidden

LONGEST = 16_384  # characters of a line that are looked at
_BLOCK_LINES, _BLOCK_SIZE = 200, 65_536  # of a record over several lines
_LEVELS = {"emerg": 0, "alert": 1, "crit": 2, "err": 3, "warn": 4, "notice": 5, "info": 6, "debug": 7}
_LEVELS |= {"panic": 0, "error": 3, "warning": 4}
_PRIORITY = re.compile(r"\s{0,20}<(\d{1,4})>(?:1 (?=\d{4}-))?")  # RFC 5424 has its version behind the priority
_KMSG = re.compile(r"(\d{1,4}),(\d{1,19}),(\d{1,19}),[^;]{0,100};")
_FACILITY = r"(kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|res\d|local\d)"
_DECODED = re.compile(rf"{_FACILITY}\s{{0,9}}:\s{{0,9}}(\w{{3,7}})\s{{0,9}}: ?")
_DOTTED = re.compile(rf"{_FACILITY}\.(\w{{3,7}})")  # of syslogd and of a container's: kern.err
_CLOCK = r"\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?"
_ISO = rf"\d{{4}}-\d{{2}}-\d{{2}}[T ]{_CLOCK}(?: ?(?:Z|UTC|[+-]\d{{2}}:?\d{{2}}))?"
_MONTH = r"(?:[A-Z][^\W\d_]{1,3}\.?|[^\W\d_]{3,5}\.|\d{1,2}月)"  # as "Nov", "Okt", "nov." and "11月"
_NAME = r"(?:\d{1,2}月|[^\W\d_]{1,5}\.?)"  # of a month or a weekday, where the brackets of dmesg -T are around
_DAY = r"(?:[ \d]\d|\d(?!\d))"
_DATE = rf"(?:{_MONTH} )?(?:{_MONTH} {_DAY} {_CLOCK}|{_ISO}(?: [A-Z]{{2,5}})?|\d{{9,10}}\.\d{{1,9}})"
_SECONDS = r"\d{1,12}\.\d{1,9}"
_CALLER = r"\[\s{0,10}[TC]\d{1,10}\]"  # CONFIG_PRINTK_CALLER: the task or the CPU
_TIME = re.compile(
    rf"\[\s{{0,20}}(?:[+<]?\s{{0,20}}{_SECONDS}>?|{_NAME} {_NAME} {_DAY} {_CLOCK} \d{{4}}|"
    rf"{_NAME} {_DAY} \d{{2}}:\d{{2}}|{_NAME}\d{{1,2}} \d{{2}}:\d{{2}})"
    rf"(?:\s{{0,5}}[<@,][^\]]{{0,40}})?\](?:\s{{0,3}}{_CALLER})?:? ?"
)
_STAMP = re.compile(rf"\[(?:{_ISO}|{_CLOCK})\]:? {{0,3}}")  # of who records a console; a job's log has it, too
_COMMA = _CLOCK.replace("[.,]", ",")
_BARE_ISO = re.compile(rf"\d{{4}}-\d{{2}}-\d{{2}}T{_COMMA}[+-]\d{{2}}:?\d{{2}} ")  # dmesg --time-format iso
_PROGRAM = r"([\w./@-]{1,64}(?:\([\w-]{1,32}\))?)"  # sshd(pam_unix)[812]
_TAGGED = re.compile(rf"{_DATE} (\S{{1,255}}) (?:{_FACILITY}\.\w{{3,7}} )?{_PROGRAM}(?:\[[^\]]{{1,40}}\])?:(?:\s|$)")
_MONOTONIC = re.compile(rf"\[\s{{0,20}}\d{{1,12}}\.\d{{1,9}}\] (\S{{1,255}}) (?:(kernel)|{_PROGRAM}\[\d{{1,10}}\]): ")
_RFC5424 = re.compile(rf"{_ISO} (\S{{1,255}}) (\S{{1,48}}) \S{{1,128}} \S{{1,32}} (?:-|\[[^\]]{{0,400}}\]) ?")
_HOST = re.compile(
    r"[A-Za-z0-9][\w.-]{0,63}: "
    r"(?=<\d{1,4}>|\d{1,4},\d{1,19},\d|\[\s{0,20}[\d+<A-Z]|(?:kern|user|daemon) {0,9}:\s{0,9}\w)"
)
_QUOTED = re.compile(r"\s{0,20}(?:>\s{1,4}){1,3}|[\s>|*`-]{1,20}(?=\[\s{0,20}\d)")
_FOUND = re.compile(rf"(?:[\w./-]{{1,200}}:){{1,2}}(?=\[\s{{0,20}}\d|{_DATE} \S)")  # by grep, in a file, on a line
_BARE = re.compile(r"(?:\S{1,255} )?kernel: ?")
_FIELD = re.compile(r"\s{0,8}([A-Z_][A-Z0-9_]{1,63})=(.*)")


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
    text = line[:LONGEST].lstrip(" ")
    if text[:1] == "{" and text.rstrip().endswith("}") and (found := _of_json(text, number)):
        return found._replace(line=line)
    if match := _QUOTED.match(text):
        text = text[match.end() :]
    if match := _HOST.match(text) or _FOUND.match(text):
        text = text[match.end() :]
    priority, kernel, program = None, False, ""
    if match := _KMSG.match(text):
        return Record(number, line, text[match.end() :], int(match[1]) & 7, True)
    if match := _PRIORITY.match(text):
        priority, kernel, text = int(match[1]) & 7, True, text[match.end() :]
    if (match := _DECODED.match(text)) and match[2] in _LEVELS:
        priority, kernel, text = _LEVELS[match[2]], True, text[match.end() :]
        program = "" if match[1] == "kern" else match[1]
    iso = _BARE_ISO.match(text)  # without a host's name
    if iso:
        kernel, text = True, text[iso.end() :]
    elif match := _TAGGED.match(text) or _RFC5424.match(text) or _MONOTONIC.match(text):
        writer = match[match.lastindex or 2]
        if level := _DOTTED.search(text[: match.end()]):
            priority = _LEVELS.get(level[2], priority)
        text = text[match.end() :]
        if writer != "kernel":
            return Record(number, line, text, priority, False, writer)
        kernel = True
    elif match := _BARE.match(text):
        kernel, text = True, text[match.end() :]
    text, priority, kernel = _behind_time(text, priority, kernel)
    return Record(number, line, text, priority, kernel, program)


def _behind_time(text: str, priority: int | None, kernel: bool) -> tuple[str, int | None, bool]:
    """Skip the kernel's time, and a priority or a second time behind it."""
    if (match := _STAMP.match(text)) and (kernel or _TIME.match(text, match.end())):
        text = text[match.end() :]
    if (match := _TIME.match(text)) is None:
        return text, priority, kernel
    text = text[match.end() :].removeprefix("kernel: ")
    if match := _PRIORITY.match(text):
        return text[match.end() :], int(match[1]) & 7, True
    if match := _TIME.match(text):
        text = text[match.end() :]
    return text, priority, True
