"""Types of the desired state's values. What a shell, kernel or file would read otherwise (a newline in a module's name,
../ in a sysctl key) is refused before the first connection; the merely unusual is kept, and quoted."""

import re
from datetime import date
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from shakedown.common.section import CONTROL, Text, checked_path, matching
from shakedown.node import rdma, sysctl
from shakedown.node.setting import SETTINGS
from shakedown.schedulers import registry

if TYPE_CHECKING:
    SchedulerName = str
    JobVia = str
else:
    SchedulerName = Literal[registry.names()]
    JobVia = Literal[("ssh", *registry.names())]

MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*", re.ASCII)
KERNEL_PARAMETER = re.compile(r"[\w.,:=+/@%-]+", re.ASCII)  # what GRUB's files and grubby take without quoting
_PARAMETER = re.compile(rf"(?:\{{cpu\}}|{KERNEL_PARAMETER.pattern})+", re.ASCII)
SYSCTL_KEY = re.compile(SETTINGS["sysctl"].details, re.ASCII)
PATTERN = re.compile(r"[\w.:*?\[\]!-]+", re.ASCII)  # of device names, shell style
# The rule of useradd and groupadd is narrower; directories have blanks, backslashes and other scripts. ":" and ","
# separate the fields and members of /etc/group.
_ACCOUNT = re.compile(r"[^\s:,/-][^:,/]*")


def is_account(name: str) -> bool:
    """Whether a user or a group could have this name."""
    return bool(_ACCOUNT.fullmatch(name)) and not CONTROL.search(name) and name == name.strip()


def _account(value: str) -> str:
    if not is_account(value):
        raise ValueError("a name of a group: without ':', ',' and '/', and blanks only inside")
    return value


def _day(text: str) -> str:
    date.fromisoformat(matching(re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), "a day as 2026-11-01")(text))
    return text


Share = Annotated[float, Field(gt=0, le=10)]
Priority = Annotated[int, Field(ge=0, le=7)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
Day = Annotated[str, AfterValidator(_day)]
Dscp = Annotated[str, AfterValidator(matching(re.compile("[0-9]|[1-5][0-9]|6[0-3]"), "a DSCP as text, 0 to 63"))]
_CONGESTION = re.compile("|".join(map(re.escape, rdma.PARAMETERS)))
_EXPECTED_CONGESTION = f"one of those that are read: {', '.join(rdma.PARAMETERS)}"
Congestion = Annotated[str, AfterValidator(matching(_CONGESTION, _EXPECTED_CONGESTION))]
Group = Annotated[str, AfterValidator(_account)]
Module = Annotated[str, AfterValidator(matching(MODULE, "a name of a kernel module: letters, digits, _ and -"))]
SysctlKey = Annotated[
    str, Field(max_length=sysctl.LONGEST), AfterValidator(matching(SYSCTL_KEY, "a sysctl key, such as vm.swappiness"))
]
Sysctl = Annotated[dict[SysctlKey, int | Text], Field(max_length=sysctl.MOST)]
Parameter = Annotated[str, AfterValidator(matching(_PARAMETER, "a kernel parameter: letters, digits and .,:=+/@%_-"))]
DevicePattern = Annotated[str, AfterValidator(matching(PATTERN, "a name of a device, with *, ? and [...]"))]
NodePath = Annotated[str, AfterValidator(checked_path)]


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXPECTED_VARIABLE = "the name of a variable: letters, digits and underscores, no digit first"
_EXPECTED_LINE = "one line: an engine's file of variables has one on each"
Environment = dict[
    Annotated[str, AfterValidator(matching(_VARIABLE, _EXPECTED_VARIABLE))],
    Annotated[str, AfterValidator(matching(re.compile(r"[^\n\r\0]*"), _EXPECTED_LINE))],
]


def _volume(text: str) -> str:
    """Check a path of `docker run --volume`, which has colons between its parts, or of --mount, which has commas."""
    if not text.startswith(("/", "{home}")) or any(mark in text for mark in ",\n\r\0"):
        raise ValueError("an absolute path, without comma")
    return text


def _source(text: str) -> str:
    if ":" in text:
        raise ValueError("an absolute path, without colon")
    return _volume(text)


def _target(text: str) -> str:
    path, _, mode = text.partition(":")
    if mode and not set(mode.split(",")) <= {"ro", "rw", "z", "Z", "rshared", "rslave", "rprivate", "shared", "slave"}:
        raise ValueError("an absolute path, with nothing behind a colon but ro, rw, z, Z or a propagation")
    _volume(path)
    return text


# Host path -> container path, which may have `:ro` and the like behind it.
Volumes = dict[Annotated[str, AfterValidator(_source)], Annotated[str, AfterValidator(_target)]]


# As dev_valid_name of Linux' net/core/dev.c has it (IFNAMSIZ is 16 with the final zero), and without the marks of
# NCCL_SOCKET_IFNAME's own language.
_INTERFACE = re.compile(r"(?!\.{1,2}\Z)[^\s/:,=^]{1,15}")
Interface = Annotated[str, AfterValidator(matching(_INTERFACE, "the name of one network interface"))]


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)\s*$", re.IGNORECASE)
_LEAST = 2**20  # bytes; a smaller number is one without its unit
UNIT = 'a size with its unit, as "64G" or "512MiB"'


def parse_size(value: object) -> object:
    """Return a size's bytes (powers of 1024); what is no text as it came. Raises ValueError for a text without unit."""
    if not isinstance(value, str):
        return value
    match = _SIZE.match(value)
    if not match:
        raise ValueError(UNIT)
    return int(float(match[1]) * _UNITS[(match[2] or "").upper()])


def parse_room(value: object) -> object:
    """Return the bytes of a size, as `parse_size`. Raise ValueError for a number that can be none of bytes, too."""
    if type(value) is int and 0 < value < _LEAST:
        raise ValueError(UNIT)
    return parse_size(value)


def parse_number(value: object) -> object:
    """Return a value that is no number. Raise ValueError for a number, which has no unit."""
    if isinstance(value, int | float):
        raise ValueError(UNIT)
    return value


SIZE = BeforeValidator(parse_size)
ShmSize = Annotated[
    str, BeforeValidator(parse_number), AfterValidator(matching(re.compile(r"[1-9][0-9]*[bkmgBKMG]"), UNIT))
]
"""As container engines read it."""


def format_size(count: float) -> str:
    """Return a size for a person: 1536 -> "1.5KB"."""
    for unit in ("", "K", "M", "G", "T"):
        if abs(count) < 1024 or unit == "T":
            return f"{count:.{int(bool(unit) and count < 100)}f}{unit}B"
        count /= 1024
    raise AssertionError


_AMOUNT = re.compile(r"\d{1,6}|\d{1,3}(?:\.\d+)?%")


def _written(value: object) -> object:
    """Return a number as its text, anything else as it came."""
    return str(value) if type(value) is int else value


def _amount(text: str) -> str:
    if not _AMOUNT.fullmatch(text) or (text.endswith("%") and float(text[:-1]) > 100):
        raise ValueError('a number of nodes, or a share of them as "10%", at most "100%"')
    return text


def _some(text: str) -> str:
    if not float(_amount(text).rstrip("%")):
        raise ValueError('at least one node, or a share of them as "10%"')
    return text


Amount = Annotated[str, BeforeValidator(_written), AfterValidator(_amount)]
Some = Annotated[str, BeforeValidator(_written), AfterValidator(_some)]
"""As Amount, and not none."""


def nodes_in(amount: str, total: int, least: int = 0) -> int:
    """How many nodes an amount is of `total`, rounded down, and at least `least`: 10% of 64 are 6."""
    number = int(float(amount[:-1]) * total / 100 + 1e-9) if amount.endswith("%") else int(amount)
    return max(number, least)
