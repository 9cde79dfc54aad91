"""What a log says behind its last iteration: whether the job ended badly after all iterations were there.

A log without iteration lines, as of every node but one, is read at its end alone. Bounded: `_KEPT` bytes behind the
last iteration, of more the first and the last half. The forms are data: `end.toml`.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache, partial

from shakedown.catalogue.model import alarming, error_words
from shakedown.common.command_secrets.forms import Signs
from shakedown.common.data import kept_toml
from shakedown.common.expression import Expression
from shakedown.common.frozen import Frozen
from shakedown.common.text import printable
from shakedown.logs.lines import FORMS, Hosts, as_text, prefix, shown, split, unprefixed
from shakedown.logs.texts import MARKS, Texts

_data = partial(kept_toml, "shakedown.logs", "end.toml")
_KEPT = 1 << 18
_LAST = 40  # lines of a log without iterations
_LONGEST = 2000  # characters of a line that are looked at
_QUOTED = 300
_LONGEST_PREFIX = 60
_HIDING = re.compile("[\0\x1b]")
_TRACEBACK = "Traceback (most recent call last)"
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?::|\s*$)")
_WROTE = FORMS["wrote"].pattern
_UNKNOWN_PREFIX = re.compile(r"[^\w\s,;.'\"`(]\s*|(?<![a-z] )\b[\d.]+\s+")  # where it may end
_EXIT_BARRIER = "] Error waiting on exit barrier"


class LogEnd(Frozen):
    """What stands there. `failed`: the first line that says that something ended badly, and what it says; `doubtful`:
    the first line with an error word that nothing explains."""

    failed: str = ""
    doubtful: str = ""
    cut: bool = False  # whether there is more behind the last iteration than was read


class Ending(Frozen):
    """One form in which a log shows that something ended badly."""

    what: str
    pattern: re.Pattern[str]
    source: str
    shows: tuple[str, ...]
    shows_not: tuple[str, ...] = ()
    sure: bool = True  # False: it leaves open how the job ended


@cache
def endings() -> tuple[Ending, ...]:
    """Return the forms of `end.toml`."""
    return tuple(Ending(**form) for form in _data()["ending"])


@cache
def _expressions() -> list[tuple[bool, str, Expression]]:
    return [(ending.sure, ending.what, Expression(ending.pattern.pattern)) for ending in endings()]


@cache
def _harmless(wins: bool) -> tuple[Expression, ...]:
    return tuple(Expression(form["pattern"]) for form in _data()["harmless"] if form.get("wins", False) is wins)


@cache
def _signs() -> Signs | None:
    """Return texts of which a line must hold one to say something of an end; None: the forms have none in common."""
    literals = [error_words("job").literals, *(expression.literals for _, _, expression in _expressions())]
    known = ("Traceback", 'File "', *MARKS)
    return Signs(text for texts in (known, *literals) for text in texts) if all(literals) else None


@lru_cache(8 * _LAST)  # of one line it is asked up to four times
def ended_badly(line: str, sure: bool = True) -> str:
    """Return what a line without prefixes says of an end; empty: nothing bad. `sure` False: what leaves it open."""
    return next((what for certain, what, form in _expressions() if certain is sure and form.search(line)), "")


def _behind_a_prefix(line: str) -> bool:
    """Return whether a bad end may stand behind a prefix that is not known, in a line's first characters."""
    ends = (match.end() for match in _UNKNOWN_PREFIX.finditer(line, 0, _LONGEST_PREFIX))
    own = (line[end : end + _QUOTED] for end in ends)  # what need not begin a line was searched in all of it
    return any(ended_badly(words) or ended_badly(words, sure=False) for words in own)


class EndReader:
    """Keeps what stands behind the last iteration while a log is read in blocks of lines."""

    def __init__(self) -> None:
        self._begun = False  # whether there was an iteration line
        self._head = b""
        self._tail = b""
        self._cut = False

    def take(self, block: bytes, behind: int | None) -> None:
        """Take a block of lines; `behind` is where its last iteration line ends, None: it has none."""
        if behind is not None:
            self._begun, self._head, self._tail, self._cut = True, b"", b"", False
            block = block[behind:]
        half = _KEPT // 2
        if self._begun:
            room = half - len(self._head)
            self._head, block = self._head + block[:room], block[room:]
        tail = self._tail + block
        self._cut = self._begun and (self._cut or len(tail) > half)
        self._tail = tail[-half:]

    def end(self, hosts: Hosts | None = None) -> LogEnd:
        """Return what it says; a line that the cut runs through counts as two."""
        lines = split(as_text(self._head)) + split(as_text(self._tail))
        if not self._begun:
            lines = [line for line in lines if line.strip()][-_LAST:]
        failed = doubtful = ""
        in_traceback, indent = False, 0
        hosts = hosts or Hosts()
        first = next(
            (number for number, raw in enumerate(lines) if "Traceback" in raw or _HIDING.search(raw)), len(lines)
        )
        signs = _signs()
        read = {
            number: _both_ends(shown(raw).rstrip())
            for number, raw in enumerate(lines)
            if number >= first or signs is None or not raw.isascii() or signs.within(raw)
        }
        for whole, named in _without_texts(read, hosts):
            line = unprefixed(whole)
            # "[1]    4242 killed" and "[exiting program ...]" look like a prefix
            last = whole.rpartition("\r")[2]  # behind a text of progress that is no bar
            what = ended_badly(line) or ended_badly(whole) or (last != whole and ended_badly(unprefixed(last)))
            what = what or ended_badly(named)  # "srun: " and "timeout: " may look like a host's name
            if what and not failed and not _passed_over(line, whole):
                failed = f"{what}: {_quoted(line)}"
            if _TRACEBACK in line:
                in_traceback, indent = True, line.index(_TRACEBACK)
            elif in_traceback:
                in_traceback = not _EXCEPTION.match(line[indent:])
            elif self._begun and not doubtful and _alarms(line):
                doubtful = "" if _passed_over(line, whole) else _quoted(line)
        if self._begun:
            doubtful = doubtful or _fenced(lines, hosts)
        return LogEnd(failed=failed, doubtful=doubtful, cut=self._cut)


def _alarms(line: str) -> bool:
    return bool(alarming(line, "job") or ended_badly(line, sure=False) or _behind_a_prefix(line))


def _both_ends(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} {line[-_LONGEST // 2 :]}"


def _fenced(lines: list[str], hosts: Hosts) -> str:
    """Return what alarms in a fence that is the log's last word, where nothing else shows that a model wrote it."""
    if "```" not in next((line for line in reversed(lines) if hosts.own(line).strip()), ""):
        return ""
    marked = [at for at, line in enumerate(lines) if any(mark in line for mark in MARKS)]
    bare = [at for at in marked if unprefixed(hosts.own(shown(lines[at])[:_LONGEST])).strip() == "```"]
    if len(bare) != 2 or bare != marked or lines[max(bare[0] - 1, 0)].rstrip().endswith(":"):  # a label
        return ""
    inside = [unprefixed(hosts.own(shown(line)[:_LONGEST])) for line in lines[bare[0] + 1 : bare[1]]]
    return next((_quoted(line) for line in inside if ended_badly(line) or alarming(line, "job")), "")


def _without_texts(lines: Mapping[int, str], hosts: Hosts) -> Iterator[tuple[str, str]]:
    """Yield lines without the names of their hosts and with them, but those that a model wrote."""
    found, inside = Texts(), dict[int, str]()
    for number, line in lines.items():
        if text := found.closed(number, line, hosts):
            inside |= dict.fromkeys(*text)
    for number, line in lines.items():
        own = hosts.own(line)
        if _WROTE.search(own, 0, _QUOTED) and _WROTE.search(prefix(own)):
            yield (_TRACEBACK if _TRACEBACK in own else ""), ""
        elif number not in inside or hosts.rank(line) != inside[number]:
            yield own, line


def _passed_over(line: str, whole: str) -> bool:
    """Return whether a line is harmless by its words, or by a level that stands in its prefix."""
    forms = [*_harmless(wins=True), *(() if ended_badly(line) or ended_badly(whole) else _harmless(wins=False))]
    return _EXIT_BARRIER in line or any(form.search(line) or form.search(whole) for form in forms)


def _quoted(line: str) -> str:
    return printable(line.strip(), _QUOTED).strip()
