"""The kernel's command line and modules: as they run, and as the next boot will have them."""

from __future__ import annotations

import re
import shlex
from typing import Optional

from .rocm import numbers
from .tree import Part, Tree, Unreadable, attempt, attempt_or, is_unreadable, pairs

_WORD = re.compile(r'(?:[^\s"]|"[^"]*")+')
_ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)(\+?)=(.*)$")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


def parse_words(text: str) -> list[str]:
    """Return the arguments of a command line; a quoted value stays one word, with its quotes."""
    return _WORD.findall(text)


def parse_grub_defaults(lines: list[str]) -> list[str]:
    """Return the arguments of GRUB_CMDLINE_LINUX and .._DEFAULT after the shell's assignments in these lines."""
    values: dict[str, str] = {}
    for assignment in filter(None, map(_ASSIGNMENT.match, lines)):
        name, append, raw = assignment.groups()
        try:
            words = shlex.split(raw, comments=True)
        except ValueError:
            continue  # which a shell would refuse
        text = _VARIABLE.sub(lambda found: values.get(found[1], ""), words[0] if words else "")
        values[name] = values.get(name, "") + text if append else text
    return parse_words(values.get("GRUB_CMDLINE_LINUX", "") + " " + values.get("GRUB_CMDLINE_LINUX_DEFAULT", ""))


def parse_grub_cfg(lines: list[str]) -> list[str]:
    """Return the arguments of the first kernel that a grub.cfg boots, without the kernel's own path."""
    for line in lines:
        words = line.split(None, 2)
        if words and words[0] in ("linux", "linux16", "linuxefi") and len(words) > 1:
            return parse_words(words[2] if len(words) > 2 else "")
    raise Unreadable("malformed", "grub.cfg: no linux line")


def _loader_entries(tree: Tree, kernel: str) -> list[str]:
    names = [name for name in tree.names("/boot/loader/entries") if name.endswith(".conf")]
    if not names:
        raise Unreadable("missing", "/boot/loader/entries")
    grubenv = tree.first("/boot/grub2/grubenv")
    environment = pairs(tree.lines(grubenv)) if grubenv else {}
    saved = environment.get("saved_entry", "") + ".conf"
    running = [name for name in names if name.endswith("-{}.conf".format(kernel))]
    chosen = saved if saved in names else max(running or names, key=numbers)
    lines = tree.lines("/boot/loader/entries/" + chosen)
    options = [line.split(None, 1)[1] for line in lines if line.startswith("options ")]
    return parse_words(_VARIABLE.sub(lambda found: environment.get(found[1], ""), " ".join(options)))


def _loader(tree: Tree, family: str) -> str:
    if not is_unreadable(attempt(tree.tool, "grubby")):
        return "grubby"
    if not tree.exists("/etc/default/grub"):
        return "none"
    return "grub-dropin" if family == "debian" or tree.exists("/etc/default/grub.d") else "grub-default"


def _persisted(tree: Tree, loader: str, kernel: str) -> list[str]:
    """Return what the next boot would use: the generated configuration where it can be read, else its sources."""
    if loader == "none":
        raise Unreadable("missing", "no GRUB configuration")
    if loader == "grubby":
        return _loader_entries(tree, kernel)
    generated = tree.first("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
    lines = attempt_or(None, tree.lines, generated) if generated else None
    if lines is not None:
        return parse_grub_cfg(lines)
    sources = ["/etc/default/grub", *tree.conf_files(["/etc/default/grub.d"], ".cfg")]
    return parse_grub_defaults([line for path in sources for line in tree.lines(path)])


def read(tree: Tree, family: str, kernel: str) -> Part:
    loader = _loader(tree, family)
    return {
        "running": attempt(lambda: parse_words(tree.text("/proc/cmdline"))),
        "persisted": attempt(_persisted, tree, loader, kernel),
        "loader": loader,
    }


def argument(words: object, name: str) -> Optional[str]:
    """Return the value of the last `name=value` among the words; None where there is none."""
    if not isinstance(words, list):
        return None
    values = [word.split("=", 1)[1] for word in words if word.startswith(name + "=")]
    return values[-1] if values else None


_LOAD = ("/etc/modules-load.d", "/run/modules-load.d", "/usr/lib/modules-load.d", "/lib/modules-load.d")
_PROBE = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")


def kernel_name(name: str) -> str:
    """Return a module's name as the kernel spells it: modprobe takes dashes for underscores."""
    return name.replace("-", "_")


def parse_blacklist(lines: list[str]) -> list[str]:
    """Return the modules that modprobe.d keeps from loading: `blacklist NAME`, or `install NAME /bin/false`."""
    names: list[str] = []
    for line in lines:
        words = line.split()
        disabled = len(words) > 2 and words[0] == "install" and words[2].rsplit("/", 1)[-1] in ("false", "true")
        if (len(words) > 1 and words[0] == "blacklist") or disabled:
            names.append(kernel_name(words[1]))
    return names


def _lines(tree: Tree, folders: tuple[str, ...], *more: str) -> list[str]:
    """Return the lines of the files that this user may read."""
    paths = [*tree.conf_files(folders, strict=False), *more]
    return [line for path in paths for line in attempt_or([], tree.lines, path)]


def _builtin(tree: Tree, kernel: str, loaded: list[str]) -> list[str]:
    """Return modules in the kernel's list, or with a folder in /sys/module although not loaded."""
    lines = attempt_or([], tree.lines, "/lib/modules/{}/modules.builtin".format(kernel))
    present = [line.rsplit("/", 1)[-1].partition(".ko")[0] for line in lines]
    present += attempt_or([], tree.names, "/sys/module")
    return sorted({kernel_name(name) for name in present} - set(loaded))


def at_boot(tree: Tree) -> list[str]:
    """Return the modules that modules-load.d and Debian's /etc/modules load: one on a line, comments with # or ;."""
    lines = _lines(tree, _LOAD, "/etc/modules")
    return [kernel_name(line.split()[0]) for line in lines if line.strip() and line.lstrip()[0] not in "#;"]


def read_modules(tree: Tree, kernel: str, cmdline: Part) -> Part:
    loaded = attempt(lambda: sorted(line.split()[0] for line in tree.lines("/proc/modules")))
    blacklisted = parse_blacklist(_lines(tree, _PROBE))
    for name in ("modprobe.blacklist", "module_blacklist"):
        blacklisted += kernel_name(argument(cmdline["running"], name) or "").split(",")
    return {
        "loaded": loaded,
        "persisted": sorted(set(at_boot(tree))),
        "blacklisted": sorted(set(blacklisted) - {""}),
        "builtin": _builtin(tree, kernel, loaded if isinstance(loaded, list) else []),
    }
