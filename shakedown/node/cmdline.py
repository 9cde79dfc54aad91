"""The kernel command line: as it runs, and as the boot loader holds it."""

from __future__ import annotations

import re
import shlex
from typing import Optional

from .rocm import numbers
from .tree import Part, Tree, Unreadable, attempt, attempt_or, is_unreadable

_WORD = re.compile(r'(?:[^\s"]|"[^"]*")+')
_ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)(\+?)=(.*)$")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


def parse_words(text: str) -> list[str]:
    """Return the arguments of a command line; a quoted value stays one word, with its quotes."""
    return _WORD.findall(text)


def parse_grub_defaults(lines: list[str], values: Optional[dict[str, str]] = None) -> dict[str, str]:
    """Return GRUB_CMDLINE_LINUX and .._DEFAULT after the shell assignments of one file, on top of `values`."""
    values = dict(values or {})
    for assignment in filter(None, map(_ASSIGNMENT.match, lines)):
        name, append, raw = assignment.groups()
        try:
            words = shlex.split(raw, comments=True)
        except ValueError:
            continue  # which a shell would refuse
        text = _filled_in(words[0] if words else "", values)
        values[name] = values.get(name, "") + text if append else text
    return values


def _filled_in(text: str, values: dict[str, str]) -> str:
    """Return a text with the values of the variables that it names."""
    return _VARIABLE.sub(lambda found: values.get(found.group(1), ""), text)


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
    environment: dict[str, str] = {}
    if grubenv:
        environment = dict(line.split("=", 1) for line in tree.lines(grubenv) if "=" in line)
    saved = environment.get("saved_entry", "") + ".conf"
    running = [name for name in names if name.endswith("-{}.conf".format(kernel))]
    chosen = saved if saved in names else max(running or names, key=numbers)
    lines = tree.lines("/boot/loader/entries/" + chosen)
    options = [line.split(None, 1)[1] for line in lines if line.startswith("options ")]
    return parse_words(_filled_in(" ".join(options), environment))


def _grub_defaults(tree: Tree) -> list[str]:
    values = parse_grub_defaults(tree.lines("/etc/default/grub"))
    for name in tree.names("/etc/default/grub.d"):
        if name.endswith(".cfg"):
            values = parse_grub_defaults(tree.lines("/etc/default/grub.d/" + name), values)
    return parse_words(values.get("GRUB_CMDLINE_LINUX", "") + " " + values.get("GRUB_CMDLINE_LINUX_DEFAULT", ""))


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
    return _grub_defaults(tree) if lines is None else parse_grub_cfg(lines)


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
