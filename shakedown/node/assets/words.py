"""Travels with scripts that run on a node: how they begin and end, how often they try, and messages of a server or an
engine, as they may be shown."""

from __future__ import annotations

import errno
import json
import signal
import sys
import time
from typing import Any, Callable, Dict

REPLACED = chr(0xFFFD)  # spelt so: a node whose locale is not UTF-8 gets this file as an argument


# Fillers, joiners and variation selectors: letters and marks to Python, and nothing to a reader.
_UNSEEN = (
    *((0x34F, 0x34F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x3164, 0x3164)),
    *((0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0000, 0xE0FFF)),
)


class Failure(Exception):
    """What could not be had. `kind` chooses the advice (operations/advice.toml)."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind


def is_seen(letter: str) -> bool:
    return letter.isprintable() and not any(first <= ord(letter) <= last for first, last in _UNSEEN)


def clean(text: object, limit: int = 2000) -> str:
    """Return one line without control characters, escapes and what reorders text, of at most `limit` characters."""
    kept = " ".join(str(text)[: 4 * limit].split())[:limit]
    return "".join(letter if is_seen(letter) else REPLACED for letter in kept)


def say(text: str) -> None:
    print(clean(text), flush=True)


def run_script(work: Callable[[Dict[str, Any]], Any]) -> None:
    """Do a script's work with the JSON object of standard input, and clean up where SIGTERM or SIGHUP ends it. A
    failure is one line `kind: words` on standard error, exit code 1."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    try:
        work(json.load(sys.stdin))
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        sys.exit("{}: {}".format("space" if full else "folder", clean(error)))
    except Exception as error:
        if not hasattr(error, "kind"):
            raise
        sys.exit("{}: {}".format(error.kind, clean(error)))


def persist(action: Callable[[], Any], tries: int, wait_s: float, have: Callable[[], int] = lambda: 0) -> Any:
    """Try again after failures of the kind "transport", while `have` says that something was gained, and `tries` times
    in a row without."""
    left, gained = tries, -1
    while True:
        try:
            return action()
        except Failure as error:
            now = have()
            left = tries - 1 if now > gained else left - 1
            gained = max(gained, now)
            if error.kind != "transport" or left <= 0:
                raise
            wait = min(wait_s * 2.0 ** (tries - left - 1), 60.0)
            say("try {} of {} broke off, again in {:.0f} s: {}".format(tries - left, tries, wait, error))
            time.sleep(wait)
