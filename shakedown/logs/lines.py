"""A stream of bytes or text, cut into lines as they become complete, and which of these may matter."""

import json
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import lru_cache, reduce
from operator import or_

from ahocorasick_rs import BytesAhoCorasick, Implementation

from shakedown.common.data import pattern_texts, read_toml
from shakedown.common.expression import Expression
from shakedown.common.lists import grouped
from shakedown.common.text import unhidden

MAX_LINE = 1 << 20  # bytes: a stream without line ends (a core dump on stdout) must not fill the memory


class LineSplitter:
    """Takes chunks of a log, of any size, and gives back the lines that are complete.

    A line keeps its `\\n`: a line without one was cut by the end of the log (or is longer than `MAX_LINE`). Invalid
    UTF-8 becomes U+FFFD. A carriage return alone ends no line, so that line numbers agree with `grep -n`.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._length = 0

    def feed(self, chunk: bytes | str) -> list[str]:
        """Return the lines that this chunk completes."""
        return split(as_text(self.block(chunk)))

    def block(self, chunk: bytes | str) -> bytes:
        """Return the same lines as they came, in one piece: most of a large log need never become text."""
        data = chunk if isinstance(chunk, bytes) else chunk.encode("utf-8", "surrogatepass")
        end = data.rfind(b"\n") + 1
        if not end:
            self._rest.append(data)
            self._length += len(data)
            return self._long() if self._length > MAX_LINE else b""
        complete = b"".join([*self._rest, data[:end]])
        self._rest, self._length = [data[end:]], len(data) - end
        return complete

    def close(self) -> list[str]:
        """Return the rest at the end of the log: a line that was cut, or nothing."""
        return split(as_text(self.rest()))

    def rest(self) -> bytes:
        """Return the part of a line that is not complete."""
        line = b"".join(self._rest)
        self._rest, self._length = [], 0
        return line

    def _long(self) -> bytes:
        """Return the part of a line that is too long, without a character that is cut in two."""
        line = self.rest()
        begun = next((n for n in (1, 2, 3) if line[-n] >= 0xC0), 0)
        if begun:
            self._rest, self._length = [line[-begun:]], begun
        return line[: len(line) - begun]


def as_text(data: bytes) -> str:
    """Lines of a log as text: what is no UTF-8 becomes U+FFFD."""
    return data.decode("utf-8", "replace")


def split(text: str) -> list[str]:
    """Split a text into lines with their line ends; the last line may have none."""
    *complete, last = text.split("\n")
    lines = [line + "\n" for line in complete]
    return [*lines, last] if last else lines


_KEYS = (b'"log":', b'"message":', b'"MESSAGE":', b'"textPayload":', b'"line":')  # what a carrier keeps a line under
# and what shows that the document is a carrier's: Docker, fluentd, Filebeat, journald, Google Cloud, AWS, Loki, Vector
_BESIDE = frozenset(
    [
        *("log", "stream", "container_id", "container_name", "kubernetes", "@timestamp", "_TRANSPORT", "__CURSOR"),
        *("insertId", "logName", "ingestionTime", "logStreamName", "labels", "source_type", "resource"),
    ]
)
_DOCKER_PART = 4096  # characters: Docker cuts at 16 KiB
_OF_LOGGERS = frozenset(("level", "levelname", "log.level", "logger", "lvl"))
_PART = re.compile(rb"(\S{10,40} (std(?:out|err)) )([PF])(?: (.*))?$", re.DOTALL)  # of a pod's log
_PRETTY = re.compile(rb' {2,20}"(?:textPayload|message)": ("(?:[^"\\]|\\.)*"),?\r?$')


class Unpacker:
    """Takes blocks of lines out of the documents in which an engine or a collector keeps each line. A line in parts
    stands whole in the place of its last part."""

    def __init__(self) -> None:
        self._parts: dict[bytes, bytearray] = {}  # of each stream
        self._of_aws = False

    def take(self, block: bytes) -> bytes:
        """Return as many lines."""
        if not (self._parts or any(mark in block for mark in (*_KEYS, b" stdout P", b" stderr P"))):
            return block
        self._of_aws = self._of_aws or b'"ingestionTime":' in block
        lines = block.split(b"\n")
        for at, line in enumerate(lines):
            if part := _PART.match(line):
                head, stream, whole, text = part[1] + b"F ", part[2], part[3] == b"F", part[4] or b""
            elif (carried := _carried(line, self._of_aws)) is not None:
                head, stream, (whole, text) = b"", b"", carried
            else:
                continue
            parts = self._parts.setdefault(stream, bytearray())
            parts += text[: max(MAX_LINE - len(parts), 0)]
            lines[at] = head + self._parts.pop(stream) if whole else b""
        return b"\n".join(lines)

    def rest(self) -> bytes:
        """Return the parts whose last one did not come."""
        return b"\n".join(self._parts.values())


def _carried(line: bytes, of_aws: bool) -> tuple[bool, bytes] | None:
    """Return whether a document's text ends its line, and the text; None where the line is no carrier's document."""
    if not any(key in line for key in _KEYS):
        return None
    with suppress(ValueError, TypeError, AttributeError, RecursionError):
        if (pretty := _PRETTY.match(line)) and (of_aws or b'"textPayload"' in line):
            return True, str(json.loads(pretty[1])).rstrip("\n").encode("utf-8", "replace")
        tag, _, document = line.rpartition(b"\t") if line[:1] != b"{" else (b"", b"", line)  # fluentd: time and tag
        found = json.loads(document) if document[:1] == b"{" and tag.count(b"\t") < 2 else {}
        found = found | (found.get("jsonPayload") or {}) if found.keys() & _BESIDE else {}
        text = next((text for key in _KEYS if isinstance(text := found.get(key.decode()[1:-2]), str)), None)
        if text is not None and not found.keys() & _OF_LOGGERS and found.get("_TRANSPORT") != "kernel":
            whole = text.endswith("\n") or "log" not in found or len(text) < _DOCKER_PART
            return whole, text.rstrip("\n").encode("utf-8", "replace")
    return None


FORMS = {name: Expression(text) for name, text in pattern_texts("shakedown.logs", "signatures.toml").items()}
_PREFIX, _HOST = FORMS["prefix"], FORMS["host"]
_MAX_PREFIX = 200
_LONGEST_PREFIX = 4000  # characters: eight of them, each of less than 500


def shown(line: str) -> str:
    """Return a line without what is not seen, and without the progress bars that stand before its words."""
    line = unhidden(line)
    return FORMS["bar"].pattern.sub("", line) if "%|" in line else line


def prefix(line: str) -> str:
    """Return what launchers, containers and loggers put before a line's own words; empty: nothing."""
    return _begin(line[:_LONGEST_PREFIX])


@lru_cache(128)  # several readers ask of one line
def _begin(line: str) -> str:
    found = _PREFIX.match(line)
    return found[0] if found else ""


_NAMED = re.compile(r"([A-Za-z0-9][\w.-]{0,80}): ")
_LOGGERS = frozenset(read_toml("shakedown.logs", "signatures.toml")["loggers"])
_DIGITS = re.compile(r"\d+")
# A number behind one of these words, alone as of `srun -l`, or after the last dot but in an address, is no host's, and
# no host has "_" in its name.
_COUNTED = re.compile(
    r"(?!#\.#\.#\.#$)(?:.*_.*|(?:.*\.)?[-#]+|(?:.*[.-])?(?:rank|gpu|hip|cuda|dev(?:ice)?|mlx|thread|core|cpu|socket|numa|"
    r"proc(?:ess)?|pid|task|step|epoch|iter\w*|stage|phase|layer|block|module|sample|test|batch|line|chunk|shard|part|"
    r"fold|split|bucket|expert|head|group|slot|replica|attempt|try|retry|round|trial|seed|run|job|env|loader|reader|"
    r"actor|agent|rollout|file|model|v|[tpdecs]p)[-.]?#.*)",
    re.IGNORECASE,
)
_FIRST, _MOST = 50, 1024  # lines; names


class Hosts:
    """Whether the lines of a log begin with the names of hosts, as pdsh and clush put them there. Any word can be a
    name: an iteration line or a traceback's proves it, without one the first lines nearly all have one."""

    def __init__(self) -> None:
        self._lines = self._named = 0
        self._differ = False  # or one word without a number begins them: a program's name
        self._proven: bool | None = None
        self._names: set[str] = set()  # that begin lines of tracebacks
        self._first: set[str] = set()  # that begin the first lines

    def block(self, block: bytes) -> None:
        """Take the beginning of a log, in blocks."""
        if self._lines < _FIRST:
            lines = [line for line in as_text(block[: 1 << 14]).split("\n")[:_FIRST] if line.strip()]
            names = [found[1] for line in lines if _is_named(line) and (found := _NAMED.match(line))]
            self._lines, self._named = self._lines + len(lines), self._named + len(names)
            self._first.update(names)
            self._differ = len(self._first) > 1 or any(map(_DIGITS.search, self._first))

    def iteration(self, line: str) -> None:
        """Take a line of an iteration."""
        self._proven = _is_named(line)

    @property
    def _are_named(self) -> bool:
        return self._differ and self._named > 0.8 * self._lines if self._proven is None else self._proven

    def host(self, line: str) -> str:
        """Return the host that a line begins with; empty: lines do not begin with hosts."""
        found = _NAMED.match(line) if self._are_named else None
        return found[1] if found else ""

    def names(self) -> frozenset[str]:
        """Return the hosts whose lines come first, where lines begin with several that differ in their numbers."""
        numbered = grouped((_DIGITS.sub("#", name), name) for name in self._first if self._are_named)
        hosts = (names for form, names in numbered.items() if "#" in form and not _COUNTED.fullmatch(form))
        return frozenset(name for names in hosts if len(names) > 1 for name in names)

    def own(self, line: str) -> str:
        """Return a line without the name of its host."""
        if not (found := _NAMED.match(line)):
            return line
        host = _HOST.match(line)
        if host and host[1] not in _LOGGERS and len(self._names) < _MOST and ('File "' in line or not is_text(line)):
            self._names.add(host[1])
        return line[found.end() :] if self._are_named or found[1] in self._names else line

    def rank(self, line: str) -> str:
        """Return the prefix that the lines of one rank have in common."""
        return self.split(line)[0]

    def split(self, line: str) -> tuple[str, str]:
        """Return the prefix that the lines of one rank have in common, and a line's own words."""
        begin = len(line) - len(self.own(line))
        begin += len(prefix(line[begin:]))
        if not begin:
            return "", line
        rank = FORMS["time"].pattern.sub("", line[:begin])
        return FORMS["answered"].pattern.sub("", rank).strip()[:_MAX_PREFIX], line[begin:]


@lru_cache(128)  # a storm repeats its lines
def is_text(line: str) -> bool:
    """Return whether a line without its host's name is a program's source, or stands behind the label of a text."""
    before = prefix(line)
    return bool(FORMS["answered"].search(before) or FORMS["code"].match(line[len(before) :]))


@lru_cache(128)
def is_mild(line: str) -> bool:
    """Return whether a logger marks the line as one that stopped nothing."""
    mark = FORMS["mild"].match(line)
    return mark is not None and not FORMS["severe"].search(FORMS["file"].pattern.sub("", mark[0]))


def _is_named(line: str) -> bool:
    found = _NAMED.match(line)
    return found is not None and found[1].lower() not in _LOGGERS


def unprefixed(line: str) -> str:
    """Return a line without that."""
    return line[len(prefix(line)) :]


def unfolded(line: str, head: str) -> list[str]:
    """Return the lines of a traceback that stands on one line, escaped, behind its head; none where it does not."""
    _, found, rest = line.partition(head)
    if not found or "\\n  File " not in rest:
        return []
    inner = (part.replace('\\"', '"').replace("\\'", "'") for part in rest.rstrip("'\"\n").split("\\n"))
    return [f"{prefix(line)}{part}\n" for part in (head + next(inner), *inner) if part]


class Marks:
    """Texts of which a line must hold one, exactly so, to be looked at, in `groups`. None of them holds a line end.

    A log of gigabytes has some thousand lines that matter. Everything else is passed over as it came, without becoming
    text. The Aho-Corasick automaton costs 6 ns a byte and 2 MB for 4,000 texts; a DFA 4 ns, 70 MB and 0.15 s.
    """

    def __init__(self, *groups: Collection[str]) -> None:
        of = dict[str, int]()
        for place, group in enumerate(groups):
            of |= {text: of.get(text, 0) | 1 << place for text in group}
        self._groups = list(of.values())
        patterns = [text.encode() for text in of]
        self._automaton = BytesAhoCorasick(patterns, implementation=Implementation.ContiguousNFA)

    def spans(self, block: bytes) -> Iterator[tuple[int, int, int]]:
        """Yield where each such line of a block of lines begins and ends (behind its line end), in order, and a bit for
        each group that it holds a text of."""
        start = end = held = 0
        for place, at, _ in self._automaton.find_matches_as_indexes(block, overlapping=True):
            if at >= end:
                if held:
                    yield start, end, held
                start = block.rfind(b"\n", end, at) + 1 or end
                end = block.find(b"\n", at) + 1 or len(block)
                held = 0
            held |= self._groups[place]
        if held:
            yield start, end, held

    def held(self, line: str) -> int:
        """Return a bit for each group that a line holds a text of."""
        found = self._automaton.find_matches_as_indexes(line.encode("utf-8", "surrogatepass"), overlapping=True)
        return reduce(or_, (self._groups[place] for place, _, _ in found), 0)


def count(block: bytes, start: int, end: int) -> int:
    """How many lines begin between the beginnings (or ends) of two lines; the last of a log may lack its line end."""
    return block.count(b"\n", start, end) + (start < end == len(block) and block[end - 1] != ord("\n"))
