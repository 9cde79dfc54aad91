"""Kernel settings and the files that keep them: what is there now, for operations that change them."""

import re
import shlex
from pathlib import Path
from typing import Any, ClassVar

from shakedown.facts.base import Fact, expect
from shakedown.facts.files import checked
from shakedown.node import owners, rocm
from shakedown.transport.program import command, program

# Builtins only: no process per file, of which there is one per CPU. But the shell reads byte by byte, and a number of
# /proc/sys gives nothing after its first byte then, so cat reads those. A content line begins with a space.
_READ = """r() {{ while IFS= read -r l || [ -n "$l" ]; do printf ' %s\\n' "$l"; done; }}
for f in {patterns}; do
if [ -d "$f" ] && [ -r "$f" ]; then echo "/ $f"
elif [ -f "$f" ] && [ -r "$f" ]; then echo "= $f"
case $f in /proc/*) cat "$f" | r ;; *) r < "$f" ;; esac
elif [ -e "$f" ]; then echo "! $f"
fi
done"""


class Contents(Fact[dict[str, list[str] | None]]):
    """
    Returns the lines of each file that matches one of the patterns. A folder has no lines, what cannot be read has
    None, and what is not there is left out.

    .. code:: python

        {"/proc/sys/kernel/numa_balancing": ["0"], "/etc/shadow": None, "/run/systemd/system": []}
    """

    default = dict

    def command(self, patterns: list[str]) -> str:
        return _READ.format(patterns=checked(patterns))

    def process(self, output: Any) -> dict[str, list[str] | None]:
        contents: dict[str, list[str] | None] = {}
        lines: list[str] = []
        for line in output:
            kind, text = line[:1], line[1:]
            if kind == " ":
                lines.append(text)
                continue
            lines = []
            contents[text.strip()] = None if kind == "!" else lines
        return contents


class PciRegisters(Fact[dict[str, str]]):
    """
    Returns a register of each PCI function that has it, as setpci(8) prints it (hexadecimal). Needs root: without it
    setpci sees no capability at all, which would look like none being there.

    .. code:: python

        {"0000:c0:01.1": "001d"}
    """

    default = dict

    def command(self, register: str) -> str:
        expect(r"[A-Z_]+\+[0-9a-fx]+\.[bwl]", "a register of setpci", register)
        return (
            "[ \"$(id -u)\" = 0 ] || { echo 'PCI configuration space needs root: use _sudo=True' >&2; exit 1; }; "
            "for s in /usr/sbin/setpci /sbin/setpci /usr/bin/setpci; do [ -x $s ] && break; done; "
            "[ -x $s ] || { echo 'setpci is not there: install pciutils' >&2; exit 1; }; "
            "for d in /sys/bus/pci/devices/*; do b=${d##*/}; "
            f'v=$($s -s "$b" {register} 2>/dev/null) && [ -n "$v" ] && echo "$b $v"; done; true'
        )

    def process(self, output: Any) -> dict[str, str]:
        return dict(line.split() for line in output if len(line.split()) == 2)


class Modules(Fact[dict[str, bool]]):
    """
    Returns whether each kernel module is there now: loaded, or built into the kernel.

    .. code:: python

        {"amdgpu": True, "bnxt_re": False}
    """

    default = dict

    def command(self, names: list[str]) -> str:
        expect(r"\w+", "the name of a kernel module", *names)
        return (
            f"for m in {' '.join(names)}; do if [ -d /sys/module/$m ] || "
            'tr - _ < "/lib/modules/$(uname -r)/modules.builtin" 2>/dev/null | grep -q "/$m.ko"; '
            'then echo "$m 1"; else echo "$m 0"; fi; done'
        )

    def process(self, output: Any) -> dict[str, bool]:
        return {name: there == "1" for name, there in (line.split() for line in output)}


class Tools(Fact[dict[str, str]]):
    """
    Returns where each program is, also outside the PATH of a non-login shell. One that is not there is left out.

    .. code:: python

        {"update-grub": "/usr/sbin/update-grub"}
    """

    default = dict

    def command(self, names: list[str]) -> str:
        expect(r"[\w-]+", "the name of a program", *names)
        return (
            f"for t in {' '.join(names)}; do for d in /usr/sbin /sbin /usr/bin /bin; do "
            '[ -x "$d/$t" ] && echo "$t $d/$t" && break; done; done; true'
        )

    def process(self, output: Any) -> dict[str, str]:
        return dict(line.split(maxsplit=1) for line in output)


class Transaction(Fact[list[str]]):
    """
    Returns the packages that came in the newest transaction of a package manager that installed a package.

    .. code:: python

        ["containerd", "docker.io", "runc"]
    """

    _COMMANDS: ClassVar = {
        "apt": "tail -c 1000000 /var/log/apt/history.log 2>/dev/null || true",
        # dnf 5 has other options than dnf 4; the first column of a list is the number, the newest first.
        "dnf": "n=$({{ dnf -q history list {0} || dnf -q history list --contains-pkgs={0}; }} 2>/dev/null "
        "| awk '$1 ~ /^[0-9]+$/ {{ print $1; exit }}'); "
        '[ -z "$n" ] || dnf -q history info "$n" 2>/dev/null || true',
    }
    _APT = re.compile(r"([a-z\d][\w.+-]*):\S+ \(")
    _DNF = re.compile(r"\s*(?:Dep-)?Install\s+(\S+?)-(?:\d+:)?[^-\s]+-[^-\s]+(?:\s|$)")

    default = list

    def command(self, package: str, manager: str) -> str:
        self._package = package
        return self._COMMANDS[manager].format(shlex.quote(package))

    def process(self, output: list[str]) -> list[str]:
        found = [self._APT.findall(line) for line in output if line.startswith("Install: ")]
        found.append([match[1] for line in output if (match := self._DNF.match(line))])
        return next((names for names in reversed(found) if self._package in names), [])


_OWN = """
try:
    found and found != shutil.which(os.path.basename(found)) and own_file(found)
except OSError as error:
    sys.exit("%s is not run: %s: %s: give it to root" % (found, error.strerror, error.filename))
"""


class RocmProgram(Fact[str]):
    """
    Returns the path of a program of ROCm, in whatever layout ROCm is installed; its bare name where there is none.
    Fails where others could have put it there, unless it is on the system's own path.

    .. code:: python

        "/opt/rocm/core-10.0/bin/amd-smi"
    """

    default = str

    def command(self, tool: str) -> str:
        text = program(Path(str(rocm.__file__)), Path(str(owners.__file__)))
        return command(f"{text}\nfound = program({tool!r})\n{_OWN}\nprint(found or {tool!r})")

    def process(self, output: Any) -> str:
        return str(output[-1])


class GrubbyArguments(Fact[list[list[str]]]):
    """
    Returns the arguments of every kernel that grubby knows. Needs root.

    .. code:: python

        [["ro", "iommu=pt"], ["ro"]]
    """

    default = list

    def command(self, grubby: str = "/usr/sbin/grubby") -> str:
        return f"{grubby} --info=ALL"

    def process(self, output: Any) -> list[list[str]]:
        found = [re.match(r'args="(.*)"$', line.strip()) for line in output]
        return [match[1].split() for match in found if match]
