"""Kernel parameters in the boot loader: what is missing is added, what is there is kept."""

import re
from collections.abc import Sequence

from pyinfra.api import StringCommand, operation
from pyinfra.context import host

from shakedown.checks.tuning import missing
from shakedown.desired.values import KERNEL_PARAMETER
from shakedown.facts.base import expect
from shakedown.facts.settings import Contents, GrubbyArguments, Tools
from shakedown.node import cmdline as node_cmdline
from shakedown.node.tree import Unreadable
from shakedown.operations import atomic
from shakedown.operations.commands import Commands, refuse, show_change, verify

DEFAULTS = "/etc/default/grub"
DROPIN = "/etc/default/grub.d/90-shakedown.cfg"
GENERATED = "/boot/grub/grub.cfg"

_OURS = re.compile(r'^GRUB_CMDLINE_LINUX="\$GRUB_CMDLINE_LINUX (.*)"$')


@operation()
def kernel_parameters(parameters: list[str]) -> Commands:
    """
    Add kernel parameters to the boot loader, for the next boot. Other parameters stay as they are.

    + parameters: kernel parameters, each as it stands on the command line

    Debian family: a drop-in of GRUB's defaults and ``update-grub``. RHEL family: ``grubby``, for all kernels.

    **Example:**

    .. code:: python

        from shakedown.operations import cmdline
        cmdline.kernel_parameters(name="IOMMU in pass-through mode", parameters=["iommu=pt", "amd_iommu=on"])
    """
    expect(KERNEL_PARAMETER, "a kernel parameter", *parameters)  # a shell reads the drop-in and grubby's arguments
    tools = host.get_fact(Tools, names=["grubby", "update-grub"])
    if "grubby" in tools:
        yield from _with_grubby(parameters, tools["grubby"])
    elif "update-grub" in tools:
        yield from _with_dropin(parameters, tools["update-grub"])
    else:
        yield refuse("no boot loader known: neither grubby nor update-grub is on this node")


def _with_grubby(parameters: Sequence[str], grubby: str) -> Commands:
    def lacking() -> list[str]:
        kernels = host.get_fact(GrubbyArguments, grubby=grubby)
        return [item for item in parameters if not kernels or any(missing([item], kernel) for kernel in kernels)]

    if not (added := lacking()):
        host.noop(f"every kernel of the boot loader has {' '.join(parameters)}")
        return
    show_change("arguments of all kernels (grubby)", [], added)
    for parameter in added:
        yield atomic.remember(f"cmdline.{parameter}", [atomic.Step("parameter", parameter)])
    yield StringCommand(f'{grubby} --update-kernel=ALL --args="{" ".join(added)}"')
    yield verify(lambda: f"grubby did not add {' '.join(lacking())}" if lacking() else None)


def _with_dropin(parameters: Sequence[str], update_grub: str) -> Commands:
    patterns = [DEFAULTS, f"{DROPIN.rpartition('/')[0]}/*.cfg", GENERATED]
    files = host.get_fact(Contents, patterns=patterns)
    if DEFAULTS not in files:
        yield refuse(f"no boot loader known: {DEFAULTS} is not there")
        return
    sources = [DEFAULTS, *sorted(path for path in files if path.endswith(".cfg") and path != GENERATED)]
    defaults = node_cmdline.parse_grub_defaults([line for path in sources for line in files.get(path) or []])
    to_write = missing(parameters, defaults)
    if not to_write and not missing(parameters, _generated(files)):
        host.noop(f"the boot loader has {' '.join(parameters)}")
        return
    if to_write:
        found = [_OURS.match(line) for line in files.get(DROPIN) or []]
        present = [word for match in found if match for word in match[1].split()]
        lines = [atomic.HEADER, f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {" ".join([*present, *to_write])}"']
        show_change(DROPIN, files.get(DROPIN), lines)
        yield atomic.remember("cmdline", [])
        yield atomic.write(DROPIN, lines)
    yield StringCommand(update_grub)

    def wrong() -> str | None:
        lacks = missing(parameters, _generated(host.get_fact(Contents, patterns=patterns)))
        return f"{GENERATED} does not end with {' '.join(lacks)} after update-grub" if lacks else None

    yield verify(wrong)


def _generated(files: dict[str, list[str] | None]) -> list[str]:
    """Return the parameters of the first kernel of grub.cfg; none where there is no such file or kernel."""
    try:
        return node_cmdline.parse_grub_cfg(files.get(GENERATED) or [])
    except Unreadable:
        return []
