"""The program that both the boot unit and boot.settings run, against a root folder of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shakedown.operations import boot
from tests.machine_state import machine_home
from tests.node_trees import pci_config

CONTROL, ACS = 0x48, 0x148 + 6  # where pci_config has device control and ACS control


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("libexec") / "shakedown-boot"
    path.write_text("\n".join(boot.program()) + "\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for cpu in range(3):
        put(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", "powersave")
        put(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/cpuidle/state2/disable", "0")
    put(tmp_path, "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
    put(tmp_path, "sys/class/net/eth0.100/mtu", "1500")
    for bdf, vendor, rdma, config in (
        ("0000:c1:00.0", "0x14e4", True, pci_config(512, acs=0x1D)),
        ("0000:c2:00.0", "0x15b3", True, pci_config(512, acs=0)),
        ("0000:05:00.0", "0x14e4", False, pci_config(512)),
    ):
        put(tmp_path, f"sys/bus/pci/devices/{bdf}/vendor", vendor)
        (tmp_path / f"sys/bus/pci/devices/{bdf}/config").write_bytes(config)
        if rdma:
            (tmp_path / f"sys/bus/pci/devices/{bdf}/infiniband").mkdir()
    return tmp_path


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n")


def tool(root: Path, name: str, text: str) -> None:
    put(root, f"usr/sbin/{name}", text)
    (root / "usr/sbin" / name).chmod(0o755)


def read(root: Path, path: str) -> str:
    return (root / path).read_text().strip()


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(script: Path, root: Path) -> Run:
    def on_root(*pairs: str) -> subprocess.CompletedProcess[str]:
        # A PATH without sbin: what a non-login shell has.
        environment = {"SHAKEDOWN_ROOT": str(root), "PATH": "/usr/bin:/bin"}
        return subprocess.run([script, *pairs], env=environment, capture_output=True, text=True, timeout=20)

    return on_root


def registers(root: Path, offset: int) -> list[int]:
    """The word at an offset of each function's configuration space, c1, c2 and 05."""
    names = ("0000:c1:00.0", "0000:c2:00.0", "0000:05:00.0")
    spaces = [(root / f"sys/bus/pci/devices/{bdf}/config").read_bytes() for bdf in names]
    return [int.from_bytes(space[offset : offset + 2], "little") for space in spaces]


def unchanged(root: Path) -> bool:
    return registers(root, CONTROL) == [0x2000] * 3 and registers(root, ACS) == [0x1D, 0, 0]


def governors(root: Path) -> list[str]:
    return [read(path, "scaling_governor") for path in sorted(root.glob("sys/devices/system/cpu/cpu*/cpufreq"))]


def test_every_cpu_gets_the_governor(root: Path, run: Run) -> None:
    assert run("cpu_governor=performance").returncode == 0
    assert governors(root) == ["performance"] * 3


def test_a_cpu_that_is_offline_is_left_alone(root: Path, run: Run) -> None:
    put(root, "sys/devices/system/cpu/online", "0-1")
    assert run("cpu_governor=performance").returncode == 0
    assert governors(root) == ["performance", "performance", "powersave"]


def test_boot_and_now_are_the_same_code_over_the_file(root: Path, run: Run) -> None:
    settings = ["# a comment", "cpu_governor=performance", "c2=disabled", "", "thp=always", "mtu.eth0.100=9000"]
    put(root, "etc/shakedown/boot.conf", "\n".join(settings))
    result = run()
    assert (result.returncode, result.stderr) == (0, "")
    assert governors(root) == ["performance"] * 3
    assert read(root, "sys/devices/system/cpu/cpu1/cpuidle/state2/disable") == "1"
    assert read(root, "sys/kernel/mm/transparent_hugepage/enabled") == "always"
    assert read(root, "sys/class/net/eth0.100/mtu") == "9000"


def test_what_is_so_already_is_not_written(root: Path, run: Run) -> None:
    assert run("thp=madvise").returncode == 0
    assert read(root, "sys/kernel/mm/transparent_hugepage/enabled") == "always [madvise] never"


def test_one_line_that_fails_does_not_keep_the_others_from_being_made(root: Path, run: Run) -> None:
    put(root, "etc/shakedown/boot.conf", "mtu.gone=9000\nflux=on\nc2=disabled")
    result = run()
    assert result.returncode == 1
    assert "net/gone/mtu" in result.stderr
    assert "no such setting: flux=on" in result.stderr
    assert read(root, "sys/devices/system/cpu/cpu0/cpuidle/state2/disable") == "1"


def test_the_last_line_needs_no_newline(root: Path, run: Run) -> None:
    (root / "etc/shakedown").mkdir(parents=True)
    (root / "etc/shakedown/boot.conf").write_text("thp=never")
    assert run().returncode == 0
    assert read(root, "sys/kernel/mm/transparent_hugepage/enabled") == "never"


def test_acs_is_off_on_every_function_that_has_it(root: Path, run: Run) -> None:
    assert run("acs=off").returncode == 0
    assert registers(root, ACS) == [0, 0, 0] and registers(root, CONTROL) == [0x2000] * 3


def test_read_requests_of_one_vendors_rdma_devices_only(root: Path, run: Run) -> None:
    """The other vendor's NIC and the same vendor's management NIC keep theirs, and no other bit is touched."""
    config = root / "sys/bus/pci/devices/0000:c1:00.0/config"
    space = bytearray(config.read_bytes())
    space[CONTROL : CONTROL + 2] = (0x2930).to_bytes(2, "little")
    config.write_bytes(space)
    assert run("max_read_request.14e4=4096").returncode == 0
    assert registers(root, CONTROL) == [0x5930, 0x2000, 0x2000]
    space[CONTROL : CONTROL + 2] = (0x5930).to_bytes(2, "little")
    assert config.read_bytes() == space


def test_read_requests_of_all_rdma_devices_but_virtual_functions(root: Path, run: Run) -> None:
    (root / "sys/bus/pci/devices/0000:c2:00.0/physfn").mkdir()
    assert run("max_read_request=1024").returncode == 0
    assert registers(root, CONTROL) == [0x3000, 0x2000, 0x2000]


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("max_read_request.14e4=4000", "no such setting: max_read_request.14e4=4000"),
        ("max_read_request.1dd8=4096", "no RDMA device of vendor 1dd8"),
        ("mtu.eth7=9000", "eth7"),
        ("thp=sometimes", "no such setting"),
        ("c2=", "no such setting"),
        ("c2", "no such setting"),
        ("thp.=never", "no such setting"),
        ("mtu=9000", "no such setting"),
        ("numa_balancing=0", "no such setting"),
        ("sysctl.vm.swappiness=1", "no such setting"),
    ],
)
def test_what_cannot_be_made_fails_and_says_so(root: Path, run: Run, pair: str, words: str) -> None:
    result = run(pair)
    assert result.returncode == 1
    assert words in result.stderr
    assert unchanged(root)


def test_a_machine_without_cpufreq_fails(root: Path, run: Run) -> None:
    for path in root.glob("sys/devices/system/cpu/cpu*/cpufreq/*"):
        path.unlink()
    assert "no CPU has cpufreq/scaling_governor" in run("cpu_governor=performance").stderr


def test_a_node_without_modprobe_fails_and_says_so(run: Run) -> None:
    result = run("module.amdgpu=loaded")
    assert result.returncode == 1 and "modprobe (missing)" in result.stderr


def test_what_modprobe_says_is_said(root: Path, run: Run) -> None:
    tool(root, "modprobe", "#!/bin/sh\necho 'Module nosuch not found' >&2\nexit 1\n")
    result = run("module.nosuch=loaded")
    assert (result.returncode, result.stderr) == (1, "shakedown-boot: Module nosuch not found\n")


def pythons() -> list[str]:
    """Every python that the program may meet on a node, as far as this machine has it."""
    found = [machine_home().glob(f".pyenv/versions/3.{minor}.*/bin/python3") for minor in range(8, 14)]
    return [sys.executable, *(str(path) for paths in found for path in paths)]


@pytest.mark.parametrize("interpreter", pythons())
def test_it_runs_under_every_python_that_a_node_may_have(script: Path, root: Path, interpreter: str) -> None:
    command = [interpreter, "-I", "-S", script, "thp=always", "acs=off", "c2=disabled"]
    done = subprocess.run(command, env={"SHAKEDOWN_ROOT": str(root)}, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_module_is_loaded_by_name(root: Path, run: Run) -> None:
    tool(root, "modprobe", '#!/bin/sh\necho "$@" > "$SHAKEDOWN_ROOT/loaded"\n')
    assert run("module.amdgpu=loaded").returncode == 0
    assert read(root, "loaded") == "amdgpu"


def test_no_file_of_settings_is_a_failure(root: Path, run: Run) -> None:
    assert run().returncode == 1
