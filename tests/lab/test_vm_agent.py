"""The agent under a real systemd: installed, fired by its timer, read by others, taken away without a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab.product import Product, until
from tests.lab.test_vm_bringup import NUMA, SITE, SLOW
from tests.lab.vms import Vm, VmLab

pytestmark = [pytest.mark.xdist_group("virtual machines 1"), pytest.mark.long]

TEXTFILE = "/var/lib/prometheus/node-exporter"
HEALTH = "/usr/local/libexec/shakedown-health"
LEFT = f"find / -xdev -not -path '/proc/*' -not -path '/root/.cache/*' '(' -iname '*shakedown*' ')'; ls {TEXTFILE}"


NEW_JOURNAL = "systemctl restart systemd-journald"
"""A machine that woke from a snapshot has another machine id than it booted with, and journald goes on writing where
`journalctl` does not look any more. A boot, or this, puts it right."""


def journal(vm: Vm) -> str:
    return vm.exec("journalctl -u shakedown-agent --no-pager -o cat").stdout


def site(lab: VmLab, product: Product, **agent: Any) -> Path:
    settings = {"every_s": 30, "delay_s": 0, "timeout_s": 300, "textfile": TEXTFILE, **agent}
    return lab.inventory(product.folder / "lab.py", SITE | {"agent": settings})


def told(vm: Vm) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(vm.read("/var/lib/shakedown/verdict.json"))
    return found


def test_the_timer_checks_tells_and_goes_without_a_trace(vm_pair: VmLab, tmp_path: Path) -> None:
    product, vm = Product(tmp_path), vm_pair["vm1"]
    vm.exec(f"mkdir -p {TEXTFILE}; {NEW_JOURNAL}")
    before = vm.exec(LEFT).stdout
    inventory = site(vm_pair, product)
    ran = product.deploy(inventory, "agent", "-y", "--limit", vm.name, timeout=SLOW)
    assert ran.code == 3, f"the node drifts, which keeps no agent from it: {ran.text}"

    first = told(vm)
    mine = {each["name"]: each["verdict"] for each in first["findings"]}
    theirs = product.run("shakedown", "drift", inventory, "--limit", vm.name, "--format", "jsonl", timeout=SLOW).out
    found = {each["name"]: each["verdict"] for each in map(json.loads, theirs.splitlines())}
    assert mine == {name: verdict for name, verdict in found.items() if not name.startswith("fleet")}, first
    assert mine["numa_balancing"] == "drift"
    collected = product.run(
        "shakedown", "drift", inventory, "--limit", vm.name, "--from-agents", "--format", "jsonl", timeout=SLOW
    )
    said = {each["name"]: each for each in map(json.loads, collected.out.splitlines())}
    assert said.pop("agent")["verdict"] == "ok", collected.text
    assert set(said) == set(mine)

    installed = vm.exec("stat -c '%n %Z' /usr/local/lib/shakedown-agent/*/run /etc/shakedown/agent.json").stdout
    again = product.deploy(inventory, "agent", "-y", "--limit", vm.name, timeout=SLOW)
    assert again.code == 3, again.text
    assert vm.exec("stat -c '%n %Z' /usr/local/lib/shakedown-agent/*/run /etc/shakedown/agent.json").stdout == installed
    vm.write(NUMA, "0\n")
    until(lambda: told(vm)["at"] > first["at"] and numa(vm)["actual"] == "0", 240, every=3)
    assert "numa_balancing" in vm.read(f"{TEXTFILE}/shakedown_agent.prom")
    until(lambda: "numa_balancing: drift" in journal(vm), 240, every=3)
    assert "of CPU, desired state" in journal(vm)
    answer = vm.exec(HEALTH, check=False)
    assert answer.returncode == {"drift": 1, "fail": 1, "unknown": 2}[told(vm)["verdict"]], answer.stdout
    vm.write(NUMA, "1\n")

    ran = product.deploy(site(vm_pair, product, state="absent"), "agent", "-y", "--limit", vm.name, timeout=SLOW)
    assert ran.code == 3, ran.text
    assert vm.exec(LEFT).stdout == before
    units = vm.exec("systemctl list-timers --all --no-legend 'shakedown*'; systemctl --failed --no-legend").stdout
    assert "shakedown" not in units


def numa(vm: Vm) -> dict[str, Any]:
    return next(each for each in told(vm)["findings"] if each["name"] == "numa_balancing")


def test_what_is_safe_is_put_back_as_often_as_allowed_and_told(vm_pair: VmLab, tmp_path: Path) -> None:
    product, vm = Product(tmp_path), vm_pair["vm2"]
    vm.exec(f"mkdir -p {TEXTFILE}; {NEW_JOURNAL}")
    vm.write(NUMA, "1\n")
    inventory = site(vm_pair, product, remedy="safe", remedies_per_day=2)
    ran = product.deploy(inventory, "agent", "-y", "--limit", vm.name, timeout=SLOW)
    assert ran.code == 3, f"the node drifts, which keeps no agent from it: {ran.text}"
    for _ in range(2):  # at its installation, and by its timer
        until(lambda: vm.read(NUMA).strip() == "0", 240, every=3)
        vm.write(NUMA, "1\n")
    until(
        lambda: "numa_balancing: not put back: the agent put it back 2 times within a day" in journal(vm), 240, every=3
    )
    assert vm.read(NUMA).strip() == "1" and numa(vm)["actual"] == "1"
    assert journal(vm).count("numa_balancing: put back: ") == 2
    assert "pci=bfsort" not in vm.exec("grep -rs pci=bfsort /etc/default /boot/grub; cat /proc/cmdline").stdout
    ran = product.deploy(site(vm_pair, product, state="absent"), "agent", "-y", "--limit", vm.name, timeout=SLOW)
    assert ran.code == 3, ran.text
