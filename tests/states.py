"""Node states for tests: a healthy node, and changes to it.

`healthy()` is a Dell-like node with 8x MI300X and 8x Thor2 in the state that its profiles ask for; `bare()` is a small
machine without GPUs and without RDMA. `with_(state, changes)` returns a validated copy:

    with_(healthy(), {"rdma.3.state": "DOWN", "devices.kfd": unreadable("missing", "/dev/kfd")})

A key is a dotted path; a tuple where a part has dots itself: `("sysctl", "net.ipv4.conf.all.rp_filter", "running")`.
The value DELETED removes an entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from shakedown.desired.layers import HostLayers, Layer
from shakedown.desired.models import DesiredState
from shakedown.desired.resolve import merge_host
from shakedown.node.setting import SETTINGS
from shakedown.runner.features import resolve
from shakedown.state.node import SCHEMA_VERSION, NodeState, Why

GIB = 2**30
DELETED = object()
Path = str | tuple[str | int, ...]

SYSCTL = {
    "net.ipv4.conf.all.arp_ignore": "2",
    "net.ipv4.conf.all.arp_announce": "1",
    "net.ipv4.conf.all.rp_filter": "2",
}
CMDLINE = ["pci=realloc=off", "pci=bfsort", "iommu=pt", "amd_iommu=on"]
MODULES = ["amdgpu", "bnxt_re", "ib_uverbs", "rdma_ucm", "ib_umad"]


def desired(gpu: str = "mi300x", nic: str | None = "thor2", **site: Any) -> DesiredState:
    """The desired state of a host with these profiles and these values of its site, merged and typed. What resolve()
    refuses besides, of recipes and options, is left to whoever tests it: a plan refuses them too."""
    values = {"gpu": gpu, **site} | ({"nic": nic} if nic else {})
    host = HostLayers("node", [Layer("site", values)], user="root")
    merged, problems = merge_host(host)
    try:
        assert not problems
        return DesiredState.model_validate(merged.values)
    except (AssertionError, ValidationError):
        return resolve([host]).states["node"]  # which tells what is wrong


def resolved(gpu: str = "mi300x", nic: str | None = "thor2", **site: Any) -> DesiredState:
    """The same with everything that is refused before the first connection."""
    values = {"gpu": gpu, **site} | ({"nic": nic} if nic else {})
    return resolve([HostLayers("node", [Layer("site", values)], user="root")]).states["node"]


def unreadable(why: Why, detail: str = "") -> dict[str, str]:
    """A reading that could not be taken."""
    return {"unreadable": why, "detail": detail}


def with_(state: NodeState, changes: Mapping[Path, Any]) -> NodeState:
    """A copy with these values changed, validated."""
    document = state.model_dump()
    for path, value in changes.items():
        parts = path.split(".") if isinstance(path, str) else path
        *above, last = [int(part) if str(part).isdigit() else part for part in parts]
        at: Any = document
        for part in above:
            at = at[part]
        if value is DELETED:
            del at[last]
        else:
            at[last] = value
    return NodeState.model_validate(document)


def healthy(host: int = 1, gpus: int = 8, hcas: int = 8) -> NodeState:
    """Node number `host` of a rack of MI300X and Thor2, as its profiles want it."""
    return NodeState.model_validate(
        {
            **_base(f"node{host:02d}"),
            "cmdline": {
                "running": ["root=/dev/sda1", *CMDLINE],
                "persisted": ["root=/dev/sda1", *CMDLINE],
                "loader": "grub-dropin",
            },
            "cpu": {
                "model": "AMD EPYC 9654 96-Core Processor",
                "count": 192,
                "vendor": "AuthenticAMD",
                "governors": {"performance": 192},
                "c2_enabled": 0,
            },
            "modules": {"loaded": MODULES, "persisted": MODULES, "blacklisted": []},
            "devices": {
                "kfd": device("/dev/kfd", 234, 0),
                "kfd_major": 234,
                "dri": [device(f"/dev/dri/renderD{128 + index}", 226, 128 + index) for index in range(gpus)],
                "infiniband": [
                    device("/dev/infiniband/rdma_cm", 10, 122, "0666", "root"),
                    *(device(f"/dev/infiniband/uverbs{index}", 231, 192 + index, "0666") for index in range(hcas)),
                    *(device(f"/dev/infiniband/umad{index}", 231, index, "0666") for index in range(hcas)),
                ],
            },
            "gpus": [gpu(index, host) for index in range(gpus)],
            "gpu_tool": "25.2.0",
            "kfd": {"gpus": gpus, "gpu_nodes": gpus, "cpu_nodes": 2},
            "rocm_version": "6.4.1",
            "rocm_file": "/opt/rocm/.info/version",
            "rdma": [hca(index, host) for index in range(hcas)],
            "interfaces": [
                interface("eth0", f"10.0.{_last(host)}/24", 1500),
                *(interface(f"ens{index}np0", f"10.{index + 1}.{_last(host)}/24", 9000) for index in range(hcas)),
            ],
            "verbs": {
                "library": "/lib/x86_64-linux-gnu/libibverbs.so.1",
                "abi": 34,
                "providers": [
                    {
                        "path": "/usr/local/lib/libbnxt_re-rdmav34.so",
                        "provider": "bnxt_re",
                        "abi": 34,
                        "sha256": "ab" * 32,
                    }
                ],
                "drivers": {"/etc/libibverbs.d/bnxt_re.driver": "bnxt_re"},
            },
        }
    )


def bare(host: int = 1) -> NodeState:
    """A two-core machine without GPUs, RDMA, ROCm or a container engine."""
    missing = unreadable("missing")
    return NodeState.model_validate(
        {
            **_base(f"node{host:02d}"),
            "cmdline": {"running": ["root=/dev/sda1"], "persisted": ["root=/dev/sda1"], "loader": "none"},
            "cpu": {
                "model": missing,
                "count": 2,
                "vendor": "AuthenticAMD",
                "governors": missing,
                "c2_enabled": missing,
            },
            "modules": {"loaded": [], "persisted": [], "blacklisted": []},
            "devices": {"kfd": missing, "kfd_major": missing, "dri": [], "infiniband": []},
            "gpus": [],
            "gpu_tool": missing,
            "gpu_processes": missing,
            "kfd": {"gpus": missing, "gpu_nodes": missing, "cpu_nodes": missing},
            "rocm_version": missing,
            "rdma": [],
            "interfaces": [interface("eth0", f"10.0.{_last(host)}/24", 1500)],
            "verbs": {"library": missing, "abi": missing, "providers": [], "drivers": {}},
            "containers": {
                "engine": missing,
                "version": missing,
                "root": missing,
                "images": missing,
                "running": missing,
            },
        }
    )


def gpu(index: int, host: int = 1) -> dict[str, Any]:
    """GPU number `index` of node `host`, an idle MI300X."""
    return {
        "bdf": f"0000:{index + 1:02x}:00.0",
        "pci_id": "1002:74a1",
        "numa_node": index // 4,
        "link": link(),
        "model": "AMD Instinct MI300X",
        "serial": f"{0xA000 + 256 * host + index:016x}",
        "vram_bytes": 192 * GIB - 16 * 2**20,
        "vram_used_bytes": 280 * 2**20,
        "compute_partition": "SPX",
        "memory_partition": "NPS1",
        "driver": "6.12.12",
        "firmware": {"smc": "85.121.0", "vbios": "113-M3000100-103"},
        "ecc_correctable": 0,
        "ecc_uncorrectable": 0,
        "pcie_replays": 0,
        "temperature_c": 45.0,
        "power_w": 140.0,
        "xgmi_links": 7,
    }


HEALTH: dict[str, Any] = {
    "bad_pages": {"retired": 0, "pending": 0, "unreservable": 0, "limit": 128},
    "power_cap": {"watts": 750.0, "default_watts": 750.0, "most_watts": 750.0},
    "ecc_blocks": {},
    "error_records": [],
    "throttled": [],
    "processes": [],
}


def with_health(state: NodeState) -> NodeState:
    """The same node, whose library also answers what it knows of the GPUs' health; all is well."""
    bdfs = [each.bdf for each in state.gpus]  # type: ignore[union-attr]
    changes: dict[Path, Any] = {}
    for index, own in enumerate(bdfs):
        changes.update({f"gpus.{index}.{name}": value for name, value in HEALTH.items()})
        changes[f"gpus.{index}.peers"] = {bdf: {"kind": "XGMI", "hops": 1, "gts": 32} for bdf in bdfs if bdf != own}
    return with_(state, changes)


def hca(index: int, host: int = 1) -> dict[str, Any]:
    """RDMA device number `index` of node `host`: a Thor2 with RoCE v1 and v2 entries for its fe80 and its IPv4 GID."""
    address = f"10.{index + 1}.{_last(host)}"
    netdev = f"ens{index}np0"
    link_local = f"fe80:0000:0000:0000:0000:00ff:fe{host >> 8:02x}:{host & 255:02x}{index:02x}"
    mapped = f"0000:0000:0000:0000:0000:ffff:0a{index + 1:02x}:{host:04x}"
    rows = [(link_local, None, "IB/RoCE v1"), (link_local, None, "RoCE v2"), (mapped, address, "IB/RoCE v1")]
    rows.append((mapped, address, "RoCE v2"))
    return {
        "name": f"bnxt_re{index}",
        "bdf": f"0000:{index + 0x41:02x}:00.0",
        "guid": f"b83f:d203:{host:04x}:00{index:02x}",
        "vendor": "14e4",
        "numa_node": index // 4,
        "link": link(),
        "driver": "bnxt_re",
        "firmware": "231.2.63.0",
        "state": "ACTIVE",
        "phys_state": "LinkUp",
        "rate_gbps": 400.0,
        "link_layer": "Ethernet",
        "netdev": netdev,
        "gids": [
            {"index": number, "gid": gid, "type": kind, "netdev": netdev, "ipv4": ipv4}
            for number, (gid, ipv4, kind) in enumerate(rows)
        ],
        "max_read_request": 4096,
        "lossless": {
            "pfc": [3],
            "dscp": {"26": 3, "48": 7},
            "trust": None,
            "congestion": {"enable_cc": 1, "tos_ecn": 1, "tos_dscp": 26},
        },
    }


def _last(host: int) -> str:
    """The last two numbers of a host's addresses."""
    return f"{host >> 8}.{host & 255}"


def link() -> dict[str, Any]:
    """PCIe 5.0 x16."""
    return {"speed_gts": 32.0, "width": 16, "max_speed_gts": 32.0, "max_width": 16}


def device(path: str, major: int, minor: int, mode: str = "0660", group: str = "render") -> dict[str, Any]:
    """A character device that the job's user can open."""
    return {
        "path": path,
        "kind": "char",
        "major": major,
        "minor": minor,
        "mode": mode,
        "owner": "root",
        "group": group,
        "openable": True,
    }


def interface(name: str, address: str, mtu: int) -> dict[str, Any]:
    """An Ethernet interface that is up."""
    return {
        "name": name,
        "mac": "02:00:00:00:00:01",
        "mtu": {"running": str(mtu), "persisted": str(mtu)},
        "up": True,
        "speed_mbps": 400000,
        "ipv4": [address],
        "ipv6": [],
        "bdf": None,
    }


def image(reference: str, digest: str) -> dict[str, Any]:
    """An image of the engine's store: "name:tag" with the repository digest "sha256:..."."""
    name = reference.rpartition(":")[0]
    own = "sha256:" + hashlib.sha256(digest.encode()).hexdigest()
    return {"id": own, "tags": [reference], "digests": [f"{name}@{digest}"], "size_bytes": 40 * GIB}


# Of every setting that has no place of its own in the state: what a site may want of it.
SETTING_VALUES = {
    name: "0" if each.switch else each.example for name, each in SETTINGS.items() if not each.details and not each.place
}


def _base(hostname: str) -> dict[str, Any]:
    """What healthy() and bare() share."""
    return {
        "schema_version": SCHEMA_VERSION,
        "probe": {"version": "0" * 64, "python": "3.11.7", "user": "root", "uid": 0, "wall_s": 0.3, "cpu_s": 0.2},
        "system": {
            "hostname": hostname,
            "boot_id": f"boot-{hostname}",
            "taken_at": "2026-11-21T06:00:00Z",
            "epoch_s": 1795240800.0,
            "os_id": "ubuntu",
            "os_version": "22.04",
            "os_name": "Ubuntu 22.04.5 LTS",
            "family": "debian",
            "kernel": "5.15.0-131-generic",
            "arch": "x86_64",
            "bios_version": "2.4.4",
            "product": "PowerEdge XE9680",
            "board_serial": f"CN0{hostname.upper()}",
            "machine_id": hashlib.md5(hostname.encode()).hexdigest(),
            "host_key": f"ssh-ed25519 AAAA{hostname}",
            "service_manager": "systemd",
        },
        "numa": {"nodes": 2, "balancing": {"running": "0", "persisted": "0"}},
        "memory": {
            "total_bytes": 2048 * GIB,
            "available_bytes": 2000 * GIB,
            "load_1m": 0.5,
            "thp": {"running": "always", "persisted": "always"},
            "hugepages_total": 0,
            "hugepage_kb": 2048,
        },
        "sysctl": {key: {"running": value, "persisted": value} for key, value in SYSCTL.items()},
        "settings": {name: {"running": value, "persisted": value} for name, value in SETTING_VALUES.items()},
        "limits": {
            "memlock": {"running": "unlimited", "persisted": "unlimited"},
            "nofile": {"running": "1048576", "persisted": "1048576"},
        },
        "account": {
            "user": "root",
            "home": "/root",
            "groups": ["root", "render", "video"],
            "at_login": ["root", "render", "video"],
            "members": {"render": ["root"], "video": ["root"]},
        },
        "gpu_processes": [],
        "routes": [{"destination": "0.0.0.0/0", "gateway": "10.0.0.254", "interface": "eth0", "metric": 0}],
        "listening": [22],
        "containers": {
            "engine": "docker",
            "version": "27.5.1",
            "root": "/var/lib/docker",
            "images": [],
            "running": 0,
        },
        "disks": [
            {
                "mount": "/",
                "device": "/dev/sda1",
                "fstype": "ext4",
                "total_bytes": 900 * GIB,
                "free_bytes": 700 * GIB,
                "network": False,
            }
        ],
        "clock": {"synchronised": True, "service": "chrony", "offset_s": 0.0},
        "acs": {"enabled": []},
        "kernel_log": {"records": []},
        "boot_unit": {
            "enabled": True,
            "settings": {
                "cpu_governor": "performance",
                "c2": "disabled",
                "thp": "always",
                "acs": "off",
                "max_read_request.14e4": "4096",
            },
        },
        "counters": {},
    }
