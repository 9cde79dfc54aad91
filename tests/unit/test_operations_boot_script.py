"""The script that both the boot unit and boot.settings run, against a root folder of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "shakedown/operations/assets/shakedown-boot"

# A setpci over one file per register; like the real one it fails where a function has no such capability.
SETPCI = """#!/bin/sh
file=$SHAKEDOWN_ROOT/pci/$2/${3%%=*}
[ -e "$file" ] || { echo "no capability" >&2; exit 1; }
case $3 in *=*) echo "${3#*=}" > "$file"; echo "$2 $3" >> "$SHAKEDOWN_ROOT/written" ;; *) cat "$file" ;; esac
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for cpu in range(3):
        put(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", "powersave")
        put(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/cpuidle/state2/disable", "0")
    put(tmp_path, "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
    put(tmp_path, "sys/class/net/eth0.100/mtu", "1500")
    for bdf, vendor, rdma, registers in (
        ("0000:c1:00.0", "0x14e4", True, {"ECAP_ACS+6.w": "001d", "CAP_EXP+8.w": "2930"}),
        ("0000:c2:00.0", "0x15b3", True, {"ECAP_ACS+6.w": "0000", "CAP_EXP+8.w": "2930"}),
        ("0000:05:00.0", "0x14e4", False, {"CAP_EXP+8.w": "2930"}),
    ):
        put(tmp_path, f"sys/bus/pci/devices/{bdf}/vendor", vendor)
        if rdma:
            (tmp_path / f"sys/bus/pci/devices/{bdf}/infiniband").mkdir()
        for register, value in registers.items():
            put(tmp_path, f"pci/{bdf}/{register}", value)
    tool(tmp_path, "setpci", SETPCI)
    return tmp_path


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n")


def tool(root: Path, name: str, text: str) -> None:
    put(root, f"usr/sbin/{name}", text)
    (root / "usr/sbin" / name).chmod(0o755)


def read(root: Path, path: str) -> str:
    return (root / path).read_text().strip()


def run(root: Path, *pairs: str) -> subprocess.CompletedProcess[str]:
    # A PATH without sbin: what a non-login shell has.
    environment = {"SHAKEDOWN_ROOT": str(root), "PATH": "/usr/bin:/bin"}
    return subprocess.run([SCRIPT, *pairs], env=environment, capture_output=True, text=True, timeout=20)


def governors(root: Path) -> list[str]:
    return [read(path, "scaling_governor") for path in sorted(root.glob("sys/devices/system/cpu/cpu*/cpufreq"))]


def test_every_cpu_gets_the_governor(root: Path) -> None:
    assert run(root, "cpu_governor=performance").returncode == 0
    assert governors(root) == ["performance"] * 3


def test_a_cpu_that_is_offline_is_left_alone(root: Path) -> None:
    put(root, "sys/devices/system/cpu/cpu2/online", "0")
    assert run(root, "cpu_governor=performance").returncode == 0
    assert governors(root) == ["performance", "performance", "powersave"]


def test_boot_and_now_are_the_same_code_over_the_file(root: Path) -> None:
    settings = ["# a comment", "cpu_governor=performance", "c2=disabled", "", "thp=always", "mtu.eth0.100=9000"]
    put(root, "etc/shakedown/boot.conf", "\n".join(settings))
    result = run(root)
    assert (result.returncode, result.stderr) == (0, "")
    assert governors(root) == ["performance"] * 3
    assert read(root, "sys/devices/system/cpu/cpu1/cpuidle/state2/disable") == "1"
    assert read(root, "sys/kernel/mm/transparent_hugepage/enabled") == "always"
    assert read(root, "sys/class/net/eth0.100/mtu") == "9000"


def test_one_line_that_fails_does_not_keep_the_others_from_being_made(root: Path) -> None:
    put(root, "etc/shakedown/boot.conf", "mtu.gone=9000\nflux=on\nc2=disabled")
    result = run(root)
    assert result.returncode == 1
    assert "net/gone/mtu" in result.stderr
    assert "no such setting: flux=on" in result.stderr
    assert read(root, "sys/devices/system/cpu/cpu0/cpuidle/state2/disable") == "1"


def test_the_last_line_needs_no_newline(root: Path) -> None:
    (root / "etc/shakedown").mkdir(parents=True)
    (root / "etc/shakedown/boot.conf").write_text("thp=never")
    assert run(root).returncode == 0
    assert read(root, "sys/kernel/mm/transparent_hugepage/enabled") == "never"


def test_acs_is_written_only_where_it_is_on(root: Path) -> None:
    assert run(root, "acs=off").returncode == 0
    assert read(root, "written") == "0000:c1:00.0 ECAP_ACS+6.w=0000"


def test_read_requests_of_one_vendors_rdma_devices_only(root: Path) -> None:
    """The other vendor's NIC and the same vendor's management NIC keep theirs, and no other bit is touched."""
    assert run(root, "max_read_request.14e4=4096").returncode == 0
    assert read(root, "written") == "0000:c1:00.0 CAP_EXP+8.w=5000:7000"


def test_read_requests_of_all_rdma_devices_but_virtual_functions(root: Path) -> None:
    (root / "sys/bus/pci/devices/0000:c2:00.0/physfn").mkdir()
    assert run(root, "max_read_request=512").returncode == 0
    assert read(root, "written") == "0000:c1:00.0 CAP_EXP+8.w=2000:7000"


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("max_read_request.14e4=4000", "no read request is of 4000 bytes"),
        ("max_read_request.1dd8=4096", "no RDMA device of vendor 1dd8"),
        ("mtu.eth7=9000", "eth7"),
        ("thp=sometimes", "no such setting"),
        ("c2=", "no such setting"),
    ],
)
def test_what_cannot_be_made_fails_and_says_so(root: Path, pair: str, words: str) -> None:
    result = run(root, pair)
    assert result.returncode == 1
    assert words in result.stderr
    assert not (root / "written").exists()


def test_a_machine_without_cpufreq_or_setpci_fails(root: Path) -> None:
    for path in root.glob("sys/devices/system/cpu/cpu*/cpufreq/*"):
        path.unlink()
    (root / "usr/sbin/setpci").unlink()
    assert "no CPU has cpufreq/scaling_governor" in run(root, "cpu_governor=performance").stderr
    result = run(root, "acs=off")
    assert (result.returncode, "setpci is not installed" in result.stderr) == (1, True)


def test_a_module_is_loaded_by_name(root: Path) -> None:
    tool(root, "modprobe", '#!/bin/sh\necho "$@" > "$SHAKEDOWN_ROOT/loaded"\n')
    assert run(root, "module.amdgpu=loaded").returncode == 0
    assert read(root, "loaded") == "amdgpu"


def test_no_file_of_settings_is_a_failure(root: Path) -> None:
    assert run(root).returncode == 1
