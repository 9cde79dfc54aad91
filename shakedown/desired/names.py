"""Names of the desired state that reach a kernel, a file or a command: only what the thing itself could be called.

What a shell or a file would read otherwise (a newline in a module's name, ../ in a sysctl key) is refused before the
first connection, with its path; what is merely unusual, as a group "domain users", is kept, and quoted where it is
used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from shakedown.node import sysctl
from shakedown.node.settings import SETTINGS

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*", re.ASCII)
KERNEL_PARAMETER = re.compile(r"[\w.,:=+/@%-]+", re.ASCII)  # what GRUB's files and grubby take without quoting
SYSCTL_KEY = re.compile(SETTINGS["sysctl"].details, re.ASCII)
WORD = re.compile(r"\w+", re.ASCII)
PATTERN = re.compile(r"[\w.:*?\[\]!-]+", re.ASCII)  # of device names, shell style
# The rule of useradd and groupadd is narrower; directories have blanks, backslashes and other scripts. ":" and ","
# separate the fields and members of /etc/group.
_ACCOUNT = re.compile(r"[^\s:,/-][^:,/]*")


def is_account(name: str) -> bool:
    """Whether a user or a group could have this name."""
    return bool(_ACCOUNT.fullmatch(name)) and not _CONTROL.search(name) and name == name.strip()


def _text(value: str) -> str:
    if _CONTROL.search(value):
        raise ValueError("one line without control characters")
    return value


def _matching(pattern: re.Pattern[str], expected: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(expected)
        return value

    return check


def _account(value: str) -> str:
    if not is_account(value):
        raise ValueError("a name of a group: without ':', ',' and '/', and blanks only inside")
    return value


def _path(value: str) -> str:
    path = PurePosixPath(f"/{value}" if _text(value).startswith("{home}") else value)  # the node says where that is
    if not path.is_absolute() or ".." in path.parts or value.startswith("//"):
        raise ValueError("an absolute path without '..'")
    return value


def _mounted(value: str) -> str:
    if "," in value:
        raise ValueError("a path without a comma, which ends a path for an engine's --mount")
    return _path(value)


def _parameter(value: str) -> str:
    if not KERNEL_PARAMETER.fullmatch(value.replace("{cpu}", "cpu")):
        raise ValueError("a kernel parameter: letters, digits and .,:=+/@%_-")
    return value


Text = Annotated[str, Field(min_length=1), AfterValidator(_text)]
Group = Annotated[str, AfterValidator(_account)]
Module = Annotated[str, AfterValidator(_matching(MODULE, "a name of a kernel module: letters, digits, _ and -"))]
SysctlKey = Annotated[
    str,
    Field(max_length=sysctl.LONGEST),
    AfterValidator(_matching(SYSCTL_KEY, "a sysctl key, such as vm.swappiness")),
]
Parameter = Annotated[str, AfterValidator(_parameter)]
Word = Annotated[str, AfterValidator(_matching(WORD, "one word of letters and digits"))]
DevicePattern = Annotated[str, AfterValidator(_matching(PATTERN, "a name of a device, with *, ? and [...]"))]
NodePath = Annotated[str, AfterValidator(_path)]
MountPath = Annotated[str, AfterValidator(_mounted)]
