"""Host settings: one file each, which everything that reads or changes the setting goes by."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import OperationValueError
from pyinfra.context import ctx_host, ctx_state
from pyinfra_testing.util import FakeState, create_host

from shakedown import checks
from shakedown.desired.models import Tuning
from shakedown.node import setting as known
from shakedown.node import sysctl
from shakedown.node.__main__ import node_state
from shakedown.node.pci import registers
from shakedown.node.setting import FOLDER, SETTINGS, CpuSetting, SysctlSetting, find
from shakedown.node.tree import Tree, Unreadable
from shakedown.operations import boot, tuning
from shakedown.operations.boot_values import Fetched
from shakedown.state.findings import Risk, Verdict
from shakedown.state.node import NodeState
from tests.node_trees import make_tree
from tests.states import bare, desired, unreadable, with_

ONCE = {name: each for name, each in SETTINGS.items() if not each.details}


def test_a_setting_has_the_name_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sorted(SETTINGS) == sorted(path.stem for path in Path(FOLDER).glob("*.json"))
    assert {name: each.name for name, each in SETTINGS.items()} == {name: name for name in SETTINGS}
    assert known.entries().keys() == SETTINGS.keys()
    monkeypatch.setattr(known, "ENTRIES", {"thp": {}})
    assert known.entries() == {"thp": {}}


def test_a_file_with_a_key_that_no_setting_has_is_refused() -> None:
    with pytest.raises(TypeError, match="the setting boost has no pathh, color"):
        CpuSetting("boost", file="cpufreq/boost", pathh="", color="")


@pytest.mark.parametrize("name", SETTINGS)
def test_each_says_what_it_is_where_it_is_read_and_what_changing_it_costs(name: str) -> None:
    each = SETTINGS[name]
    assert each.doc and each.source and each.evidence and each.values
    assert Risk(each.risk)
    if name in ONCE:
        assert name in Tuning.model_fields and name in checks.checks()
        value = "0" if each.switch else each.example
        assert each.accepts(value) and not each.accepts(f"{value}\n") and not each.accepts("")


@pytest.mark.parametrize(
    ("key", "about"),
    [
        ("thp", ("thp", "")),
        ("acs", ("pcie_acs", "")),
        ("mtu.eth0.100", ("mtu", "eth0.100")),
        ("max_read_request", ("max_read_request", "")),
        ("max_read_request.14e4", ("max_read_request", "14e4")),
        ("sysctl.net.ipv4.conf.eth0/5.rp_filter", ("sysctl", "net.ipv4.conf.eth0/5.rp_filter")),
    ],
)
def test_a_key_names_a_setting_and_what_it_is_about(key: str, about: tuple[str, str]) -> None:
    setting, detail = find(key)
    assert (setting.name, detail) == about


@pytest.mark.parametrize(
    "key", ["thp.", "thp.x", "mtu", "mtu.", "mtu.a b", "mtu.x;y", "sysctl.vm", "sysctl.a/../b", ""]
)
def test_what_is_no_key_is_none(key: str) -> None:
    with pytest.raises(KeyError):
        find(key)


def test_an_operation_reads_as_the_probe_does(tmp_path: Path) -> None:
    """The same module over the node's files and over what was fetched of them."""
    node = Tree(str(make_tree(tmp_path, count=1, gid_entries=4, cpus=3)))
    for key in ("thp", "c2", "cpu_governor", "numa_balancing", "mtu.ens0np0"):
        setting, detail = find(key)
        here = setting.read(node, detail)
        fetched = Fetched({path: node.lines(path) for path in here}, {})
        assert here and setting.read(fetched, detail) == here, key
    setting, detail = find("max_read_request.14e4")
    words = {bdf: f"{word:04x}" for bdf, word in registers(node, setting.register).items()}  # type: ignore[attr-defined]
    paths = [f"/sys/bus/pci/devices/{bdf}/{name}" for bdf in words for name in ("vendor", "infiniband", "physfn")]
    files = {path: node.lines(path) if path.endswith("vendor") else [] for path in paths if node.exists(path)}
    fetched = Fetched(files, {setting.register: words})  # type: ignore[attr-defined]
    assert len(setting.read(node, detail)) == 1 and setting.read(fetched, detail) == setting.read(node, detail)


# A setting of each CPU, as a site may add one: without a place of its own in the node state.
BOOST = CpuSetting(
    "boost",
    values="on|off",
    raws={"on": "1", "off": "0"},
    file="cpufreq/boost",
    evidence="/sys/devices/system/cpu/cpu*/cpufreq/boost",
)


@pytest.mark.parametrize(
    ("cpus", "running"), [(["0", "0"], "off"), (["1", "1"], "on"), (["0", "1"], "off, on"), (["0", "7"], "7, off")]
)
def test_where_its_targets_differ_a_setting_has_no_value_that_could_be_wanted(
    tmp_path: Path, cpus: list[str], running: str
) -> None:
    for number, text in enumerate(cpus):
        file = tmp_path / f"sys/devices/system/cpu/cpu{number}/cpufreq/boost"
        file.parent.mkdir(parents=True)
        file.write_text(f"{text}\n")
    assert BOOST.running(Tree(str(tmp_path))) == running
    assert not BOOST.accepts("off, on")


def test_a_node_without_any_target_has_no_value(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="missing"):
        BOOST.running(Tree(str(tmp_path)))


def test_what_was_not_fetched_is_missing_and_what_nobody_may_read_is_not_permitted() -> None:
    thp = SETTINGS["thp"]
    for files, why in (({}, "missing"), ({thp.evidence: None}, "not permitted")):
        with pytest.raises(Unreadable) as error:
            thp.read(Fetched(files, {}), "")
        assert error.value.reason == why


def test_of_a_choice_the_bracketed_word_counts_and_none_is_malformed(tmp_path: Path) -> None:
    file = tmp_path / "sys/kernel/mm/transparent_hugepage/enabled"
    file.parent.mkdir(parents=True)
    file.write_text("always madvise [never]\n")
    assert list(SETTINGS["thp"].read(Tree(str(tmp_path)), "").values()) == ["never"]
    for text in ("always madvise never\n", "always [ never\n", ""):
        file.write_text(text)
        with pytest.raises(Unreadable, match="malformed"):
            SETTINGS["thp"].read(Tree(str(tmp_path)), "")


@pytest.mark.parametrize(
    ("words", "why"),
    [((), "missing"), (("1", None), "missing"), (("1", ""), "malformed"), (("1", "off"), "malformed")],
)
def test_idle_state_2_is_not_disabled_where_a_cpu_does_not_say_so(
    tmp_path: Path, words: tuple[str | None, ...], why: str
) -> None:
    root = make_tree(tmp_path, count=1, gid_entries=4, cpus=1)
    cpus = root / "sys/devices/system/cpu"
    shutil.rmtree(cpus)
    for number, word in enumerate(words):
        state = cpus / f"cpu{number}/cpuidle/state2"
        state.mkdir(parents=True)
        if word is not None:
            (state / "disable").write_text(f"{word}\n")
    document = node_state(Tree(str(root)))
    assert document["cpu"]["c2_enabled"]["unreadable"] == why
    findings = checks.evaluate(desired(tuning={"c2": "disabled"}), NodeState.model_validate(document), "node")
    assert [found.verdict for found in findings if found.name == "c2"] == [Verdict.UNKNOWN]


def test_any_key_of_sysctl_is_read_where_it_is_asked_for(tmp_path: Path) -> None:
    root = make_tree(tmp_path, count=1, gid_entries=4)
    for key, value in (("kernel.nobody_lists_this", "7"), ("vm.one", "1 2\t3")):
        file = root / "proc/sys" / key.replace(".", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
    (root / "etc/sysctl.d/50-x.conf").write_text("kernel.nobody_lists_this = 7\n")
    asked = sysctl.question(["kernel.nobody_lists_this", "vm.one", "vm.gone"])
    state = NodeState.model_validate(node_state(Tree(str(root)), requested=asked))
    wanted = desired(tuning={"sysctl": {"kernel.nobody_lists_this": 7, "vm.one": "1 2 3", "vm.gone": 0}})
    found = {each.name: each for each in checks.evaluate(wanted, state, "n")}
    assert found["sysctl.kernel.nobody_lists_this"].verdict == Verdict.OK
    assert (found["sysctl.vm.one"].verdict, found["sysctl.vm.one"].persisted) == (Verdict.DRIFT, "not set")
    assert found["sysctl.vm.gone"].verdict == Verdict.UNKNOWN and "missing" in found["sysctl.vm.gone"].evidence


def test_a_question_is_bounded_and_nothing_but_keys_of_sysctl() -> None:
    assert sysctl.requested_keys(
        ["sysctl.vm.swappiness", "thp", "sysctl.a/../../etc/passwd", "", "mtu.x", "nonsense"]
    ) == ["vm.swappiness"]
    many = sysctl.question(f"vm.k{number}" for number in range(1000))
    assert len(sysctl.requested_keys(many)) == sysctl.MOST
    assert sysctl.requested_keys(sysctl.question(["vm." + "k" * sysctl.LONGEST])) == []


@pytest.mark.parametrize(
    "sysctl", [{f"vm.k{number}": 1 for number in range(sysctl.MOST + 1)}, {"vm." + "k" * sysctl.LONGEST: 1}]
)
def test_more_than_a_question_carries_is_refused_with_its_path(sysctl: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"sysctl"):
        Tuning.model_validate({"sysctl": sysctl})


@pytest.mark.parametrize("name", ONCE)
def test_what_an_older_probe_did_not_read_is_unknown(name: str) -> None:
    """As of a state that was kept before there was the setting."""
    each = ONCE[name]
    asked = False if each.switch else each.example
    state = with_(bare(), {each.place: reading(each)} if each.place else {"settings": {}})
    (finding,) = [each for each in checks.evaluate(desired(tuning={name: asked}), state, "n") if each.name == name]
    assert finding.verdict == Verdict.UNKNOWN


def reading(each: Any) -> Any:
    """A place of the state of which nothing was read."""
    whole = each.place in ("cpu.governors", "cpu.c2_enabled", "acs.enabled")
    why = unreadable("failed", "not read")
    return why if whole else {"running": why, "persisted": why}


def commands(operation: Any, **arguments: Any) -> list[str]:
    """The commands on a node that has nothing but transparent huge pages."""
    files = {"/sys/kernel/mm/transparent_hugepage/enabled": ["always [madvise] never"]}
    host = create_host(FakeState(), facts={})
    host.get_fact = lambda _, patterns: {path: lines for path, lines in files.items() if path in patterns}
    with ctx_state.use(FakeState()), ctx_host.use(host):
        made = list(operation._inner(**arguments))
    return [each.get_raw_value() if isinstance(each, StringCommand) else each.function.__name__ for each in made]


def test_each_setting_has_an_operation_of_its_name() -> None:
    assert {each.__name__ for each in tuning.OF_SETTINGS} == set(ONCE)
    for name in ONCE:
        assert getattr(tuning, name) in tuning.OF_SETTINGS
    for each in SETTINGS.values():
        assert isinstance(each, SysctlSetting) != each.by_unit, "the boot unit keeps what no file of the system does"


def test_the_operation_of_a_setting_does_what_the_boot_units_does_for_it() -> None:
    alone = commands(getattr(tuning, "thp"), value="always")  # noqa: B009 - made at run time
    assert alone == commands(boot.settings, settings={"thp": "always"})
    assert f"{boot.SCRIPT} thp=always" in alone


@pytest.mark.parametrize(("name", "wrong"), [("thp", "sometimes"), ("c2", "off"), ("pcie_acs", "on")])
def test_an_operation_refuses_a_value_that_the_setting_does_not_take(name: str, wrong: str) -> None:
    with pytest.raises(OperationValueError, match=wrong):
        commands(getattr(tuning, name), value=wrong)


def test_a_switch_takes_true_and_false_and_nothing_like_them() -> None:
    numa_balancing: Any = getattr(tuning, "numa_balancing")  # noqa: B009
    assert commands(numa_balancing) == []  # a kernel without it has it off
    with pytest.raises(OperationValueError, match="maybe"):
        commands(numa_balancing, enabled="maybe")
    assert commands(numa_balancing, enabled=True) == ["refused"]


def test_a_key_of_tuning_is_a_settings_file_or_the_guide_says_why_not() -> None:
    guide = (Path(__file__).parents[2] / "docs/extending.md").read_text("utf-8")
    without = set(re.findall(r"`tuning\.(\w+)`", guide.partition("## A host setting")[2].partition("## ")[0]))
    modules = {{"module": "modules"}.get(name, name) for name in SETTINGS}
    assert without and without.isdisjoint(modules)
    assert set(Tuning.model_fields) <= without | modules
