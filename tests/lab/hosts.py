"""What nodes of every kind have in common: names, addresses, one key to log in with, an inventory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tests.lab import inventory as inventory_file
from tests.lab import rootfs, slots
from tests.lab.rootfs import KeyPair


class Host(Protocol):
    """A node as far as ssh is concerned."""

    name: str
    address: IPv4Address
    host_key: KeyPair


HostT = TypeVar("HostT", bound=Host)


class Hosts(ABC, Generic[HostT]):
    """Nodes on one bridge, in order; by name with `lab["node2"]`. Labs of one slot share its key and known hosts."""

    nodes: list[HostT]

    def __init__(self, slot: slots.Slot) -> None:
        self.slot = slot
        self.key_file = slot.folder / "id_ed25519"
        self.known_hosts = slot.folder / "known_hosts"
        if not self.key_file.exists():
            rootfs.write(self.key_file, KeyPair.generate().private, 0o600)
        self.client_key = KeyPair.of(self.key_file.read_bytes())

    @abstractmethod
    def start(self, *, dies_with_us: bool) -> None:
        """Start all nodes and wait until they can be logged in to. Raises LabError."""

    @abstractmethod
    def stop(self) -> None:
        """End all nodes."""

    def __iter__(self) -> Iterator[HostT]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, name: str) -> HostT:
        return {node.name: node for node in self.nodes}[name]

    def ssh(self, node: HostT, command: str | None = None, *, user: str = "root") -> list[str]:
        """The argv of OpenSSH's client for a person or a test: key, known hosts, no prompts."""
        options = ["-i", str(self.key_file), "-o", f"UserKnownHostsFile={self.known_hosts}", "-o", "BatchMode=yes"]
        return ["ssh", *options, "-o", "IdentitiesOnly=yes", f"{user}@{node.address}", *([command] if command else [])]

    def host_data(self, node: HostT, *, user: str | None = None) -> dict[str, object]:
        """pyinfra's host data for a node: address, port, user, key, known hosts."""
        return {
            "ssh_hostname": str(node.address),
            "ssh_port": 22,
            "ssh_user": user or "root",
            "ssh_key": str(self.key_file),
            "ssh_known_hosts_file": str(self.known_hosts),
            "ssh_strict_host_key_checking": "yes",
        }

    def inventory(
        self,
        path: Path,
        data: Mapping[str, object] | None = None,
        *,
        hosts: Mapping[str, Mapping[str, object]] | None = None,
        group: str = "lab",
        user: str | None = None,
    ) -> Path:
        """Write a pyinfra inventory of all nodes: `data` is the group's, `hosts` adds to single hosts by name."""
        return write_inventory([self], path, data, hosts=hosts, group=group, user=user)

    def _know(self, nodes: Sequence[HostT]) -> None:
        self.nodes = list(nodes)
        with self.known_hosts.open("a") as known:
            known.writelines(f"{node.address} {node.host_key.public}\n" for node in nodes)


LabT = TypeVar("LabT", bound=Hosts[Any])


@contextmanager
def running(
    make: Callable[[slots.Slot], LabT], *, stay: bool = False, beside: slots.Slot | None = None
) -> Iterator[LabT]:
    """Nodes that are started on the way in and ended on the way out, Ctrl-C included.

    `stay` leaves them to the slot, which ends them when it is cleared (`make lab-up`). `beside` puts them on the bridge
    of another lab. The calling thread has to outlive nodes that do not stay: they are killed with it. Raises LabError.
    """
    with slots.place(beside) as slot:
        lab = make(slot)
        try:
            lab.start(dies_with_us=not stay)
            yield lab
        finally:
            if not stay:
                lab.stop()


def write_inventory(
    labs: Sequence[Hosts[HostT]],
    path: Path,
    data: Mapping[str, object] | None = None,
    *,
    hosts: Mapping[str, Mapping[str, object]] | None = None,
    group: str = "lab",
    user: str | None = None,
) -> Path:
    """One inventory over several labs, such as namespace nodes and virtual machines together."""
    extra = hosts or {}
    nodes = [(lab, node) for lab in labs for node in lab]
    members = [(node.name, {**lab.host_data(node, user=user), **extra.get(node.name, {})}) for lab, node in nodes]
    return inventory_file.write(path, group, members, data or {})


def mac(address: IPv4Address) -> str:
    """A locally administered MAC that is as unique as the address."""
    return ":".join(f"{byte:02x}" for byte in (0x02, 0x5D, *address.packed))
