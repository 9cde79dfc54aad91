"""One job in containers across machines with kernels of their own, by the whole deploy: RDMA devices that the kernel
has, found by libibverbs in the image through the host's provider library. gloo trains over TCP beside them. Emulated,
torch takes a minute to import, so the model of `inventories/lab.py` is as small as one can be."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import schemas
from tests.lab import card, images, registry
from tests.lab.product import PROJECT, Product, finish, ours, patiently, until, until_gone
from tests.lab.rails import DEVICES, RDMA, laid
from tests.lab.registry import Reference
from tests.lab.vms import Vm, VmLab

pytestmark = [pytest.mark.xdist_group("virtual machines 2"), pytest.mark.long]

INVENTORY = PROJECT / "inventories/lab.py"
NUMA = "/proc/sys/kernel/numa_balancing"
SLOW_S = 900
"""For a command that lets two emulated machines train, on a busy machine."""
FOREVER = 100_000
"""Iterations of a job that is to be disturbed."""
IN_TIME = {"elapsed_time_per_iteration": 5000}
"""Milliseconds; an iteration takes 400 on a quiet machine, 1000 beside other tests, 11000 slowed down."""
LIBRARY = "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so"
"""The provider of the machines' devices, on the host and in the image: with the image's own replaced by the host's, as
for a NIC whose vendor ships one."""
PROVIDER = {
    "name": "rxe",
    "host_library": LIBRARY.replace("34", "{abi}"),
    "container_library": LIBRARY.replace("34", "{abi}"),
    "config_dirs": ["/etc/libibverbs.d"],
}


@pytest.fixture
def product(tmp_path: Path) -> Product:
    return Product(tmp_path)


@pytest.fixture(scope="module")
def image(vm_pair: VmLab) -> Iterator[Reference]:
    """The image in the pair's registry, a rail for each machine, and the pair as the rack of `inventories/lab.py`."""
    with registry.serve(vm_pair) as store, laid(vm_pair), pytest.MonkeyPatch.context() as environment:
        environment.setenv("SHAKEDOWN_LAB", str(vm_pair.slot.folder))
        reference = store.publish(images.training())
        card.write(vm_pair.slot.folder, {"vms": vm_pair}, reference)
        yield reference


def deploy(**smoke: object) -> list[str | Path]:
    """The whole deploy, with changes to its job."""
    job = {"start_timeout_s": SLOW_S, "devices": ["/dev/infiniband"]} | smoke
    data = {"rdma": RDMA | {"provider": PROVIDER}, "smoke": job}
    options = [word for name, value in data.items() for word in ("--data", f"{name}={json.dumps(value)}")]
    return ["pyinfra", INVENTORY, PROJECT / "deploy/megatron.py", "-y", *options]


def prints(vm: Vm, words: str = "iteration  ") -> bool:
    """Whether the log of a node's ranks has these words; only the last node's has iterations."""
    return words in vm.exec("cat /root/.cache/shakedown/runs/*/leader.log", check=False).stdout


def in_the_middle(product: Product, last: Vm, **smoke: object) -> subprocess.Popen[str]:
    """A job that prints iterations. Begun again where a reading was not there in time, as on busy cores."""
    for _ in range(3):
        process = product.start(*deploy(**smoke))
        try:
            until(lambda process=process: process.poll() is not None or prints(last), SLOW_S, every=2)  # type: ignore[misc]
        except AssertionError:
            process.kill()
            raise
        if process.poll() is None:
            return process
        text = "".join(process.communicate())
        if "no answer in" not in text:
            break
    raise AssertionError(text)


def test_a_library_that_libibverbs_cannot_load_is_found_inside_the_image_before_the_launch(
    vm_pair: VmLab, image: Reference, product: Product
) -> None:
    for vm in vm_pair:  # on both, so that none is the odd one out
        vm.exec(f"cp {LIBRARY} /root/good; echo junk > {LIBRARY}")
        assert vm.exec("ibv_devinfo -l 2>/dev/null").returncode == 0, "an exit code proves nothing"
    try:
        ran = product.run(*deploy(iterations=8), timeout=SLOW_S)
    finally:
        for vm in vm_pair:
            vm.exec(f"cp /root/good {LIBRARY}")
    assert ran.code == 1, ran.text
    assert any(f"ibv_devinfo inside the image does not list {name}" in ran.text for name in DEVICES.values()), ran.text
    record = product.record()
    assert record["verdict"] == "fail" and record["iterations"] == []
    assert [ours(vm) for vm in vm_pair] == [[], []]


def test_a_machine_that_is_slowed_down_fails_the_figure_that_the_site_expects(
    vm_pair: VmLab, image: Reference, product: Product
) -> None:
    _, last = vm_pair
    process = in_the_middle(product, last, iterations=40, expect=IN_TIME)
    try:
        (container,) = ours(last)
        last.exec(f"docker update --cpus 0.05 {container}", timeout=300)
        until(lambda: prints(last, "iteration       40/"), SLOW_S, every=5)
        last.exec(f"docker update --cpus 2 {container}", check=False, timeout=300)  # python's way out is long as it is
        code, text = finish(process, SLOW_S)
    finally:
        process.kill()
    assert code == 1, text
    record = product.record()
    (wrong,) = [gate for gate in record["gates"] if gate["verdict"] != "ok"]
    assert (wrong["name"], wrong["verdict"]) == ("elapsed_time_per_iteration", "fail")
    assert len(record["iterations"]) == 40, "slow is not stalled"
    assert [ours(vm) for vm in vm_pair] == [[], []]


def ready_for_perftest(product: Product) -> list[str]:
    """Bring the pair up, and return the options of what measures it. A loaded machine imports torch for minutes."""
    data = {"rdma": RDMA, "smoke": {"devices": ["/dev/infiniband"]}, "trials": {"repetitions": 1, "limit_s": 600}}
    options = [word for name, value in data.items() for word in ("--data", f"{name}={json.dumps(value)}")]
    ready = product.run("pyinfra", INVENTORY, PROJECT / "deploy/bringup.py", "-y", *options, timeout=SLOW_S)
    assert ready.code == 0, ready.text
    return options


def test_perftest_measures_the_pair_over_its_rail_and_ends_what_it_started(
    vm_pair: VmLab, image: Reference, product: Product
) -> None:
    """Over software RDMA devices of real kernels. How the figures come out on busy cores is nobody's to know."""
    options = ready_for_perftest(product)
    ran = product.run("shakedown", "trials", INVENTORY, "--only", "perftest", *options, timeout=2 * SLOW_S)
    record = product.record()
    assert "1 round of pairs" in ran.text and ran.code == 4, f"two nodes alone cannot be compared: {ran.text}"
    cells = {
        (each["node"], each["part"], each["figure"], each["rail"])
        for each in record["trials"]["readings"]
        if each["state"] == "ok" and each["value"] > 0
    }
    figures = {"ib_write_bw", "ib_read_lat"}
    parts = (("vm1", "0>1"), ("vm2", "1>0"))
    assert cells == {(node, part, figure, "rail0") for node, part in parts for figure in figures}, ran.text
    plans = record["jobs"][0]["plan"]["nodes"]
    assert {plan["name"]: plan["hca"] for plan in plans} == {name: [DEVICES[name]] for name in ("vm1", "vm2")}
    assert schemas.problems_of(product.folder / "runs/latest") == []
    for vm in vm_pair:
        assert ours(vm) == [] and not figures & set(vm.exec("ps -e -o comm").stdout.split())


def test_the_fabric_stage_of_a_soak_is_perftest_over_the_rail(
    vm_pair: VmLab, image: Reference, product: Product
) -> None:
    options = ready_for_perftest(product)
    soak = ["shakedown", "soak", INVENTORY, "--for", "60s", "--only", "fabric", *options]
    ran = product.run(*soak, timeout=4 * SLOW_S)
    assert ran.code == 0, ran.text
    for vm in vm_pair:
        log = (product.folder / "runs/latest/soak/fabric-1" / vm.name / "leader.log").read_text()
        found = [json.loads(line[len("trial ") :]) for line in log.splitlines() if line.startswith("trial ")]
        assert [each["figure"] for each in found if each["value"] > 0] == ["ib_write_bw", "ib_read_lat"], log
        assert ours(vm) == []


def test_a_machine_that_is_cut_off_in_mid_run_ends_its_own_part(
    vm_pair: VmLab, image: Reference, product: Product
) -> None:
    first, last = vm_pair
    process = in_the_middle(product, last, iterations=FOREVER, unreachable_s=60)
    try:
        last.cut()
        until_gone(first, SLOW_S, every=5)
        until_gone(last, SLOW_S, every=5)  # nobody can tell it to: its watchdog does, while the cable is still out
        last.heal()
        code, text = finish(process, SLOW_S)
    finally:
        last.heal()
        process.kill()
        # The run folder stays, since no controller has fetched the log; the next test would take it for its own.
        last.exec("rm -rf /root/.cache/shakedown/runs/2*")
    assert code == 1, text
    record = product.record()
    assert record["verdict"] == "fail"
    gates = {gate["name"]: gate for gate in record["gates"]}
    assert gates["ran_to_its_end"]["verdict"] == "fail" and last.name in gates["ran_to_its_end"]["evidence"], text


def test_two_machines_train_together_and_one_that_reboots_in_mid_run_is_no_pass(
    vm_pair: VmLab, image: Reference, product: Product
) -> None:
    first, last = vm_pair
    ran = patiently(lambda: product.run(*deploy(iterations=8, expect=IN_TIME), timeout=SLOW_S))
    assert ran.code == 0, ran.text
    record = product.record()
    assert record["verdict"] == "ok"
    assert record["plan"]["image"] == f"{image.address}/{image.name}@{image.digest}"
    assert [node["interface"] for node in record["plan"]["nodes"]] == [vm.interface for vm in vm_pair]
    assert [node["hca"] for node in record["plan"]["nodes"]] == [[DEVICES[vm.name]] for vm in vm_pair]
    assert {gate["verdict"] for gate in record["gates"]} == {"ok"} and len(record["iterations"]) == 8
    assert "elapsed_time_per_iteration" in [gate["name"] for gate in record["gates"]], "nothing slows it down: in time"
    assert [vm.read(NUMA) for vm in vm_pair] == ["0\n", "0\n"]
    assert [ours(vm) for vm in vm_pair] == [[], []]

    process = in_the_middle(product, last, iterations=FOREVER)
    try:
        boot_id = last.read("/proc/sys/kernel/random/boot_id")
        # Later, so that the agent can still say that it did it.
        last.exec("setsid sh -c 'sleep 5; systemctl reboot' >/dev/null 2>&1 </dev/null &")
        code, text = finish(process, SLOW_S)
    finally:
        process.kill()
    assert code == 1, text
    record = product.record()
    assert record["verdict"] == "fail"
    gates = {gate["name"]: gate for gate in record["gates"]}
    assert gates["ran_to_its_end"]["verdict"] == "fail", text
    assert gates["exit_codes"]["verdict"] == "fail" and last.name in gates["exit_codes"]["evidence"], text
    assert ours(first) == [], "the node that stayed is told to stop"
    last.wait()
    assert last.read("/proc/sys/kernel/random/boot_id") != boot_id
    assert last.exec("docker ps --quiet", timeout=300).stdout == "", "the engine starts nothing of ours at boot"
    assert last.read(NUMA) == "0\n", "what was set is kept over the reboot"
