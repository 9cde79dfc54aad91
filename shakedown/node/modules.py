"""Kernel modules: loaded, loaded at every boot, forbidden, built in."""

from __future__ import annotations

from .cmdline import argument
from .tree import Part, Tree, attempt, attempt_or

_LOAD = ("/etc/modules-load.d", "/run/modules-load.d", "/usr/lib/modules-load.d", "/lib/modules-load.d")
_PROBE = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")


def kernel_name(name: str) -> str:
    """Return a module's name as the kernel spells it: modprobe takes dashes for underscores."""
    return name.replace("-", "_")


def parse_list(lines: list[str]) -> list[str]:
    """Return module names of a modules-load.d file: one on a line, comments with # or ;."""
    return [kernel_name(line.split()[0]) for line in lines if line.strip() and line.lstrip()[0] not in "#;"]


def parse_blacklist(lines: list[str]) -> list[str]:
    """Return the modules that modprobe.d keeps from loading: `blacklist NAME`, or `install NAME /bin/false`."""
    names: list[str] = []
    for line in lines:
        words = line.split()
        disabled = len(words) > 2 and words[0] == "install" and words[2].rsplit("/", 1)[-1] in ("false", "true")
        if (len(words) > 1 and words[0] == "blacklist") or disabled:
            names.append(kernel_name(words[1]))
    return names


def _conf_lines(tree: Tree, folders: tuple[str, ...]) -> list[str]:
    lines: list[str] = []
    seen = set()
    for folder in folders:
        for name in tree.names_if_permitted(folder):
            if name.endswith(".conf") and name not in seen:
                lines += attempt_or([], tree.lines, folder + "/" + name)
            seen.add(name)
    return lines


def _builtin(tree: Tree, kernel: str, loaded: list[str]) -> list[str]:
    """Return modules in the kernel's list, or with a folder in /sys/module although not loaded."""
    lines = attempt_or([], tree.lines, "/lib/modules/{}/modules.builtin".format(kernel))
    present = [line.rsplit("/", 1)[-1].partition(".ko")[0] for line in lines] + attempt_or(
        [], tree.names, "/sys/module"
    )
    return sorted({kernel_name(name) for name in present} - set(loaded))


def at_boot(tree: Tree) -> list[str]:
    """Return the modules that modules-load.d and Debian's /etc/modules load."""
    return parse_list(_conf_lines(tree, _LOAD)) + parse_list(attempt_or([], tree.lines, "/etc/modules"))


def read(tree: Tree, kernel: str, cmdline: Part) -> Part:
    loaded = attempt(lambda: sorted(line.split()[0] for line in tree.lines("/proc/modules")))
    blacklisted = parse_blacklist(_conf_lines(tree, _PROBE))
    for name in ("modprobe.blacklist", "module_blacklist"):
        blacklisted += kernel_name(argument(cmdline["running"], name) or "").split(",")
    return {
        "loaded": loaded,
        "persisted": sorted(set(at_boot(tree))),
        "blacklisted": sorted(set(blacklisted) - {""}),
        "builtin": _builtin(tree, kernel, loaded if isinstance(loaded, list) else []),
    }
