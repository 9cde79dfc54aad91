"""The way back: what stood on a node before the first change to each setting."""

import re
from collections import Counter
from collections.abc import Callable, Mapping

from pyinfra.api import FunctionCommand, Host, QuoteString, State, StringCommand, operation
from pyinfra.context import host

from shakedown.common.data import read_toml
from shakedown.common.lists import grouped
from shakedown.common.text import load_json, printable
from shakedown.facts.records import Records
from shakedown.facts.settings import Contents, Tools
from shakedown.node.setting import chosen
from shakedown.operations import atomic, boot, boot_values, cmdline, devices, tuning
from shakedown.operations.atomic import FOLDER, Step
from shakedown.operations.commands import RESTORES, Commands, refuse, verify

RECORD_LIMIT = 16 << 20  # characters, as shakedown/node/records.py reads them

# Removed where they carry our header. The unit goes first: it must not run without its script.
WRITTEN_FILES = [boot.UNIT, boot.SCRIPT, boot.CONF, cmdline.DROPIN, devices.RULES]
WRITTEN_FILES += [boot_values.SYSCTL_FILE, tuning.LIMITS, tuning.MODULES]

_SBIN = "PATH=$PATH:/usr/sbin:/sbin;"
_GRUBBY = f"{_SBIN} grubby --update-kernel=ALL"


def _file(step: Step) -> StringCommand:
    # An interface or a CPU may have gone since, and what is not there needs no restoring.
    target = QuoteString(step.target)
    return StringCommand("[ ! -e", target, "] || echo", QuoteString(step.value), ">", target)


def _pci(step: Step) -> StringCommand:
    function, register = step.target.split()
    return StringCommand(f"{_SBIN} setpci -s", QuoteString(function), QuoteString(f"{register}={step.value}"))


def _module(step: Step) -> StringCommand:
    # One that is in use stays until the next boot: another program needs it since.
    if step.value == "loaded":
        return StringCommand("true")
    return StringCommand(f"{_SBIN} modprobe -r", QuoteString(step.target), "|| true")


def _access(step: Step) -> StringCommand:
    # A device that has gone since, with its driver, has no mode to restore.
    mode, group = step.value.split()
    path = QuoteString(step.target)
    return StringCommand("if [ -e", path, "]; then chgrp", QuoteString(group), path, "&& chmod", mode, path, "; fi")


def _partition(step: Step) -> StringCommand:
    bdf, kind = step.target.split()
    command = f"echo Y | {devices.amd_smi()} --gpu {bdf} --{kind}-partition"
    return StringCommand(command, QuoteString(step.value))


_REMOVE = {"apt": "dpkg --remove", "dnf": "rpm --erase"}


def _package(step: Step) -> StringCommand:
    """Remove a package and what came with it. dpkg and rpm refuse what another package needs; apt and dnf would remove
    that package too. What came with it and is needed since stays."""
    manager, *names = step.value.split()
    return StringCommand(
        f"export DEBIAN_FRONTEND=noninteractive {_SBIN}",
        *_unused(step).bits,
        ";",
        f"gone() {{ {'! rpm --query $1 >/dev/null 2>&1' if manager == 'dnf' else 'false'}; }};",
        f"left=' {' '.join(names)}'; {_REMOVE[manager]} $left >/dev/null 2>&1 || true;",
        'while [ -n "$left" ]; do rest=; for p in $left; do',
        f'gone $p || {_REMOVE[manager]} $p >/dev/null 2>&1 || rest="$rest $p"; done;',
        '[ "$rest" != "$left" ] || break; left=$rest; done;',
        f"gone {step.target} || {_REMOVE[manager]} {step.target}",
    )


def _unused(step: Step) -> StringCommand:
    """Fail where containers run in the engine of a package."""
    return StringCommand(
        f'if [ -n "$({step.target.partition(".")[0]} ps -q 2>/dev/null)" ]; then',
        f"echo 'containers run, so {step.target} stays: stop them first' >&2; exit 1; fi",
    )


def _service(step: Step) -> StringCommand:
    verbs = [verb for state, verb in (("enabled", "disable"), ("active", "stop")) if state not in step.value.split()]
    commands = [StringCommand("systemctl", verb, QuoteString(step.target)).get_raw_value() for verb in verbs]
    return StringCommand(" && ".join(commands) or "true")


UNDO: dict[str, Callable[[Step], StringCommand]] = {
    "file": _file,
    "pci": _pci,
    "member": lambda step: StringCommand("gpasswd --delete", QuoteString(step.value), QuoteString(step.target)),
    "group": lambda step: StringCommand(f"{_SBIN} groupdel", QuoteString(step.target)),
    "parameter": lambda step: StringCommand(_GRUBBY, QuoteString(f"--remove-args={step.target}")),
    "module": _module,
    "access": _access,
    "partition": _partition,
    "service": _service,
    "package": _package,
}
# By assets/files.py, one command each.
FILES: dict[str, Callable[[Step], FunctionCommand]] = {
    "kept": lambda step: atomic.command("restore", kept=step.value, path=step.target),
    "created": lambda step: atomic.remove(step.target),
}
# What a step of each kind looks like, "target=value": nothing else is restored, whoever wrote it.
SHAPES: dict[str, str] = read_toml("shakedown.operations", "restored.toml")


@operation()
def rollback() -> Commands:
    """
    Restore every value that was recorded before its first change, and remove our files, our unit and the records.

    **Example:**

    .. code:: python

        from shakedown.operations import rollback
        rollback.rollback(name="As it was before")
    """
    records = host.get_fact(Records, folder=FOLDER)
    files = host.get_fact(Contents, patterns=[boot.ENABLED, *WRITTEN_FILES])
    written = [path for path in WRITTEN_FILES if any(line.startswith(atomic.MARK) for line in files.get(path) or ())]
    if records["problem"]:
        yield refuse(f"nothing is restored: {records['problem']}")
        return
    if not records["there"] and not written:
        host.noop("shakedown has changed nothing on this node")
        return
    settings, broken = _settings(records["files"])
    # A package goes after its service, and a group after its members.
    last = ("package", "group")
    steps = sorted((step for records in settings.values() for step in records), key=lambda step: step.kind in last)
    if broken:
        yield refuse(f"not a record of shakedown, so nothing is restored: {', '.join(broken)}")
        return

    removed = [f"{path}: removed" for path in written]
    host.connector_data[RESTORES] = restored(settings, {}) + removed

    yield from (_unused(step) for step in steps if step.kind == "package")  # before a service of it is stopped

    def looked(state: State, host: Host) -> bool:
        host.connector_data[RESTORES] = restored(settings, _now(steps)) + removed
        return True

    yield FunctionCommand(looked, (), {})
    if boot.ENABLED in files:
        yield StringCommand("systemctl disable --now shakedown-boot.service")
    if written:
        yield atomic.remove(*written, marked=True)
    if boot.UNIT in written:
        yield StringCommand("systemctl daemon-reload")
    if boot.CONF in written:
        yield StringCommand("rmdir /etc/shakedown 2>/dev/null || true")
    if cmdline.DROPIN in written:
        yield StringCommand(host.get_fact(Tools, names=["update-grub"]).get("update-grub", "update-grub"))
    yield from _undo(steps)
    yield verify(lambda: _wrong(steps))
    yield atomic.command("forget", path=FOLDER)


def restored(settings: Mapping[str, list[Step]], now: Mapping[str, str]) -> list[str]:
    """Return a line for each restored setting: its value `now` and the one before; a number of files with the same."""
    lines = []
    for setting, steps in settings.items():
        values = Counter((now.get(step.target, ""), step.value) for step in steps if step.kind == "file")
        changes = ((f"{old} -> {new}" if old else f"-> {new}", count) for (old, new), count in values.items())
        parts = [f"{change} ({count} files)" if count > 1 else change for change, count in changes]
        parts += [_words(step) for step in steps if step.kind != "file"]
        more = f" and {len(parts) - MOST} more" if len(parts) > MOST else ""
        if parts:  # a record may be there for its files alone
            lines.append(printable(f"{setting}: {', '.join(parts[:MOST])}{more}", 500))
    return lines


MOST = 4  # changes of one setting that are shown


def _words(step: Step) -> str:
    if step.kind == "member":
        return f"{step.value} leaves {step.target}"
    if step.kind == "kept":
        return f"{step.target} as it was"
    if step.kind == "package":
        return f"{', '.join(step.value.split()[1:])} removed"
    if step.kind == "service":
        return f"{step.target} -> {step.value or 'inactive'}"
    return f"{step.target} -> {step.value}" if step.value else f"{step.target} removed"


def _now(steps: list[Step]) -> dict[str, str]:
    paths = [step.target for step in steps if step.kind == "file"]
    found = host.get_fact(Contents, patterns=paths) if paths else {}
    return {path: chosen(" ".join(lines or [])) for path, lines in found.items()}


def _settings(records: Mapping[str, str]) -> tuple[dict[str, list[Step]], list[str]]:
    """Return the steps of all records by their settings, and the records that make no sense."""
    settings: dict[str, list[Step]] = {}
    broken: list[str] = []
    for name, text in records.items():
        try:
            record = load_json(text, RECORD_LIMIT)
            found = [Step(**step) for step in record["restore"]]
            setting = str(record.get("setting") or name.removesuffix(".json"))
        except (ValueError, KeyError, TypeError, AttributeError):
            broken.append(f"{FOLDER}/{printable(name)}")
            continue
        settings.setdefault(setting, []).extend(found)
        broken += [f"{FOLDER}/{printable(name)}: {printable(str(step), 200)}" for step in found if not _fits(step)]
    return settings, broken


def _fits(step: Step) -> bool:
    shape = SHAPES.get(step.kind) if isinstance(step.kind, str) else None
    return shape is not None and re.fullmatch(shape, f"{step.target}={step.value}", re.ASCII) is not None


def _undo(steps: list[Step]) -> Commands:
    """One command for all CPUs: a node has hundreds, and each command is a round trip."""
    for kind, same in grouped((step.kind, step) for step in steps).items():
        if kind in FILES:
            yield from map(FILES[kind], same)
            continue
        commands = [UNDO[kind](step).get_raw_value() for step in same]
        for first in range(0, len(commands), 200):
            yield StringCommand("set -e;", "; ".join(commands[first : first + 200]))


def _wrong(steps: list[Step]) -> str | None:
    written = {step.target: step.value for step in steps if step.kind == "file"}
    bad = [path for path, value in _now(steps).items() if value != " ".join(written[path].split())]
    return f"not restored, so the records are kept: {', '.join(bad)}" if bad else None
