"""Settings that the kernel forgets at every boot: made now and, by one systemd unit, at every boot. The unit and the
operation run the same program, so what was seen to work is what the next boot does. It is the probe's own module of
settings (shakedown/node/setting.py), with their files, as one text for the node's python3."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pyinfra.api import FunctionCommand, QuoteString, StringCommand, operation
from pyinfra.context import host

from shakedown import node
from shakedown.facts.settings import Contents
from shakedown.node.boot import CONFIG
from shakedown.node.setting import entries
from shakedown.node.tree import pairs
from shakedown.operations import atomic, boot_values
from shakedown.operations.commands import Commands, refuse, show_change, verify
from shakedown.transport import program as sent

SCRIPT = "/usr/local/libexec/shakedown-boot"
CONF = CONFIG
UNIT = "/etc/systemd/system/shakedown-boot.service"
ENABLED = "/etc/systemd/system/multi-user.target.wants/shakedown-boot.service"
SYSTEMD = "/run/systemd/system"

_NODE = Path(node.__file__).parent
_NO_SYSTEMD = "nothing makes it at the next boot: this node does not run systemd"


@operation()
def settings(settings: Mapping[str, str | int]) -> Commands:
    """
    Make settings now and at every boot: CPU governor, idle state C2, transparent huge pages, PCIe ACS, MaxReadReq, MTU.

    + settings: what to set, by the keys of /etc/shakedown/boot.conf

    Keys and values:
        + ``cpu_governor``: a governor of this kernel, on every CPU
        + ``c2``: ``disabled`` or ``enabled``
        + ``thp``: ``always``, ``madvise`` or ``never``
        + ``acs``: ``off``, on every PCI function
        + ``max_read_request.<PCI vendor>`` or ``max_read_request``: bytes, of RDMA devices
        + ``mtu.<interface>``: bytes
        + ``module.<name>``: ``loaded``, although a blacklist keeps it from loading alone

    On a node without systemd they are made now only.

    **Example:**

    .. code:: python

        from shakedown.operations import boot
        boot.settings(name="No deep idle state, jumbo frames", settings={"c2": "disabled", "mtu.ens1": 9000})
    """
    yield from make({key: str(value) for key, value in settings.items()})


def make(wanted: Mapping[str, str]) -> Commands:
    """Do what `settings` does, for operations that make one of them."""
    here = {key: boot_values.read(key, value) for key, value in wanted.items()}
    if nothing := _lacking(here, wanted):
        yield refuse(f"this node has nothing that {', '.join(nothing)} could set")
        return

    files = host.get_fact(Contents, patterns=[SCRIPT, CONF, UNIT, ENABLED, SYSTEMD])
    systemd = SYSTEMD in files
    now = {key: value for key, value in wanted.items() if any(found.actual != found.wanted for found in here[key])}
    lines = atomic.body(files.get(CONF))
    kept = pairs(lines)
    later = {key: value for key, value in wanted.items() if systemd and kept.get(key) != value}
    script = list(_install(SCRIPT, program(), files, "0755")) if systemd or now else []
    service = (_NODE / "assets" / "shakedown-boot.service").read_text().splitlines()
    unit = list(_install(UNIT, service, files, "0644")) if systemd else []
    if systemd and (unit or ENABLED not in files):
        unit.append(StringCommand("systemctl daemon-reload && systemctl enable shakedown-boot.service"))
    if not (now or later or script or unit):
        host.noop(f"{listed(wanted)}: so now, {'and at boot' if systemd else _NO_SYSTEMD}")
        return

    others = [line for line in lines if line.partition("=")[0] not in later]
    new = [atomic.HEADER, *others, *(f"{key}={value}" for key, value in later.items())]
    if later:
        show_change(CONF, files.get(CONF), new)
    for key in now:
        show_change(key, sorted({value.actual for value in here[key]}), sorted({value.wanted for value in here[key]}))
    for key in {**now, **later}:
        yield atomic.remember(f"boot.{key}", [value.before for value in here[key]])
    yield from script
    # First what the kernel may refuse: a value that it does not take is not written down either.
    if now:
        yield StringCommand(SCRIPT, *(QuoteString(f"{key}={value}") for key, value in now.items()))
    if later:
        yield atomic.write(CONF, new)
    yield from unit
    if not systemd:
        yield FunctionCommand(_warn, (f"{listed(now)}: {_NO_SYSTEMD}",), {})
    yield verify(lambda: _wrong(wanted, systemd))


@cache
def program() -> list[str]:
    """Return the lines of the program: a search for python3 (isolated, -I -S), the modules, the settings' entries."""
    # A shell runs what stands between the two triple quotes, which finds the interpreter; to python it is a string.
    head = (_NODE / "assets" / "shakedown-boot-head").read_text("utf-8")
    head = head.format(header=atomic.HEADER, conf=CONF, python=sent.command_of_file())
    rows = "".join(f"    {name!r}: {entry!r},\n" for name, entry in entries().items())
    text = sent.program(_NODE / "boot.py").replace("ENTRIES = {}", f"ENTRIES = {{\n{rows}}}", 1)
    return [*head.splitlines(), *text.splitlines()]


def _warn(message: str) -> None:
    host.log_styled(message, fg="yellow")


def _install(path: str, lines: list[str], files: Mapping[str, list[str] | None], mode: str) -> Commands:
    if files.get(path) != lines:
        yield atomic.write(path, lines, mode)


def _wrong(wanted: Mapping[str, str], systemd: bool) -> str | None:
    here = {key: boot_values.read(key, value) for key, value in wanted.items()}
    bad = [f"{key} cannot be read" for key in _lacking(here, wanted)]
    every = [value for values in here.values() for value in values if value.actual != value.wanted]
    bad += [f"{value.before.target} is {value.actual}, not {value.wanted}" for value in every]
    files = host.get_fact(Contents, patterns=[CONF, ENABLED])
    lines = atomic.body(files.get(CONF))
    if systemd:
        bad += [f"{CONF} lacks {key}={value}" for key, value in wanted.items() if f"{key}={value}" not in lines]
        bad += [] if ENABLED in files else ["shakedown-boot.service is not enabled"]
    return f"after the change {'; '.join(bad[:5])}" if bad else None


def _lacking(here: Mapping[str, list[boot_values.Value]], wanted: Mapping[str, str]) -> list[str]:
    """Return the settings that the node does not have, where their absence is not wanted."""
    empty = [key for key, values in here.items() if not values]
    return [key for key in empty if boot_values.by_unit(key, wanted[key])[0].absent != wanted[key]]


def listed(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())
