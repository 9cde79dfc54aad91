"""The fields of an iteration line, `name: value |`: how each is read and where it goes. Data: `fields.toml`."""

import re
from functools import cache, lru_cache
from typing import NamedTuple

from shakedown.common.data import read_toml

HEADED = "iteration"  # what every line of interest begins with, behind the date and the rank
NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|[iI][nN][fF](?:inity)?|[nN][aA][nN])"
VALUES = {
    "integer": re.compile(r"(\d{1,18})"),
    "number": re.compile(f"({NUMBER})"),
    "instant": re.compile(rf"({NUMBER})(?:\s*/\s*{NUMBER}|\s*\(avg\s*{NUMBER}\))?"),  # Primus: "instant/average"
    "usage": re.compile(rf"(?:{NUMBER}\s*[KMGT]?i?B/){{3}}({NUMBER})%"),  # Primus: "used/free/total/ratio"
    "tflops": re.compile(rf"({NUMBER})\s?TFLOPS"),  # GPT-NeoX
}
MAX_FIELDS = 100  # of one line, and
MAX_FIELD = 200  # characters of one: the most that any dialect has are 20 and 60. What is beyond is somebody else's


class Field(NamedTuple):
    """How one `name: value` is read, and where it goes."""

    target: str  # of Iteration, or global_step
    value: str  # of VALUES
    scale: float
    preference: int  # two names for one target on the same line: the lowest wins
    open: bool  # may stand last in a dialect that does not close its last field with "|"

    def match(self, text: str) -> re.Match[str] | None:
        """Match the value alone."""
        return VALUES[self.value].fullmatch(text)

    def read(self, text: str) -> float:
        """Read the value in the target's unit."""
        if self.value == "integer":
            return int(text)
        return float(text) if self.scale == 1.0 else round(float(text) * self.scale, 9)


@cache
def fields() -> dict[str, Field]:
    return {
        entry["name"]: Field(target, entry["value"], entry.get("scale", 1.0), preference, entry.get("open", False))
        for target, entries in read_toml("shakedown.logs", "fields.toml").items()
        for preference, entry in enumerate(entries)
    }


def words(name: str) -> str:
    """Return the part of a name before a number."""
    return re.split(r"[\d+.]", name, maxsplit=1)[0].rstrip()


def split_field(segment: str) -> tuple[str, Field | None, str]:
    """Split a field into its name, how it is read (None: not in fields.toml), and its text."""
    if len(segment) > MAX_FIELD:
        return "", None, segment
    name, colon, text = segment.partition(":")
    if not colon:  # before 2021: "lm loss 1.1E-1"
        name, _, text = segment.strip().rpartition(" ")
    return *_named(name), text.strip()


@lru_cache(maxsize=1024)
def _named(written: str) -> tuple[str, Field | None]:
    """Return a field's name in its normal form, and how it is read. Every line of a log has the same names."""
    name = " ".join(written.split()).lower()
    return name, fields().get(name) or _alike().get(_plain(name))


def _plain(name: str) -> str:
    return name.replace("-", " ").replace("_", " ")


@cache
def _alike() -> dict[str, Field]:
    """Return the fields by their names without hyphens: Megatron-DeepSpeed's 3D example prints "lm-loss"."""
    return {_plain(name): field for name, field in reversed(fields().items())}
