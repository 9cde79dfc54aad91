"""Host keys of SSH nodes that nobody has vouched for.

pyinfra's default is `accept-new`: the key of a node that known_hosts does not know is taken and written down, one that
has changed is refused. We leave it at that and say so: each new key is shown with its fingerprint, for a person to
compare, and is in the run's evidence. `ssh_strict_host_key_checking: "yes"` refuses them.
"""

import contextlib
from pathlib import Path
from typing import Any

from paramiko import MissingHostKeyPolicy, PKey
from pyinfra.api import Host
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.sshuserclient import SSHClient
from pyinfra.connectors.sshuserclient.client import get_ssh_config

NEW, SHOWN = "shakedown_new_host_key", "shakedown_host_key"  # in a host's connector_data
OPTION = "ssh_strict_host_key_checking"


def fingerprint(key: PKey) -> str:
    """As ssh-keygen -l prints it: "ssh-ed25519 SHA256:..."."""
    return f"{key.get_name()} {key.fingerprint}"


def new_keys(hosts: list[Host]) -> dict[str, str]:
    """Return the hosts with a new key, with its fingerprint."""
    return {host.name: host.connector_data[NEW] for host in hosts if NEW in host.connector_data}


def shown(host: Host) -> str:
    """Return the key that a host's connection showed and that known_hosts holds: type and key; empty: none."""
    key = host.connector_data.get(SHOWN)
    return f"{key.get_name()} {key.get_base64()}" if key is not None else ""


def in_record(host: Host, nonce: str) -> dict[str, str]:
    """Return what the record of a run has of a host's keys: the key of a signed run, and a new one."""
    key = host.connector_data.get(SHOWN) if nonce else None
    known = fingerprint(key) if key is not None else ""
    return {"host_key": known, "new_host_key": host.connector_data.get(NEW, "")}


def watch(client: SSHClient, host: Host) -> None:
    """Have the client report keys that its policy accepts."""
    choose = client.set_missing_host_key_policy

    def set_policy(policy: MissingHostKeyPolicy | type[MissingHostKeyPolicy]) -> None:
        choose(_ReportingPolicy(policy() if isinstance(policy, type) else policy, host))

    client.set_missing_host_key_policy = set_policy  # type: ignore[method-assign]


def apply_ssh_config(data: dict[str, Any], host: Host) -> None:
    """Use StrictHostKeyChecking of ssh_config(5) where the inventory says nothing; `ask` refuses, as nobody answers."""
    if host.data.get(OPTION) is not None:
        return
    config = get_ssh_config(data["ssh_config_file"])
    value = config.lookup(data["ssh_hostname"] or host.name).get("stricthostkeychecking") if config else None
    if value is not None:
        data[OPTION] = "yes" if value == "ask" else value


def address_of(host: Host) -> str:
    """Return the name or address that SSH connects to, with HostName of ssh_config(5); empty: it is not SSH."""
    if not isinstance(host.connector, SSHConnector):
        return ""
    name = str(host.data.get("ssh_hostname") or host.name)
    config = get_ssh_config(host.data.get("ssh_config_file"))
    return str(config.lookup(name).get("hostname", name)) if config else name


class _ReportingPolicy(MissingHostKeyPolicy):
    def __init__(self, policy: MissingHostKeyPolicy, host: Host) -> None:
        self._policy, self._host = policy, host

    def missing_host_key(self, client: Any, hostname: str, key: PKey) -> None:
        if client._host_keys_filename:
            with contextlib.suppress(OSError):  # as ssh(1) does; without the folder every connection would fail
                Path(client._host_keys_filename).parent.mkdir(mode=0o700, exist_ok=True)
        self._policy.missing_host_key(client, hostname, key)
        client._host_keys.add(hostname, key.get_name(), key)  # a node that comes back with another one is refused
        self._host.connector_data[NEW] = fingerprint(key)
