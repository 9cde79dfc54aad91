"""The MTU that an interface would come up with: our boot unit, or the network configuration that is there."""

from __future__ import annotations

from typing import Optional

from .bootunit import setting_at_boot
from .tree import Part, Tree, Unreadable, attempt, attempt_or, is_unreadable

_NETWORKD = ("/etc/systemd/network", "/run/systemd/network", "/usr/lib/systemd/network")
_MANAGER = ("/etc/NetworkManager/system-connections", "/run/NetworkManager/system-connections")


def parse_ini(lines: list[str]) -> dict[str, str]:
    """Map `section.key` to the value of an INI-like file, in lower case; a repeated key keeps its last value."""
    found: dict[str, str] = {}
    section = ""
    for line in lines:
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].lower()
        elif "=" in line and not line.startswith(("#", ";")):
            key, value = line.split("=", 1)
            found["{}.{}".format(section, key.strip().lower())] = value.strip().strip("\"'")
    return found


def parse_ifupdown(lines: list[str]) -> dict[str, str]:
    """Map interfaces to the MTU of interfaces(5): `mtu N` inside an `iface` paragraph."""
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        words = line.split()
        if len(words) > 1 and words[0] == "iface":
            name = words[1]
        elif len(words) > 1 and words[0] == "mtu" and name:
            found[name] = words[1]
    return found


class Persisted:
    """Looks up the persisted MTU by interface name; the files are read once. None: nothing is written down."""

    def __init__(self, tree: Tree, unit: Part) -> None:
        self.unit = unit
        self.known: dict[str, str] = {}
        self.closed: Optional[str] = None
        for folder in _NETWORKD:
            self._take(tree, folder, "match.name", ("link.mtubytes", "network.mtubytes"))
        for folder in _MANAGER:
            self._take(tree, folder, "connection.interface-name", ("ethernet.mtu", "802-3-ethernet.mtu"))
        self._take(tree, "/etc/sysconfig/network-scripts", ".device", (".mtu",))
        folder = "/etc/network/interfaces.d"
        for path in ["/etc/network/interfaces"] + [folder + "/" + name for name in tree.names_if_permitted(folder)]:
            for name, value in parse_ifupdown(attempt_or([], tree.lines, path)).items():
                self.known.setdefault(name, value)

    def _take(self, tree: Tree, folder: str, name_key: str, mtu_keys: tuple[str, ...]) -> None:
        files = attempt(tree.names, folder)
        if is_unreadable(files):
            self.closed = folder
            return
        for file in files:
            settings = attempt(lambda path: parse_ini(tree.lines(path)), folder + "/" + file)
            if is_unreadable(settings):
                if settings["unreadable"] == "not permitted":
                    self.closed = folder + "/" + file
                continue
            value = next((settings[key] for key in mtu_keys if key in settings), "")
            for name in settings.get(name_key, "").split():
                if value.isdigit():
                    self.known.setdefault(name, value)

    def __call__(self, name: str) -> Optional[str]:
        value = setting_at_boot(self.unit, "mtu." + name) or self.known.get(name)
        if value is None and self.closed:
            raise Unreadable("not permitted", self.closed)
        return value
