"""The launch plan: derived from facts, refused with every reason at once."""

from __future__ import annotations

from typing import Any

import pytest

from shakedown.desired.problems import DesiredStateError, Problem
from shakedown.jobs.plan import PlanError, make_plan, render
from shakedown.jobs.plan.participants import participants
from shakedown.state.node import NodeState
from tests.plans import DIGEST, RUN_ID, rack, small, value
from tests.states import GIB, bare, desired, healthy, image, interface, unreadable, with_


def refused(error: pytest.ExceptionInfo[PlanError]) -> list[str]:
    return [str(problem) for problem in error.value.problems]


def plan_of(states: dict[str, NodeState], missing: dict[str, str] | None = None, **smoke: Any) -> Any:
    own = desired("cpu", None, smoke={"recipe": "gpt-small", "ranks_per_node": 1, **smoke})
    order = [*states, *(missing or {})]
    return make_plan(dict.fromkeys(order, own), states, RUN_ID, missing)


def machine(*interfaces: tuple[str, str], **changes: Any) -> NodeState:
    found = [interface(name, address, 1500) for name, address in interfaces]
    return with_(bare(), {"interfaces": found, "routes": [], **changes})


def test_one_node_stays_on_the_loopback() -> None:
    plan = small()
    (node,) = plan.nodes
    assert (plan.world_size, plan.data_parallel, plan.global_batch, plan.iterations) == (2, 2, 16, 20)
    assert (plan.master_address, node.interface, node.environment["GLOO_SOCKET_IFNAME"]) == ("127.0.0.1", "lo", "lo")
    assert node.environment["OMP_NUM_THREADS"] == "1"
    assert (node.hca, node.gid_index, plan.expect) == ([], None, {})


def test_ranks_follow_the_inventory_and_interfaces_differ() -> None:
    states = {
        "c": machine(("eno1", "10.0.0.3/24")),
        "a": machine(("ens5", "10.0.0.1/24"), ("eth1", "192.168.7.1/24")),
        "b": machine(("bond0", "10.0.0.2/24")),
    }
    plan = plan_of(states)
    assert [(n.name, n.node_rank, n.interface, n.address) for n in plan.nodes] == [
        ("c", 0, "eno1", "10.0.0.3"),
        ("a", 1, "ens5", "10.0.0.1"),
        ("b", 2, "bond0", "10.0.0.2"),
    ]
    assert (plan.master_address, plan.driver, plan.reporter) == ("10.0.0.3", "c", "b")
    # Three replicas: the batch follows, since nobody has asked for one.
    assert (plan.data_parallel, plan.global_batch) == (3, 24)


def test_docker0_is_on_every_node_and_leads_nowhere() -> None:
    states = {
        name: machine(("docker0", "172.17.0.1/16"), ("eth0", f"10.0.0.{n}/24")) for n, name in ((1, "a"), (2, "b"))
    }
    assert plan_of(states).master_address == "10.0.0.1"


def test_of_two_addresses_the_one_in_the_masters_network_is_taken() -> None:
    both = {**interface("eth0", "192.168.1.2/24", 1500), "ipv4": ["192.168.1.2/24", "10.0.0.2/24"]}
    plan = plan_of({"a": machine(("eth0", "10.0.0.1/24")), "b": machine(interfaces=[both])})
    assert plan.nodes[1].address == "10.0.0.2"


def test_a_gateway_is_second_best_to_a_common_network() -> None:
    route = {"destination": "0.0.0.0/0", "gateway": "10.1.0.254", "interface": "eth0", "metric": 0}
    apart = {
        "a": machine(("eth0", "10.0.0.1/24")),
        "b": machine(("eth0", "10.1.0.2/24"), routes=[route]),
    }
    plan = plan_of(apart)
    assert (plan.master_address, plan.nodes[1].interface) == ("10.0.0.1", "eth0")
    together = {
        "a": machine(("eth0", "10.0.0.1/24"), ("data0", "10.9.0.1/24")),
        "b": machine(("eth0", "10.1.0.2/24"), ("data7", "10.9.0.2/24"), routes=[route]),
    }
    plan = plan_of(together)
    assert (plan.master_address, plan.nodes[1].interface) == ("10.9.0.1", "data7")


def test_no_way_to_the_master_names_the_node() -> None:
    states = {"a": machine(("eth0", "10.0.0.1/24")), "b": machine(("eth0", "10.0.0.2/24")), "c": machine()}
    with pytest.raises(PlanError) as error:
        plan_of(states)
    assert refused(error) == ["c: routes = no IPv4 address: expected a route to a, whose addresses are 10.0.0.1 (eth0)"]


def test_the_sites_interface_must_be_there() -> None:
    with pytest.raises(PlanError, match=r"node02: smoke.interface = ens0np0"):
        rack("llama3.1-8b-fp8-2nodes", 2, {"node02": {"interfaces.1.up": False}}, interface="ens0np0")
    assert rack("llama3.1-8b-fp8-2nodes", 2, interface="ens0np0").master_address == "10.1.0.1"


def test_the_master_port_is_free_and_the_same_for_the_same_run() -> None:
    first = small().master_port
    assert first == small().master_port
    taken = plan_of({"a": machine(listening=[22, first])})
    assert taken.master_port == first + 1
    with pytest.raises(PlanError, match="a port that nothing listens on"):
        plan_of({"a": machine(listening=[7000])}, master_port=7000)
    with pytest.raises(PlanError, match="a list of the ports in use"):
        plan_of({"a": machine(listening=unreadable("not permitted"))})


def test_hcas_and_gid_index_come_from_the_facts() -> None:
    plan = rack("llama3.1-8b-fp8-2nodes", 2)
    environment = plan.nodes[1].environment
    assert environment["NCCL_IB_HCA"] == ",".join(f"bnxt_re{index}" for index in range(8))
    assert environment["NCCL_IB_GID_INDEX"] == "3"
    assert environment["NCCL_SOCKET_IFNAME"] == environment["GLOO_SOCKET_IFNAME"] == "eth0"
    assert environment["RDMAV_DRIVERS"] == "bnxt_re"


TWO = "llama3.1-8b-fp8-2nodes"


def test_rccl_says_between_nodes_what_the_gate_on_its_lines_has_to_read() -> None:
    assert rack(TWO, 2).nodes[0].environment["NCCL_DEBUG"] == "INFO", "a fall back to TCP is no warning"
    assert rack(TWO, 2, nic=None).nodes[1].environment["NCCL_DEBUG"] == "WARN"
    assert small(2).nodes[0].environment["NCCL_DEBUG"] == "WARN", "the gate does not ask whether there are GPUs"
    assert "NCCL_DEBUG" not in rack("llama3.1-8b-fp8").nodes[0].environment
    assert "NCCL_DEBUG:" not in render(rack(TWO, 2))


@pytest.mark.parametrize("level", ["ERROR", "error", "VERSION", "NONE", "", " ", "0", "WARNING", "WARN "])
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_level_that_keeps_warnings_back_is_raised_and_told(level: str, nodes: int) -> None:
    plan = rack(TWO, nodes, environment={"NCCL_DEBUG": level})
    assert {node.environment["NCCL_DEBUG"] for node in plan.nodes} == {"WARN"}
    assert f"{level or 'an empty value'} was requested" in render(plan)


@pytest.mark.parametrize("level", ["WARN", "warn", "Info", "INFO", "TRACE", "ABORT"])
def test_a_level_at_which_warnings_are_heard_stays(level: str) -> None:
    plan = rack(TWO, 2, environment={"NCCL_DEBUG": level})
    assert plan.nodes[0].environment["NCCL_DEBUG"] == level
    assert "was requested" not in render(plan)


@pytest.mark.parametrize("site", [{"gpu": {"profile": "mi300x"}}, {"rdma": {}}])
def test_it_does_not_matter_who_set_the_level(site: dict[str, Any]) -> None:
    site = {section: {**values, "environment": {"NCCL_DEBUG": "ERROR"}} for section, values in site.items()}
    own = {"images": {"megatron": "rocm/megatron-lm:v25.4"}, "smoke": {"recipe": TWO, "image": "megatron"}}
    state = with_(healthy(), {"containers.images": [image("rocm/megatron-lm:v25.4", DIGEST)]})
    other = with_(healthy(2), {"containers.images": [image("rocm/megatron-lm:v25.4", DIGEST)]})
    wanted = desired(**{"gpu": "mi300x", **site, **own})
    plan = make_plan({"a": wanted, "b": wanted}, {"a": state, "b": other}, RUN_ID)
    assert plan.nodes[0].environment["NCCL_DEBUG"] == "WARN"
    assert "ERROR was requested" in render(plan)


def test_rccls_lines_stay_in_the_log_that_is_judged() -> None:
    plan = rack(TWO, 2, environment={"NCCL_DEBUG_FILE": "/tmp/rccl.%h"})
    assert "NCCL_DEBUG_FILE" not in plan.nodes[0].environment
    assert "/tmp/rccl.%h was requested" in render(plan)
    alone = rack("llama3.1-8b-fp8", environment={"NCCL_DEBUG_FILE": "/tmp/x"})
    assert alone.nodes[0].environment["NCCL_DEBUG_FILE"] == "/tmp/x"


def test_a_gid_index_other_than_the_usual_is_told() -> None:
    moved = {f"rdma.{index}.gids.3.index": 5 for index in range(8)}
    plan = rack("llama3.1-8b-fp8-2nodes", 2, {"node01": moved, "node02": moved})
    assert plan.nodes[0].environment["NCCL_IB_GID_INDEX"] == "5"
    assert "the usual GID index of thor2 is 3, the tables say 5" in render(plan)
    unpublished = rack("llama3.1-8b-fp8-2nodes", 2, site={"rdma": {"usual_gid_index": None}})
    assert "usual GID index" not in render(unpublished)
    assert "usual GID index" not in render(rack("llama3.1-8b-fp8-2nodes", 2))


def test_everything_wrong_with_rdma_is_said_at_once() -> None:
    changes = {
        "node01": {"rdma.4.state": "DOWN"},
        "node02": {"rdma.2.gids.3.index": 5},
    }
    with pytest.raises(PlanError) as error:
        rack("llama3.1-8b-fp8-2nodes", 2, changes)
    first, second = refused(error)
    assert first == "node01: rdma = 7 ACTIVE (bnxt_re4 DOWN): expected 8 ACTIVE thor2 devices"
    assert second.startswith("node02: rdma.gids = bnxt_re0: 3")
    assert second.endswith("expected one index for all devices (NCCL takes only one)")


def test_one_node_trains_without_rdma() -> None:
    plan = rack("llama3.1-8b-fp8", 1, {"node01": {"rdma.4.state": "DOWN"}})
    assert "NCCL_IB_HCA" not in plan.nodes[0].environment


def test_another_vendors_device_is_no_hca() -> None:
    changes = {"node01": {"rdma.7.vendor": "15b3"}, "node02": {}}
    with pytest.raises(PlanError, match=r"7 ACTIVE: expected 8 ACTIVE thor2"):
        rack("llama3.1-8b-fp8-2nodes", 2, changes)


def test_a_name_that_begins_another_is_made_exact() -> None:
    extra = {"rdma.7.name": "bnxt_re10", "rdma.7.state": "DOWN"}
    plan = rack("llama3.1-8b-fp8-2nodes", 2, {"node01": extra, "node02": extra}, site={"rdma": {"count": 7}})
    assert plan.nodes[0].environment["NCCL_IB_HCA"].startswith("=bnxt_re0,bnxt_re1")


def test_of_a_device_with_two_ports_the_one_that_was_judged_is_used() -> None:
    two = {"rdma.1.ports": 2}
    plan = rack("llama3.1-8b-fp8-2nodes", 2, {"node01": two, "node02": two})
    assert plan.nodes[0].environment["NCCL_IB_HCA"].startswith("bnxt_re0,bnxt_re1:1,bnxt_re2")
    assert plan.nodes[0].hca[1] == "bnxt_re1", "the name is that of the device, for whoever looks for it"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"BS": 100},
            "smoke.options.BS = 100: expected a multiple of micro batch 2 x data parallel 8 = 16, such as 96 or 112",
        ),
        ({"BS": 8}, "such as 16"),
        ({"PP": 3}, "smoke.options.PP = 3: expected a divisor of the model's 32 layers"),
        ({"CP": 3}, "plan: world_size = 8: expected a multiple of 3 (tensor 1 x pipeline 1 x context 3 parallel)"),
    ],
)
def test_what_does_not_divide(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError) as error:
        rack("llama3.1-8b-fp8", options=options)
    assert any(words in problem for problem in refused(error))


def test_tensor_parallel_over_nodes_is_told() -> None:
    plan = rack("llama3.1-70b-bf16-4nodes", 4, ranks_per_node=4)
    assert "layers wait for the network" in render(plan)
    assert plan.nodes[0].environment["HIP_VISIBLE_DEVICES"] == "0,1,2,3"


def test_a_model_that_can_never_fit_is_refused() -> None:
    with pytest.raises(PlanError) as error:
        rack("llama3.1-70b-fp8", options={"TP": 1, "BS": 128})
    assert "node01: gpus.vram_bytes" in refused(error)[0]
    # 70.55e9 parameters with 6 bytes each, and 12 bytes of optimizer state over 8 replicas.
    assert f"at least {(6 + 12 / 8) * 70.55e9 / GIB:.0f}G" in refused(error)[0]


def test_cpu_ranks_need_memory() -> None:
    with pytest.raises(PlanError, match=r"memory.available_bytes = 1.0GB: expected at least 1.2GB for 2 ranks"):
        plan_of({"a": machine(**{"memory.available_bytes": GIB})}, ranks_per_node=2)


def test_gpus_that_cannot_be_counted_are_not_guessed() -> None:
    with pytest.raises(PlanError, match=r"node01: gpus = unreadable \(missing"):
        rack("llama3.1-8b-fp8", changes={"node01": {"gpus": unreadable("missing", "amdsmi")}})
    with pytest.raises(PlanError, match="gpus = 8: expected at least 16"):
        rack("llama3.1-8b-fp8", ranks_per_node=16)


def test_an_error_of_many_hosts_is_one_line() -> None:
    names = [f"node{number:03d}" for number in range(1, 513)]
    for error, kind in ((PlanError, ""), (DesiredStateError, "host ")):
        alike = [Problem(f"{kind}{name}", "smoke", "nothing", "a smoke section") for name in names]
        first, *lines = str(error([*alike, Problem("plan", "nodes", "0", "one")])).splitlines()
        assert first.endswith(" 2 errors:") and len(error(alike).problems) == 512
        assert lines[0] == f"  {kind}node[001-512]: smoke = nothing: expected a smoke section"


def test_the_place_of_an_error_is_whole_however_long() -> None:
    place = f"/{'folder/' * 20}group_data/rak.py"
    assert str(DesiredStateError([Problem(place, "x", "1", "2")])).splitlines()[1] == f"  {place}: x = 1: expected 2"


def test_nodes_that_are_missing_are_named_by_their_reason() -> None:
    missing = {f"node{number:02d}": "reachable: fail" for number in range(1, 64)} | {"node64": "gpu_count: fail"}
    own = desired("cpu", None, smoke={"recipe": "gpt-small"})
    (problem,) = participants(dict.fromkeys(missing, own), {}, missing)[1]
    assert problem.expected.endswith("(node[01-63]: reachable: fail; node64: gpu_count: fail)")
    (alone,) = participants({"node01": own}, {}, {"node01": "reachable: fail"})[1]
    assert alone.expected.startswith("the node, since min_nodes")
    (none,) = participants({}, {}, {"node01": "reachable: fail"})[1]
    assert none.expected.startswith("at least one node with a section smoke")


def test_all_nodes_or_min_nodes() -> None:
    ready = {"a": machine(("eth0", "10.0.0.1/24")), "b": machine(("eth0", "10.0.0.2/24"))}
    with pytest.raises(PlanError, match=r"expected all 3 nodes, since min_nodes is not set \(c: down\)"):
        plan_of(ready, {"c": "down"})
    with pytest.raises(PlanError, match=r"expected at least min_nodes = 3 \(c: down\)"):
        plan_of(ready, {"c": "down"}, min_nodes=3)
    plan = plan_of(ready, {"c": "down"}, min_nodes=2)
    assert (plan.world_size, plan.missing) == (2, {"c": "down"})
    assert "without        c: down" in render(plan)


def test_fewer_nodes_in_the_inventory_than_seen_before() -> None:
    with pytest.raises(PlanError, match="at least seen_nodes = 2"):
        plan_of({"a": machine()}, seen_nodes=2)


def test_one_job_has_one_description() -> None:
    states = {name: machine(("eth0", f"10.0.0.{n}/24")) for n, name in ((1, "a"), (2, "b"))}
    one = desired("cpu", None, smoke={"recipe": "gpt-small", "ranks_per_node": 1})
    other = desired("cpu", None, smoke={"recipe": "gpt-small", "ranks_per_node": 1, "iterations": 9, "venv": "/opt/v"})
    with pytest.raises(PlanError) as error:
        make_plan({"a": one, "b": other}, states, RUN_ID)
    assert refused(error) == ["b: smoke.iterations = 9: expected None as on a"]


def test_the_image_is_pinned_by_what_the_nodes_hold() -> None:
    assert rack("llama3.1-8b-fp8").image == f"rocm/megatron-lm@{DIGEST}"
    podman = image("docker.io/rocm/megatron-lm:v25.4", DIGEST)
    changes = {"node01": {"containers.engine": "podman", "containers.images": [podman]}}
    plan = rack("llama3.1-8b-fp8", changes=changes)
    assert plan.image == f"docker.io/rocm/megatron-lm@{DIGEST}"
    assert plan.nodes[0].command[0] == "podman"


def test_docker_and_podman_in_one_job() -> None:
    podman = {"containers.engine": "podman", "containers.images": [image("docker.io/rocm/megatron-lm:v25.4", DIGEST)]}
    plan = rack("llama3.1-8b-fp8-2nodes", 2, {"node02": podman})
    assert plan.image == f"docker.io/rocm/megatron-lm@{DIGEST}"
    assert [node.command[0] for node in plan.nodes] == ["docker", "podman"]
    # podman does not start with a size for a /dev/shm that is the host's.
    assert [value(node, "--shm-size") for node in plan.nodes] == [["64G"], []]
    assert "node02: shm size" in render(plan)


def test_two_images_of_one_tag_are_an_error() -> None:
    other = image("rocm/megatron-lm:v25.4", "sha256:" + "cd" * 32)
    with pytest.raises(PlanError, match=r"expected the same rocm/megatron-lm:v25.4 on every node"):
        rack("llama3.1-8b-fp8-2nodes", 2, {"node02": {"containers.images": [other]}})


def test_an_image_that_is_not_there_is_told() -> None:
    plan = rack("llama3.1-8b-fp8", changes={"node01": {"containers.images": []}})
    assert plan.image == "rocm/megatron-lm:v25.4"
    assert "not there yet on node01" in render(plan)


def test_devices_must_be_there() -> None:
    with pytest.raises(PlanError, match=r"node01: devices \(/dev/kfd\) = unreadable \(missing\)"):
        rack("llama3.1-8b-fp8", changes={"node01": {"devices.kfd": unreadable("missing")}})
    plan = rack("llama3.1-8b-fp8", changes={"node01": {"devices.infiniband": []}})
    assert value(plan.nodes[0], "--device") == ["/dev/dri", "/dev/kfd"]
    assert "/dev/infiniband  left out  (the node has none)" in render(plan)


def test_the_provider_library_must_be_on_the_host() -> None:
    with pytest.raises(PlanError, match=r"node02: verbs.providers \(bnxt_re\) = nothing"):
        rack("llama3.1-8b-fp8-2nodes", 2, {"node02": {"verbs.providers": []}})
    with pytest.raises(PlanError, match=r"node02: verbs.drivers"):
        rack("llama3.1-8b-fp8-2nodes", 2, {"node02": {"verbs.drivers": {}}})


def test_figures_hold_for_their_gpu_nodes_and_options() -> None:
    assert rack("llama3.1-8b-fp8").expect["throughput_per_gpu"] == 380.0
    four = rack("llama3.1-8b-fp8", 4)
    assert (four.global_batch, four.expect) == (512, {})
    assert "not judged: they hold for BS = 128, and this job has 512" in render(four)
    four = rack("llama3.1-8b-fp8", 4, options={"BS": 128})
    assert four.expect == {"throughput_per_gpu": 610.0, "tokens_per_gpu": 12000.0}
    two = rack("llama3.1-8b-fp8", 2)
    assert two.expect == {}
    assert "throughput_per_gpu" in two.recorded
    assert "not judged: they hold for 1 node(s), not for 2" in render(two)
    changed = rack("llama3.1-8b-fp8", options={"MBS": 1}, expect={"tokens_per_gpu": 5000.0})
    assert changed.expect == {"tokens_per_gpu": 5000.0}
    assert "not judged: they hold for the recipe's own MBS" in render(changed)
    for smoke in ({"iterations": 10}, {"options": {"TOTAL_ITERS": 10, "DATA_DIR": "/data"}}):
        assert rack("llama3.1-8b-fp8", **smoke).expect["tokens_per_gpu"] == 6500.0
    assert rack("llama3.1-8b-fp8", gpu="mi355x").expect == {}


def test_deepseek_is_for_one_node_and_says_why() -> None:
    with pytest.raises(PlanError) as error:
        rack("deepseek-v2-lite", 2)
    assert "at most 1 with deepseek-v2-lite: train_deepseekv2.sh itself sets NNODES=1" in refused(error)[0]
    with pytest.raises(PlanError, match=r"smoke.ranks_per_node = 4: expected 8"):
        rack("deepseek-v2-lite", ranks_per_node=4)


def test_a_recipe_for_two_nodes_on_three_is_told() -> None:
    plan = rack("llama3.1-8b-fp8-2nodes", 4)
    assert "megatron-lm.rst> describes llama3.1-8b-fp8-2nodes for 2" in render(plan)


def test_real_data_need_a_cache_that_every_node_sees() -> None:
    smoke: dict[str, Any] = {
        "options": {"MOCK_DATA": 0, "DATA_PATH": "/data/bookcorpus_text_sentence", "DATA_CACHE_PATH": "/cache/index"},
        "volumes": {"/mnt/shared": "/cache"},
    }
    with pytest.raises(PlanError) as error:
        rack("llama3.1-8b-fp8-2nodes", 2, **smoke)
    assert refused(error)[1] == (
        "node02: smoke.options.DATA_CACHE_PATH = /mnt/shared/index on /dev/sda1 (ext4): "
        "expected a file system that every node sees, such as NFS"
    )
    nfs = {"mount": "/mnt", "device": "filer:/x", "fstype": "nfs4", "total_bytes": 1, "free_bytes": 1, "network": True}
    disks = {"disks": [*with_(healthy(), {}).model_dump()["disks"], nfs]}
    plan = rack("llama3.1-8b-fp8-2nodes", 2, {"node01": disks, "node02": disks}, **smoke)
    assert plan.nodes[0].environment["DATA_CACHE_PATH"] == "/cache/index"
    other = {"disks": [*disks["disks"][:-1], {**nfs, "device": "filer:/y"}]}
    with pytest.raises(PlanError, match="expected the same file system on every node"):
        rack("llama3.1-8b-fp8-2nodes", 2, {"node01": disks, "node02": other}, **smoke)


def test_the_environment_of_the_site() -> None:
    plan = rack("llama3.1-8b-fp8", environment={"NCCL_DEBUG": "WARN", "NCCL_PROTO": "LL"})
    assert plan.nodes[0].environment["NCCL_DEBUG"] == "WARN"
    assert plan.nodes[0].environment["NCCL_PROTO"] == "LL"


def test_the_text_holds_what_was_derived_and_what_will_run() -> None:
    text = render(rack("llama3.1-8b-fp8-2nodes", 2))
    assert text.startswith(f"llama3.1-8b-fp8-2nodes (container) on 2 nodes, run {RUN_ID}\n")
    for part in (
        "16 = TP 1 x PP 1 x DP 16",
        "node[01-02]: HCA list",
        "node02: ranks 8 to 15, 10.0.0.2 on eth0",
        "  environment  NNODES=2",
        "bash examples/llama/train_llama3.sh",
        "privileged",
    ):
        assert part in text
    assert "\x1b" not in text


def test_a_home_is_the_nodes_own_and_never_guessed() -> None:
    own = desired(images={"m": "rocm/megatron-lm:v25.4"}, smoke={"recipe": "llama3.1-8b-fp8", "image": "m"})
    assert own.smoke is not None
    wanted = own.model_copy(update={"smoke": own.smoke.model_copy(update={"volumes": {"{home}/data": "/data"}})})
    images = {"containers.images": [image("rocm/megatron-lm:v25.4", DIGEST)], "account.user": "ada"}
    state = with_(healthy(), {**images, "account.home": "/export/ada"})
    plan = make_plan({"node01": wanted}, {"node01": state}, RUN_ID)
    assert "/export/ada/data:/data" in value(plan.nodes[0], "--volume")
    homeless = with_(healthy(), {**images, "account.home": None})
    with pytest.raises(PlanError, match=r"account.home = nothing: expected a home folder of ada in /etc/passwd"):
        make_plan({"node01": wanted}, {"node01": homeless}, RUN_ID)
