"""What a setting stands at on a node, by the very module that reads it there (shakedown/node/settings)."""

from collections.abc import Iterable
from dataclasses import dataclass

from pyinfra.api.exceptions import OperationValueError
from pyinfra.context import host

from shakedown.facts.settings import Contents, PciRegisters
from shakedown.node.setting import RegisterSetting, Setting
from shakedown.node.settings import find
from shakedown.node.tree import Unreadable
from shakedown.operations.fetched import Fetched
from shakedown.operations.record import Step


@dataclass(frozen=True)
class Value:
    """One value of a setting: what it is, what it should be, and the step that would bring it back."""

    actual: str
    wanted: str
    before: Step


def by_unit(key: str, value: str) -> tuple[Setting, str]:
    """Return the setting of a line of boot.conf, and its subject. Raise OperationValueError for a line that the boot
    unit does not know."""
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
