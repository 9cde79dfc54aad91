"""The probe's parsers, and which source of a setting wins."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shakedown.node import cmdline, disks, interfaces, kernel_log, pci, rdma, software, sysctl, system
from shakedown.node.setting import SETTINGS
from shakedown.node.sysctl import NextBoot
from shakedown.node.tree import Tree, Unreadable
from tests.node_trees import pci_config

Write = Callable[[str, str], None]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(str(tmp_path))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(path: str, text: str) -> None:
        file = tmp_path / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return put


def persisted(tree: Tree, systemd: bool) -> str | None:
    return NextBoot(tree, {}, None, systemd).sysctl("kernel.numa_balancing")


class TestSysctl:
    def test_the_last_file_by_name_wins_wherever_it_lies(self, tree: Tree, write: Write) -> None:
        write("/etc/sysctl.d/10-a.conf", "kernel.numa_balancing = 1\n")
        write("/usr/lib/sysctl.d/99-z.conf", "kernel.numa_balancing=0\n")
        assert persisted(tree, systemd=True) == "0"

    def test_a_file_hides_its_namesake_further_down(self, tree: Tree, write: Write) -> None:
        write("/usr/lib/sysctl.d/50-default.conf", "kernel.numa_balancing=1\n")
        write("/etc/sysctl.d/50-default.conf", "# switched off here\n")
        assert persisted(tree, systemd=True) is None

    def test_sysctl_conf_counts_under_systemd_only_where_it_is_linked(self, tree: Tree, write: Write) -> None:
        write("/etc/sysctl.conf", "kernel.numa_balancing=0\n")
        assert persisted(tree, systemd=True) is None
        assert persisted(tree, systemd=False) == "0"
        (Path(tree.root) / "etc/sysctl.d").mkdir()
        (Path(tree.root) / "etc/sysctl.d/99-sysctl.conf").symlink_to("../sysctl.conf")
        assert persisted(tree, systemd=True) == "0"

    def test_globs_give_way_to_names_and_exclusions(self) -> None:
        keys = ("net.ipv4.conf.all.rp_filter", "net.ipv4.conf.all.arp_ignore")
        lines = ["net/ipv4/conf/all/arp_ignore = 1", "net.ipv4.conf.*.rp_filter = 2", "net.ipv4.conf.*.arp_ignore = 2"]
        assert [sysctl.effective(sysctl.parse(lines), key) for key in keys] == ["2", "1"]
        assert sysctl.effective(sysctl.parse([*lines, "-net.ipv4.conf.all.rp_filter"]), keys[0]) is None

    def test_a_dangling_link_is_no_file(self, tree: Tree) -> None:
        folder = Path(tree.root) / "etc/sysctl.d"
        folder.mkdir(parents=True)
        (folder / "99-sysctl.conf").symlink_to("../sysctl.conf")
        assert persisted(tree, systemd=True) is None


class TestCommandLine:
    def test_dropins_add_to_what_stands_there(self, tree: Tree, write: Write) -> None:
        write("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet splash\"\nGRUB_CMDLINE_LINUX='a=1'\n")
        write("/etc/default/grub.d/50-x.cfg", 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=pt"\n')
        write("/etc/default/grub.d/60-y.cfg", 'export GRUB_CMDLINE_LINUX="${GRUB_CMDLINE_LINUX} b=2" # mine\n')
        part = cmdline.read(tree, "debian", "6.8.0")
        assert part["persisted"] == ["a=1", "iommu=pt", "b=2", "quiet", "splash"]
        assert part["loader"] == "grub-dropin"

    def test_what_was_generated_is_what_boots(self, tree: Tree, write: Write) -> None:
        """Edited but not generated: the node would come up without it."""
        write("/etc/default/grub", 'GRUB_CMDLINE_LINUX="iommu=pt"\n')
        write("/boot/grub/grub.cfg", "menuentry {\n  linux /vmlinuz-6.8 root=/dev/sda1 ro quiet\n}\n")
        assert cmdline.read(tree, "debian", "6.8.0")["persisted"] == ["root=/dev/sda1", "ro", "quiet"]

    def test_loader_entries_of_the_rhel_family(self, tree: Tree, write: Write) -> None:
        write("/usr/sbin/grubby", "")
        (Path(tree.root) / "usr/sbin/grubby").chmod(0o755)
        write("/boot/loader/entries/abc-5.14.0-1.conf", "version 5.14.0-1\noptions root=/dev/sda1 ro\n")
        write("/boot/loader/entries/abc-5.14.0-2.conf", "options $kernelopts iommu=pt $tuned_params\n")
        write("/boot/grub2/grubenv", "# GRUB\nsaved_entry=abc-5.14.0-2\nkernelopts=root=/dev/sda1 ro quiet\n###")
        part = cmdline.read(tree, "rhel", "5.14.0-1")
        assert part["persisted"] == ["root=/dev/sda1", "ro", "quiet", "iommu=pt"]
        assert part["loader"] == "grubby"

    def test_no_boot_loader(self, tree: Tree) -> None:
        part = cmdline.read(tree, "debian", "6.8.0")
        assert part["loader"] == "none" and part["persisted"]["unreadable"] == "missing"

    def test_a_quoted_value_is_one_word(self) -> None:
        assert cmdline.parse_words('ro dyndbg="file a.c +p" quiet') == ["ro", 'dyndbg="file a.c +p"', "quiet"]


class TestGroups:
    def test_a_new_login_has_its_primary_group_and_those_that_name_it(self, tree: Tree, write: Write) -> None:
        write("/etc/passwd", f"ada:x:{os.geteuid()}:7:Ada:/home/ada:/bin/sh\n")
        write("/etc/group", "crew:x:7:\nrender:x:8:bob,ada\nvideo:x:9:bob\n")
        part = system.read_account(tree)
        assert (part["user"], part["at_login"]) == ("ada", ["crew", "render"])


class TestLimits:
    LINES = ("* soft nofile 1024", "@video - nofile 4096 # jobs", "job hard nofile 9", "* - memlock -1")

    def test_user_before_group_before_all(self) -> None:
        assert system.effective_limits([*self.LINES], "job", ["video"]) == {"nofile": "4096", "memlock": "unlimited"}
        assert system.effective_limits(["job soft nofile 7", *self.LINES], "job", ["video"])["nofile"] == "7"
        assert system.effective_limits([*self.LINES], "job", [])["nofile"] == "1024"

    def test_root_gets_only_what_names_root(self) -> None:
        assert system.effective_limits([*self.LINES], "root", ["video"]) == {"nofile": None, "memlock": None}
        assert system.effective_limits(["root - nofile 8"], "root", [])["nofile"] == "8"


UNIT: dict[str, Any] = {"enabled": True, "settings": {"mtu.ens1": "9000"}}


class TestMtu:
    @pytest.mark.parametrize(
        ("path", "text"),
        [
            ("/etc/systemd/network/10-x.network", "[Match]\nName=ens2\n[Link]\nMTUBytes=9000\n"),
            ("/etc/systemd/network/20-x.network", "[Match]\nHost=rack[1-4]\nName=ens2\n[Link]\nMTUBytes=9000\n"),
            ("/run/systemd/network/10-netplan-ens2.link", "[Match]\nName=ens2\n[Link]\nMTUBytes=9000\n"),
            ("/etc/NetworkManager/system-connections/a.nmconnection",
             "[connection]\ninterface-name=ens2\n[ethernet]\nmtu=9000\n"),
            ("/etc/sysconfig/network-scripts/ifcfg-ens2", 'DEVICE="ens2"\nMTU="9000"\n'),
            ("/etc/network/interfaces.d/ens2", "auto ens2\niface ens2 inet dhcp\n  mtu 9000\n"),
        ],
    )  # fmt: skip
    def test_known_places(self, tree: Tree, write: Write, path: str, text: str) -> None:
        write(path, text)
        persisted = interfaces.PersistedMtu(tree, UNIT)
        assert (persisted("ens1"), persisted("ens2"), persisted("ens3")) == ("9000", "9000", None)

    def test_our_unit_wins(self, tree: Tree, write: Write) -> None:
        write("/etc/systemd/network/a.network", "[Match]\nName=ens1\n[Link]\nMTUBytes=1500\n")
        assert interfaces.PersistedMtu(tree, UNIT)("ens1") == "9000"
        assert interfaces.PersistedMtu(tree, {"enabled": False, "settings": UNIT["settings"]})("ens1") == "1500"


INFO = {"ServerVersion": "27.5.1", "DockerRootDir": "/var/lib/docker", "ContainersRunning": 2}
IMAGES = [
    {
        "Id": "sha256:1",
        "RepoTags": ["a:1"],
        "RepoDigests": ["a@sha256:2"],
        "Size": 5,
        "Labels": {"maintainer": "x", "rocm_Version": "6.3"},
    },
    {"Id": "sha256:3", "RepoTags": ["<none>:<none>"], "RepoDigests": None, "Size": 6, "Labels": None},
]
PODMAN = """#!/bin/sh
case $1 in
info) echo '{"version": {"Version": "5.4.0"}, "store": {"graphRoot": "/s", "containerStore": {"running": 1}}}' ;;
images) echo '[{"Id": "ab", "Names": ["a:1"], "RepoDigests": ["a@sha256:2"], "Size": 5}]' ;;
--version) echo podman version 5.4.0 ;;
esac
"""


class TestContainers:
    @pytest.fixture
    def serve(self, tmp_path: Path) -> Callable[[int, dict[str, Any]], None]:
        """A daemon on the tree's docker socket that answers by path."""

        def start(status: int, answers: dict[str, Any]) -> None:
            (tmp_path / "run").mkdir()
            server = socket.socket(socket.AF_UNIX)
            server.bind(str(tmp_path / "run/docker.sock"))
            server.listen()

            def work() -> None:
                for _ in range(2):
                    connection, _ = server.accept()
                    with connection:
                        path = connection.recv(4096).split()[1].decode()
                        body = json.dumps(answers[path]).encode()
                        connection.sendall(f"HTTP/1.0 {status} X\r\nContent-Type: a\r\n\r\n".encode() + body)
                server.close()

            threading.Thread(target=work, daemon=True).start()

        return start

    def test_docker(self, tree: Tree, serve: Callable[[int, dict[str, Any]], None]) -> None:
        serve(200, {"/info": INFO, "/images/json": IMAGES})
        part = software.read_containers(tree)
        assert (part["engine"], part["version"], part["root"], part["running"]) == (
            "docker", "27.5.1", "/var/lib/docker", 2,
        )  # fmt: skip
        assert part["images"] == [
            {
                "id": "sha256:1",
                "tags": ["a:1"],
                "digests": ["a@sha256:2"],
                "size_bytes": 5,
                "labels": {"rocm_Version": "6.3"},
            },
            {"id": "sha256:3", "tags": [], "digests": [], "size_bytes": 6, "labels": {}},
        ]

    def test_a_daemon_in_trouble(self, tree: Tree, serve: Callable[[int, dict[str, Any]], None]) -> None:
        serve(500, {"/info": {"message": "no"}, "/images/json": {"message": "no"}})
        part = software.read_containers(tree)
        assert {part[name]["unreadable"] for name in part} == {"failed"}

    def test_a_socket_that_nobody_serves(self, tree: Tree, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir()
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp_path / "run/docker.sock"))
        part = software.read_containers(tree)
        assert part["engine"]["unreadable"] == "failed" and "refused" in part["engine"]["detail"]

    def test_podman(self, tree: Tree, tmp_path: Path, write: Write) -> None:
        write("/usr/bin/podman", PODMAN)
        (tmp_path / "usr/bin/podman").chmod(0o755)
        assert software.read_containers(tree)["images"] == [], (
            "nothing is stored, and asking would make podman's folders"
        )
        (tmp_path / "var/lib/containers/storage").mkdir(parents=True)
        part = software.read_containers(tree)
        assert (part["engine"], part["version"], part["running"]) == ("podman", "5.4.0", 1)
        assert part["images"] == [
            {"id": "sha256:ab", "tags": ["a:1"], "digests": ["a@sha256:2"], "size_bytes": 5, "labels": {}}
        ]


def test_pci_configuration_space() -> None:
    def config(data: bytes) -> pci.Config:
        return lambda at: int.from_bytes(data[at : at + 4], "little") if at + 4 <= len(data) else None

    for size in (128, 256, 512, 1024, 2048, 4096):
        assert pci.max_read_request(config(pci_config(size))) == size
    with pytest.raises(Unreadable, match="not permitted"):
        pci.max_read_request(config(pci_config()[:64]))  # what the kernel gives to an ordinary user


def test_only_the_controls_of_the_acs_register_count(tree: Tree, tmp_path: Path) -> None:
    for number, bits in enumerate((0, 1, 0x1D, 0x8000, None)):
        folder = tmp_path / f"sys/bus/pci/devices/0000:c{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "config").write_bytes(pci_config(acs=bits))
    assert SETTINGS["pcie_acs"].running(tree) == ["0000:c1:00.0", "0000:c2:00.0"]


def test_error_counters_of_queues_are_added_up() -> None:
    names = ["rx_discards", "[0]: rx_drops", "[1]: rx_drops", "rx0_cqe_err", "rx12_cqe_err", "tx_packets"]
    assert interfaces.error_counters(names, [1, 2, 3, 4, 5, 6]) == {"rx_discards": 1, "*rx_drops": 5, "rx*_cqe_err": 9}


def test_routes(tree: Tree, write: Write) -> None:
    lines = [
        "Iface Destination",
        "eth0 00000000 0100000A 0003 0 0 100 00000000",
        "eth0 0000000A 00000000 0001 0 0 0 000000FF",
    ]
    write("/proc/net/route", "\n".join(lines))
    assert interfaces.read_routes(tree) == [
        {"destination": "0.0.0.0/0", "gateway": "10.0.0.1", "interface": "eth0", "metric": 100},
        {"destination": "10.0.0.0/8", "gateway": None, "interface": "eth0", "metric": 0},
    ]


def test_kernel_log_faults(tree: Tree, write: Write) -> None:
    records = ["4,7,1,-;bnxt_en ens1: NIC Link is Down", " SUBSYSTEM=pci", "6,8,2,-;mce: CPU supports 32 MCE banks"]
    write("/dev/kmsg", "\n".join([*records, "0,9,3500000,-;mce: [Hardware Error]: CPU 3", ""]))
    part = kernel_log.read(tree)
    assert [(each["number"], each["priority"]) for each in part["records"]] == [(7, 4), (8, 6), (9, 0)]
    assert part["records"][2] == {
        "number": 9,
        "priority": 0,
        "seconds": 3.5,
        "message": "mce: [Hardware Error]: CPU 3",
    }


def test_modules(tree: Tree, write: Write) -> None:
    write("/proc/modules", "amdgpu 1 0 - Live 0x0\n")
    write("/etc/modules-load.d/a.conf", "# comment\nib-uverbs\n")
    write("/etc/modprobe.d/b.conf", "blacklist amdgpu\ninstall ib_umad /bin/false\noptions x y=1\n")
    write(
        "/lib/modules/6.8/modules.builtin", "kernel/drivers/infiniband/core/rdma_cm.ko\nkernel/drivers/md/dm-mod.ko\n"
    )
    part = cmdline.read_modules(tree, "6.8", {"running": ["modprobe.blacklist=nouveau,bnxt_re"]})
    assert part["persisted"] == ["ib_uverbs"] and part["builtin"] == ["dm_mod", "rdma_cm"]
    assert part["blacklisted"] == ["amdgpu", "bnxt_re", "ib_umad", "nouveau"]


def test_small_parsers() -> None:
    assert system.family_of({"ID": "rocky", "ID_LIKE": "rhel centos fedora"}) == "rhel"
    assert system.family_of({"ID": "arch"}) == "other"
    assert rdma.mapped_ipv4("0000:0000:0000:0000:0000:ffff:c0a8:0105") == "192.168.1.5"
    assert rdma.mapped_ipv4("fe80:0000:0000:0000:0000:ffff:c0a8:0105") is None


def test_providers_are_known_by_their_files_names_and_drivers_by_their_lines(tree: Tree, write: Write) -> None:
    for name in ("libbnxt_re-rdmav34.so", "libbnxt_re.so", "x-rdmav3.so"):
        write("/usr/local/lib/" + name, "")
    write("/etc/libibverbs.d/a.driver", "# a provider of the NIC's maker\ndriver bnxt_re\ndriver other")
    write("/etc/libibverbs.d/b.driver", "driver")
    found = software.read_verbs(tree)
    assert [(part["path"], part["provider"], part["abi"]) for part in found["providers"]] == [
        ("/usr/local/lib/libbnxt_re-rdmav34.so", "bnxt_re", 34)
    ]
    assert found["drivers"] == {"/etc/libibverbs.d/a.driver": "bnxt_re"}


def test_the_clock_is_steered_by_the_service_that_runs(tree: Tree, write: Write) -> None:
    with pytest.raises(Unreadable, match="missing"):
        system._service(tree)
    write("/run/systemd/timesync/synchronized", "")
    assert system._service(tree) == "systemd-timesyncd"
    write("/run/chrony/chronyd.pid", "77\n")
    assert system._service(tree) == "systemd-timesyncd", "a file of a process that is gone"
    write("/proc/77/stat", "")
    assert system._service(tree) == "chronyd"


@pytest.mark.parametrize(("service", "offset"), [("chronyd", 0.25), ("ntpd", -0.5)])
def test_a_clock_is_as_far_off_as_the_one_says_who_knows(
    monkeypatch: pytest.MonkeyPatch, service: str, offset: float
) -> None:
    """chronyd steers by frequency alone, and the kernel's own offset stays at 0."""
    monkeypatch.setattr(system, "_timex", lambda: (True, -0.5))
    monkeypatch.setattr(system, "_service", lambda tree: service)
    monkeypatch.setattr(system, "run_tool", lambda command, seconds: "A,B,3,1795241529.9,0.25,-0.1")
    monkeypatch.setattr(Tree, "tool", lambda self, name: f"/usr/bin/{name}")
    assert system.read_clock(Tree()) == {"synchronised": True, "service": service, "offset_s": offset}


def test_podman_has_stored_something_where_its_user_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not software._storage_exists(Tree())
    (tmp_path / ".local/share/containers/storage").mkdir(parents=True)
    assert software._storage_exists(Tree())


MOUNTS = """
cd {folder}; mkdir plain bound twice above 'my disk'
mount -t tmpfs plain plain; mkdir plain/inner plain/again plain/outer
mount --bind plain/inner plain/again
mount --bind /usr/share plain/outer
mount -t tmpfs one twice; mount -t tmpfs two twice
mkdir above/below; mount -t tmpfs below above/below; mount -t tmpfs above above
mount -t tmpfs spaced 'my disk'
cd {project}; exec {python} -c 'import json; from shakedown.node import disks, tree
print(json.dumps([part for part in disks.read(tree.Tree()) if part["mount"].startswith("{folder}/")]))'
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_the_mounts_that_a_path_can_reach(tmp_path: Path) -> None:
    """What another mount covers is not reached; a folder that is mounted a second time within its own file system is no
    file system of its own, and one that is mounted into another is."""
    script = MOUNTS.format(folder=tmp_path, project=Path(__file__).parents[2], python=sys.executable)
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = {part["mount"].removeprefix(f"{tmp_path}/"): part for part in json.loads(done.stdout)}
    assert {name: part["device"] for name, part in found.items() if name != "plain/outer"} == {
        "plain": "plain", "twice": "two", "above": "above", "my disk": "spaced",
    }  # fmt: skip
    assert found["plain/outer"]["fstype"] != "tmpfs"
    assert all(0 < part["free_bytes"] <= part["total_bytes"] for part in found.values())


def test_what_would_be_mounted_by_asking_is_not_asked(tree: Tree, write: Write) -> None:
    write("/proc/self/mounts", "systemd-1 /home autofs rw 0 0\n")
    (part,) = disks.read(tree)
    assert part["free_bytes"]["unreadable"] == "missing" and "on demand" in part["free_bytes"]["detail"]


def test_a_file_server_that_is_gone_costs_its_own_room(
    tree: Tree, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def room(path: str) -> tuple[int, int]:
        if "/dead" in path:
            signal.pause()  # not time.sleep, which gevent may have patched in this process
        return 10, 5

    monkeypatch.setattr(disks, "room", room)
    monkeypatch.setattr(disks, "_SECONDS", 2)
    write("/proc/self/mounts", "a:/ /dead nfs4 rw 0 0\nb:/ /alive nfs4 rw 0 0\n/dev/sda1 /dead/disk ext4 rw 0 0\n")
    alive, dead, below = disks.read(tree)
    assert (alive["total_bytes"], alive["free_bytes"]) == (10, 5)
    assert (dead["total_bytes"]["unreadable"], dead["mount"]) == ("timed out", "/dead")
    assert (below["total_bytes"]["unreadable"], below["mount"]) == ("timed out", "/dead/disk"), "its path leads through"


def test_mpi_and_rccl_are_found_where_they_are_put(tree: Tree, write: Write) -> None:
    nothing = software.read(tree)
    assert {part["unreadable"] for part in nothing.values()} == {"missing"}
    write("/usr/lib64/openmpi/bin/mpirun", "")
    assert software.read(tree)["mpi"] == "MPI (/usr/lib64/openmpi/bin/mpirun)"
    write("/usr/lib64/openmpi/bin/ompi_info", "")
    assert software.read(tree)["mpi"] == "Open MPI (/usr/lib64/openmpi/bin/mpirun)"
    write("/usr/lib/x86_64-linux-gnu/librccl.so.1.0.60304", "")
    Path(tree.path("/usr/lib/x86_64-linux-gnu/librccl.so.1")).symlink_to("librccl.so.1.0.60304")
    assert software.read(tree)["rccl"] == "1.0.60304 (/usr/lib/x86_64-linux-gnu/librccl.so.1)"
    write("/opt/rocm/lib/librccl.so.1", "")
    write("/opt/rocm/include/rccl/rccl.h", "#define NCCL_MAJOR 2\n#define NCCL_MINOR 22\n#define NCCL_PATCH 3\n")
    assert software.read(tree)["rccl"] == "2.22.3 (/opt/rocm/lib/librccl.so.1)"
    assert software.parse_version(["#define NCCL_MAJOR 2", "#define NCCL_MINOR 22"]) is None


def test_only_labels_that_name_a_version_are_kept_and_not_without_end() -> None:
    assert software.version_labels(None) == {} == software.version_labels({"maintainer": "x"})
    assert software.version_labels({"A.VERSION": "1" * 1000}) == {"A.VERSION": "1" * 100}
    assert len(software.version_labels({f"{number}.version": "1" for number in range(1000)})) == 50


@pytest.mark.parametrize(
    ("user", "inherited", "home"),
    [
        ("ada", "/elsewhere", "/export/ada"),
        ("of-a-directory", "/net/home/x", "/net/home/x"),
        ("of-a-directory", "", None),
        ("odd", "relative", None),
    ],
)
def test_the_home_is_what_passwd_says_and_else_what_sshd_set(user: str, inherited: str, home: str | None) -> None:
    rows = system.parse_table(["ada:x:1000:1000::/export/ada:/bin/bash", "odd:x:1001:1001::home:/bin/sh"])
    assert system.home_of(rows, user, inherited) == home
