"""Secrets on command lines that no name gives away: `mysql -pSECRET`, `sshpass -p SECRET`, `curl -u user:SECRET`.

What `-p` means is each program's own affair (`mkdir -p dir`, `docker run -p 80:80`), so the programs are data:
programs.toml. A command line comes as a text of any shape (a shell's, a list of JSON or Python, /proc's with NUL
between the words) or as a list of words.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from pydantic import Field

from shakedown.common.command_secrets.forms import Signs, Span
from shakedown.common.data import read_toml
from shakedown.common.frozen import Frozen

_VALUE = 4096  # characters of a secret; of what is longer the rest is masked as far as its word goes
_DEEPEST = 4  # quotes within quotes
_WORDS = 400  # of a command, behind its program
_QUOTE = re.compile(r"""\\{0,8}["']""")
_BETWEEN = re.compile(r"(?:[\s\x00`]|\\u0000)+")  # words; `\u0000` is JSON's for NUL
_BARE = re.compile(r"""(?:(?!\\u0000|\\{0,8}["'])(?:\\.|[^\s\x00`\\]|\\))+""", re.DOTALL)
_ENDS = re.compile(r"(?:\|\|?|&&?|;|`)")
# The name of a variable in the place of its value. A password may begin as one: `$ecret1`.
VARIABLE = r"\$\{\w+\}?|\$[A-Z_][A-Z0-9_]*"
_HARMLESS = re.compile(
    rf"\*{{3,}}|<[^>]{{0,40}}>|{VARIABLE}|" r"\$\(.*|.*not shown.*|[\d.]{1,21}:[\d:]{1,12}(?:/\w{1,5})?|[\[\]{},:]*"
)
_NAMES_SOMETHING = {"--name", "--hostname", "--network", "--host", "--user", "-h", "-u", "--link", "--service"}


class Program(Frozen):
    """Programs that take the same options, as programs.toml says of them."""

    names: tuple[str, ...] = Field(min_length=1)
    after: str = ""
    value: tuple[str, ...] = ()
    attached: tuple[str, ...] = ()
    pair: tuple[str, ...] = ()
    positional: int = Field(default=0, ge=0, le=9)


@cache
def programs() -> Mapping[str, tuple[Program, ...]]:
    """Name -> what is known of it."""
    known: dict[str, tuple[Program, ...]] = {}
    for entry in read_toml("shakedown.common.command_secrets", "programs.toml")["program"]:
        program = Program.model_validate(entry)
        for name in program.names:
            known[name] = (*known.get(name, ()), program)
    return known


@cache
def _hint() -> re.Pattern[str]:
    names = "|".join(sorted(map(re.escape, programs()), key=len, reverse=True))
    return re.compile(rf"(?<![\w.-])(?:{names})(?![\w.-])")


@cache
def _program() -> re.Pattern[str]:
    return re.compile(rf"(?:.*[/|;&($=@])?({'|'.join(map(re.escape, programs()))})", re.DOTALL)


@cache
def _signs() -> Signs:
    return Signs(programs())


def lines(text: str) -> Iterator[Span]:
    """Yield where the lines of a text begin and end in which one of the programs is named."""
    return _signs().lines(text, lambda begin, _end: _hint().match(text, begin))


def spans(text: str) -> list[Span]:
    """Where in one line of a text a secret of a command stands, in order."""
    return sorted(_found(text, 0, len(text), _DEEPEST)) if _hint().search(text) else []


def _found(text: str, begin: int, end: int, deeper: int) -> Iterator[Span]:
    words: list[Span] = []
    for inner, here, there in _words(text, begin, end):
        if inner and deeper and _BETWEEN.search(text, here, there) and _hint().search(text, here, there):
            yield from _found(text, here, there, deeper - 1)  # a shell's line within quotes
        else:
            words.append((here, there))
    for number, offset in _secrets([text[here:there] for here, there in words]):
        here, there = words[number]
        yield here + offset, there


def _words(text: str, at: int, end: int) -> Iterator[tuple[bool, int, int]]:
    """(whether it stood within quotes, where it begins and ends) of each word."""
    while at < end:
        if space := _BETWEEN.match(text, at, end):
            if (closes := text.rfind("`", at, space.end())) >= 0:  # what a shell or a sentence quotes so is over
                yield False, closes, closes + 1
            at = space.end()
        elif quote := _QUOTE.match(text, at, end):
            closed = _closed(text, quote[0], quote.end(), end)
            if closed is not None:
                yield True, quote.end(), closed
                at = closed
            at = at + len(quote[0]) if closed is not None else quote.end()
        elif bare := _BARE.match(text, at, end):
            stop = bare.end()
            while _takes_quotes(text[at:stop]) and (quote := _QUOTE.match(text, stop, end)):
                closed = _closed(text, quote[0], quote.end(), end)
                if closed is None:
                    break
                rest = _BARE.match(text, closed + len(quote[0]), end)
                stop = rest.end() if rest else closed + len(quote[0])
            yield False, at, stop
            at = stop
        else:
            at += 1


def _takes_quotes(word: str) -> bool:
    """Whether quotes that follow at once belong to the word, as in `-p'a b'`: no list's, and no apostrophe."""
    return word.startswith("-") or (word[-1:] in ("=", ":", "%") and not _is_joint(word))


def _closed(text: str, quote: str, at: int, end: int) -> int | None:
    """Where the quotes are closed that were opened so; None: nowhere near."""
    limit = min(end, at + _VALUE)
    while (found := text.find(quote, at, limit)) >= 0:
        if text[found - 1] != "\\":
            return found
        at = found + 1
    return None


def of_list(words: Sequence[str]) -> dict[int, Span]:
    """Return the secrets of a command that is a list: the number of a word -> where in it the secret stands."""
    if not any(_program().fullmatch(word) for word in words):
        return {}
    return {number: (begin, len(words[number])) for number, begin in _secrets(words)}


def _secrets(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield (number of a word, where in it a secret begins)."""
    rules: tuple[Program, ...] = ()
    seen: dict[str, int] = {}  # a rule's `after` -> how many words that are no option have come behind it
    since, option, before = 0, "", ""
    for number, word in enumerate(words):
        last, before = before, word
        if _ENDS.fullmatch(word):
            rules, option = (), ""
            continue
        if not option and last not in _NAMES_SOMETHING and (program := _program().fullmatch(word)):
            if not (rules and programs()[program[1]] == rules):
                rules, seen, since = programs()[program[1]], {}, number
            continue
        if not rules or number - since > _WORDS or _is_joint(word):
            continue
        if option:
            begin = _behind_user(word, 0) if any(option in rule.pair for rule in rules) else 0
            option = ""
            if begin is not None and not _HARMLESS.fullmatch(word[begin:]):
                yield number, begin
            continue
        for rule in rules:
            if rule.after and rule.after not in seen:
                continue
            begin, option = _in_word(rule, word)
            if rule.positional and not word.startswith("-"):
                seen[rule.after] += 1
                begin = 0 if seen[rule.after] == rule.positional else begin
            if begin is not None and not _HARMLESS.fullmatch(word[begin:]):
                yield number, begin
            if begin is not None or option:
                break
        seen |= {rule.after: 0 for rule in rules if rule.after == word}
        if word.endswith(";"):
            rules = ()


def _is_joint(word: str) -> bool:
    """Return what joins the words of a list as JSON and Python write it."""
    return not word.strip("[](){},:")


def _in_word(rule: Program, word: str) -> tuple[int | None, str]:
    """Where in the word a secret begins, or the option whose value the next word is."""
    name, equals, _ = word.partition("=")
    if equals and name in (*rule.value, *rule.pair):
        return (len(name) + 1 if name in rule.value else _behind_user(word, len(name) + 1)), ""
    if word in rule.value or word in rule.pair:
        return None, word
    if re.fullmatch("-[A-Za-z]{2,12}", word) and "-" + word[-1] in rule.pair:  # one letter after the other: `-sSu`
        return None, "-" + word[-1]
    for option in rule.attached:
        if word.startswith(option) and len(word) > len(option) and not word.startswith("--"):
            return len(option), ""
    for option in rule.pair:
        if len(option) == 2 and word.startswith(option) and len(word) > 2:
            return _behind_user(word, 2), ""
    return None, ""


def _behind_user(word: str, begin: int) -> int | None:
    """Behind the user's name; None: a password is asked for."""
    found = re.compile("[:%]").search(word, begin)
    if found is None or found.end() == len(word) or word.startswith("//", found.end()):
        return None
    return found.end()
