"""Namespace nodes that look like whole GPU nodes over SSH: the trees of `tests/node_trees.py`, laid over a live node.

    with rack([trees.spec(tmp_path, host=1), trees.spec(tmp_path, host=2, faults=["port_down"])]) as lab:
        trees.wait_until_settled(lab)
        lab.inventory(path, trees.site("mi300x", "thor2"))

`/sys` is the tree over the machine's own, `/proc` has the tree's files where the kernel has such a file, `/etc`, `/usr`
and `/opt` have the tree's files, and AMD's Python package finds a libamd_smi.so of ours. The RDMA interfaces are real
ones (macvlan on the node's cable) with the tree's addresses, so that GID tables and addresses agree, and packets flow.

Device files are the kernel's null device under other names and majors: one that can be opened has to be some driver's.
"""

from __future__ import annotations

import base64
import functools
import json
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.lab.machine import LabError
from tests.lab.namespaces import Rack
from tests.lab.node_spec import NodeSpec
from tests.lab.rootfs import Device
from tests.libamd_smi.build import build
from tests.node_trees import GPUS, KFD_MAJOR, make_tree, serial_number

PROC = ("cmdline", "cpuinfo", "devices", "meminfo", "modules", "sys/kernel/numa_balancing", "sys/kernel/osrelease")
"""What of the tree's /proc is bound over a node's; the rest belongs to processes and namespaces, and is theirs."""

OF_THE_NODE = ("etc/passwd", "etc/group")
"""Files of the tree that would take the node's own accounts away; its groups are merged instead."""

LIBRARY_SAYS: Mapping[str, tuple[str, ...]] = {"gpu_missing": ("gpus=7",), "partition": ("compute_partition=CPX",)}
"""What libamd_smi.so reports where a fault of the tree is one that the library sees too."""

BOOT = "usr/local/lib/sdlab/boot.d/tree"
LIBRARY = "usr/local/lib/sdlab/libamd_smi.so"
SETTLED = "/run/sdlab-tree"


def spec(
    folder: Path,
    host: int = 1,
    gpu: str = "mi300x",
    nic: str = "thor2",
    *,
    faults: Iterable[str] = (),
    library: Iterable[str] = (),
    files: Mapping[str, str] | None = None,
    tuned: bool = True,
    docker: bool = False,
) -> NodeSpec:
    """Node number `host` (its name, and the last byte of its RDMA addresses), healthy but for `faults` (node_trees).

    `library` are lines of libamd_smi.conf, `files` come over the tree's; without `tuned` the node is as it was
    installed. The tree is written to `folder`, which has to stand as long as the node: each boot lays it over /sys.
    """
    faults = list(faults)
    root = make_tree(folder / f"tree{host}", gpu, nic, faults=faults, gid_entries=16, host=host)
    if not tuned:
        _untune(root)
    _show_modules(root)
    said = [line for fault in faults for line in LIBRARY_SAYS.get(fault, ())]
    own = dict(_files(root))
    own |= _library(gpu, [*said, *library, f"serial={serial_number(host, 0)}"]) | {
        BOOT: _boot_script(root),
        "etc/group": _groups(root),
    }
    return NodeSpec(
        name=f"node{host}",
        mtu=9000,
        sys_tree=root / "sys",
        proc={name: _proc(root, name) for name in PROC},
        dev=_devices(root),
        files=own | dict(files or {}),
        docker=docker,
    )


def site(gpu: str, nic: str, **more: object) -> dict[str, object]:
    """The group data of a rack of such nodes: the profiles, and the room that a node in memory has."""
    return {"gpu": gpu, "nic": nic, "system": {"disk_free": {"/": "1M"}}, **more}


def wait_until_settled(lab: Rack, seconds: float = 60) -> None:
    """Wait until every node has its interfaces and files of this boot. Raises LabError."""
    deadline = time.monotonic() + seconds
    for node in lab:
        while not (node.root / SETTLED.lstrip("/")).exists():
            if time.monotonic() > deadline:
                raise LabError(f"{node.name}: its tree was not laid out: {node.exec(f'cat {SETTLED}.log').stdout}")
            time.sleep(0.02)


def _untune(root: Path) -> None:
    """As the distribution installs a node: nothing is set, nothing is kept for the next boot.

    Transparent huge pages stay at "always": a plain file does not move the brackets when somebody writes to it.
    """
    for path in (*root.glob("etc/*/*shakedown*"), *root.glob("etc/*/*.d/*shakedown*"), root / "etc/shakedown"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (root / "etc/systemd/system/multi-user.target.wants/shakedown-boot.service").unlink()
    (root / "etc/systemd/system/shakedown-boot.service").unlink()
    for driver in (root / "etc/libibverbs.d").iterdir():
        driver.unlink()
    untuned = {
        "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 ro quiet",
        "boot/grub/grub.cfg": "menuentry 'Linux' {\n\tlinux\t/vmlinuz root=/dev/nvme0n1p2 ro quiet\n}",
        "proc/sys/kernel/numa_balancing": "1",
        "etc/group": "video:x:44:\nrender:x:993:",
    }
    for pattern, text in {
        "sys/devices/system/cpu/cpu*/cpufreq/scaling_governor": "schedutil",
        "sys/devices/system/cpu/cpu*/cpuidle/state2/disable": "0",
        "sys/devices/pci*/*/*/net/*/mtu": "1500",
    }.items():
        untuned |= {str(path.relative_to(root)): text for path in root.glob(pattern)}
    for name, text in untuned.items():
        (root / name).write_text(f"{text}\n")


def _files(root: Path) -> Iterator[tuple[str, str]]:
    for folder in ("etc", "usr", "opt", "boot"):
        for path in sorted((root / folder).rglob("*")):
            name = str(path.relative_to(root))
            if path.is_file() and not path.is_symlink() and name not in OF_THE_NODE:
                yield name, path.read_text()


def _proc(root: Path, name: str) -> str:
    """KFD's major is that of the device that stands for it."""
    return (root / "proc" / name).read_text().replace(f"{KFD_MAJOR} kfd", f"{Device.major} kfd")


def _devices(root: Path) -> dict[str, Device]:
    recorded = json.loads((root / "recorded.json").read_text()).values()
    files = {given["path"]: given for given in recorded if "path" in given}
    present = {path: given for path, given in files.items() if (root / path.lstrip("/")).exists()}
    return {
        path.removeprefix("/dev/"): Device(
            # A partition that is not configured is opened by nobody: it keeps the number that no driver here answers.
            **({"major": given["major"], "minor": given["minor"]} if (root / path.lstrip("/")).is_socket() else {}),
            mode=int(given["mode"], 8),
            group=given["group"],
        )
        for path, given in present.items()
    }


def _show_modules(root: Path) -> None:
    """A kernel without loadable modules (no /proc/modules to bind over) shows what is built in by /sys/module alone."""
    names = [line.split()[0] for line in (root / "proc/modules").read_text().splitlines()]
    for name in names:
        (root / "sys/module" / name).mkdir(parents=True, exist_ok=True)
    for folder in (root / "sys/module").iterdir():
        if folder.name not in names:
            shutil.rmtree(folder)


def _groups(root: Path) -> str:
    """The machine's groups, with the members that the tree gives to those of devices."""
    tree = {line.split(":")[0]: line for line in (root / "etc/group").read_text().splitlines()}
    wanted = {name: tree[name] for name in ("video", "render") if name in tree}
    own = [line for line in Path("/etc/group").read_text().splitlines() if line.split(":")[0] not in wanted]
    return "\n".join([*own, *wanted.values()]) + "\n"


def _boot_script(root: Path) -> str:
    """What files alone do not make: links, the RDMA interfaces, the kernel's log, values that the boot has changed."""
    lines = ["#!/bin/sh", f"exec >{SETTLED}.log 2>&1", "set -ex"]
    for path in sorted((root / "etc").rglob("*")):
        if path.is_symlink():
            name = f"/{path.relative_to(root)}"
            lines += [f"mkdir -p {Path(name).parent}", f"[ -e {name} ] || ln -s {path.readlink()} {name}"]
    if (root / "run/systemd/system").exists():
        lines.append("mkdir -p /run/systemd/system")
    lines.append("cable=$(ip route show default | sed 's/.* dev //; s/ .*//')")
    for name, own in json.loads((root / "recorded.json").read_text())["interfaces"].items():
        lines.append(f"ip link add link $cable name {name} type macvlan mode bridge")
        lines += [f"ip address add {address} dev {name}" for address in own["ipv4"]]
        lines.append(f"ip link set {name} up")
    balancing = (root / "proc/sys/kernel/numa_balancing").read_text().strip()
    lines.append(f"echo {balancing} > /proc/sys/kernel/numa_balancing")
    lines.append(f"base64 -d < /{LIBRARY}.base64 > /opt/rocm/lib/libamd_smi.so")
    log = shlex.quote((root / "dev/kmsg").read_text())
    return "\n".join([*lines, f"printf %s {log} > /dev/kmsg", f"touch {SETTLED}", ""])


def _library(gpu: str, lines: Iterable[str]) -> dict[str, str]:
    model = GPUS[gpu]
    healthy = [f"device={model.device}", f"name={model.name}", f"vram={model.vram}"]
    # The first line of a key counts, so what is asked for stands before what is healthy.
    text = "".join(f"{line}\n" for line in [*lines, *healthy])
    return {f"{LIBRARY}.base64": _built(), "opt/rocm/lib/libamd_smi.conf": text}


@functools.cache
def _built() -> str:
    """As text, since the files of a NodeSpec are text; the boot script makes it a library again."""
    with tempfile.TemporaryDirectory() as folder:
        return base64.encodebytes(build(Path(folder)).read_bytes()).decode()


def stand_in(*lines: str) -> str:
    """A shell script for a program that the node has no use for itself (update-grub, systemctl)."""
    return "\n".join(["#!/bin/sh", "set -e", *lines, ""])
