"""Secrets that a name gives away: which names hold one, and where in a line the value stands.

The last word of a name decides: --moe-token-dispatcher-type is a type, TOKEN_FILE a place. Of keys and tokens that may
be anything (a cache key, the next token) the value decides, too: what an issuer makes is no word.
"""

import re
from collections.abc import Collection, Iterator
from functools import cache
from typing import Literal

from shakedown.common import command_secrets
from shakedown.common.command_secrets.forms import Signs, Span, known

Kind = Literal["", "any value", "issued value"]

_WORD = re.compile(r"[A-Za-z]+|[0-9]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# How the last word of a secret's name ends. TOKENS counts them (MAX_TOKENS), a TOKENIZER has none.
_SURE = re.compile(
    r"(?:.token|apikeys?|secrets?|passwo?r?ds?|passphrases?|passcode|credentials?|passwds?|mnemonic|psk"
    r"|(?:api|secret|private|access|auth|account|shared)key)$",
    re.IGNORECASE,
)
_LAST = {"SSHPASS", "BMCPASS", "IPMIPASS", "DBPASS", "KEYPASS", "PWD", "PAT", "AUTHORIZATION", "COOKIE"}
_ISSUED = {"KEY", "TOKEN", "PASS", "AUTH", "BEARER", "PAT"}
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+")

_HINTS = ("token", "key", "secret", "pass", "credential", "bearer", "auth", "cookie", "pwd", "mnemonic", "psk")
# How a word ends that makes a name one of a secret, and what follows the end.
_ENDS = """token key apikeys secret secrets passwd passwds passwod passwods passwrd passwrds password passwords pass
passphrase passphrases passcode credential credentials mnemonic psk pwd pat authorization auth cookie bearer"""
_END = re.compile(r"(?![A-Za-z])|(?<=[a-z])(?=[A-Z])")
_PAT = re.compile(r"[Pp][Aa][Tt](?![A-Za-z])")
_NAMED = re.compile(
    r"""(?<![A-Za-z0-9_.])(?P<name>[A-Za-z_][A-Za-z0-9_.-]{0,80})(?P<between>"""
    r"""\\{0,3}["']?\]?\s{0,4}(?:=>|:=|\?=|=(?!=)|:)\s{0,4}|\\{0,3}["'],\s{0,4}(?=\\{0,3}["'])|\s\.{3,80}\s"""
    r"""|\s{1,4}(?:is\s{1,4}|<<<\s{0,2})?)"""
)
_VALUE = re.compile(
    r"""\\{1,3}["'][^"'\\\n]{1,4096}|"[^"\n]{1,4096}"|'[^'\n]{1,4096}'|["']?(?:(?i:Bearer|Basic|Token|![a-z]{1,20})\s{1,4})?[^\s"',;&)\]}]{1,4096}"""
)
_PATH = re.compile(r"(?:~|\.\.?)?/(?:[A-Za-z.]|$)")
_SCHEME = re.compile(r"(?i:Bearer|Basic|Token|![a-z]{1,20})\s+")
_QUOTES = "\\\"'"
_SHOWN = re.compile(
    rf"\(?(?:secret: )?not shown\)?|\*{{3,}}|<[^>]{{0,40}}>|{command_secrets.VARIABLE}|[\d.]{{1,8}}|x{{4,}}|\.{{3,}}|"
    r"[(\[]?(?i:null|none|true|false|yes|no|not|set|unset|missing|empty|required|disabled|enabled|invalid|incorrect|"
    r"wrong|ok|unknown|configured|hidden|redacted|files)[)\]]?|[\[{]"
)
# Behind an option that has no value. A token of random letters may begin with a dash, too.
NEXT_OPTION = re.compile(r"-[A-Za-z]?|--([A-Za-z][A-Za-z0-9_.-]{0,80}(=.*)?)?")
_BEFORE = re.compile(r"([A-Za-z]{1,20}) $")
_SETS = ("setenv ", "ENV ", "export ")  # in front of a name and a value without a sign between them
_OF_WORDS = re.compile(r"[a-z]{0,23}(?:[A-Z]{1,8}[a-z]{2,20}){0,6}[A-Z]{0,23}\d{0,5}|\d{1,19}|0x[0-9a-fA-F]{1,16}")
_NO_SECRET = ("SHA256:", "sha256:", "ssh-", "0x")  # fingerprints, public keys, numbers
_LOOKED_AT = 100  # characters: an issued value shows by then that it is no sequence of words
_LONG = 20  # characters of an issued value that follows its name without a sign between them
_SHORT = 8  # characters: nothing that is issued is shorter


def kind(name: str, public: Collection[str] = ()) -> Kind:
    """Return what a variable, an option or a key of that name holds: a secret, whatever the value is; one, if the value
    looks issued; or none. `public` holds names that were declared to be none."""
    words = [word.upper() for part in _WORD.findall(name) for word in _CAMEL.split(part)]
    if words[-3:] == ["ACCESS", "KEY", "ID"]:  # half of a pair, and enough to ask for the other half by
        return "" if name in public else "any value"
    while len(words) > 1 and (words[-1] in known().behind or words[-1].isdigit()):
        words.pop()
    if not words or name in public or name.endswith(("Error", "Exception")):
        return ""
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in known().names or (last in ("KEY", "TOKEN", "PASS") and before in known().public):
        return ""
    several = last in ("KEYS", "TOKENS") and before in known().keys  # others count them, or are a dictionary's
    if several or _SURE.search(last) or (last in _LAST and (before or last not in ("PWD", "PAT"))):
        return "any value"
    if last not in _ISSUED:
        return ""
    sure = before in known().keys if last == "KEY" else last in ("TOKEN", "PASS") and before
    return "any value" if sure or (before and _VARIABLE.fullmatch(name)) else "issued value"


def _hints(text: str) -> bool:
    small = text.lower()
    return any(word in small for word in _HINTS) or bool(_PAT.search(text))


def is_shown(value: str) -> bool:
    """Return whether a value says itself that it is none: a mask, a variable's name, "none"."""
    return bool(_SHOWN.fullmatch(value))


@cache
def _signs() -> Signs:
    return Signs(_ENDS.split())


def lines(text: str) -> Iterator[Span]:
    """Yield where the lines of a text begin and end that hold such a word."""
    return _signs().lines(text, lambda _begin, end: _END.match(text, end))


def spans(line: str) -> Iterator[Span]:
    """Where in a line a secret stands that a name gives away, in order."""
    if not _hints(line):
        return
    done = 0
    for found in _NAMED.finditer(line):
        if found.end() < done or not _hints(found["name"]):
            continue
        value = _VALUE.match(line, found.end())
        if value is None:
            continue
        raw = value[0]
        begin = value.start() + len(raw) - len(raw.lstrip(_QUOTES))
        secret = raw.strip(_QUOTES)
        if scheme := _SCHEME.match(secret):
            begin, secret = begin + scheme.end(), secret[scheme.end() :]
        if secret and _is_secret(line, found, secret):
            done = begin + len(secret)
            yield begin, done


def _is_secret(line: str, found: re.Match[str], value: str) -> bool:
    name, sign = found["name"], found["between"].strip(_QUOTES + ", \t")
    is_option = line[max(found.start() - 1, 0) : found.start()] == "-"
    if not sign and is_option and NEXT_OPTION.fullmatch(value):
        return False
    what = kind(name)
    if what == "issued value" and (before := _BEFORE.search(line, max(found.start() - 21, 0), found.start())):
        joined = f"{before[1]}_{name}".upper()
        public = before[1].upper() in known().public
        what = "" if public else "any value" if before[1].upper() in known().keys and name.upper() == "KEY" else what
        name = joined
    if not what or is_shown(value):
        return False
    if not sign and not is_option and not line.endswith(_SETS, 0, found.start()):  # two words of a sentence
        return what == "any value" and len(value) >= _LONG and is_issued(value)
    if what == "any value" and sign != "is":
        is_path = _PATH.match(value) is not None and not is_issued(value)
        return "PASS" in name.upper() or not is_path
    return is_issued(value)


def is_issued(value: str) -> bool:
    """Return whether an issuer may have made a value: it does not consist of words and numbers."""
    if len(value) < _SHORT or value.startswith(_NO_SECRET):
        return False
    return not all(_OF_WORDS.fullmatch(part) for part in re.split(r"[^A-Za-z0-9]+", value[:_LOOKED_AT]))
