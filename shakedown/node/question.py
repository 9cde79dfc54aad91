"""What the desired state asks a node for that is not read on every one: keys of sysctl(8), by name.

The controller sends the names with the probe's command, so that any key costs no more than the one round trip.
"""

from __future__ import annotations

from .settings import find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Sequence

MOST = 256  # names: a question goes on a command line
LONGEST = 128  # characters of a key


def sysctls(keys: Iterable[str]) -> list[str]:
    """The question for these keys."""
    return ["sysctl." + key for key in keys]


def sysctl_keys(asked: Sequence[str]) -> list[str]:
    """The keys of a question. What is no key of sysctl is not read, and so not known."""
    keys = []
    for name in asked[:MOST]:
        try:
            setting, key = find(name)
        except KeyError:
            continue
        if setting.name == "sysctl" and len(key) <= LONGEST:
            keys.append(key)
    return keys
