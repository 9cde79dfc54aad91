"""What is asked of the nodes, said twice: as a desired state of Shakedown, and as tasks for Ansible."""

from __future__ import annotations

import resource
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shakedown.operations.boot_values import SYSCTL_FILE as SYSCTL_FILE

NUMA_BALANCING = "kernel.numa_balancing"
LIMITS_FILE = "/etc/security/limits.d/90-shakedown.conf"
AMD_DEVICES = "grep -l 0x1002 /sys/bus/pci/devices/*/vendor"
ASKED = Path(__file__).with_name("settings.toml")
_LIMITS = {"memlock": (resource.RLIMIT_MEMLOCK, 1024), "nofile": (resource.RLIMIT_NOFILE, 1)}
_LABELS = {"memlock": "Max locked memory", "nofile": "Max open files"}  # in /proc/self/limits


@dataclass(frozen=True)
class Settings:
    """Values as this machine has them; sysctls with single spaces, limits in limits.conf(5)'s units."""

    sysctl: dict[str, str]
    numa_balancing: str | None  # None: a kernel without it
    limits: dict[str, int | str]
    disk_free: dict[str, int]

    def desired(self) -> dict[str, Any]:
        """The layer of an inventory; no smoke section, so a deploy ends before the smoke run."""
        return {
            "gpu": "cpu",
            "tuning": {"numa_balancing": self.numa_balancing == "1", "sysctl": self.sysctl, **self.limits},
            # No clock_skew_s: these nodes share their CPUs with the controller, and it would judge how they queue.
            "system": {"disk_free": {path: f"{size}B" for path, size in self.disk_free.items()}},
        }

    def playbook(self) -> list[dict[str, Any]]:
        """The same as one Ansible play of builtin modules in check mode: facts, then a task per setting for the file
        that keeps it, and one task for all running values of a kind, which is fewer than most people write."""
        running = dict(self.sysctl)
        if self.numa_balancing is not None:
            running[NUMA_BALANCING] = self.numa_balancing
        words = [value.split() for value in running.values()]
        files = [f"/proc/sys/{key.replace('.', '/')}" for key in running]
        mounts = {path: f"ansible_mounts | selectattr('mount', 'equalto', '{path}')" for path in self.disk_free}
        tasks = [
            _command("sysctls as they run", ["cat", *files], "sysctls"),
            _assert("sysctls", [f"sysctls.stdout_lines | map('split') | list == {words}"]),
            *(_line(SYSCTL_FILE, f"{key} =", f"{key} = {value}") for key, value in running.items()),
            _command("limits of the session", ["cat", "/proc/self/limits"], "limits"),
            _assert("limits", [f"limits.stdout is search('{_limit_line(*item)}')" for item in self.limits.items()]),
            *(_line(LIMITS_FILE, f"root - {item} ", f"root - {item} {value}") for item, value in self.limits.items()),
            _command("GPUs", ["sh", "-c", AMD_DEVICES], "gpus", may_fail=True),
            _assert("GPUs", ["gpus.stdout == ''"]),
            _assert(
                "disk room",
                [
                    f"(({rows} | map(attribute='size_available') | list) + [1e18]) | first >= {self.disk_free[path]}"
                    for path, rows in mounts.items()
                ],
            ),
        ]
        return [{"hosts": "all", "gather_facts": True, "tasks": tasks}]


def of_this_machine(file: Path = ASKED) -> Settings:
    """The settings of the file that this kernel has, with the values they have now."""
    requested = tomllib.loads(file.read_text())
    values = {key: _running(key) for key in requested["sysctl"]}
    return Settings(
        sysctl={key: value for key, value in values.items() if value is not None},
        numa_balancing=_running(NUMA_BALANCING),
        limits={item: _limit(*how) for item, how in _LIMITS.items()},
        disk_free=requested["disk_free_bytes"],
    )


def _running(key: str) -> str | None:
    path = Path("/proc/sys") / key.replace(".", "/")
    return " ".join(path.read_text().split()) if path.is_file() else None


def _limit(kind: int, unit: int) -> int | str:
    soft, _ = resource.getrlimit(kind)
    return "unlimited" if soft == resource.RLIM_INFINITY else soft // unit


def _limit_line(item: str, value: int | str) -> str:
    bare = value if isinstance(value, str) else value * _LIMITS[item][1]
    return f"{_LABELS[item]} +{bare} "


def _command(name: str, argv: list[str], register: str, may_fail: bool = False) -> dict[str, Any]:
    task = {"name": name, "ansible.builtin.command": {"argv": argv}, "register": register, "changed_when": False}
    return {**task, "check_mode": False, **({"failed_when": False} if may_fail else {})}


def _assert(name: str, that: list[str]) -> dict[str, Any]:
    return {"name": f"{name}: as wanted", "ansible.builtin.assert": {"that": that, "quiet": True}}


def _line(path: str, start: str, line: str) -> dict[str, Any]:
    arguments = {"path": path, "regexp": f"^{start}", "line": line, "create": True}
    return {"name": line, "ansible.builtin.lineinfile": arguments}
