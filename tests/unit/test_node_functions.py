"""Decisions of what travels to a node, in this process: old versions, folders of others, signatures, amdsmi's forms."""

from __future__ import annotations

import errno
import grp
import json
import os
import pwd
import socket
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import shakedown.facts.node as facts
from shakedown.node import (
    boot,
    data,
    devices,
    disks,
    gpu,
    install,
    interfaces,
    owners,
    pci,
    sign,
    smi,
    software,
    system,
)
from shakedown.node.setting import Failed
from shakedown.node.tree import Tree, Unreadable, is_unreadable
from shakedown.node.udev import Device
from tests.states import healthy
from tests.views import tree_of

DIGEST = "0123456789abcdef" * 4
DAY = install.FORGOTTEN_AFTER_S


def test_other_versions_are_forgotten_after_a_day_and_nothing_else_is(tmp_path: Path) -> None:
    current = f"{DIGEST}-cpython-312"
    ages = {
        current: 9 * DAY,
        f"{DIGEST}-cpython-38": DAY + 60,
        f"{DIGEST}-cpython-39": DAY - 60,
        ".new-a1b2": DAY + 60,
        ".new-c3d4": 0,
        f"{DIGEST[1:]}-cpython-38": 9 * DAY,
        "notes": 9 * DAY,
        f"{DIGEST}-cpython-38.kept": 9 * DAY,
    }
    for name, age in ages.items():
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    install.forget_old(str(tmp_path), str(tmp_path / current))
    assert ages.keys() - {path.name for path in tmp_path.iterdir()} == {f"{DIGEST}-cpython-38", ".new-a1b2"}


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A folder of data as Shakedown leaves it."""
    folder = tmp_path / "set"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner/a.bin").write_bytes(b"12345")
    (folder / data.MARK).write_text(json.dumps({"files": {"inner/a.bin": 5}}))
    (folder / data.MARK).chmod(0o600)
    folder.chmod(0o755)
    return folder


def test_data_is_prepared_where_its_files_are_those_of_its_mark(prepared: Path) -> None:
    assert data.prepared(str(prepared)) == "prepared"
    (prepared / "inner/a.bin").write_bytes(b"123456")
    assert data.prepared(str(prepared)).startswith("has changed since it was prepared")
    for text in ("{", "[]", "{}", "null"):
        (prepared / data.MARK).write_text(text)
        assert data.prepared(str(prepared)).startswith("has a mark that cannot be read")
    (prepared / data.MARK).unlink()
    assert data.prepared(str(prepared)).startswith("exists, and Shakedown did not prepare it")


def test_a_mark_counts_only_where_no_other_user_could_have_made_it(prepared: Path) -> None:
    (prepared / data.MARK).chmod(0o666)
    assert "so another user could have written it" in data.prepared(str(prepared))
    (prepared / data.MARK).chmod(0o600)
    prepared.chmod(0o777)
    assert data.prepared(str(prepared)).startswith("has a mark that another user could have written")


def test_a_folder_that_is_empty_or_not_there_is_absent(tmp_path: Path) -> None:
    assert data.prepared(str(tmp_path / "set")) == data.prepared(str(tmp_path)) == "absent"
    assert "is not an absolute path" in data.prepared("set")


@pytest.mark.parametrize(
    ("modes", "refused"),
    [
        ({"": 0o755, "a": 0o700, "a/b": 0o700}, None),
        ({"": 0o755, "a": 0o700, "a/b": 0o777}, "a/b"),
        ({"": 0o755, "a": 0o700, "a/b": 0o1777}, "a/b"),  # the folder itself, sticky or not
        ({"": 0o755, "a": 0o777, "a/b": 0o700}, "a"),
        ({"": 0o755, "a": 0o1777, "a/b": 0o700}, None),
        ({"": 0o777, "a": 0o700, "a/b": 0o700}, ""),
    ],
)
def test_a_place_is_where_no_other_user_can_put_anything(
    tmp_path: Path, modes: dict[str, int], refused: str | None
) -> None:
    folder = tmp_path / "place"
    (folder / "a/b").mkdir(parents=True)
    for name, mode in modes.items():
        (folder / name).chmod(mode)
    if refused is None:
        assert owners.place(f"{folder}/a/./b") == str(folder / "a/b")
        return
    with pytest.raises(PermissionError) as problem:
        owners.place(str(folder / "a/b"))
    assert problem.value.filename == str(folder / refused)


@pytest.mark.parametrize(
    ("uid", "gid", "mode", "is_closed"),
    [
        (0, 0, 0o755, True),
        (0, 0, 0o775, True),
        (0, owners.STAFF, 0o775, True),
        (0, 6, 0o775, False),  # of the group disk
        (0, 6, 0o755, True),
        (0, 0, 0o757, False),
        (65534, 65534, 0o700, os.geteuid() == 65534),
    ],
)
def test_a_folder_is_closed_to_other_users_by_its_owner_group_and_mode(
    uid: int, gid: int, mode: int, is_closed: bool
) -> None:
    info: Any = SimpleNamespace(st_uid=uid, st_gid=gid, st_mode=stat.S_IFDIR | mode)
    assert owners.closed(info) == is_closed


@pytest.mark.parametrize(
    ("group", "gid", "members", "is_harmless"),
    [
        ("ada", 1000, [], True),
        ("ada", 1000, ["ada"], True),
        ("ada", 1000, ["bob"], False),
        ("ada", 1000, ["ada", "bob"], False),
        ("users", 1000, [], False),
        ("ada", 1001, [], False),  # of the user's name, and not the user's own
        (None, 1000, [], False),
    ],
)
def test_a_group_that_may_write_is_harmless_where_it_adds_no_user(
    group: str | None, gid: int, members: list[str], is_harmless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def getgrgid(_gid: int) -> Any:
        return {}["no such group"] if group is None else SimpleNamespace(gr_name=group, gr_mem=members)

    monkeypatch.setattr(grp, "getgrgid", getgrgid)
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: SimpleNamespace(pw_name="ada", pw_gid=1000))
    assert owners.harmless(gid, 1000) == is_harmless


def test_a_text_without_a_signature_has_the_end_of_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "".join(f"{number:05d}." for number in range(120))
    done = SimpleNamespace(returncode=1, stderr=f"{words}\n".encode(), stdout=b"")
    monkeypatch.setattr(sign, "_key", lambda _tree, _kind: ("/etc/ssh/key", "ssh-ed25519 AAAA"))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert sign.made(Tree(), "ssh-ed25519", about="log") == {"reason": f"ssh-keygen: {words[-300:]}"}
    done.returncode, done.stdout = 0, b"-----BEGIN SSH SIGNATURE-----"
    assert sign.made(Tree(), "ssh-ed25519", about="log") == {
        "text": '{"about": "log"}', "signature": "-----BEGIN SSH SIGNATURE-----", "host_key": "ssh-ed25519 AAAA",
    }  # fmt: skip

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(f"{words} and no more")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert sign.made(Tree(), "ssh-ed25519", about="log") == {"reason": words[:300]}


@pytest.mark.parametrize(
    ("info", "watts"),
    [
        ({"current_socket_power": 750, "socket_power": 1, "average_socket_power": 2}, 750.0),
        ({"current_socket_power": "N/A", "socket_power": 0, "average_socket_power": 140}, 140.0),
        ({"current_socket_power": -1, "average_socket_power": 0.5}, 0.5),
        ({"current_socket_power": "N/A", "average_socket_power": 0}, None),
        ({}, None),
    ],
)
def test_the_power_of_a_gpu_is_the_first_figure_that_it_has(info: dict[str, Any], watts: float | None) -> None:
    library = SimpleNamespace(amdsmi_get_power_info=lambda _handle: info)
    if watts is not None:
        assert smi._power(library, 0) == watts
        return
    with pytest.raises(Unreadable, match="no socket power"):
        smi._power(library, 0)


@pytest.mark.parametrize("named", ["", "data", "deploy", "configuration"])
def test_a_host_that_names_no_argument_has_those_of_the_configuration(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Configured:
        """A run's state, of which pyinfra's arguments are asked."""

    read: list[Any] = []

    def pop(state: Any, host: Any, _arguments: Any) -> tuple[dict[str, Any], list[str]]:
        read.append(host)
        return {"_sudo": True, "name": "x"}, []

    data_of = {"gpu": "mi300x", **({"_sudo": True} if named == "data" else {})}
    hosts: list[Any] = [
        SimpleNamespace(
            data=SimpleNamespace(dict=lambda: data_of),
            current_deploy_kwargs={"_sudo": True} if named == "deploy" else None,
            state=state,
        )
        for state in [Configured()] * 2
    ]
    monkeypatch.setattr(facts, "pop_global_arguments", pop)
    monkeypatch.setattr(facts, "ctx_config", SimpleNamespace(isset=lambda: named == "configuration"))
    assert [facts.connector_arguments(host) for host in hosts] == [{"_sudo": True}] * 2
    assert read == (hosts if named else hosts[:1])


@pytest.mark.parametrize("recorded", [True, False])
def test_a_nodes_answers_are_asked_for_where_somebody_takes_them(
    monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    state = healthy().model_dump(mode="json")
    commands: list[str] = []

    def run(command: Any, **_how: Any) -> tuple[bool, Any]:
        commands.append(str(command))
        document = {"state": state, "answers": {"/proc/uptime": "1"}} if recorded else state
        return True, SimpleNamespace(stdout_lines=[json.dumps(document)])

    monkeypatch.setattr(facts, "connector_arguments", lambda _host: {})
    host: Any = SimpleNamespace(run_shell_command=run, connector_data={})
    answers: dict[str, Any] = {}
    found = facts.read_node(host, answers=answers if recorded else None)
    assert found == healthy() and ("record" in commands[0]) is recorded
    assert answers == ({"/proc/uptime": "1"} if recorded else {})


def test_the_arguments_of_a_fact_are_those_that_its_caller_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "_GET_FACT", ("_get_fact", __name__))

    def _get_fact(executor_kwargs: dict[str, Any]) -> dict[str, Any]:
        return (lambda: facts._connector_arguments())()

    assert _get_fact({"_sudo": True, "name": "x"}) == {"_sudo": True}
    assert facts._connector_arguments() == {}


class Setting:
    """A setting of shakedown/node/settings, as `boot` sees one."""

    def __init__(self, by_unit: bool = True, takes: str = "on", fails: Exception | None = None) -> None:
        self.by_unit, self.takes, self.fails = by_unit, takes, fails
        self.made: list[str] = []

    def accepts(self, value: str) -> bool:
        return value == self.takes

    def make(self, _tree: Tree, detail: str, value: str) -> None:
        if self.fails:
            raise self.fails
        self.made.append(f"{detail}={value}")


@pytest.mark.parametrize(
    ("setting", "value", "failure"),
    [
        (Setting(), "on", ""),
        (Setting(), "off", "no such setting: thp.x=off"),
        (Setting(by_unit=False), "on", "no such setting: thp.x=on"),
        (Setting(by_unit=False), "off", "no such setting: thp.x=off"),
        (None, "on", "no such setting: thp.x=on"),
        (Setting(fails=Failed("two of eight")), "on", "two of eight"),
        (Setting(fails=FileNotFoundError(2, "No such file or directory", "/sys/x")), "on", "thp.x=on: /sys/x"),
    ],
)
def test_a_setting_is_made_at_boot_where_the_unit_can_make_it(
    setting: Setting | None, value: str, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot, "find", lambda key: ({"thp.x": setting} if setting else {})[key] and (setting, "x"))
    found = boot.make(Tree(), "thp.x", value)
    assert found.startswith(failure) and bool(found) == bool(failure)
    assert setting is None or setting.made == ([] if failure else ["x=on"])


@pytest.mark.parametrize(("name", "opened"), [("uverbs0", True), ("issm0", False), ("xissm0", True), ("umad0", True)])
@pytest.mark.parametrize("refused", [True, False])
def test_a_device_is_opened_but_for_that_of_a_subnet_manager(
    name: str, opened: bool, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def open_it(path: str, _flags: int) -> int:
        tried.append(path)
        if refused:
            raise PermissionError(1, "Operation not permitted", path)
        return os.dup(0)

    names = ("R_OK", "W_OK", "O_RDWR", "O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "close")
    own = SimpleNamespace(open=open_it, access=lambda *_: not refused, **{each: getattr(os, each) for each in names})
    monkeypatch.setattr(devices, "os", own)
    assert devices._openable(Tree(), f"/dev/infiniband/{name}") is not refused
    assert tried == ([f"/dev/infiniband/{name}"] if opened else [])


ABSENT, CLOSED = Unreadable("missing", "x").as_part(), Unreadable("not permitted", "y").as_part()


@pytest.mark.parametrize(
    ("driver", "library", "merged"),
    [
        ("MI300X", "AMD Instinct MI300X", "AMD Instinct MI300X"),
        ("MI300X", CLOSED, "MI300X"),
        (ABSENT, "AMD Instinct MI300X", "AMD Instinct MI300X"),
        (ABSENT, CLOSED, CLOSED),
    ],
)
def test_a_value_wins_over_a_reason_and_the_librarys_word_over_the_drivers(
    driver: Any, library: Any, merged: Any
) -> None:
    bdf = "0000:01:00.0"
    (found,) = gpu.merge([{"bdf": bdf, "model": driver}], {"gpus": {bdf: {"model": library}}}, {"ecc": {bdf: 0}})
    assert found == {"bdf": bdf, "model": merged, "ecc": 0}
    (found,) = gpu.merge([{"bdf": bdf, "model": driver}], CLOSED, {"ecc": ABSENT})
    assert found == {"bdf": bdf, "model": CLOSED if driver is ABSENT else driver, "ecc": ABSENT}
    (found,) = gpu.merge([{"bdf": bdf, "model": ABSENT}], {"gpus": {}}, {"ecc": {}})
    assert found["model"] == found["ecc"] and "does not list this GPU" in found["ecc"]["detail"]
    assert gpu.merge(ABSENT, {"gpus": {}}, {}) == ABSENT


def disk(name: str, bus: str, **files: str) -> dict[str, str | None]:
    device = f"/sys/block/{name}/device"
    return {f"{device}/subsystem": f"-> ../../../bus/{bus}", **{f"{device}/{key}": text for key, text in files.items()}}


def controller(name: str, parent: str, model: str) -> dict[str, str | None]:
    folder = f"/sys/devices/pci0000:e0/{parent}/nvme/{name}"
    return {f"{folder}/model": model, f"/sys/class/nvme/{name}": f"-> ../..{folder.removeprefix('/sys')}"}


def test_each_drive_has_health_of_its_own_but_for_virtual_ones() -> None:
    files = {
        **controller("nvme0", "0000:e1:00.0", "PM9A3"),
        **controller("nvme1", "0000:e2:00.0", "QEMU NVMe Ctrl"),
        **controller("nvme2", "nvme-fabrics", "Linux"),
        **disk("sda", "scsi", vendor="ATA", model="MZ7L3480"),
        **disk("sdb", "scsi", vendor="QEMU", model="QEMU HARDDISK"),
        **disk("vda", "virtio"),
        **{name: text for each in ("sr0", "fd0", "mmcblk0", "nvme0n1") for name, text in disk(each, "scsi").items()},
        "/sys/block/loop0/size": "0",
    }
    with tree_of(files) as tree:
        found = {part["name"]: part["kind"] for part in disks._drives(tree)}
    assert found == {
        "nvme0": "nvme", "nvme1": "virtual", "nvme2": "virtual", "sda": "disk", "sdb": "virtual", "vda": "virtual",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("root", "uid", "arguments", "config", "code", "said"),
    [
        ("/tree", 0, [], "thp=on", 0, ""),
        ("/tree", 7, [], "thp=on", 0, ""),  # a tree of the user's own
        ("", 7, [], "thp=on", 1, "shakedown-boot: needs root\n"),
        ("", 7, ["thp=on"], None, 1, "shakedown-boot: needs root\n"),
        ("/tree", 0, [], None, 1, "/etc/shakedown/boot.conf: No such file or directory\n"),
        ("/tree", 0, ["thp=on", "thp=off"], None, 1, "shakedown-boot: no such setting: thp=off\n"),
        ("/tree", 0, [], "thp=off", 1, "shakedown-boot: no such setting: thp=off\n"),
        ("/tree", 0, ["thp=on"], "thp=off", 0, ""),
    ],
)
def test_the_units_program_makes_what_its_file_or_its_arguments_name(
    root: str, uid: int, arguments: list[str], config: str | None, code: int, said: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    environ = {"SHAKEDOWN_ROOT": str(tmp_path)} if root else {}
    monkeypatch.setattr(boot, "os", SimpleNamespace(environ=environ, geteuid=lambda: uid))
    monkeypatch.setattr(sys, "argv", ["shakedown-boot", *arguments])
    monkeypatch.setattr(boot, "find", lambda _key: (Setting(), ""))
    if config:
        (tmp_path / "etc/shakedown").mkdir(parents=True)
        (tmp_path / "etc/shakedown/boot.conf").write_text(f"{config}\n")
    assert boot.main() == code
    assert capsys.readouterr().err.endswith(said)


@pytest.mark.parametrize(
    ("answer", "status", "offset", "clock"),
    [
        (0, 0x2000, 5_000_000, (True, 0.005)),
        (0, 0x2001, -5_000_000, (True, -0.005)),
        (0, 0x0001, 5_000, (True, 0.005)),
        (5, 0x2040, 0, (False, 0.0)),
        (-1, 0, 0, None),
    ],
)
def test_the_clock_is_as_the_kernel_has_it(
    answer: int, status: int, offset: int, clock: tuple[bool, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def adjtimex(block: Any) -> int:
        block[:48] = struct.pack("<qq24xi4x", 0, offset, status)
        return answer

    monkeypatch.setattr(system.ctypes, "CDLL", lambda *_, **__: SimpleNamespace(adjtimex=adjtimex))
    if clock:
        assert system._timex() == clock
    else:
        with pytest.raises(Unreadable, match="adjtimex: errno"):
            system._timex()


@pytest.mark.parametrize(("live", "uid", "exists"), [(True, 0, True), (True, 7, False), (False, 7, True)])
def test_what_podman_has_stored_is_looked_for_where_its_user_stores(
    live: bool, uid: int, exists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = SimpleNamespace(expanduser=lambda _path: "/nowhere", exists=os.path.exists)
    monkeypatch.setattr(software, "os", SimpleNamespace(geteuid=lambda: uid, path=home))
    with tree_of({"/var/lib/containers/storage": None}) as tree:
        tree.live = live
        assert software._storage_exists(tree) is exists


@pytest.mark.parametrize(("line", "major"), [("242 kfd", 242), (" 10 kfd", 10), ("242 kfd_x", None), ("", None)])
def test_the_major_is_that_of_the_character_device(line: str, major: int | None) -> None:
    with tree_of({"/proc/devices": f"Character devices:\n  1 mem\n{line}\n\nBlock devices:\n  8 kfd"}) as tree:
        if major is None:
            with pytest.raises(Unreadable, match="kfd in /proc/devices"):
                devices._kfd_major(tree)
        else:
            assert devices._kfd_major(tree) == major


@pytest.mark.parametrize(
    ("mode", "uid", "kind", "owner"),
    [
        (stat.S_IFCHR | 0o660, 0, "char", "root"),
        (stat.S_IFBLK | 0o600, 1000, "block", "ada"),
        (stat.S_IFDIR | 0o755, 1001, "dir", "1001"),
        (stat.S_IFREG | 0o644, 0, "other", "root"),
    ],
)
def test_a_device_has_its_kind_its_owner_and_its_number(
    mode: int, uid: int, kind: str, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = SimpleNamespace(st_mode=mode, st_uid=uid, st_gid=44, st_rdev=os.makedev(242, 3))
    with tree_of({"/etc/passwd": "ada:x:1000:1000::/home/ada:/bin/sh\n", "/dev/kfd": ""}) as tree:
        own = SimpleNamespace(stat=lambda _path: info, major=os.major, minor=os.minor)
        monkeypatch.setattr(devices, "os", own)
        monkeypatch.setattr(devices, "_openable", lambda *_: True)
        monkeypatch.setattr(devices, "rows", lambda _tree, _path: [["ada", "x", "1000", "1000"]])
        found = devices._look_at(tree, "/dev/kfd", {"44": "render"})
    assert found == {
        "path": "/dev/kfd", "kind": kind, "major": 242, "minor": 3, "mode": f"{stat.S_IMODE(mode):04o}",
        "owner": owner, "group": "render", "openable": True,
    }  # fmt: skip


def test_the_devices_of_a_folder_are_read_but_for_its_folders_and_what_is_left_out() -> None:
    files: dict[str, str | None] = {
        "/dev/dri/renderD128": "", "/dev/dri/renderD129": "", "/dev/dri/by-path": None, "/dev/dri/card0": "",
    }  # fmt: skip
    with tree_of(files) as tree:
        found = devices._folder(tree, "/dev/dri", {}, {"renderD129"})
    assert [part["path"] for part in found] == ["/dev/dri/card0", "/dev/dri/renderD128"]


def test_a_partition_that_its_gpu_is_not_divided_into_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    drm = {128: "0000:01:00.0", 129: "amdgpu_xcp_0", 130: "amdgpu_xcp_1", 131: "0000:02:00.0"}
    found = [
        SimpleNamespace(name=f"renderD{minor}", parent=parent, path=f"/sys/devices/{minor}/drm/renderD{minor}")
        for minor, parent in drm.items()
    ]
    monkeypatch.setattr(devices, "devices", lambda *_: found)
    monkeypatch.setattr(gpu, "render_minors", lambda _tree: {128, 129})
    files = {f"/sys/devices/{minor}/drm/{name}{minor}": None for minor in drm for name in ("card", "renderD")}
    with tree_of(files) as tree:
        assert devices._unconfigured(tree) == {"card130", "renderD130"}


PASSED = {"smartctl": {"exit_status": 0}, "smart_status": {"passed": True}}


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (PASSED, {"exit_status": 0, "failing": 0}),
        ({**PASSED, "smart_status": {"passed": False}}, {"exit_status": 0, "failing": 1}),
        ({**PASSED, "scsi_grown_defect_list": 0}, {"exit_status": 0, "failing": 0, "grown_defects": 0}),
        (
            {**PASSED, "scsi_error_counter_log": {each: {"total_uncorrected_errors": 2} for each in ("read", "write")}},
            {"exit_status": 0, "failing": 0, "uncorrected_errors": 4},
        ),
        ({**PASSED, "endurance_used": {"current_percent": 3}}, {"exit_status": 0, "failing": 0, "percentage_used": 3}),
        (
            {**PASSED, "endurance_used": {"current_percent": 0}, "scsi_percentage_used_endurance_indicator": 9},
            {"exit_status": 0, "failing": 0, "percentage_used": 0},
        ),
        (
            {**PASSED, "scsi_percentage_used_endurance_indicator": 9},
            {"exit_status": 0, "failing": 0, "percentage_used": 9},
        ),
        ({"smartctl": {"exit_status": 0}}, "missing: smartctl: no overall health in its answer"),
        (
            {"smartctl": {"exit_status": 4, "messages": [{"string": "no SMART"}]}},
            "missing: smartctl: no overall health in its answer: no SMART",
        ),
        ({"smartctl": {"exit_status": 1}}, "failed: smartctl: exit status 1"),
        (
            {"smartctl": {"exit_status": 2, "messages": [{"string": "Open failed"}, {"string": "Permission denied"}]}},
            "not permitted: smartctl: Open failed; Permission denied",
        ),
        ({"smartctl": {"exit_status": 2, "messages": [{"string": "Open failed"}]}}, "failed: smartctl: Open failed"),
    ],
)
def test_smartctl_is_read_by_what_its_document_has(document: dict[str, Any], found: dict[str, int] | str) -> None:
    if isinstance(found, dict):
        assert disks.parse_smartctl(document) == found
        return
    with pytest.raises(Unreadable) as refused:
        disks.parse_smartctl(document)
    reason, _, detail = found.partition(": ")
    assert refused.value.as_part() == {"unreadable": reason, "detail": detail}


@pytest.mark.parametrize(
    ("nvme", "words"), [(True, "nvme and smartctl are not installed"), (False, "smartctl is not installed")]
)
def test_the_programs_that_are_not_there_are_named(nvme: bool, words: str) -> None:
    with tree_of({"/etc": None}) as tree, pytest.raises(Unreadable) as refused:
        disks._health(tree, "/dev/x", nvme)
    assert refused.value.as_part() == {"unreadable": "missing", "detail": words}


def test_a_child_asks_what_may_be_a_servers_and_what_is_mounted_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {
        "/": ("/dev/sda1", "ext4"), "/data": ("server:/data", "nfs4"), "/data/scratch": ("/dev/sdb1", "xfs"),
        "/database": ("/dev/sdc1", "xfs"), "/home": ("auto", "autofs"), "/tmp": ("tmpfs", "tmpfs"),
    }  # fmt: skip
    asked: list[str] = []
    monkeypatch.setattr(disks, "mounts", lambda _tree: table)
    monkeypatch.setattr(disks, "start", lambda readings: asked.extend(mount for each in readings for mount in each))
    monkeypatch.setattr(disks, "answers", lambda _children: dict.fromkeys(asked, (8, 4)))
    monkeypatch.setattr(disks, "room", lambda mount: None if mount == "/tmp" else (2, 1))
    found = {part["mount"]: part for part in disks.read(Tree())}
    assert asked == ["/data", "/data/scratch"] and found.keys() == table.keys() - {"/tmp"}
    sizes = {mount: part["total_bytes"] for mount, part in found.items() if mount != "/home"}
    assert sizes == {"/": 2, "/data": 8, "/data/scratch": 8, "/database": 2}
    assert "mounted on demand" in found["/home"]["free_bytes"]["detail"]
    assert [mount for mount, part in found.items() if part["network"]] == ["/data"]


def test_a_gpu_is_read_by_the_drivers_files_and_its_counters_by_its_address() -> None:
    bdf = "0000:01:00.0"
    folder = f"/sys/bus/pci/devices/{bdf}"
    files: dict[str, str | None] = {
        f"{folder}/unique_id": "0x1a2b", f"{folder}/product_name": "MI300X",
        f"{folder}/ras/umc_err_count": "ue: 1\nce: 2",
        f"{folder}/hwmon/hwmon1/temp2_input": "41000", f"{folder}/hwmon/hwmon1/power1_average": "140000000",
        f"{folder}/mem_info_vram_total": "100", f"{folder}/mem_info_vram_used": "7", f"{folder}/pcie_replay_count": "3",
    }  # fmt: skip
    with tree_of(files) as tree:
        part = gpu._one(tree, Device(bdf, folder, {"PCI_ID": "1002:74A1"}))
        bare = gpu._one(tree, Device("0000:02:00.0", folder, {"PCI_ID": "1002:74A1"}))
    assert (part["bdf"], part["pci_id"], part["model"]) == (bdf, "1002:74a1", "MI300X")
    assert part["serial"] == smi.serial("0x1a2b") and part["temperature_c"] == 41 and part["power_w"] == 140
    assert (part["vram_bytes"], part["vram_used_bytes"]) == (100, 7)
    counted = gpu.counters([part])
    assert counted == {f"ras/{bdf}/correctable": 2, f"ras/{bdf}/uncorrectable": 1, f"pcie/{bdf}/replay": 3}
    assert all(is_unreadable(bare[name]) for name in ("serial", "model", "temperature_c", "power_w", "vram_bytes"))
    assert gpu.counters(ABSENT) == {}


@pytest.mark.parametrize(
    ("value", "mask", "after"),
    [
        (0x5000, 0x7000, 0x5936),  # read requests of 4096 bytes, and the other bits stay
        (0x2936, 0x7000, 0x2936),
        (0xFFFF, 0x0001, 0x2937),
        (0x0000, 0xFFFF, 0x0000),
    ],
)
def test_the_bits_of_a_register_are_set_and_no_others(
    value: int, mask: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = "/sys/bus/pci/devices/0000:01:00.0"
    config = bytearray(256)
    config[0x34], config[0x40:0x42], config[0x48:0x4A] = 0x40, b"\x10\x00", b"\x36\x29"
    written: list[int] = []
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *arguments: written.append(pwrite(*arguments)))
    with tree_of({f"{folder}/uevent": "", "/sys/bus/pci/devices/0000:02:00.0/uevent": ""}) as tree:
        path = Path(tree.path(f"{folder}/config"))
        path.write_bytes(config)
        pci.put(tree, "0000:01:00.0", "CAP_EXP+8.w", value, mask)
        assert path.read_bytes()[0x48:0x4A] == after.to_bytes(2, "little") and len(written) == (after != 0x2936)
        assert path.read_bytes()[:0x48] == bytes(config[:0x48])
        assert pci.read_max_read_request(tree, "0000:01:00.0") == 128 << ((after & 0x7000) >> 12)
        bare = Path(tree.path("/sys/bus/pci/devices/0000:02:00.0/config"))
        bare.write_bytes(bytes(256))
        pci.put(tree, "0000:02:00.0", "CAP_EXP+8.w", 0xFFFF, 0xFFFF)
        assert bare.read_bytes() == bytes(256)


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({0x100: 0x1400000D}, 0x100),
        ({0x100: 0x14000001, 0x140: 0x0000000D}, 0x140),
        ({0x100: 0x10000001}, None),  # in a circle
        ({0x100: 0x0FC00001, 0x0FC: 0x0000000D}, None),  # below the extended space
        ({0x100: 0xFFFFFFFF}, None),
        ({}, None),
    ],
)
def test_an_extended_capability_is_found_along_its_list(headers: dict[int, int], found: int | None) -> None:
    assert pci.offset_of(lambda offset: headers.get(offset, 0), "ECAP_ACS+0.w") == found


def test_interfaces_have_their_addresses_by_family_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    up = SimpleNamespace(mtu=9000, isup=True, speed=400_000)
    addresses = {
        "eth0": [
            (psutil.AF_LINK, "aa:bb", None, None), (socket.AF_INET, "192.0.2.1", "255.255.255.0", None),
            (socket.AF_INET6, "fe80::1%eth0", "ffff:ffff:ffff:ffff::", None), (socket.AF_INET, "192.0.2.9", None, None),
            (socket.AF_PACKET + 90, "x", "255.0.0.0", None),
        ],
        "eth0:1": [(socket.AF_INET, "192.0.2.2", "255.255.255.255", None)],
        "gone": [(socket.AF_INET, "192.0.2.3", "255.255.255.0", None)],
    }  # fmt: skip
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {"eth0": up})
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    found = interfaces._links()
    link = {"mac": "aa:bb", "mtu": 9000, "up": True, "speed": 400_000}
    assert found == {"eth0": {**link, "ipv4": ["192.0.2.1/24", "192.0.2.2/32"], "ipv6": ["fe80::1/64"]}}


@pytest.mark.parametrize(("counted", "keys"), [(True, {"ethtool/eth1/rx_errors"}), (False, set())])
def test_the_counters_of_interfaces_of_the_bus_are_read_where_they_are_wanted(
    counted: bool, keys: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = {"mac": "aa", "mtu": 1500, "up": True, "speed": 0, "ipv4": [], "ipv6": []}
    recorded = {
        "interfaces": {"lo": link, "eth1": {**link, "speed": 25_000}},
        **{f"ethtool {name}": {f"ethtool/{name}/rx_errors": 3} for name in ("lo", "eth1")},
    }
    parents = {"lo": "virtual", "eth1": "0000:41:00.0"}
    found = [SimpleNamespace(name=name, parent=parent) for name, parent in parents.items()]
    monkeypatch.setattr(interfaces, "devices", lambda *_: found)
    with tree_of({"/recorded.json": json.dumps(recorded)}) as tree:
        parts, counters = interfaces.read(tree, {"enabled": False, "settings": {}}, counted)
    assert counters.keys() == keys
    assert [(part["name"], part["bdf"]) for part in parts] == [("eth1", "0000:41:00.0"), ("lo", None)]
    assert parts[0]["speed_mbps"] == 25_000 and "link is down" in parts[1]["speed_mbps"]["detail"]


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ({"rx_errors": 3}, 3), (OSError(errno.ENODEV, "gone"), None), (OSError(errno.EOPNOTSUPP, "none"), None),
        (OSError(errno.EIO, "broken"), {"unreadable": "failed", "detail": "[Errno 5] broken"}),
    ],
)  # fmt: skip
def test_a_driver_without_statistics_has_no_counters_and_a_broken_one_has_the_reason(
    answer: Any, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def statistics(_interface: str) -> Any:
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(interfaces, "statistics", statistics)
    assert list(interfaces._counters("eth0").values()) == ([] if kept is None else [kept])


def test_a_tree_has_recorded_what_no_file_tells(tmp_path: Path) -> None:
    (tmp_path / "recorded.json").write_text('{"clock": {"service": "chronyd"}}')
    tree = Tree(str(tmp_path))
    assert tree.ask("clock", pytest.fail) == {"service": "chronyd"} and tree.ask("another", int, "7") == 7


@pytest.mark.parametrize(
    ("files", "ports"),
    [
        (("tcp",), [22]), (("tcp", "tcp6"), [22, 8080]), (("tcp6",), [8080]), ((), None),
    ],
)  # fmt: skip
def test_the_ports_that_are_listened_at_are_those_of_both_families(
    files: tuple[str, ...], ports: list[int] | None
) -> None:
    rows = {"tcp": "0: 00000000:0016 00000000:0000 0A", "tcp6": "0: 0000:1F90 0000:0000 0A\n 1: 0000:0050 0000:01 01"}
    with tree_of({"/proc/version": "x"} | {f"/proc/net/{name}": f"head\n {rows[name]}\n" for name in files}) as tree:
        if ports is None:
            with pytest.raises(OSError):
                interfaces.read_listening(tree)
        else:
            assert interfaces.read_listening(tree) == ports


@pytest.mark.parametrize(
    ("closed", "known", "persisted"), [("", "9000", "9000"), ("/etc/x", "9000", "9000"), ("", None, None)]
)
def test_an_mtu_that_is_written_nowhere_is_unknown_only_where_a_file_is_closed(
    closed: str, known: str | None, persisted: str | None
) -> None:
    with tree_of({"/etc": None}) as tree:
        mtus = interfaces.PersistedMtu(tree, {"enabled": False, "settings": {}})
    mtus.closed = closed or None
    mtus.known = {"eth0": known} if known else {}
    assert mtus("eth0") == persisted
    mtus.closed = "/etc/x"
    with pytest.raises(Unreadable, match="not permitted"):
        mtus("eth1")


@pytest.mark.parametrize(("reason", "decides"), [("not permitted", True), ("absent", False)])
def test_a_file_that_is_closed_to_the_user_may_hold_the_mtu(
    monkeypatch: pytest.MonkeyPatch, reason: str, decides: bool
) -> None:
    file = "/etc/systemd/network/20-rail.network"
    lines = Tree.lines

    def closed(tree: Tree, path: str) -> list[str]:
        if path == file:
            raise Unreadable(reason, path)
        return lines(tree, path)

    monkeypatch.setattr(Tree, "lines", closed)
    named = "[Match]\nName=eth0\n[Link]\nMTUBytes=9000\n"
    with tree_of({file: "", "/etc/systemd/network/30-other.network": named}) as tree:
        mtus = interfaces.PersistedMtu(tree, {"enabled": False, "settings": {}})
    assert (mtus("eth0"), mtus.closed) == ("9000", file if decides else None)
