"""Kernel settings: as they run, and what decides at the next boot: our unit, the boot loader's parameters, sysctl.d."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Iterable, Optional, Sequence, Tuple

from .boot import setting_at_boot
from .cmdline import argument
from .known import KNOWN
from .setting import find, proc_path
from .tree import Part, Tree, attempt, attempt_or

Assignment = Tuple[str, Optional[str]]

MOST = 256  # names that may be asked for: they go on a command line
LONGEST = 128  # characters of a key
# Highest first: a file here hides those of the same name further down (sysctl.d(5)).
FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d")


def parse(lines: list[str]) -> list[Assignment]:
    """Return the assignments of one file in their order; a value of None takes the key out of later globs (`-key`)."""
    found: list[Assignment] = []
    for line in lines:
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        key, equals, value = line.partition("=")
        excluded = key.startswith("-") and not equals
        key = key.strip().lstrip("-").strip()
        # The first separator decides: net/ipv4/conf/eth0.5/mtu keeps the dot of the interface's name.
        if next((character for character in key if character in "./"), "") == "/":
            key = key.translate(str.maketrans("./", "/."))
        if equals or excluded:
            found.append((key, " ".join(value.split()) if equals else None))
    return found


def effective(assignments: list[Assignment], key: str) -> Optional[str]:
    """Return the value that a key ends with: the last one named, else the last glob that is not excluded."""
    exact = [value for name, value in assignments if name == key and value is not None]
    globs = [value for name, value in assignments if "*" in name and value is not None and fnmatchcase(key, name)]
    if exact:
        return exact[-1]
    return globs[-1] if globs and (key, None) not in assignments else None


def effective_files(tree: Tree, systemd: bool) -> list[str]:
    """Return the files that are read at boot, in their order."""
    files = tree.conf_files(FOLDERS)
    # systemd reads /etc/sysctl.conf only through a link in sysctl.d; the sysctl of other systems reads it last.
    if not systemd and tree.exists("/etc/sysctl.conf"):
        files.append("/etc/sysctl.conf")
    return [path for path in files if tree.exists(path)]


class NextBoot:
    """Each method answers for one key, None where nothing is written down, and raises what reading it raises."""

    def __init__(self, tree: Tree, unit: Part, parameters: object, systemd: bool) -> None:
        self._tree, self._unit, self._parameters, self._systemd = tree, unit, parameters, systemd
        self._assignments: Optional[list[Assignment]] = None

    def unit(self, key: str) -> Optional[str]:
        return setting_at_boot(self._unit, key)

    def parameter(self, name: str) -> Optional[str]:
        """Return a parameter's value. A boot loader that cannot be read counts as one without the parameter."""
        return argument(self._parameters, name)

    def sysctl(self, key: str) -> Optional[str]:
        if self._assignments is None:
            files = effective_files(self._tree, self._systemd)
            self._assignments = [found for path in files for found in parse(self._tree.lines(path))]
        return effective(self._assignments, key)


def read(tree: Tree, boot: NextBoot, requested: Sequence[str] = ()) -> dict[str, Part]:
    """Read the usual keys, and those that the desired state requests."""
    return {
        key: {
            "running": attempt(lambda path: " ".join(tree.text(path).split()), proc_path(key)),
            "persisted": attempt(boot.sysctl, key),
        }
        for key in dict.fromkeys((*KNOWN["system"]["sysctls"], *requested))
    }


# -- what the desired state asks for besides: names that go with the probe's command, so that any key costs no more ----

DRIVES, NEIGHBOURS = "drives", "neighbours"  # readings by programs that a probe starts on request alone


def question(keys: Iterable[str]) -> list[str]:
    """Return the question for these keys of sysctl, and for readings on request."""
    return [key if key in (DRIVES, NEIGHBOURS) else "sysctl." + key for key in keys]


def requested_keys(requested: Sequence[str]) -> list[str]:
    """Return the keys of a question. A name that is no key of sysctl is not read, and so not known."""
    found = [attempt_or((None, ""), find, name) for name in requested[:MOST]]
    return [key for setting, key in found if setting and setting.name == "sysctl" and len(key) <= LONGEST]
