"""What a setting stands at on a node, by the very module that reads it there (shakedown/node/setting.py)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyinfra.api import OperationValueError
from pyinfra.context import host

from shakedown.facts.settings import Contents, PciRegisters
from shakedown.node import sysctl
from shakedown.node.setting import RegisterSetting, Setting, find
from shakedown.node.tree import Tree, Unreadable
from shakedown.operations.atomic import Step


class Fetched(Tree):
    """A node's files and PCI registers, by facts: what an operation compares with."""

    def __init__(self, files: Mapping[str, list[str] | None], words: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__("/nowhere")
        self.files = files
        for register, found in words.items():  # from setpci
            self._recorded["registers " + register] = {bdf: int(word, 16) for bdf, word in found.items()}

    def lines(self, path: str) -> list[str]:
        """Return the lines of a file. Raise Unreadable."""
        if path not in self.files:
            raise Unreadable("missing", path)
        if (lines := self.files[path]) is None:
            raise Unreadable("not permitted", path)
        return lines

    def text(self, path: str) -> str:
        """Return the text of a file. Raise Unreadable."""
        return "\n".join(self.lines(path)).strip()

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        below = path.rstrip("/") + "/"
        return sorted({path[len(below) :].partition("/")[0] for path in self.files if path.startswith(below)})

    def exists(self, path: str) -> bool:
        return path in self.files


@dataclass(frozen=True)
class Value:
    """One value of a setting: what it is, what it should be, and the step that would bring it back."""

    actual: str
    wanted: str
    before: Step


def by_unit(key: str, value: str) -> tuple[Setting, str]:
    """Return the setting of a line of boot.conf, and its subject. Raise OperationValueError for an unknown line."""
    try:
        setting, detail = find(key)
    except KeyError:
        raise OperationValueError(f"no such boot setting: {key}={value}") from None
    if not setting.by_unit or not setting.accepts(value):
        raise OperationValueError(f"no such boot setting: {key}={value}")
    return setting, detail


def fetched(setting: Setting, detail: str, more: Iterable[str] = ()) -> Fetched:
    """Fetch what of the current host the setting reads, and the files of `more`."""
    patterns = [*setting.files(detail), *more]
    files = host.get_fact(Contents, patterns=patterns) if patterns else {}
    words = {}
    if isinstance(setting, RegisterSetting):
        words[setting.register] = host.get_fact(PciRegisters, register=setting.register)
    return Fetched(files, words)


def values(setting: Setting, detail: str, value: str, tree: Fetched) -> list[Value]:
    """Every value that the setting covers; none where the node has nothing of the kind."""
    try:
        found = setting.read(tree, detail)
    except (Unreadable, OSError):
        return []
    wanted = setting.raw(value)
    return [Value(raw, wanted, Step(setting.step, target, setting.before(raw))) for target, raw in found.items() if raw]


def read(key: str, value: str) -> list[Value]:
    """Read the values of a line of boot.conf."""
    setting, detail = by_unit(key, value)
    return values(setting, detail, value, fetched(setting, detail))


SYSCTL_FILE = "/etc/sysctl.d/90-shakedown.conf"
SYSCTL_PATTERNS = [*(f"{folder}/*.conf" for folder in sysctl.FOLDERS), "/etc/sysctl.conf", "/run/systemd/system"]


def sysctl_at_boot(tree: Fetched, key: str) -> tuple[str | None, str]:
    """Return the value that the key will have, and the last file that names it."""
    paths = sysctl.effective_files(tree, systemd=tree.exists("/run/systemd/system"))
    assignments = {path: sysctl.parse(tree.files[path] or []) for path in paths}
    value = sysctl.effective([item for found in assignments.values() for item in found], key)
    named = [path for path, found in assignments.items() if sysctl.effective(found, key) is not None]
    return value, named[-1] if named else ""
