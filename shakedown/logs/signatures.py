"""Lines that mean failure in training logs and of RCCL: those of `shakedown.catalogue`."""

from collections.abc import Sequence
from functools import cache

from shakedown.catalogue import Entry, calls, entries, entry
from shakedown.common.data import read_toml
from shakedown.common.frozen import Frozen
from shakedown.common.text import printable
from shakedown.logs.frames import FRAME, Traceback, begins, cut_entry, entry_of, wrapped
from shakedown.logs.known import LAST_WORDS, follows, is_sure, known_line, marks_of, texts_of
from shakedown.logs.lines import FORMS, Hosts, as_text, count, is_mild, is_text, prefix, shown, unfolded, unprefixed
from shakedown.logs.texts import MARKS, Texts

MAX_QUOTED = 400  # characters of a line that are kept as evidence


class Match(Frozen):
    """A line that shows a failure: `line_number` counts from 1, as `grep -n` does."""

    name: str
    line_number: int
    line: str
    cause: str
    remedy: str

    def __str__(self) -> str:
        return f"line {self.line_number}: {self.name}: {self.line}"


def _match(entry: Entry, line_number: int, line: str) -> Match:
    words = quoted(line)
    cause = entry.cause if entry.log != "job" or is_sure(entry, words) else f"perhaps {entry.cause}"
    return Match(name=entry.name, line_number=line_number, line=words, cause=cause, remedy=entry.remedy)


def unknown_exception() -> Entry:
    """Return the entry of a traceback whose exception has no entry of its own."""
    found = entry("traceback")
    assert found is not None
    return found


def quoted(line: str) -> str:
    """Return a line as it is kept and shown: its beginning, cleaned of terminal controls."""
    return printable(line.strip(), MAX_QUOTED).strip()


class Scanner:
    """Finds the lines of one group among those with a mark; each signature is reported once, where it first stood."""

    def __init__(self, signatures: Sequence[Entry], rdma: bool = False) -> None:
        self.lines = 0
        self.matches: list[Match] = []
        self._open = [signature for signature in signatures if rdma or not signature.rdma]

    def line(self, line: str) -> Match | None:
        """Return the match of this line, if it shows something new."""
        self.lines += 1
        for signature in self._open:
            if signature.matches(line):
                self._open.remove(signature)
                self.matches.append(_match(signature, self.lines, line))
                return self.matches[-1]
        return None


MISMATCH = "collective_mismatch"  # ranks that differ: what each of them has seen says which one
_DATA = read_toml("shakedown.logs", "signatures.toml")
_TRACEBACK, _EXIT_BARRIER, _CITES, _CITED = (_DATA[key] for key in ("traceback", "exit_barrier", "cites", "cited"))
_IGNORED, _OF_BACKGROUND, _CHAINED, _RAISES = (tuple(_DATA[k]) for k in ("ignored", "background", "chained", "raises"))
_OF_TRACEBACKS: tuple[str, ...] = (_TRACEBACK, *_IGNORED, *_OF_BACKGROUND, *_CHAINED)
_NO_WORDS = " \t\u256d\u2500"  # what rich draws before the head of a traceback
_MAX_PREFIX = 200  # characters before a line
MOST_LINES = 100_000  # that may show a failure; where all differ each takes 0.25 ms
_STALE, _MAX_PENDING = 4096, 1024  # lines; tracebacks of as many ranks at once: no node has a tenth of them


def _rank(match: Match) -> tuple[int, int]:
    """Return how far a kind of failure is from what began it, from 0 (an own fault) to 5 (an echo), and its line."""
    found = entry(match.name) or unknown_exception()
    if found.symptom:
        far = {"origin": 1, "either": 3}.get(found.role or "", 5 - found.general)
    elif found.general:  # of a program's own exception and an echo the first counts
        far = 2
    else:
        far = {"origin": 0, "either": 1}.get(found.role or "", 2)
    return far, match.line_number


class FailureScanner:
    """Finds the failures in a training log, line by line, while the log grows: each kind where it first stood.

    A traceback is judged by its last line, the exception: torchrun ends on SIGTERM with a traceback of its own, which
    is no failure, nor is an exception that Python says it ignored, nor what torchrun says of its exit barrier. Those of
    several ranks may be mixed. A failed import, what a logger wrote behind words of its own, and what a shell's tool or
    RCCL's start said are held back until the next failure or the end: a program that trains afterwards has handled them
    (`went_on`). Exceptions that end no process are passed over once it trains, unless hardware is at fault. What a line
    means by its call and error alone explains a failure at the end, and establishes none.
    """

    def __init__(self, every: bool = False) -> None:
        """`every`: return each line that shows a failure, also of a kind that was seen before, and keep none."""
        self.lines = self._looked_at = 0
        self.incomplete = ""  # why not all lines were read
        self.matches: list[Match] = []
        self._every = every
        self.harmless: list[str] = []  # what looks like a failure and is none, each kind where it first stood
        self._seen: set[str] = set()
        self._marks, self._texts, self.hosts = marks_of(*marks()[:2]), Texts(), Hosts()
        self._cites: str | None = None  # prefix of a line behind which RCCL's own words follow
        self._harmless = ""  # prefix of the record that torchrun wrote of its exit barrier
        self.optional: set[str] = set()  # kinds that a program which trains nevertheless has handled
        self._held: list[Match] = []
        self._read: dict[str, Match] = {}  # kinds that no text of theirs showed, but a call and an error
        self._warned: dict[str, Match] = {}  # kinds that a program may outlive: where they stood last
        self._trains = self._through = False
        self._pending: dict[str, Traceback] = {}  # by the prefix of their lines
        # rank prefix -> where a line said that the next exception ends no process, and whether Python ignores it
        self._background: dict[str, tuple[int, bool]] = {}
        self._ended: dict[str, bool] = {}  # the same of the last one that came, which may have a chained one

    @property
    def root(self) -> Match | None:
        """The failure that best explains the others: of equal ones the first."""
        return min(self.matches, key=_rank, default=None)

    @property
    def open(self) -> bool:
        """Return whether a traceback has begun whose exception did not come yet."""
        return bool(self._pending) or self._cites is not None

    def batch(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.line(line)

    def skip(self, block: bytes, start: int, end: int) -> None:
        """Lines of a block without any of `marks`: looked at only while a traceback is open."""
        while self.open and start < end:
            after = block.find(b"\n", start, end) + 1 or end
            self.line(as_text(block[start:after]), 0)
            start = after
        self.lines += count(block, start, end)

    def line(self, line: str, held: int | None = None) -> Match | None:
        """Return a failure of a new kind, on the line that proves it; one within a model's text is taken back. `held`:
        which of the first two groups of `marks` the line holds, where that is known."""
        self.lines += 1
        held = self._marks.held(line) if held is None else held
        found = self._line(line) if self.open or held & 1 else None
        if held & 2 and not self._every and (text := self._texts.closed(self.lines, line, self.hosts)):
            self._take_back(*text)
        return found

    def _take_back(self, lines: range, rank: str) -> None:
        """Forget what stands in some lines of one rank."""
        kept = [*self.matches, *self._held, *self._read.values(), *self._warned.values()]
        within = [it for it in kept if it.line_number in lines and self.hosts.rank(it.line) == rank]
        for held in (self.matches, self._held):
            held[:] = [match for match in held if match not in within]
        for found in (self._read, self._warned):
            for match in within:
                found.pop(match.name, None)
        self._seen -= {self._key(match.name, match.line) for match in within}
        if (trace := self._pending.get(rank)) and trace.began in lines:
            del self._pending[rank]
        if within:
            self._pass_over("what stands in a text that a model wrote: no failure", within[0].line)

    def _line(self, line: str) -> Match | None:
        self._looked_at += 1
        if self._looked_at > MOST_LINES:
            self.incomplete = f"{MOST_LINES} lines may show a failure, and none behind them was read for its cause"
            self._pending, self._cites = {}, None
            return None
        line = shown(line)
        if parts := unfolded(line, _TRACEBACK):
            return [*map(self._line, parts)][-1]
        cites, self._cites = self._cites, prefix(line) if line.rstrip().endswith(_CITES) else None
        if cites is not None and line.startswith(cites) and FRAME not in line and _TRACEBACK not in line:
            return self._settle(line, _CITED)
        if _EXIT_BARRIER in line:
            self._harmless = line.partition(_EXIT_BARRIER)[0][:_MAX_PREFIX]
            self._pass_over("torchrun's exit barrier, which met a master that was through: no failure", line)
        if self._harmless and line.startswith(self._harmless):
            return None
        if self._pending or self._background or FRAME in line or any(text in line for text in _OF_TRACEBACKS):
            return self._in_traceback(line)
        return self._settle(line)

    def close(self, failed: bool = True) -> Match | None:
        """End the log: a traceback without its exception is a failure as well. `failed`: it may have failed, and what
        was only read explains it where nothing else does; if not, it has handled what is held back."""
        if not failed:
            self._survive()
        ended = self._close()
        if failed and not (self._trains and not self.matches):
            read = min([*self._read.values(), *self._late()], key=_rank, default=None)
            far, at = _rank(self.root) if self.root else (9, 0)
            says_no_more = self.root is not None and (root := entry(self.root.name)) is not None and root.general
            if read is not None and far >= 2 and _rank(read) < (far, at if says_no_more else 0):
                self.optional.add(read.name)
                self.matches.append(read)
        return ended

    def _late(self) -> list[Match]:
        return [match for match in self._warned.values() if self.lines - match.line_number < LAST_WORDS]

    def _close(self) -> Match | None:
        for rank in [rank for rank, trace in self._pending.items() if trace.exception]:
            held = self._pending.pop(rank)
            self._end(held, rank, held.exception, f"{rank} {held.exception}")
        cut = [it for it in self._pending.values() if not (it.of_text or it.headless > it.source.startswith(_RAISES))]
        self._pending.clear()
        if not cut or self.matches or (self._late() and not self._trains):  # a place alone proves less than any line
            return self._confirm()
        first = min(cut, key=lambda trace: trace.began)
        return self._keep(_match(cut_entry(first) or unknown_exception(), first.began, first.line))

    def went_on(self, through: bool = False) -> None:
        """Take what is held back for handled: the program trains. `through`: all runs of the log ended with success, so
        ranks that close one after the other follow."""
        self._trains, self._through, self._texts = True, through, Texts()
        self._survive()
        if self._pending:
            self._pending = {rank: begun for rank, begun in self._pending.items() if not begun.behind_words}

    def _survive(self) -> None:
        for match in self._held:
            self._seen.discard(self._key(match.name, match.line))
            self._pass_over(f"{match.name}, which the program has handled", match.line)
        for found in (self._held, self._read, self._warned):
            found.clear()

    def _confirm(self) -> Match | None:
        held, self._held = self._held, []
        self.matches += held
        return held[0] if held else None

    def _in_traceback(self, line: str) -> Match | None:
        rank, text = self.hosts.split(line)
        rank = "" if is_mild(rank) else rank  # a logger's level, which frames have not
        if self.lines % _STALE == 0:  # a stack that a rank printed as its last words ends nowhere
            stale = self.lines - _STALE
            self._pending = {by: held for by, held in self._pending.items() if not held.headless or held.began > stale}
        if (held := self._pending.get(rank)) and held.exception:
            words = held.joined(text)
            found = self._end(self._pending.pop(rank), rank, words, f"{rank} {words}")
            return (self._in_traceback(line) if words == held.exception else None) or found
        if self._announces_no_end(rank, text):
            return None
        begun = self._background.get(rank, (-3, False))[0]
        if _TRACEBACK in text or (rank not in self._pending and begins(text)):
            if self.lines - begun > 2:
                self._background.pop(rank, None)
            return self._begin(rank, text, line)
        traceback = self._pending.get(rank)
        if traceback is not None and traceback.of_text and not traceback.take(text):
            del self._pending[rank]
            if FORMS["certain"].match(text):
                self._pass_over("an exception behind the label of a text: no failure", line)
                return None
            traceback = None
        if traceback is None or not (FORMS["certain"] if traceback.headless else FORMS["exception"]).match(text):
            if traceback is not None and traceback.take(text):  # source code may quote any message
                return None
            if traceback is not None and traceback.headless:
                del self._pending[rank]
            if self.lines - begun == 1 and FORMS["exception"].match(text):
                del self._background[rank]
                self._pass_over("a stream that Python could not flush at its exit: no failure", line)
                return None
            return self._settle(line)
        if traceback.holds_back(text):
            return None
        del self._pending[rank]
        return self._end(traceback, rank, text, line)

    def _announces_no_end(self, rank: str, text: str) -> bool:
        """Note what a line says of the exceptions that follow; return whether the line holds nothing else."""
        ignored = any(mark in text for mark in _IGNORED)
        if ignored or text.startswith(_OF_BACKGROUND):
            if len(self._background) < _MAX_PENDING:
                self._background[rank] = (self.lines, ignored)
            return True
        if text.startswith(_CHAINED):
            if rank in self._ended:
                self._background[rank] = (self.lines, self._ended[rank])
            return True
        if FORMS["helper"].match(text) and (rank in self._pending or begins(text)):
            self._background[rank] = (self.lines, True)
        return False

    def _begin(self, rank: str, text: str, line: str) -> Match | None:
        """Begin a traceback: at its head, or at a frame whose head is not in the log."""
        words = text.partition(_TRACEBACK)[0].strip(_NO_WORDS).removeprefix("Original") if _TRACEBACK in text else None
        of_text = words is not None and is_text(self.hosts.own(line))
        self._pending[rank] = Traceback(self.lines, quoted(line), bool(words) or is_mild(line), words is None, of_text)
        self._pending[rank].take(text)
        return self._close() if len(self._pending) > _MAX_PENDING else None

    def _end(self, traceback: Traceback, rank: str, text: str, line: str) -> Match | None:
        if FORMS["clean_stop"].search(text):
            self._pass_over("SIGTERM ended torchrun: no failure", line)
            return None
        handled = traceback.behind_words or FORMS["optional"].match(text) is not None
        text = traceback.words(text)
        signature = self._signature_of(line, text)
        place = entry_of(traceback, text)
        yields = signature is not None and place is not None and place.name in signature.yields
        if yields or not signature or signature.general:
            signature = place or signature or unknown_exception()
        if rank in self._background:
            self._ended = {rank: self._background.pop(rank)[1]}
            if self._ended[rank]:
                self._pass_over("an exception that Python ignored: no failure", line)
                return None
            if self._trains and (signature.general or signature.role == "echo" or signature.part == "program"):
                self._pass_over("an exception that ends no process: no failure", line)
                return None
        return self._found(signature, line, handled)

    def _pass_over(self, what: str, line: str) -> None:
        if not any(what in harmless for harmless in self.harmless):
            self.harmless.append(f"line {self.lines}: {what}: {quoted(line)}")

    def _signature_of(self, line: str, own: str) -> Entry | None:
        """Return the entry of what a line cites of RCCL, of the line, or of its own words without prefixes; where these
        say no more, that of the words that a library only wraps."""
        before, _, cited = own.partition(_CITES)
        of_rccl = cited and (not before or "ccl" in before.lower())
        found = (known_line(_CITED + cited.strip()) if of_rccl else None) or known_line(line, own)
        if found is not None and not (found.general or found.frames):
            return found
        plain = wrapped(own)
        inner = known_line(plain) if plain else None
        says_less = inner is not None and (inner.general or inner.role == "echo")
        if inner and not inner.refuses(own) and not (says_less and found and not found.general):
            found = inner
        if found is not None and (found.symptom or not (found.general or found.frames)):
            return found
        read = None if is_mild(line) else calls.read_call(own, weak=found is None)
        if read is None or self._every:
            return read or found
        self._read.setdefault(read.name, _match(read, self.lines, line))
        return found

    def _settle(self, line: str, by: str = "") -> Match | None:
        own = by + unprefixed(bare := self.hosts.own(line))
        found = None if is_text(bare) else self._signature_of(line, own)
        passing = found and (found.warns or FORMS["handled"].search(own))
        if found and not self._every and (passing or (FORMS["indented"].match(line) and not found.matches(line))):
            self._warned[found.name], found = _match(found, self.lines, line), None
        if not found or is_mild(line) or is_mild(own) or (found.again and not self._trains):
            return None
        if self._trains and found.survivable:
            self._pass_over(f"{found.name}, which the program has survived", line)
            return None
        at_start = found.survivable or FORMS["tool"].match(own) or (_CITED in line and FORMS["rccl_start"].search(own))
        return self._found(found, line, bool(FORMS["aside"].match(own) or (at_start and not self._trains)))

    def _found(self, signature: Entry, line: str, handled: bool = False) -> Match | None:
        if not self._every and self._key(signature.name, quoted(line)) in self._seen:
            return None
        match = _match(signature, self.lines, line)
        end = "a successful end" if self._through and match.name in _DATA["closes"] else ""
        if end := next(
            (it.name for it in self.matches if follows(match.name, it.name, self.lines - it.line_number)), end
        ):
            self._pass_over(f"{match.name} behind {end}", line)
        return None if end else self._keep(match, handled)

    def _key(self, name: str, line: str) -> str:  # the first of a kind counts; while few differ, that of each host
        return f"{name} {self.hosts.host(line) if len(self.matches) < _MAX_PENDING else ''}"

    def _keep(self, match: Match, handled: bool = False) -> Match | None:
        if self._every:
            return match
        if self._key(match.name, match.line) in self._seen:
            return self._confirm()
        self._seen.add(self._key(match.name, match.line))
        if handled:
            self.optional.add(match.name)
            self._held.append(match)
            return None
        first = self._confirm()
        self.optional.discard(match.name)
        self.matches.append(match)
        return first or match


@cache
def marks() -> tuple[tuple[str, ...], ...]:
    """Return the marks of lines that a FailureScanner reads, those of texts, and those of a Scanner for RCCL."""
    own = (FRAME, _EXIT_BARRIER, _CITES, *_OF_TRACEBACKS, *texts_of(entries("job")), *calls.marks())
    return own, MARKS, texts_of(entries("rccl"))
