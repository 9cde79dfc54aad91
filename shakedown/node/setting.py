"""The host settings that are known: a file of `settings/` says everything about one, by the kinds of this module. The
probe reads by it, a check compares by it, operations and the boot unit (`boot.py`) change by it, and rollback puts
back what it names. It travels in the probe's bundle, and as text in the boot unit's program."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Type

from .pci import ACS_CONTROLS, DEVICES, put, registers
from .tree import Tree, Unreadable, attempt, attempt_or, is_unreadable

if TYPE_CHECKING:
    from .sysctl import NextBoot

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "settings")
ENTRIES: Dict[str, Any] = {}  # what the folder has, in a program that travels as text: operations/boot.py puts it here
CPUS = "/sys/devices/system/cpu"


class Failed(Exception):
    """A setting that could not be made; says why."""


def entries() -> Dict[str, Any]:
    """Return what the files say, by the names of the settings."""
    found = dict(ENTRIES)
    for name in [] if found else sorted(os.listdir(FOLDER)):
        if name.endswith(".json"):
            with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
                found[name[: -len(".json")]] = json.load(file)
    return found


def find(key: str) -> Tuple[Setting, str]:
    """Return the setting of a key of boot.conf ("c2", "mtu.ens1") and what stands behind its dot. Raises KeyError."""
    start, dot, detail = key.partition(".")
    for known in SETTINGS.values():
        if known.key() == start and bool(dot) == bool(detail) and re.fullmatch(known.details, detail, re.ASCII):
            return known, detail
    raise KeyError(key)


def chosen(text: str) -> str:
    """Return the value of a kernel file: of a choice the word in brackets, else its words, one blank between them."""
    words = text.split()
    bracketed = [word[1:-1] for word in words if word[0] == "[" and word[-1] == "]" and len(word) > 2]
    return bracketed[0] if bracketed else " ".join(words)


class Setting:
    """One setting. A value is a word: as the desired state, a finding and boot.conf have it. `raw` is what stands for
    it where the node keeps it, in a file of the kernel or a register, called a target. The attributes are the keys of
    a setting's file."""

    kind = ""  # of KINDS
    boot_key = ""  # in boot.conf, where that is another than the name
    doc = ""  # one line
    example = ""  # a value that a site may write
    source = ""  # where it is documented
    document: Optional[str] = None  # that wants a value of it: a key of recipes/documents.toml
    risk = "safe"  # of changing it: "safe", "disruptive" (jobs notice), "reboot"
    unit: Optional[str] = None  # of its values
    values = r""  # pattern of the values that it takes
    details = r""  # pattern of what may follow "key." in boot.conf
    raws: Dict[str, str] = {}  # value -> what stands for it, where that is another word
    remedy = ""  # what an operation does: {0} the value, {1} the detail
    words: Dict[str, str] = {}  # value -> its word in that text, where that is another one
    parameter = ""  # of the kernel command line, which has a value, too
    evidence = ""  # where it is read, for people
    place = ""  # of its reading in the node state, where that is not settings.<name>
    switch = False  # on or off: true or false in the desired state, and "1" or "0" as a value
    by_unit = True  # whether our boot unit keeps it; else a file that the system reads itself
    waits = False  # whether reading it may wait for a device
    step = "file"  # how a target is put back: a kind of operations/atomic.py
    absent: Optional[str] = None  # the value of a node that has nothing of the kind; None: that is not known
    whole = False  # whether its reading is what `running` returns, without what is persisted

    def __init__(self, name: str, **entry: Any) -> None:
        """Take an entry. `name`: in the desired state's `tuning`, and of its findings."""
        unknown = [key for key in entry if not hasattr(self, key)]
        if unknown:
            raise TypeError("the setting {} has no {}".format(name, ", ".join(unknown)))
        self.name = name
        vars(self).update(entry)

    def key(self) -> str:
        return self.boot_key or self.name

    def accepts(self, value: str) -> bool:
        return re.fullmatch(self.values, value, re.ASCII) is not None

    def word(self, wanted: Any) -> str:
        """Return the value for what a desired state has."""
        return str(int(wanted)) if self.switch and wanted in (True, False) else " ".join(str(wanted).split())

    def text(self, value: str, detail: str = "") -> str:
        """Return what an operation does, in words."""
        return self.remedy.format(self.words.get(value, value), detail)

    def files(self, detail: str) -> List[str]:
        """Return shell patterns of all files that `read` looks at."""
        return []

    def read(self, tree: Tree, detail: str) -> Dict[str, str]:
        """Return what stands at each target. Raises Unreadable or OSError; empty: this node has nothing of the kind."""
        raise NotImplementedError

    def raw(self, value: str) -> str:
        """Return what stands at a target for a value."""
        return self.raws.get(value, value)

    def value(self, raw: str) -> str:
        """Return the value of what stands at a target."""
        return next((word for word, known in self.raws.items() if known == raw), raw)

    def before(self, raw: str) -> str:
        """Return what is recorded to put a target back."""
        return raw

    def make(self, tree: Tree, detail: str, value: str) -> None:
        """Write what differs. Raises Failed."""
        raise NotImplementedError

    def at_boot(self, boot: NextBoot) -> Optional[str]:
        """Return the value after the next boot; None: nothing is written down. Raises Unreadable."""
        return boot.unit(self.key()) or (boot.parameter(self.parameter) if self.parameter else None)

    def part(self, tree: Tree, boot: NextBoot) -> Any:
        """Return the reading, as the node state has it at `place`."""
        running = attempt(self.running, tree)
        return running if self.whole else {"running": running, "persisted": attempt(self.at_boot, boot)}

    def running(self, tree: Tree) -> Any:
        """Return the value now; where targets differ all their values, which no desired state wants."""
        found = self.read(tree, "")
        if not found:
            raise Unreadable("missing", self.evidence)
        return ", ".join(sorted({self.value(raw) for raw in found.values()}))

    def summary(self, part: Any, wanted: str, cpus: int) -> Tuple[str, str]:
        """Return the value now of a reading over several targets, and what the evidence adds to say which differ."""
        raise NotImplementedError


class FileSetting(Setting):
    """A setting in one file, or in one file of each thing that has it."""

    path = ""  # {} for the detail
    choice = False  # whether the file lists the values, the one that holds in brackets

    def files(self, detail: str) -> List[str]:
        return [self.path.format(detail)]

    def paths(self, tree: Tree, detail: str) -> List[str]:
        return self.files(detail)

    def read(self, tree: Tree, detail: str) -> Dict[str, str]:
        texts = {path: tree.text(path) for path in self.paths(tree, detail)}
        for path, text in texts.items():
            if self.choice and "[{}]".format(chosen(text)) not in text:
                raise Unreadable("malformed", "{}: {}".format(path, text))
        return {path: chosen(text) for path, text in texts.items()}

    def make(self, tree: Tree, detail: str, value: str) -> None:
        paths, raw = self.paths(tree, detail), self.raw(value)
        differ = [path for path in paths if attempt_or(None, lambda at: chosen(tree.text(at)), path) != raw]
        refused = [path for path in differ if is_unreadable(attempt(write, tree, path, raw))]
        if refused:
            raise Failed("; ".join("{} does not take {}".format(path, raw) for path in refused))


class CpuSetting(FileSetting):
    """A setting in one file of each CPU that is online, below its folder."""

    file = ""

    def files(self, detail: str) -> List[str]:
        return ["{}/cpu[0-9]*/{}".format(CPUS, self.file), CPUS + "/online"]

    def paths(self, tree: Tree, detail: str) -> List[str]:
        return ["{}/cpu{}/{}".format(CPUS, cpu, self.file) for cpu in online_cpus(tree)]

    def make(self, tree: Tree, detail: str, value: str) -> None:
        if not any(tree.exists(path) for path in self.paths(tree, detail)):
            raise Failed("no CPU has " + self.file)
        super().make(tree, detail, value)


class IdleState(CpuSetting):
    """C2: its reading is the number of CPUs whose idle state is not disabled."""

    whole = True

    def running(self, tree: Tree) -> int:
        """Count the CPUs. Unreadable without CPUs, or where one answers neither 0 nor 1."""
        found = self.read(tree, "")
        if not found:
            raise Unreadable("missing", self.evidence)
        for path, word in found.items():
            if word not in ("0", "1"):
                raise Unreadable("malformed", "{}: {}".format(path, word))
        return list(found.values()).count("0")

    def summary(self, part: Any, wanted: str, cpus: int) -> Tuple[str, str]:
        return ("enabled", ": enabled on {} of {} CPUs".format(part, cpus)) if part else ("disabled", "")


class Governor(CpuSetting):
    """The frequency governor: its reading maps each governor to its number of CPUs."""

    whole = True

    def running(self, tree: Tree) -> Dict[str, int]:
        governors = list(self.read(tree, "").values())
        return {governor: governors.count(governor) for governor in dict.fromkeys(governors)}

    def summary(self, part: Any, wanted: str, cpus: int) -> Tuple[str, str]:
        others = ["{} CPUs {}".format(count, name) for name, count in sorted(part.items()) if name != wanted]
        running = wanted if part and not others else ", ".join(sorted(part))
        return running, ": " + ", ".join(others) if others else ""


class RegisterSetting(Setting):
    """A setting in a register of PCI functions. Its targets: "0000:c1:00.0 CAP_EXP+8.w" -> four hexadecimal digits."""

    register = ""
    mask = 0xFFFF
    step = "pci"

    def functions(self, tree: Tree, detail: str) -> Dict[str, int]:
        """Return the register of each function that the setting is about, by BDF."""
        return registers(tree, self.register)

    def read(self, tree: Tree, detail: str) -> Dict[str, str]:
        found = self.functions(tree, detail)
        return {"{} {}".format(bdf, self.register): "{:04x}".format(word & self.mask) for bdf, word in found.items()}

    def before(self, raw: str) -> str:
        return raw if self.mask == 0xFFFF else "{}:{:04x}".format(raw, self.mask)

    def make(self, tree: Tree, detail: str, value: str) -> None:
        for bdf in self.functions(tree, detail):
            put(tree, bdf, self.register, int(self.raw(value), 16), self.mask)


class AccessControl(RegisterSetting):
    """PCIe ACS: its reading is the list of functions with any control on."""

    whole = True

    def running(self, tree: Tree) -> List[str]:
        """Return the functions (BDF); the other bits of the register say something else."""
        return [target.split()[0] for target, word in self.read(tree, "").items() if int(word, 16) & ACS_CONTROLS]

    def summary(self, part: Any, wanted: str, cpus: int) -> Tuple[str, str]:
        more = " and {} more".format(len(part) - 4) if len(part) > 4 else ""
        return ("on", ": on at {}{}".format(", ".join(part[:4]), more)) if part else ("off", "")


class ReadRequest(RegisterSetting):
    """MaxReadReq of RDMA devices, of one vendor where the detail names it."""

    def files(self, detail: str) -> List[str]:
        return ["{}/*/{}".format(DEVICES, name) for name in ("infiniband", "physfn", "vendor")]

    def functions(self, tree: Tree, detail: str) -> Dict[str, int]:
        """Return RDMA devices of the vendor, but no virtual functions: those have no such field of their own."""
        found = {}
        for bdf, word in super().functions(tree, detail).items():
            folder = "{}/{}".format(DEVICES, bdf)
            if not tree.exists(folder + "/infiniband") or tree.exists(folder + "/physfn"):
                continue
            if detail in ("", str(attempt(tree.text, folder + "/vendor"))[2:]):
                found[bdf] = word
        return found

    def make(self, tree: Tree, detail: str, value: str) -> None:
        if not self.functions(tree, detail):
            raise Failed("no RDMA device" + (" of vendor " + detail if detail else ""))
        super().make(tree, detail, value)


class SysctlSetting(FileSetting):
    """A key of sysctl(8). sysctl.d comes after the kernel's parameters at boot, so it decides where both speak."""

    by_unit = False
    sysctl = ""  # the key; empty: the detail is the key
    parameter_values: Dict[str, str] = {}  # word of the kernel's parameter -> the value of the key that it stands for

    def files(self, detail: str) -> List[str]:
        return [proc_path(self.sysctl or detail)]

    def at_boot(self, boot: NextBoot) -> Optional[str]:
        value = boot.sysctl(self.sysctl)
        if value is None and self.parameter:
            value = self.parameter_values.get(boot.parameter(self.parameter) or "")
        return value


class ModuleSetting(Setting):
    """A kernel module that is loaded by name, in spite of a blacklist that keeps it from loading automatically."""

    step = "module"

    def files(self, detail: str) -> List[str]:
        return ["/sys/module/" + detail]

    def read(self, tree: Tree, detail: str) -> Dict[str, str]:
        return {detail: "loaded" if tree.exists("/sys/module/" + detail) else "absent"}

    def make(self, tree: Tree, detail: str, value: str) -> None:
        tool = tree.tool("modprobe")
        done = subprocess.run([tool, detail], stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode:
            words = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise Failed(words or "{} ended with {}".format(tool, done.returncode))


def write(tree: Tree, path: str, raw: str) -> None:
    """Write a file of the kernel, in one piece."""
    with os.fdopen(os.open(tree.path(path), os.O_WRONLY | os.O_TRUNC), "wb", buffering=0) as file:
        file.write((raw + "\n").encode())


def proc_path(key: str) -> str:
    """Return the file of a key of sysctl(8): net.ipv4.conf.eth0/5.mtu keeps the dot of the interface's name."""
    return "/proc/sys/" + key.translate(str.maketrans("./", "/."))


def online_cpus(tree: Tree) -> List[int]:
    """Return the CPUs that are online; all CPUs where the kernel does not list them."""
    listed: List[int] = attempt_or([], lambda: parse_cpu_list(tree.text(CPUS + "/online")))
    return listed or sorted(int(name[3:]) for name in tree.names(CPUS) if name[:3] == "cpu" and name[3:].isdigit())


def parse_cpu_list(text: str) -> List[int]:
    """Return [0, 1, 2, 5] for "0-2,5"."""
    numbers: List[int] = []
    for span in text.split(","):
        first, _, last = span.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


KINDS: Dict[str, Type[Setting]] = {
    "file": FileSetting,
    "cpu": CpuSetting,
    "c2": IdleState,
    "governor": Governor,
    "register": RegisterSetting,
    "acs": AccessControl,
    "read request": ReadRequest,
    "sysctl": SysctlSetting,
    "module": ModuleSetting,
}
SETTINGS = {name: KINDS[entry["kind"]](name, **entry) for name, entry in entries().items()}
