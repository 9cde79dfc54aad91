"""Names of the desired state that reach a kernel, a file or a command: only what the thing itself could be called.

What a shell or a file would read otherwise (a newline in a module's name, ../ in a sysctl key) is refused before the
first connection, with its path; what is merely unusual, as a group "domain users", is kept, and quoted where it is
used.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from shakedown.common.section import CONTROL, MountPath, Text, Word, checked_path, matching
from shakedown.node import sysctl
from shakedown.node.settings import SETTINGS

MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*", re.ASCII)
KERNEL_PARAMETER = re.compile(r"[\w.,:=+/@%-]+", re.ASCII)  # what GRUB's files and grubby take without quoting
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


def _parameter(value: str) -> str:
    if not KERNEL_PARAMETER.fullmatch(value.replace("{cpu}", "cpu")):
        raise ValueError("a kernel parameter: letters, digits and .,:=+/@%_-")
    return value


Group = Annotated[str, AfterValidator(_account)]
Module = Annotated[str, AfterValidator(matching(MODULE, "a name of a kernel module: letters, digits, _ and -"))]
SysctlKey = Annotated[
    str,
    Field(max_length=sysctl.LONGEST),
    AfterValidator(matching(SYSCTL_KEY, "a sysctl key, such as vm.swappiness")),
]
Parameter = Annotated[str, AfterValidator(_parameter)]
DevicePattern = Annotated[str, AfterValidator(matching(PATTERN, "a name of a device, with *, ? and [...]"))]
NodePath = Annotated[str, AfterValidator(checked_path)]

__all__ = [
    "DevicePattern",
    "Group",
    "Module",
    "MountPath",
    "NodePath",
    "Parameter",
    "SysctlKey",
    "Text",
    "Word",
    "is_account",
]
