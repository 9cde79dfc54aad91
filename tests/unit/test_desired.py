"""The desired state: layers, profiles, and every error at once with where it stands."""

from __future__ import annotations

import pytest

from shakedown.desired.layers import HostLayers, Layer
from shakedown.desired.problems import DesiredStateError
from shakedown.desired.profiles import load, names
from shakedown.desired.resolve import at_home, nested
from shakedown.desired.values import format_size, parse_size
from shakedown.runner.features import resolve


def one(*layers: tuple[str, dict], user: str = "ops"):
    return resolve([HostLayers("n1", [Layer(name, values) for name, values in layers], user)])


def problems(*layers: tuple[str, dict]) -> dict[str, str]:
    with pytest.raises(DesiredStateError) as raised:
        one(*layers)
    return {problem.path: str(problem) for problem in raised.value.problems}


def test_a_ten_line_inventory_gets_everything_else_from_its_profiles():
    state = one(("group rack7", {"gpu": "mi300x", "nic": "thor2"})).states["n1"]
    assert (state.gpu.count, state.gpu.pci_ids, state.gpu.rocm_min) == (8, ["1002:74a1", "1002:74b5"], "6.3.0")
    assert state.tuning.numa_balancing is False
    assert state.rdma.environment["RDMAV_DRIVERS"] == "bnxt_re"
    assert state.smoke is None


@pytest.mark.parametrize("gpu", names("gpu"))
@pytest.mark.parametrize("nic", [None, *names("nic")])
def test_every_profile_makes_a_whole_desired_state(gpu, nic):
    state = one(("group all", {"gpu": gpu, **({"nic": nic} if nic else {})})).states["n1"]
    assert state.gpu.profile == gpu
    assert state.rdma.family == nic


def test_host_over_group_over_profile_and_each_value_knows_its_layer():
    resolved = one(
        ("group rack7", {"gpu": "mi300x", "tuning": {"thp": "madvise"}, "system": {"disk_free": {"/data": "1T"}}}),
        ("host n1", {"tuning": {"nofile": 4096}}),
    )
    state, merged = resolved.states["n1"], resolved.merged["n1"]
    assert (state.tuning.thp, state.tuning.nofile, state.tuning.c2) == ("madvise", 4096, "disabled")
    assert state.system.disk_free == {"/": 100 * 2**30, "/data": 2**40}
    assert merged.origin_of("tuning.thp") == "group rack7"
    assert merged.origin_of("tuning.nofile") == "host n1"
    assert merged.origin_of("tuning.c2") == "profile mi300x"


def test_none_takes_back_a_section_a_list_a_dictionary_and_an_entry():
    group = {"gpu": {"profile": "mi300x", "environment": {"A": "1", "B": "2"}}, "nic": "thor2", "images": {"a": "a:1"}}
    state = one(("group rack7", group)).states["n1"]
    assert state.tuning.cmdline and state.tuning.sysctl and state.system.disk_free and state.rdma.family
    taken = {
        "tuning": {"cmdline": None, "sysctl": dict.fromkeys(state.tuning.sysctl)},
        "system": {"disk_free": {"/": None}},
        "gpu": {"environment": {"A": None}},
        "images": {"a": None},
        "rdma": None,
    }
    left = one(("group rack7", group), ("host n1", taken)).states["n1"]
    assert (left.tuning.cmdline, left.tuning.sysctl, left.system.disk_free, left.images) == ([], {}, {}, {})
    assert left.gpu.environment == {"B": "2"} and left.gpu.count == 8 and left.rdma.family is None
    whole = one(("group rack7", group), ("host n1", {"tuning": None, "system": {"disk_free": None}, "gpu": None}))
    state = whole.states["n1"]
    assert (state.tuning.numa_balancing, state.system.disk_free, state.gpu.profile) == (None, {}, "cpu")


def test_an_error_of_type_hides_none_of_meaning():
    smoke = {"recipe": "gpt-small", "master_prot": 1, "expect": {"throughput": 3.0}, "options": {"hiden_size": 8}}
    found = problems(("group rack7", {"gpu": "cpu", "tuning": {"thp": 1}, "smoke": smoke}))
    expected = {"tuning.thp", "smoke.master_prot", "smoke.expect.throughput", "smoke.options.hiden_size"}
    assert set(found) == expected
    smoke = {"recipe": "gpt-smal", "iterations": "x"}
    assert set(problems(("group rack7", {"gpu": "cpu", "smoke": smoke}))) == {"smoke.recipe", "smoke.iterations"}


def test_what_follows_from_an_error_alone_is_none():
    smoke = {"recipe": "llama3.1-8b-fp8", "image": "a"}
    assert set(problems(("g", {"gpu": "mi300x", "images": {"a": {"reference": 5}}, "smoke": smoke}))) == {
        "images.a.reference"
    }


def test_every_error_at_once_each_with_layer_path_value_and_expectation():
    found = problems(
        ("group rack7", {"gpu": "mi300x", "tuning": {"numa_balancing": "off", "thp": "sometimes", "nofiles": 1}}),
        ("host n1", {"images": {"megatron": {"tag": "x"}}, "smoke": {"image": "megatron", "iterations": 3}}),
    )
    words = "group rack7: tuning.numa_balancing = 'off': expected a valid boolean, True or False"
    assert found["tuning.numa_balancing"] == words
    assert "'always', 'madvise' or 'never'" in found["tuning.thp"]
    assert found["tuning.nofiles"].endswith("expected no such key (nofile?)")
    assert found["images.megatron.reference"].startswith("host n1: images.megatron.reference = nothing: expected a val")
    assert "smoke.recipe" in found
    assert "greater than or equal to 4" in found["smoke.iterations"]


def test_a_number_is_no_boolean_and_a_text_is_no_number():
    found = problems(("group all", {"tuning": {"numa_balancing": 0, "nofile": "1048576"}}))
    assert set(found) == {"tuning.numa_balancing", "tuning.nofile"}


def test_an_unknown_profile_is_told_with_those_that_there_are_and_beside_other_errors():
    found = problems(("group all", {"gpu": "mi300", "nic": "thor3", "tuning": {"thp": 1}}))
    assert "mi300x, mi325x" in found["gpu.profile"]
    assert "ainic, cx7, thor2" in found["rdma.family"]
    assert "tuning.thp" in found
    assert "gpu.name" not in found, "what the unknown profile leads to is not a second error"


def test_every_placeholder_is_told_not_the_first():
    found = problems(
        ("group all", {"images": {"a": "<changeme>", "b": "rocm/<changeme>-x"}, "smoke": {"recipe": "<changeme>"}})
    )
    assert {"images.a.reference", "images.b.reference", "smoke.recipe"} <= set(found)


def test_other_peoples_data_is_left_alone():
    assert one(("group all", {"ssh_user": "root", "_sudo": True, "app_version": 3})).states["n1"].gpu.count == 0


def test_one_error_of_a_group_is_told_once_for_all_its_hosts():
    layer = Layer("group rack7", {"gpu": "mi301"})
    with pytest.raises(DesiredStateError) as raised:
        resolve([HostLayers(name, [layer]) for name in ("n1", "n2", "n3")])
    (problem,) = raised.value.problems
    assert problem.hosts == ("n1", "n2", "n3")


def test_user_and_home_are_resolved_for_the_nodes_user():
    layers = (
        "group all",
        {"smoke": {"recipe": "gpt-small", "volumes": {"{home}/data": "/data", "/home/{user-id}": "/h"}}},
    )
    state = one(layers, user="ada").states["n1"]
    assert state.smoke.volumes == {"{home}/data": "/data", "/home/ada": "/h"}, "the node knows where ada is at home"
    assert at_home(state, "/export/ada").smoke.volumes == {"/export/ada/data": "/data", "/home/ada": "/h"}
    assert at_home(state, None) is state
    venv = ("group all", {"smoke": {"recipe": "gpt-small", "venv": "{home}/venv"}})
    assert one(venv, user="ada").states["n1"].smoke.venv == "{home}/venv"
    assert "/root/data" in one(layers, user="root").states["n1"].smoke.volumes
    disk = one(("group all", {"system": {"disk_free": {"{home}/x": "1G"}}}), user="ada").states["n1"]
    assert at_home(disk, "/export/ada").system.disk_free["/export/ada/x"] == 2**30
    token = ("group all", {"smoke": {"recipe": "gpt-small", "hf_token_file": "{home}/none"}})
    assert "hf_token_file = ~/none" in problems(token)["smoke.hf_token_file"], "a file of this machine's user"


def test_contradictions_that_no_single_field_shows():
    image = {"reference": "r.example/x", "username": "u", "insecure": True, "ca_file": "/ca"}
    found = problems(("group all", {"images": {"a": image}, "smoke": {"recipe": "r", "image": "b"}}))
    assert "a name in images (a)" in found["smoke.image"]
    assert "password" in found["images.a.username"]
    assert "images.a" in found


def test_a_pod_has_its_image_and_is_the_container():
    pods = {"smoke": {"recipe": "gpt-small", "via": "kubernetes"}}
    found = problems(("group all", {"gpu": "cpu", **pods}))
    assert "the pod is the container" in found["smoke.runtime"] and "image of the pods" in found["kubernetes.image"]
    documented = {"smoke": {"recipe": "llama3.1-8b-fp8", "via": "kubernetes", "runtime": "process"}}
    assert "starts containers, which jobs in kubernetes cannot" in problems(("group all", documented))["smoke.via"]
    pods = {"smoke": {**pods["smoke"], "runtime": "process"}, "kubernetes": {"image": "r.example/x"}}
    assert one(("group all", {"gpu": "cpu", **pods}))


def test_what_is_expected_is_told_in_words():
    found = problems(("group all", {"rdma": {"dscp": {"64": 3}, "congestion": 1}, "pulls": {"mirrors": {"d.io": "m"}}}))
    assert found["rdma.dscp.64"].endswith("expected a DSCP as text, 0 to 63")
    assert all(found[key].endswith("a section: {KEY: VALUE}") for key in ("rdma.congestion", "pulls.mirrors.d.io"))


def test_half_of_a_contradiction_is_none():
    for half in ({"insecure": True}, {"username": "u", "password_env": "P"}, {"password_env": "P"}):
        assert one(("group all", {"images": {"a": {"reference": "r.example/x", **half}}})), half
    both = {"reference": "r.example/x", "password_file": "/p", "password_env": "P"}
    assert "one of the two" in problems(("group all", {"images": {"a": both}}))["images.a"]


def test_profiles_say_what_the_field_notes_say():
    assert load("gpu", "mi325x")["gpu"]["rocm_min"] == "6.3.2"
    assert load("gpu", "mi355x")["gpu"]["pci_ids"] == ["1002:75a3", "1002:75b3"]
    assert load("nic", "ainic")["rdma"]["usual_gid_index"] == 1
    assert load("nic", "cx7")["rdma"].get("mounts") is None


@pytest.mark.parametrize(
    ("text", "size"), [("64G", 64 * 2**30), ("512MiB", 512 * 2**20), ("1.5k", 1536), ("7B", 7), (2**30, 2**30)]
)
def test_sizes(text, size):
    assert parse_size(text) == size


def test_racks_take_ranges_of_hosts():
    racks = one(("group all", {"gpu": "cpu", "trials": {"racks": {"n[1-2],n4": "leaf1", "n3": "leaf2"}}}))
    assert racks.states["n1"].trials.racks == {"n1": "leaf1", "n2": "leaf1", "n4": "leaf1", "n3": "leaf2"}
    assert (
        "expected a range from low to high" in problems(("g", {"trials": {"racks": {"n[2-1]": "x"}}}))["trials.racks"]
    )


def test_a_size_has_a_unit():
    smoke = {"recipe": "llama3.1-8b-fp8", "image": "a", "shm_size": "64"}
    system = {"memory": "64", "disk_free": {"/": 100, "/data": "1T"}}
    data = {"gpu": {"profile": "mi300x", "vram_bytes": "192"}, "images": {"a": "x:1"}, "system": system, "smoke": smoke}
    found = problems(("group rack7", data))
    assert set(found) == {"system.memory", "system.disk_free", "gpu.vram_bytes", "smoke.shm_size"}
    assert all('expected a size with its unit, as "64G"' in text for text in found.values())


@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("smoke.iterations", {"smoke": {"iterations": 5}}),
        ("images.megatron.reference", {"images": {"megatron": {"reference": 5}}}),
        ("tuning.sysctl.vm.swappiness", {"tuning": {"sysctl": {"vm.swappiness": 5}}}),
        ("smoke.options.a.b", {"smoke": {"options": {"a.b": 5}}}),
    ],
)
def test_a_dotted_key_is_sections(key, sections):
    assert nested(key, 5) == sections


def test_sizes_for_people():
    assert [format_size(n) for n in (512, 1536, 64 * 2**30)] == ["512B", "1.5KB", "64.0GB"]


@pytest.mark.parametrize("value", ["much", ["a"], {"a": 1}])
def test_a_value_of_no_kind_that_a_key_takes_is_named_by_the_key_alone(value):
    assert set(problems(("group all", {"tuning": {"memlock": value}}))) == {"tuning.memlock"}


def test_an_item_of_a_list_is_named_by_its_place():
    assert set(problems(("group all", {"tuning": {"groups": ["render", 7]}}))) == {"tuning.groups.1"}


def test_a_long_value_is_shown_by_its_beginning():
    for length, shown in ((78, repr("x" * 78)), (79, "'" + "x" * 76 + "...")):
        (problem,) = problems(("group all", {"tuning": {"thp": "x" * length}})).values()
        assert f"tuning.thp = {shown}: expected" in problem
