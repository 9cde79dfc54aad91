"""Host settings: what is, what is kept, what waits - and what could not be read."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from shakedown import checks
from shakedown.desired.models import DesiredState
from shakedown.operations import boot, cmdline, reboot, tuning
from shakedown.state.findings import Finding, FixedBy, Risk, Verdict
from shakedown.state.node import NodeState
from tests.states import bare, desired, healthy, unreadable, with_

RPF = "net.ipv4.conf.all.rp_filter"
WITHOUT_SYSTEMD: dict[Any, Any] = {"boot_unit.enabled": False, "system.service_manager": "other"}


def found(name: str, state: NodeState, wanted: DesiredState | None = None) -> Finding:
    """The one finding of that name."""
    (finding,) = [each for each in checks.evaluate(wanted or desired(), state, "node01") if each.name == name]
    return finding


def tuned(**tuning: Any) -> DesiredState:
    return desired(tuning=tuning)


def test_a_node_as_its_profiles_want_it_has_only_ok_findings() -> None:
    findings = checks.evaluate(desired(), healthy(), "node01")
    assert [str(finding) for finding in findings if finding.verdict != Verdict.OK] == []
    names = {finding.name.partition(".")[0] for finding in findings}
    assert names >= {"numa_balancing", "cmdline", "cpu_governor", "c2", "thp", "pcie_acs", "max_read_request", "mtu"}
    assert names >= {"memlock", "nofile", "groups", "sysctl", "modules"}


def test_what_is_not_asked_for_is_not_looked_at() -> None:
    nothing = DesiredState.model_validate({"gpu": {"profile": "cpu", "name": "CPU", "count": 0}})
    asked = {"numa_balancing", "cmdline", "cpu_governor", "c2", "thp", "pcie_acs", "max_read_request", "memlock"}
    names = {finding.name for finding in checks.evaluate(nothing, bare(), "node01")}
    assert not {name.partition(".")[0] for name in names} & (asked | {"nofile", "groups", "sysctl", "modules", "mtu"})


def test_a_check_that_breaks_is_unknown_and_the_others_are_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("no CPUs")

    before = checks.evaluate(desired(), healthy(), "node01")
    monkeypatch.setitem(checks.checks(), "c2", broken)
    findings = checks.evaluate(desired(), healthy(), "node01")
    (finding,) = [each for each in findings if each.name == "c2"]
    assert finding.verdict == Verdict.UNKNOWN
    assert "c2" in finding.evidence and "ZeroDivisionError: no CPUs" in finding.evidence
    assert [each.name for each in findings] == [each.name for each in before]


@pytest.mark.parametrize(
    ("running", "persisted", "verdict", "pending"),
    [
        ("0", "0", Verdict.OK, False),
        ("1", "1", Verdict.DRIFT, False),
        ("0", None, Verdict.DRIFT, False),  # right now, and at the next boot whatever the kernel likes
        ("0", "1", Verdict.DRIFT, False),
        ("1", "0", Verdict.DRIFT, True),
        ("2", None, Verdict.DRIFT, False),  # memory tiering
        (unreadable("not permitted", "x"), "0", Verdict.UNKNOWN, False),
        ("0", unreadable("malformed", "90-x.conf"), Verdict.UNKNOWN, False),
        ("1", unreadable("malformed", "90-x.conf"), Verdict.DRIFT, False),
    ],
)
def test_three_values(running: Any, persisted: Any, verdict: Verdict, pending: bool) -> None:
    state = with_(healthy(), {"numa.balancing.running": running, "numa.balancing.persisted": persisted})
    finding = found("numa_balancing", state)
    assert (finding.verdict, finding.reboot_pending) == (verdict, pending)
    if verdict == Verdict.DRIFT:
        assert finding.remedy and finding.remedy.operation == "tuning.numa_balancing"


def test_a_kernel_without_numa_balancing_is_satisfied_only_when_it_is_to_be_off() -> None:
    state = with_(healthy(), {"numa.balancing.running": unreadable("missing", "/proc/sys/kernel/numa_balancing")})
    assert found("numa_balancing", state).verdict == Verdict.OK
    assert found("numa_balancing", state, tuned(numa_balancing=True)).verdict == Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("path", "name"),
    [("cpu.governors", "cpu_governor"), ("cpu.c2_enabled", "c2"), ("memory.thp.running", "thp")],
)
def test_what_a_machine_does_not_have_is_unknown(path: str, name: str) -> None:
    finding = found(name, with_(healthy(), {path: unreadable("missing", "/sys/x")}))
    assert finding.verdict == Verdict.UNKNOWN
    assert "/sys/x" in finding.evidence


def test_one_cpu_with_another_governor_is_drift() -> None:
    finding = found("cpu_governor", with_(healthy(), {"cpu.governors": {"performance": 191, "powersave": 1}}))
    assert finding.verdict == Verdict.DRIFT
    assert "1 CPUs powersave" in finding.evidence
    assert finding.remedy and finding.remedy.arguments == {"settings": {"cpu_governor": "performance"}}


def test_c2_left_on_somewhere_is_drift() -> None:
    assert "on 3 of 192 CPUs" in found("c2", with_(healthy(), {"cpu.c2_enabled": 3})).evidence


@pytest.mark.parametrize("name", ["cpu_governor", "c2", "pcie_acs", "max_read_request"])
def test_a_unit_that_is_not_enabled_keeps_nothing(name: str) -> None:
    finding = found(name, with_(healthy(), {"boot_unit.enabled": False}))
    assert (finding.verdict, finding.persisted) == (Verdict.DRIFT, "not set")


def test_without_systemd_the_remedy_says_that_it_does_not_last() -> None:
    finding = found("c2", with_(healthy(), WITHOUT_SYSTEMD | {"cpu.c2_enabled": 3}))
    assert finding.verdict == Verdict.DRIFT
    assert finding.remedy and "without systemd" in finding.remedy.text


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("cpu_governor", {"cpu.governors": {"powersave": 192}}),
        ("c2", {"cpu.c2_enabled": 1}),
        ("thp", {"memory.thp.running": "madvise"}),
        ("pcie_acs", {"acs.enabled": ["0000:c0:01.1"]}),
        ("max_read_request", {"rdma.3.max_read_request": 512}),
        ("mtu.ens1np0", {"interfaces.2.mtu.running": "1500"}),
    ],
)
def test_without_systemd_what_is_right_now_is_a_persons_to_keep(name: str, wrong: dict[Any, Any]) -> None:
    """An operation that could do no more would be run at every deploy, and blamed each time."""
    unkept = WITHOUT_SYSTEMD | {"memory.thp.persisted": None, "interfaces.2.mtu.persisted": None}
    finding = found(name, with_(healthy(), unkept))
    assert (finding.verdict, finding.fixed_by) == (Verdict.DRIFT, FixedBy.PERSON)
    assert found(name, with_(healthy(), unkept | wrong)).fixed_by == FixedBy.OPERATION


def test_acs_without_root_is_unknown_and_asks_for_root() -> None:
    finding = found("pcie_acs", with_(healthy(), {"acs.enabled": unreadable("not permitted", "config")}))
    assert finding.verdict == Verdict.UNKNOWN
    assert finding.remedy and "_sudo" in finding.remedy.text


def test_acs_names_the_functions_where_it_is_on() -> None:
    finding = found("pcie_acs", with_(healthy(), {"acs.enabled": ["0000:c0:01.1"]}))
    assert (finding.verdict, finding.actual) == (Verdict.DRIFT, "on")
    assert "0000:c0:01.1" in finding.evidence


def test_read_requests_name_the_nic_and_ignore_other_vendors() -> None:
    state = with_(healthy(), {"rdma.3.max_read_request": 512, "rdma.5.vendor": "8086", "rdma.5.max_read_request": 128})
    finding = found("max_read_request", state)
    assert (finding.verdict, finding.actual, finding.unit) == (Verdict.DRIFT, "512", "bytes")
    assert "bnxt_re3 512" in finding.evidence and "bnxt_re5" not in finding.evidence
    assert finding.remedy and finding.remedy.arguments == {"settings": {"max_read_request.14e4": 4096}}
    hidden = with_(healthy(), {"rdma.3.max_read_request": unreadable("not permitted", "config")})
    assert found("max_read_request", hidden).verdict == Verdict.UNKNOWN


def test_mtu_of_rdma_interfaces_and_no_others() -> None:
    state = with_(healthy(), {"interfaces.0.mtu.running": "9216", "interfaces.2.mtu.running": "1500"})
    findings = [each for each in checks.evaluate(desired(), state, "node01") if each.name.startswith("mtu.")]
    assert len(findings) == 8
    (drifted,) = [each for each in findings if each.verdict != Verdict.OK]
    assert (drifted.name, drifted.actual, drifted.reboot_pending) == ("mtu.ens1np0", "1500", True)
    assert drifted.remedy and drifted.remedy.risk == Risk.DISRUPTIVE


def test_two_devices_over_one_interface_are_one_finding() -> None:
    state = with_(healthy(), {"rdma.1.netdev": "ens0np0"})
    findings = [each.name for each in checks.evaluate(desired(), state, "node01") if each.name.startswith("mtu.")]
    assert sorted(findings) == sorted(set(findings)) and len(findings) == 7


def test_mtu_of_an_interface_that_is_not_there_is_unknown() -> None:
    assert found("mtu.gone", with_(healthy(), {"rdma.0.netdev": "gone"})).verdict == Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("running", "persisted", "verdict", "remedy"),
    [
        ("64", "unlimited", Verdict.DRIFT, None),  # written down; the session began before that
        ("unlimited", None, Verdict.DRIFT, "tuning.limits"),
        ("64", "64", Verdict.DRIFT, "tuning.limits"),
    ],
)
def test_limits(running: str, persisted: str | None, verdict: Verdict, remedy: str | None) -> None:
    state = with_(healthy(), {"limits.memlock.running": running, "limits.memlock.persisted": persisted})
    finding = found("memlock", state)
    assert (finding.verdict, finding.reboot_pending) == (verdict, False)
    assert finding.remedy and finding.remedy.operation == remedy
    assert finding.fixed_by == (FixedBy.OPERATION if remedy else FixedBy.LOGIN)
    assert finding.pending == ("" if remedy else "login pending")


@pytest.mark.parametrize(
    ("session", "at_login", "members", "actual", "fixed_by"),
    [
        (["ada"], ["ada"], {"video": []}, "no such group", FixedBy.OPERATION),
        (["ada"], ["ada"], {"render": ["bob"]}, "not a member", FixedBy.OPERATION),
        (["ada", "render"], ["ada"], {"render": ["bob"]}, "not a member", FixedBy.OPERATION),
        (["ada"], ["ada", "render"], {"render": ["ada"]}, "member, not in this session", FixedBy.LOGIN),
        (["ada", "render"], ["ada", "render"], {"render": ["ada"]}, "member", None),
    ],
)
def test_groups(
    session: list[str], at_login: list[str], members: dict[str, list[str]], actual: str, fixed_by: FixedBy | None
) -> None:
    account = {"user": "ada", "groups": session, "at_login": at_login, "members": members}
    finding = found("groups.render", with_(healthy(), {"account": account}))
    assert finding.actual == actual
    assert finding.verdict == (Verdict.OK if actual == "member" else Verdict.DRIFT)
    assert finding.fixed_by == fixed_by


@pytest.mark.parametrize(
    ("session", "at_login", "fixed_by"),
    [([], [], FixedBy.OPERATION), ([], ["rack"], FixedBy.LOGIN), (["rack"], ["rack"], None), (["rack"], [], None)],
)
def test_a_group_whose_members_are_not_read(session: list[str], at_login: list[str], fixed_by: FixedBy | None) -> None:
    """Once a file names the user only a login is missing; a directory server may name it where no file does."""
    account = {"user": "ada", "groups": session, "at_login": at_login, "members": {}}
    finding = found("groups.rack", with_(healthy(), {"account": account}), tuned(groups=["rack"]))
    assert finding.fixed_by == fixed_by


def test_roots_session_needs_no_group() -> None:
    state = with_(healthy(), {"account.groups": ["root"]})
    assert found("groups.render", state).verdict == Verdict.OK


def test_sysctls_one_by_one() -> None:
    assert found(f"sysctl.{RPF}", with_(healthy(), {("sysctl", RPF, "running"): "1"})).reboot_pending
    strange = tuned(sysctl={"net.nobody.reads": 1})
    assert found("sysctl.net.nobody.reads", healthy(), strange).verdict == Verdict.UNKNOWN


def test_a_module_has_to_be_loaded_now_and_at_boot() -> None:
    unloaded = with_(healthy(), {"modules.loaded": ["bnxt_re", "ib_uverbs", "rdma_ucm"]})
    finding = found("modules.amdgpu", unloaded)
    assert (finding.verdict, finding.remedy and finding.remedy.arguments) == (Verdict.DRIFT, {"modules": ["amdgpu"]})
    assert found("modules.amdgpu", with_(unloaded, {"modules.builtin": ["amdgpu"]})).verdict == Verdict.OK
    assert found("modules.amdgpu", with_(healthy(), {"modules.persisted": []})).verdict == Verdict.DRIFT


def test_a_blacklisted_module_is_not_kept_by_modules_load() -> None:
    state = with_(healthy(), {"modules.blacklisted": ["amdgpu"]})
    finding = found("modules.amdgpu", state)
    assert finding.verdict == Verdict.DRIFT
    assert "blacklist" in finding.evidence
    assert finding.remedy and finding.remedy.arguments == {"settings": {"module.amdgpu": "loaded"}}
    by_unit = with_(state, {("boot_unit", "settings", "module.amdgpu"): "loaded"})
    assert found("modules.amdgpu", by_unit).verdict == Verdict.OK


CMDLINE = ["pci=realloc=off", "pci=bfsort", "iommu=pt", "amd_iommu=on"]


@pytest.mark.parametrize(
    ("running", "persisted", "loader", "verdict", "pending", "operation"),
    [
        (CMDLINE, CMDLINE, "grub-dropin", Verdict.OK, False, None),
        ([], [], "grub-dropin", Verdict.DRIFT, False, "cmdline.kernel_parameters"),
        ([], CMDLINE, "grubby", Verdict.DRIFT, True, None),
        (CMDLINE, [], "grubby", Verdict.DRIFT, False, "cmdline.kernel_parameters"),
        ([], unreadable("missing"), "none", Verdict.FAIL, False, None),
        (CMDLINE, unreadable("missing"), "none", Verdict.UNKNOWN, False, None),
        ([*CMDLINE, "iommu=nopt"], CMDLINE, "grubby", Verdict.DRIFT, True, None),  # the last one rules
        (["pci=realloc=off,bfsort", *CMDLINE[2:]], CMDLINE, "grubby", Verdict.OK, False, None),
        (unreadable("not permitted"), CMDLINE, "grubby", Verdict.UNKNOWN, False, None),
    ],
)
def test_cmdline(
    running: Any, persisted: Any, loader: str, verdict: Verdict, pending: bool, operation: str | None
) -> None:
    state = with_(healthy(), {"cmdline": {"running": running, "persisted": persisted, "loader": loader}})
    finding = found("cmdline", state)
    assert (finding.verdict, finding.reboot_pending) == (verdict, pending), finding
    assert (finding.remedy.operation if finding.remedy else None) == operation
    if loader == "none":
        assert "no boot loader known" in finding.evidence


def test_the_cpus_vendor_names_its_iommu() -> None:
    intel = with_(healthy(), {"cpu.vendor": "GenuineIntel"})
    finding = found("cmdline", intel)
    assert finding.verdict == Verdict.DRIFT and "lacks intel_iommu=on" in finding.evidence
    assert found("cmdline", with_(healthy(), {"cpu.vendor": "ARM"})).verdict == Verdict.UNKNOWN
    assert found("cmdline", with_(healthy(), {"cpu.vendor": unreadable("malformed")})).verdict == Verdict.UNKNOWN


def test_a_reboot_is_a_remedy_only_where_it_is_allowed() -> None:
    state = with_(healthy(), {"cmdline.running": []})
    allowed = desired(system={"reboot": "when needed", "reboot_at_once": 2})
    remedy = found("cmdline", state, allowed).remedy
    assert remedy and remedy.operation == "reboot.when_needed" and remedy.risk == Risk.REBOOT
    assert remedy.arguments == {"parameters": CMDLINE, "at_once": 2, "timeout_s": 900}
    forbidden = found("cmdline", state)
    assert (forbidden.fixed_by, forbidden.pending) == (FixedBy.REBOOT, "reboot pending")


def test_every_remedy_names_an_operation_that_takes_its_arguments() -> None:
    """A misspelt operation would leave a drift that nobody fixes."""
    modules = {"tuning": tuning, "boot": boot, "cmdline": cmdline, "reboot": reboot}
    worst = with_(
        healthy(),
        {
            "numa.balancing": {"running": "1", "persisted": None},
            "cmdline": {"running": [], "persisted": [], "loader": "grubby"},
            "limits.memlock": {"running": "64", "persisted": None},
            "limits.nofile": {"running": "64", "persisted": None},
            "account": {"user": "ada", "groups": [], "at_login": [], "members": {}},
            "modules.loaded": [],
            "boot_unit.enabled": False,
            ("sysctl", RPF, "running"): "0",
            ("sysctl", RPF, "persisted"): None,
            "interfaces.1.mtu": {"running": "1500", "persisted": None},
        },
    )
    remedies = [each.remedy for each in checks.evaluate(desired(), worst, "node01") if each.remedy]
    ours = [each for each in remedies if (each.operation or "").partition(".")[0] in modules]
    assert len(ours) >= 15
    for remedy in ours:
        module, name = (remedy.operation or "").split(".")
        inspect.signature(getattr(modules[module], name)._inner).bind(**remedy.arguments)
