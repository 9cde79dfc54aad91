"""Kernel modules of the GPUs' driver: unloaded and loaded again, which has the driver start its devices anew."""

from pyinfra.api import QuoteString, StringCommand, operation
from pyinfra.context import host

from shakedown.facts.settings import Contents
from shakedown.operations.commands import Commands, refuse, verify

_STATE = "/sys/module/{}/initstate"


@operation()
def reload(modules: list[str]) -> Commands:
    """
    Unload kernel modules and load them again. The kernel refuses while anything uses one of them, and so the node is
    left as it is.

    + modules: the modules, in the order in which they are loaded

    **Example:**

    .. code:: python

        from shakedown.operations import driver
        driver.reload(name="Have amdgpu start its GPUs anew", modules=["amdgpu"])
    """
    paths = {module: _STATE.format(module.replace("-", "_")) for module in modules}
    loaded = host.get_fact(Contents, patterns=list(paths.values()))
    if not (here := [module for module in modules if paths[module] in loaded]):
        yield refuse(f"{' and '.join(modules)}: not loaded as a module, or built into the kernel: reboot instead")
        return
    names = [QuoteString(module) for module in here]
    # Each that can be taken out is; whatever stops it half-way, all of them are loaded again.
    yield StringCommand(
        "PATH=$PATH:/usr/sbin:/sbin; modprobe -r",
        *reversed(names),
        "; out=$?; for module in",
        *names,
        "; do modprobe $module || exit 1; done; [ $out = 0 ] || { echo 'in use: not reloaded' >&2; exit 1; }",
    )

    def wrong() -> str | None:
        now = host.get_fact(Contents, patterns=list(paths.values()))
        gone = [module for module in here if (now.get(paths[module]) or [])[:1] != ["live"]]
        return f"{' and '.join(gone)}: not there after it was loaded again (dmesg)" if gone else None

    yield verify(wrong)
