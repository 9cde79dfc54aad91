"""ansible-core in a virtual environment of its own, set up as its documentation says for speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.nodes import Nodes

VERSION = "2.19.14"  # the newest for python 3.11 on the controller


def installed() -> Path:
    """The environment's bin folder; made the first time, from PyPI."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    venv = cache / "shakedown-bench" / f"ansible-core-{VERSION}-py{sys.version_info[0]}.{sys.version_info[1]}"
    if not (venv / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        pip = [str(venv / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"ansible-core=={VERSION}"], check=True)
        (venv / "ready").touch()
    return venv / "bin"


def write(nodes: Nodes, playbook: list[dict[str, Any]]) -> None:
    """The inventory and the playbook in the scratch folder, as JSON, which YAML includes."""
    about = {"ansible_port": nodes.port, "ansible_user": "root", "ansible_ssh_private_key_file": str(nodes.key)}
    # Interpreter discovery would cost Ansible another round trip per host.
    about["ansible_python_interpreter"] = "/usr/bin/python3"
    inventory = {"all": {"hosts": {address: {} for address in nodes.addresses}, "vars": about}}
    (nodes.scratch / "hosts.json").write_text(json.dumps(inventory))
    (nodes.scratch / "playbook.json").write_text(json.dumps(playbook, indent=1))


def environment(nodes: Nodes) -> dict[str, str]:
    """forks = N, pipelining, one multiplexed connection per host; nothing of the user's configuration."""
    (nodes.scratch / "empty.cfg").touch()
    options = f"-F /dev/null -o UserKnownHostsFile={nodes.known_hosts} -o ControlMaster=auto -o ControlPersist=60s"
    return {
        "ANSIBLE_CONFIG": str(nodes.scratch / "empty.cfg"),
        "ANSIBLE_HOME": str(nodes.scratch / "ansible"),
        "ANSIBLE_FORKS": str(len(nodes.addresses)),
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_SSH_ARGS": options,
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets(nodes)),
        "ANSIBLE_SSH_CONTROL_PATH": "%(directory)s/%%h",
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
    }


def sockets(nodes: Nodes) -> Path:
    return nodes.scratch / "c"


def hang_up(nodes: Nodes) -> None:
    """Close the connections that Ansible keeps open after a run: each run begins without any, as pyinfra's do."""
    for path in sockets(nodes).iterdir() if sockets(nodes).is_dir() else ():
        command = ["ssh", "-F", "/dev/null", "-o", f"ControlPath={path}", "-O", "exit", path.name]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
