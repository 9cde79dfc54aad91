"""Devices that leave a kernel of their own while the sampler of a job listens: an RDMA device by its tool, the network
card by a hot-unplug."""

from __future__ import annotations

import base64
import io
import subprocess
import tarfile
import zlib
from importlib.metadata import distribution
from pathlib import Path

import pytest

from shakedown.evidence.telemetry.kernel import read
from shakedown.gates.nodes import no_kernel_fault
from shakedown.gates.observed import NodeWatch
from shakedown.jobs.remote import sampler_files
from shakedown.state.findings import Verdict
from tests.gates import judged
from tests.lab import qemu_socket
from tests.lab.node_spec import NodeSpec
from tests.lab.product import until
from tests.lab.vms import vms

pytestmark = pytest.mark.xdist_group("virtual machines 1")

CACHE = "/root/cache"
RUN = CACHE + "/runs/one"


def sampler() -> bytes:
    """The sampler as a job carries it, with the packages of the probe's bundle beside the run."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in sampler_files().items():
            data = zlib.decompress(base64.b64decode(content))
            about = tarfile.TarInfo(f"runs/one/{name}")
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
        for name in ("psutil", "pyudev"):
            tar.add(str(distribution(name).locate_file(name)), f"carried/{name}", filter=_program)
    return buffer.getvalue()


def _program(about: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in about.name or "/tests" in about.name else about


@pytest.mark.long
def test_an_unplugged_card_and_a_removed_rdma_device_are_events(tmp_path: Path) -> None:
    with vms(1, NodeSpec()) as lab:
        (vm,) = lab
        subprocess.run(lab.ssh(vm, f"mkdir -p {CACHE} && tar x -C {CACHE}"), input=sampler(), check=True, timeout=120)
        carried = "digest-$(python3 -c 'import sys; print(sys.implementation.cache_tag)')"
        vm.exec(f"cd {CACHE} && mv carried {carried} && chmod 700 {carried} && chown -R root: .")
        words = f"--folder {RUN}/.launcher --interval 1 --interface {vm.interface} --why none"
        program = f"python3 -I -S {RUN}/.launcher/sampler {words}"
        vm.exec(f"cd /; setsid {program} >/tmp/sampler 2>&1 </dev/null & echo $! >/tmp/sampler.pid")
        log = f"{RUN}/.launcher/devices.log"
        until(lambda: "begin" in vm.exec(f"cat {log}", check=False).stdout, 120)
        vm.exec("sleep 3; modprobe rdma_rxe")
        vm.exec(f"rdma link add gone0 type rxe netdev {vm.interface}; sleep 2; rdma link delete gone0; sleep 2")
        with qemu_socket.monitor(vm.folder / "qmp") as machine:
            machine.ask("device_del", id="nic0")
        until(lambda: "remove net" in vm.read(log), 120)
        vm.exec("kill $(cat /tmp/sampler.pid)")
        until(lambda: "# end" in vm.read(log), 60)
        text = vm.read(log)
    window = read([text.encode()])
    assert window.source == "kernel" and not window.incomplete, text
    gate = judged(no_kernel_fault(NodeWatch(devices={"vm1": window}, links={"vm1": [vm.interface, "gone0"]})))
    assert gate.verdict is Verdict.FAIL
    assert f"remove net {vm.interface}" in text and "remove infiniband gone0" in text and "remove pci" in text
    assert "nic_left" in gate.evidence, gate.evidence
