"""File trees of whole nodes: /sys, /proc, /dev, /etc of racks that no test machine is.

`make_tree(path, gpu="mi300x", nic="thor2", faults=("gpu_missing",))` writes a healthy node of 8 GPUs and 8 NICs, with
the links that the kernel makes in /sys, then breaks what is asked for. The probe reads it with `--root`, and the lab
lays its `sys` over a live /sys. All values are ours; they show that readings are understood, not that hardware works.

What no file tells (addresses, device numbers of plain files, room on disks) stands in `recorded.json`.
"""

from __future__ import annotations

import json
import os
import stat
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GIB = 2**30
CMDLINE = "pci=realloc=off pci=bfsort iommu=pt amd_iommu=on"
KFD_MAJOR = 234
DRM_MAJOR = 226
PARTITIONS = 8  # for which amdgpu makes device files, configured or not
ZERO_GID = ":".join(["0000"] * 8)


@dataclass(frozen=True)
class GpuModel:
    name: str
    device: str
    vram: int
    rocm: str
    simds: int
    gfx: int  # gfx_target_version
    lds: int  # KiB


@dataclass(frozen=True)
class NicFamily:
    vendor: str
    device: str
    pci_driver: str
    module: str
    prefix: str
    firmware: str
    library: str
    driver: str
    counters: tuple[str, ...]
    gid_types: tuple[str, ...]  # of the filled entries; each address (link-local, then IPv4) has one of each
    congestion: dict[str, int] = field(default_factory=dict)


GPUS = {
    # The driver's own figure, as rocm-smi and KFD of real machines print it: a little less than 192 GiB.
    "mi300x": GpuModel("AMD Instinct MI300X", "74a1", 206141652992, "6.4.1-83", 1216, 90402, 64),
    "mi325x": GpuModel("AMD Instinct MI325X", "74a5", 274861129728, "6.4.1-83", 1216, 90402, 64),
    "mi355x": GpuModel("AMD Instinct MI355X", "75a3", 309220868096, "7.0.2-56", 1024, 90500, 160),
}
_V1_V2 = ("IB/RoCE v1", "RoCE v2")
NICS = {
    "thor2": NicFamily(
        "14e4", "1760", "bnxt_en", "bnxt_re", "bnxt_re", "231.2.63.0", "/usr/local/lib/libbnxt_re-rdmav{abi}.so",
        "bnxt_re", ("rx_pkts", "tx_pkts", "to_retransmits", "seq_err_naks_rcvd", "rx_roce_discards"), _V1_V2,
        {"enable_cc": 1, "tos_ecn": 1, "tos_dscp": 26, "cc_mode": 1, "init_cr": 200},
    ),
    "cx7": NicFamily(
        "15b3", "1021", "mlx5_core", "mlx5_ib", "mlx5_", "28.43.1014",
        "/usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav{abi}.so",
        "mlx5", ("out_of_buffer", "packet_seq_err", "local_ack_timeout_err", "rx_write_requests"), _V1_V2,
    ),
    "ainic": NicFamily(
        "1dd8", "1002", "ionic", "ionic_rdma", "ionic_", "1.117.1",
        "/usr/lib/x86_64-linux-gnu/libibverbs/libionic-rdmav{abi}.so",
        "ionic", ("rx_rdma_ucast_pkts", "req_rx_pkt_seq_err", "tx_rdma_ack_timeout"), ("RoCE v2",),
    ),
}  # fmt: skip


@dataclass
class Tree:
    """Where the node is written, and what it is made of."""

    path: Path
    gpu: GpuModel
    nic: NicFamily
    count: int
    host: int
    gid_entries: int
    cpus: int
    recorded: dict[str, Any] = field(default_factory=dict)

    def write(self, name: str, content: str | bytes | int = "") -> Path:
        path = self.path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
        return path

    def link(self, name: str, target: str) -> None:
        """A relative link, as the kernel makes them, from one absolute path of the tree to another."""
        path = self.path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        above = "/".join([".."] * (len(Path(name).parts) - 2))
        path.symlink_to(f"{above}/{target.lstrip('/')}")

    def device(self, subsystem: str, name: str, folder: str, event: str = "") -> None:
        """What makes a folder below /sys/devices a device for udev."""
        self.write(f"{folder}/uevent", event)
        self.link(f"{folder}/subsystem", f"/sys/class/{subsystem}")
        self.link(f"/sys/class/{subsystem}/{name}", folder)

    def numa(self, index: int) -> int:
        return 0 if index < self.count / 2 else 1

    def bus(self, index: int) -> int:
        return index * (0x100 // self.count)

    def gpu_bdf(self, index: int) -> str:
        return f"0000:{self.bus(index) + 5:02x}:00.0"

    def nic_bdf(self, index: int) -> str:
        return f"0000:{self.bus(index) + 6:02x}:00.0"

    def folder(self, bdf: str) -> str:
        """The function's folder below /sys/devices, behind its root port."""
        bus = int(bdf[5:7], 16)
        port = 1 if bus % 0x10 == 5 else 2
        return f"/sys/devices/pci0000:{bus & 0xF0:02x}/0000:{bus & 0xF0:02x}:{port:02x}.1/{bdf}"

    def render(self, index: int, partition: int = 0) -> int:
        """The minor of a render node: each GPU has eight, one for each partition it can be divided into."""
        return 128 + PARTITIONS * index + partition

    def hca(self, index: int) -> str:
        return f"/sys/class/infiniband/{self.nic.prefix}{index}"

    def interface(self, index: int) -> str:
        return f"ens{index}np0"

    def address(self, index: int) -> str:
        return f"10.{index + 1}.0.{self.host}"


def make_tree(
    path: Path, gpu: str = "mi300x", nic: str = "thor2", faults: Iterable[str] = (), count: int = 8, host: int = 1,
    gid_entries: int = 256, cpus: int = 16,
) -> Path:  # fmt: skip
    """Write node number `host` with `count` GPUs and NICs below `path`; returns `path`. Faults: the keys of FAULTS.
    GID tables have 256 (mlx5) to 1024 (bnxt_re) entries on real devices; few make a test quick."""
    tree = Tree(path, GPUS[gpu], NICS[nic], count, host, gid_entries, cpus)
    _machine(tree)
    _boot(tree)
    for index in range(count):
        _gpu(tree, index)
        _nic(tree, index)
    _kfd(tree)
    _drive(tree)
    _userland(tree)
    _device_files(tree)
    for fault in faults:
        FAULTS[fault](tree)
    tree.write("/recorded.json", json.dumps(tree.recorded))
    return path


def pci_config(max_read_request: int = 4096, acs: int | None = None) -> bytes:
    """Configuration space with a PCI Express capability at 0x40 and, where `acs` is given, ACS control at 0x106."""
    space = bytearray(4096)
    space[0x06] = 0x10  # there is a list of capabilities: setpci looks
    space[0x34] = 0x40
    struct.pack_into("<BB", space, 0x40, 0x10, 0)
    struct.pack_into("<H", space, 0x48, (max_read_request.bit_length() - 8) << 12)
    struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | (0x148 if acs is not None else 0) << 20)
    if acs is not None:
        struct.pack_into("<IHH", space, 0x148, 0x000D | 1 << 16, 0x5F, acs)
    return bytes(space)


def _function(tree: Tree, bdf: str, ids: str, kind: str, driver: str, numa: int, config: bytes) -> str:
    folder = tree.folder(bdf)
    vendor, device = ids.split(":")
    event = f"DRIVER={driver}\nPCI_CLASS={kind}\nPCI_ID={ids.upper()}\nPCI_SLOT_NAME={bdf}"
    files: dict[str, str | bytes | int] = {
        "uevent": event, "vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{kind}", "numa_node": numa,
        "current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe",
        "current_link_width": 16, "max_link_width": 16, "config": config,
    }  # fmt: skip
    for name, content in files.items():
        tree.write(f"{folder}/{name}", content)
    tree.link(f"{folder}/driver", f"/sys/bus/pci/drivers/{driver}")
    tree.link(f"{folder}/subsystem", "/sys/bus/pci")
    tree.link(f"/sys/bus/pci/devices/{bdf}", folder)
    return folder


def _root_port(tree: Tree, bdf: str, numa: int) -> None:
    port = Path(tree.folder(bdf)).parent
    tree.write(f"{port}/uevent", f"DRIVER=pcieport\nPCI_CLASS=60400\nPCI_ID=1022:14AB\nPCI_SLOT_NAME={port.name}")
    for name, value in {"vendor": "0x1022", "device": "0x14ab", "class": "0x060400"}.items():
        tree.write(f"{port}/{name}", value)
    tree.write(f"{port}/config", pci_config(acs=0))
    tree.write(f"{port}/numa_node", numa)
    tree.link(f"{port}/subsystem", "/sys/bus/pci")
    tree.link(f"/sys/bus/pci/devices/{port.name}", str(port))


def serial_number(host: int, index: int) -> int:
    """Return the serial number of a GPU: no two of a rack are equal."""
    return 0x1000 + 0x100 * host + index


def _gpu(tree: Tree, index: int) -> None:
    bdf, numa = tree.gpu_bdf(index), tree.numa(index)
    _root_port(tree, bdf, numa)
    folder = _function(tree, bdf, f"1002:{tree.gpu.device}", "120000", "amdgpu", numa, pci_config())
    files: dict[str, str | bytes | int] = {
        "product_name": tree.gpu.name, "unique_id": f"{serial_number(tree.host, index):016x}",
        "mem_info_vram_total": tree.gpu.vram, "mem_info_vram_used": 297 << 20,
        "current_compute_partition": "SPX", "current_memory_partition": "NPS1", "pcie_replay_count": 0,
        "ras/umc_err_count": "ue: 0\nce: 0", f"hwmon/hwmon{index}/temp2_input": 41000 + index * 500,
        f"hwmon/hwmon{index}/power1_average": 132_000_000,
    }  # fmt: skip
    for name, content in files.items():
        tree.write(f"{folder}/{name}", content)
    for partition in range(PARTITIONS):
        minor = tree.render(index, partition)
        device = folder if partition == 0 else f"/sys/devices/platform/amdgpu_xcp.{minor - 128 - index}"
        for name, number in ((f"renderD{minor}", minor), (f"card{minor - 127}", minor - 127)):
            tree.write(f"{device}/drm/{name}/dev", f"{DRM_MAJOR}:{number}")
            tree.link(f"{device}/drm/{name}/device", device)
            tree.device("drm", name, f"{device}/drm/{name}", f"MAJOR={DRM_MAJOR}\nMINOR={number}")


def _nic(tree: Tree, index: int) -> None:
    bdf, nic, numa = tree.nic_bdf(index), tree.nic, tree.numa(index)
    _root_port(tree, bdf, numa)
    folder = _function(tree, bdf, f"{nic.vendor}:{nic.device}", "20000", nic.pci_driver, numa, pci_config())
    name = f"{nic.prefix}{index}"
    device = f"{folder}/infiniband/{name}"
    port = f"{device}/ports/1"
    files: dict[str, str | bytes | int] = {
        f"{device}/fw_ver": nic.firmware, f"{device}/node_guid": f"b83f:d203:{tree.host:04x}:{index + 1:04x}",
        f"{device}/node_type": "1: CA", f"{port}/state": "4: ACTIVE",
        f"{port}/phys_state": "5: LinkUp", f"{port}/rate": "400 Gb/sec (4X NDR)", f"{port}/link_layer": "Ethernet",
    }  # fmt: skip
    for path, content in files.items():
        tree.write(path, content)
    for counter in nic.counters:
        tree.write(f"{port}/hw_counters/{counter}", 0)
    for parameter, value in nic.congestion.items():
        tree.write(f"/sys/kernel/debug/{nic.module}/{bdf}/cc_config/{parameter}", value)
    tree.write(f"{port}/counters/port_rcv_errors", 0)
    tree.link(f"{device}/device", folder)
    tree.device("infiniband", name, device, f"NAME={name}")
    _gid_table(tree, port, index)
    _interface(tree, f"{folder}/net/{tree.interface(index)}", index, folder)


def _drive(tree: Tree) -> None:
    folder = "/sys/devices/pci0000:e0/0000:e0:03.1/0000:e1:00.0/nvme/nvme0"
    tree.device("nvme", "nvme0", folder, "DEVNAME=nvme0")
    for name, value in {
        "model": "Trial NVMe 3.84TB",
        "serial": f"TR8N{41 + tree.host:04d}",
        "firmware_rev": "1.2.0",
    }.items():
        tree.write(f"{folder}/{name}", value)


def _gid_table(tree: Tree, port: str, index: int) -> None:
    words = [int(part) for part in tree.address(index).split(".")]
    mapped = f"0000:0000:0000:0000:0000:ffff:{words[0]:02x}{words[1]:02x}:{words[2]:02x}{words[3]:02x}"
    local = f"fe80:0000:0000:0000:0a00:0bff:fe{index:02x}:{tree.host:04x}"
    filled = [(gid, kind) for gid in (local, mapped) for kind in tree.nic.gid_types]
    for number in range(tree.gid_entries):
        tree.write(f"{port}/gids/{number}", filled[number][0] if number < len(filled) else ZERO_GID)
    for number, (_, kind) in enumerate(filled):
        tree.write(f"{port}/gid_attrs/types/{number}", kind)
        tree.write(f"{port}/gid_attrs/ndevs/{number}", tree.interface(index))


def _interface(tree: Tree, folder: str, index: int, device: str) -> None:
    name = tree.interface(index)
    tree.device("net", name, folder, f"INTERFACE={name}")
    tree.write(f"{folder}/mtu", 9000)
    tree.link(f"{folder}/device", device)
    tree.recorded.setdefault("interfaces", {})[name] = {
        "mac": f"08:00:0b:00:{index:02x}:{tree.host:02x}", "mtu": 9000, "up": True, "speed": 400000,
        "ipv4": [f"{tree.address(index)}/24"], "ipv6": [],
    }  # fmt: skip
    tree.recorded["dcb " + name] = {"pfc": [3], "dscp": {"26": 3, "48": 7}, "trust": None}
    counters = ("rx_total_discard_pkts", "tx_fifo_underruns_err")
    tree.recorded["ethtool " + name] = {f"ethtool/{name}/{counter}": 0 for counter in counters}


def _kfd(tree: Tree) -> None:
    nodes = "/sys/devices/virtual/kfd/kfd/topology/nodes"
    for node in range(2 + tree.count):
        tree.write(f"{nodes}/{node}/properties", kfd_properties(tree, node - 2))
    (tree.path / "sys/devices/virtual/kfd/kfd/proc").mkdir()
    tree.link("/sys/class/kfd/kfd", "/sys/devices/virtual/kfd/kfd")


def kfd_properties(tree: Tree, gpu: int) -> str:
    """A node's properties as the kernel prints them, in its order; `gpu` below zero is a CPU."""
    there = gpu >= 0
    bus = int(tree.gpu_bdf(gpu)[5:7], 16) if there else 0
    values = {
        "cpu_cores_count": 0 if there else 96, "simd_count": tree.gpu.simds if there else 0, "mem_banks_count": 1,
        "caches_count": 546 if there else 0, "io_links_count": tree.count + 1, "p2p_links_count": int(there),
        "cpu_core_id_base": 0, "simd_id_base": 2147487744 if there else 0, "max_waves_per_simd": 8 * there,
        "lds_size_in_kb": tree.gpu.lds * there, "gds_size_in_kb": 0, "num_gws": 64 * there,
        "wave_front_size": 64 * there,
        "array_count": 32 * there, "simd_arrays_per_engine": int(there), "cu_per_simd_array": 10 * there,
        "simd_per_cu": 4 * there, "max_slots_scratch_cu": 32 * there, "gfx_target_version": tree.gpu.gfx * there,
        "vendor_id": 0x1002 * there, "device_id": int(tree.gpu.device, 16) * there, "location_id": bus << 8,
        "domain": 0, "drm_render_minor": tree.render(gpu) if there else 0, "hive_id": 15188982192727901047 * there,
    }  # fmt: skip
    return "\n".join(f"{name} {value}" for name, value in values.items())


def _machine(tree: Tree) -> None:
    for cpu in range(tree.cpus):
        folder = f"/sys/devices/system/cpu/cpu{cpu}"
        tree.write(f"{folder}/cpufreq/scaling_governor", "performance")
        tree.write(f"{folder}/cpuidle/state2/disable", 1)
    tree.write("/sys/devices/system/cpu/online", f"0-{tree.cpus - 1}")
    for node in (0, 1):
        tree.write(f"/sys/devices/system/node/node{node}/cpulist", "")
    tree.write("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never")
    tree.write("/sys/class/dmi/id/bios_version", "2.1.5")
    tree.write("/sys/class/dmi/id/product_name", "Trial 8000")
    tree.write("/sys/class/dmi/id/board_serial", f"TR8-{41 + tree.host:04d}")
    tree.write("/sys/module/amdgpu/version", "6.12.12")
    cpuinfo = "\n".join(
        ["processor\t: 0", "vendor_id\t: AuthenticAMD", "model name\t: AMD EPYC 9654 96-Core Processor"]
    )
    modules = ["amdgpu", tree.nic.module, "ib_uverbs", "ib_umad", "rdma_ucm", "rdma_cm"]
    proc: dict[str, str | bytes | int] = {
        "cpuinfo": cpuinfo, "loadavg": "0.10 0.20 0.15 1/2000 4242",
        "meminfo": "MemTotal: 2377703244 kB\nMemFree: 2200000000 kB\nMemAvailable: 2300000000 kB\n"
        "Buffers: 0 kB\nCached: 0 kB\nShmem: 0 kB\nActive: 0 kB\nInactive: 0 kB\nSlab: 0 kB\n"
        "SwapTotal: 0 kB\nSwapFree: 0 kB\nHugePages_Total: 0\nHugepagesize: 2048 kB",
        "modules": "\n".join(f"{name} 16384 0 - Live 0x0" for name in modules),
        "devices": f"Character devices:\n226 drm\n231 infiniband_verbs\n{KFD_MAJOR} kfd\n\nBlock devices:\n259 blkext",
        "self/mounts": "/dev/nvme0n1p2 / ext4 rw,relatime 0 0\nproc /proc proc rw 0 0\ntmpfs /run tmpfs rw 0 0",
        "self/limits": "Max open files            1048576              1048576              files\n"
        "Max locked memory         unlimited            unlimited            bytes",
        "net/route": "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
        + "\n".join(
            f"{tree.interface(index)} 0000{index + 1:02X}0A 00000000 0001 0 0 100 00FFFFFF 0 0 0"
            for index in range(tree.count)
        ),
        "net/tcp": "sl local_address rem_address st\n0: 00000000:0016 00000000:0000 0A",
        "sys/kernel/hostname": f"node{tree.host:02d}", "sys/kernel/osrelease": "6.8.0-60-generic",
        "sys/kernel/random/boot_id": f"00000000-0000-4000-8000-{tree.host:012d}",
        "sys/kernel/numa_balancing": 0, "sys/net/ipv4/conf/all/arp_ignore": 2,
        "sys/net/ipv4/conf/all/arp_announce": 1, "sys/net/ipv4/conf/all/rp_filter": 2,
    }  # fmt: skip
    for name, content in proc.items():
        tree.write(f"/proc/{name}", content)
    tree.recorded |= {"statvfs /": [3_840_000_000_000, 3_000_000_000_000], "statvfs /run": [8 * GIB, 8 * GIB]}
    tree.recorded["containers"] = {
        "engine": "docker", "version": "27.5.1", "root": "/var/lib/docker", "images": [], "running": 0,
    }  # fmt: skip
    tree.recorded["clock"] = {"synchronised": True, "service": "chronyd", "offset_s": 0.00002}


def _boot(tree: Tree) -> None:
    """What holds after the next boot, as the operations of this project write it."""
    tree.write("/proc/cmdline", f"BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 ro {CMDLINE}")
    tree.write("/etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"')
    tree.write("/etc/default/grub.d/90-shakedown.cfg", f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {CMDLINE}"')
    tree.write("/boot/grub/grub.cfg", f"menuentry 'Linux' {{\n\tlinux\t/vmlinuz root=/dev/nvme0n1p2 ro {CMDLINE}\n}}")
    settings = ["cpu_governor=performance", "c2=disabled", "thp=always", "acs=off"]
    settings.append(f"max_read_request.{tree.nic.vendor}=4096")
    settings += [f"mtu.{tree.interface(index)}=9000" for index in range(tree.count)]
    tree.write("/etc/shakedown/boot.conf", "\n".join(["# written by shakedown", *settings]))
    tree.write("/etc/systemd/system/shakedown-boot.service", "[Unit]")
    unit = "/etc/systemd/system/shakedown-boot.service"
    tree.link("/etc/systemd/system/multi-user.target.wants/shakedown-boot.service", unit)
    conf = ["kernel.numa_balancing=0", *(f"net.ipv4.conf.all.{key}" for key in ("arp_ignore=2", "arp_announce=1"))]
    tree.write("/etc/sysctl.d/90-shakedown.conf", "\n".join([*conf, "net.ipv4.conf.all.rp_filter=2"]))
    tree.write("/etc/security/limits.d/90-shakedown.conf", "\n".join(
        f"{domain} - {item}" for domain in ("*", "root") for item in ("memlock unlimited", "nofile 1048576")
    ))  # fmt: skip
    modules = ["amdgpu", tree.nic.module, "ib_uverbs", "ib_umad", "rdma_ucm"]
    tree.write("/etc/modules-load.d/shakedown.conf", "\n".join(modules))
    (tree.path / "run/systemd/system").mkdir(parents=True)


def _userland(tree: Tree) -> None:
    tree.write("/etc/os-release", 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.2 LTS"')
    tree.write("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\njob:x:1000:1000::/home/job:/bin/bash")
    tree.write("/etc/group", "root:x:0:\nvideo:x:44:root,job\nrender:x:993:root,job\njob:x:1000:")
    tree.write("/opt/rocm/.info/version", tree.gpu.rocm)
    tree.write("/usr/lib/x86_64-linux-gnu/libibverbs.so.1", b"\x7fELF IBVERBS_1.14 IBVERBS_PRIVATE_34")
    tree.write(tree.nic.library.format(abi=34), f"provider {tree.nic.driver} {tree.nic.firmware}".encode())
    tree.write(f"/etc/libibverbs.d/{tree.nic.driver}.driver", f"driver {tree.nic.driver}")


def _device_files(tree: Tree) -> None:
    devices: dict[str, tuple[int, int, str, str]] = {"/dev/kfd": (KFD_MAJOR, 0, "0660", "render")}
    devices["/dev/infiniband/rdma_cm"] = (10, 122, "0666", "root")
    for index in range(tree.count):
        for partition in range(PARTITIONS):
            minor = tree.render(index, partition)
            files = {f"renderD{minor}": (minor, "render"), f"card{minor - 127}": (minor - 127, "video")}
            for name, (number, group) in files.items():
                devices[f"/dev/dri/{name}"] = (DRM_MAJOR, number, "0660", group)
                if partition:  # not configured, so that it cannot be opened: as a socket cannot
                    (tree.path / "dev/dri").mkdir(parents=True, exist_ok=True)
                    os.mknod(tree.path / "dev/dri" / name, stat.S_IFSOCK | 0o660)
        devices[f"/dev/infiniband/uverbs{index}"] = (231, 192 + index, "0666", "root")
        devices[f"/dev/infiniband/umad{index}"] = (231, index, "0600", "root")
    for path in devices:
        if not (tree.path / path.lstrip("/")).exists():
            tree.write(path)
    tree.write("/dev/kmsg", "6,1,1000,-;Linux version 6.8.0-60-generic\n6,2,2000,-;mce: CPU supports 64 MCE banks")
    for path, (major, minor, mode, group) in devices.items():
        file = {"kind": "char", "major": major, "minor": minor, "mode": mode, "owner": "root", "group": group}
        openable = not (tree.path / path.lstrip("/")).is_socket()
        tree.recorded["device " + path] = {"path": path, **file, "openable": openable}


def _gpu_missing(tree: Tree) -> None:
    """The last GPU fell off the bus: its PCI function, its KFD node and its device file are gone."""
    (tree.path / f"sys/bus/pci/devices/{tree.gpu_bdf(tree.count - 1)}").unlink()
    for partition in range(PARTITIONS):
        (tree.path / f"dev/dri/renderD{tree.render(tree.count - 1, partition)}").unlink()
    node = tree.path / f"sys/devices/virtual/kfd/kfd/topology/nodes/{tree.count + 1}"
    (node / "properties").unlink()
    node.rmdir()


def _no_rocev2(tree: Tree) -> None:
    for kind in (tree.path / f"{tree.hca(2).lstrip('/')}/ports/1/gid_attrs/types").iterdir():
        kind.write_text("IB/RoCE v1\n")


def _wrong_abi(tree: Tree) -> None:
    library = tree.path / tree.nic.library.format(abi=34).lstrip("/")
    library.rename(tree.path / tree.nic.library.format(abi=59).lstrip("/"))


def _port_down(tree: Tree) -> None:
    tree.write(f"{tree.hca(3)}/ports/1/state", "1: DOWN")
    tree.write(f"{tree.hca(3)}/ports/1/phys_state", "3: Disabled")


def _driver_missing(tree: Tree) -> None:
    (tree.path / "dev/kfd").unlink()
    del tree.recorded["device /dev/kfd"]
    modules = tree.path / "proc/modules"
    modules.write_text("".join(line for line in modules.read_text().splitlines(True) if "amdgpu" not in line))


def _gpu_reset(tree: Tree) -> None:
    tree.write("/dev/kmsg", "3,9,9000,-;amdgpu 0000:05:00.0: amdgpu: GPU reset begin!")


FAULTS: dict[str, Callable[[Tree], Any]] = {
    "gpu_missing": _gpu_missing,
    "gpu_link_x8": lambda tree: tree.write(f"{tree.folder(tree.gpu_bdf(1))}/current_link_width", 8),
    "nic_link_x8": lambda tree: tree.write(f"{tree.folder(tree.nic_bdf(1))}/current_link_width", 8),
    "port_down": _port_down,
    "no_rocev2": _no_rocev2,
    "wrong_abi": _wrong_abi,
    "partition": lambda tree: tree.write(f"{tree.folder(tree.gpu_bdf(0))}/current_compute_partition", "CPX"),
    "acs_on": lambda tree: tree.write(f"{Path(tree.folder(tree.gpu_bdf(0))).parent}/config", pci_config(acs=0x1D)),
    "max_read_request": lambda tree: tree.write(f"{tree.folder(tree.nic_bdf(4))}/config", pci_config(512)),
    "numa_balancing": lambda tree: tree.write("/proc/sys/kernel/numa_balancing", 1),
    "driver_missing": _driver_missing,
    "gpu_reset": _gpu_reset,
}
