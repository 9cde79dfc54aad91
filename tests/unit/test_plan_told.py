"""What a plan says of every derived value, as an operator reads it before the job starts."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from shakedown.jobs.launch import LaunchPlan
from shakedown.jobs.plan import PlanError, make_plan, render
from shakedown.jobs.plan.container import host_files
from shakedown.jobs.plan.network import rendezvous_of
from shakedown.jobs.plan.render import brief
from tests.plans import DIGEST, IMAGE, RUN_ID, draft, rack, small
from tests.states import GIB, bare, desired, healthy, image, interface, unreadable, with_

ONE, TWO = "llama3.1-8b-fp8", "llama3.1-8b-fp8-2nodes"
DATA = {"data-path": "/d", "vocab-file": "/v", "merge-file": "/m"}


def notes(plan: LaunchPlan) -> dict[str, tuple[str, str]]:
    return {each.name: (str(each.value), each.why) for each in plan.derived}


def refused(*args: Any, **kwargs: Any) -> list[str]:
    with pytest.raises(PlanError) as why:
        rack(*args, **kwargs)
    return [str(problem) for problem in why.value.problems]


def test_the_ways_between_two_nodes_are_told() -> None:
    found = notes(rack(TWO, 2))
    assert found["world size"] == ("16", "2 nodes x 8 ranks")
    assert found["master address"] == ("10.0.0.1", "node01, eth0: every other node reaches it directly")
    assert found["node02: interface"] == ("eth0 10.0.0.2", "the one that routes to the master")
    assert "node01: interface" not in found
    assert found["node01: HCA list"][0].startswith("bnxt_re0,bnxt_re1,")
    assert found["node01: GID index"] == ("3", "the RoCE v2 entry of each device's own address")
    assert found["master port"][1] == "nothing listens there; chosen from 20000 to 29999 by the run's id"
    assert notes(rack(TWO, 2, interface="eth0"))["node02: interface"][1] == "as the desired state says"


def test_a_node_behind_a_gateway_is_told() -> None:
    routed = {
        "interfaces": [interface("eth0", "10.9.0.2/24", 1500)],
        "routes": [{"destination": "0.0.0.0/0", "gateway": "10.9.0.1", "interface": "eth0", "metric": 0}],
    }
    states = {"node01": healthy(1), "node02": with_(healthy(2), routed)}
    planned = draft(desired(), states)
    assert rendezvous_of(planned)
    assert planned.derived[0].why.endswith("every other node reaches it through a gateway")


@pytest.mark.parametrize("local", ["169.254.1.{}/16", "127.1.0.{}/8"])
def test_an_address_that_is_good_on_one_link_only_is_no_meeting_place(local: str) -> None:
    """Although every node has one, and no two the same."""
    names = {number: f"node{number:02d}" for number in (1, 2)}
    states = {
        name: with_(healthy(number), {"interfaces.0": interface("usb0", local.format(number), 1500)})
        for number, name in names.items()
    }
    assert rendezvous_of(draft(desired(), states))["node01"].address == "10.1.0.1"


def test_one_node_without_rdma_has_nothing_of_it_told() -> None:
    found = notes(rack(ONE))
    assert found["world size"] == ("8", "1 node x 8 ranks")
    assert not [name for name in found if "HCA" in name or "GID" in name or "interface" in name]
    sockets = notes(rack(TWO, 2, nic=None))
    assert sockets["node01: HCA list"][0] == "none" and "node01: GID index" not in sockets


# ------------------------------------------------------------------------------------------------------------ sizes


def test_the_memory_of_the_smallest_gpu_counts_and_the_profile_where_one_does_not_tell() -> None:
    assert notes(rack(ONE))["node01: GPU memory"][1].endswith("size as the smallest GPU reports it")
    less = notes(rack(ONE, changes={"node01": {"gpus.5.vram_bytes": 100 * GIB}}))["node01: GPU memory"]
    assert less[0].endswith(" of 100GB")
    silent = notes(rack(ONE, changes={"node01": {"gpus.5.vram_bytes": unreadable("failed")}}))["node01: GPU memory"]
    assert silent[1].endswith("size of the profile mi300x")
    (why,) = refused("llama2-70b-bf16-fsdp", changes={"node01": {"gpus.5.vram_bytes": GIB}})
    assert why.endswith(", sharded") and "node01: gpus.vram_bytes = 1.0GB" in why
    (why,) = refused(ONE, changes={"node01": {"gpus.5.vram_bytes": GIB}})
    assert "sharded" not in why


def test_just_the_memory_that_the_ranks_need_is_enough() -> None:
    own = desired("cpu", None, smoke={"recipe": "gpt-small", "ranks_per_node": 1})
    least = 629_145_600  # host_bytes_per_rank of the family
    for free, enough in ((least, True), (least - 1, False)):
        state = with_(bare(), {"memory.available_bytes": free})
        try:
            make_plan({"n": own}, {"n": state}, RUN_ID)
        except PlanError as error:
            assert not enough and "memory.available_bytes" in str(error)
        else:
            assert enough


def test_tensor_parallel_over_the_network_is_told_and_within_a_node_is_not() -> None:
    def told(ranks: int) -> dict[str, tuple[str, str]]:
        return notes(small(2, ranks_per_node=ranks, options={"tensor_parallel": 2}))

    assert "tensor parallel" not in told(2)
    assert told(1)["tensor parallel"][0] == "2"


def test_layers_that_do_not_divide_are_refused_once_with_their_number() -> None:
    with pytest.raises(PlanError) as why:
        small(2, options={"pipeline_parallel": 2, "num_layers": 3})
    assert [str(each) for each in why.value.problems if "divisor" in str(each)] == [
        "smoke: smoke.options.pipeline_parallel = 2: expected a divisor of the model's 3 layers"
    ]


def test_where_the_number_of_ranks_is_from() -> None:
    assert notes(rack(ONE))["ranks per node"] == ("8", "one for each GPU")
    assert notes(rack(ONE, ranks_per_node=8))["ranks per node"] == ("8", "as the desired state says")
    alone = notes(small())["ranks per node"]
    assert alone[1] == "as gpt-small says"


# -------------------------------------------------------------------------------------------------------- container


def test_of_several_digests_the_one_that_is_asked_for_is_started() -> None:
    name = IMAGE.partition(":")[0]
    asked = "sha256:" + "ff" * 32
    both = {**image(IMAGE, DIGEST), "digests": [f"{name}@{DIGEST}", f"{name}@{asked}"]}
    site = {"images": {"megatron": f"{name}@{asked}"}}
    own = desired(smoke={"recipe": ONE, "image": "megatron"}, **site)
    plan = make_plan({"n": own}, {"n": with_(healthy(1), {"containers.images": [both]})}, RUN_ID)
    assert plan.image is not None and plan.image.endswith(f"@{asked}")


def test_images_that_differ_are_named_by_what_tells_them_apart() -> None:
    bare_image = {**image(IMAGE, "sha256:" + "cd" * 32), "digests": []}
    text = "\n".join(refused(TWO, 2, changes={"node02": {"containers.images": [bare_image]}}))
    assert DIGEST in text and f"node02: {bare_image['id']}" in text


def test_what_the_document_s_container_may_and_this_one_may_not_is_told() -> None:
    assert notes(rack(ONE))["privileged"][0] == "no"
    assert "privileged" not in notes(rack(ONE, privileged=True))
    assert "privileged" not in notes(rack("stanford-gpt", options=DATA))


def test_the_files_that_a_container_gets_of_the_host_are_told() -> None:
    library = "/usr/local/lib/libbnxt_re-rdmav34.so"
    mounts, why = notes(rack(TWO, 2))["node01: host files"]
    assert library in mounts.split(", ") and "/etc/libibverbs.d" in mounts.split(", ")
    assert why == "the provider of thor2, ABI 34; host and container must have the very same file"
    assert "node01: host files" not in notes(rack(TWO, 2, nic=None))
    none = refused(TWO, 2, changes={"node02": {"verbs.providers": [], "verbs.drivers": {}}})
    assert any(text.startswith("node02: verbs.providers (bnxt_re) = nothing: ") for text in none)
    none = refused(TWO, 2, changes={"node02": {"verbs.drivers": {}}})
    assert any(text.startswith("node02: verbs.drivers = nothing: ") for text in none)
    other = refused(TWO, 2, changes={"node02": {"verbs.drivers": {"/etc/libibverbs.d/x.driver": "mlx5"}}})
    assert any(text.startswith("node02: verbs.drivers = /etc/libibverbs.d/x.driver: ") for text in other)


@pytest.mark.parametrize("without", ["host_library", "container_library"])
def test_a_provider_that_the_image_brings_itself_is_not_mounted(without: str) -> None:
    wanted = desired().rdma
    assert wanted.provider is not None
    own = wanted.model_copy(update={"provider": wanted.provider.model_copy(update={without: None})})
    state = with_(healthy(1), {"verbs.providers": []})
    planned = draft(desired().model_copy(update={"rdma": own}), {"n": state})
    assert (host_files(planned, "n"), planned.problems) == ((dict(wanted.mounts), {}), [])


def test_each_node_s_own_devices_and_folders_are_looked_at() -> None:
    def own(**more: Any) -> Any:
        return desired(images={"megatron": IMAGE}, smoke={"recipe": TWO, "image": "megatron", **more})

    held = {"containers.images": [image(IMAGE, DIGEST)]}
    states = {name: with_(healthy(number), held) for number, name in ((1, "a"), (2, "b"))}
    states["b"] = with_(states["b"], {"account.home": None})
    special = own(devices=["/dev/dri/renderD999"])
    at_home = special.smoke.model_copy(update={"volumes": {"{home}/x": "/x"}})
    special = special.model_copy(update={"smoke": at_home})
    with pytest.raises(PlanError) as why:
        make_plan({"a": own(), "b": special}, states, RUN_ID)
    said = [str(each) for each in why.value.problems]
    assert any(text.startswith("b: devices (/dev/dri/renderD999) = not there") for text in said)
    assert any(text.startswith("b: account.home = nothing") for text in said)


# ------------------------------------------------------------------------------------------------------ environment


@pytest.mark.parametrize(
    ("plan", "wanted"),
    [
        (lambda: small(), {"GLOO_SOCKET_IFNAME": "lo"}),
        (lambda: small(2), {"GLOO_SOCKET_IFNAME": "eth0"}),
        (lambda: rack(ONE), {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}),
        (
            lambda: rack(TWO, 2, nic=None),
            {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_DISABLE": "1"},
        ),
    ],
)
def test_a_job_is_shown_only_the_network_that_it_uses(plan: Any, wanted: dict[str, str]) -> None:
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "RDMAV_DRIVERS")
    environment = plan().nodes[0].environment
    assert {name: environment[name] for name in names if name in environment} == wanted


def test_a_variable_that_slows_these_gpus_is_told_and_another_value_is_not() -> None:
    found = notes(rack("radeon-gpt-1gpu", environment={"HSA_ENABLE_SDMA": "0", "NCCL_IB_DISABLE": "0"}, options=DATA))
    assert "warning: HSA_ENABLE_SDMA" in found and "(node01)" in found["warning: HSA_ENABLE_SDMA"][1]
    assert "warning: NCCL_IB_DISABLE" not in found


# ------------------------------------------------------------------------------------------------------- as printed


def test_what_there_is_none_of_is_printed_as_such() -> None:
    one, text = rack(ONE), render(rack(ONE))
    assert f"  image          {one.image}\n" in text
    assert " x CP " not in text
    assert "  judged         throughput_per_gpu 380, " in text
    none = render(small())
    assert "  image  " not in none and "  judged         no figures\n" in none
    assert " x CP 2\n" in render(rack(ONE, options={"CP": 2}))
    every = dict.fromkeys(("throughput_per_gpu", "tokens_per_gpu", "elapsed_time_per_iteration", "mem_usage"), 0.5)
    assert "  recorded       nothing more\n" in render(small(expect=every))
    assert "  recorded       throughput_per_gpu, " in none


def test_errors_are_counted() -> None:
    with pytest.raises(PlanError, match=r"\b1 error\b"):
        rack(ONE, changes={"node01": {"gpus.5.vram_bytes": GIB}})
    with pytest.raises(PlanError, match=r"\b2 errors\b"):
        rack(TWO, 2, changes={f"node0{n}": {"gpus.5.vram_bytes": n * GIB} for n in (1, 2)})
    with pytest.raises(PlanError, match=r"\b1 error:\n  node01, node02: "):
        rack(TWO, 2, changes={f"node0{n}": {"gpus.5.vram_bytes": GIB} for n in (1, 2)})


@pytest.mark.parametrize("size", [1, 3, 64])
def test_a_plan_on_a_screen_has_a_line_for_each_other_node(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    plan = rack("llama3.1-8b-fp8", size)
    text = brief(plan)
    lines = text.splitlines()
    assert all(len(line) <= 100 or max(map(len, line.split())) > 80 for line in lines), "a word is not broken"
    titles = [line for line in lines if re.match(r"node\d+: ranks ", line)]
    assert len(titles) == size and len(lines) < 115 + size
    assert "--shm-size 64G" in text and "--pull never" in text, "an option stands with its value"
    assert [f", with NODE_RANK={rank}" in title for rank, title in enumerate(titles)] == [False] + [True] * (size - 1)
    own = text[text.index("  command ") : text.index("each node's whole command")].partition("\nnode")[0]
    assert shlex.split(own.partition("command")[2].replace("\\\n", " ")) == plan.nodes[0].command
    changed = plan.nodes[-1].model_copy(update={"environment": {**plan.nodes[-1].environment, "NCCL_IB_HCA": "odd"}})
    assert size == 1 or "with NCCL_IB_HCA=odd, " in brief(
        plan.model_copy(update={"nodes": [*plan.nodes[:-1], changed]})
    )


def test_a_node_that_differs_by_a_word_of_another_option_or_lacks_one_is_not_called_alike() -> None:
    plan = rack("llama3.1-8b-fp8", 2)
    first, other = plan.nodes

    def shown(mine: list[str], theirs: list[str], lacks: str = "") -> str:
        environment = {name: value for name, value in other.environment.items() if name != lacks}
        own = first.model_copy(update={"command": [*first.command, *mine]})
        of_other = {"command": [*first.command, *theirs], "environment": environment}
        return " ".join(brief(plan.model_copy(update={"nodes": [own, other.model_copy(update=of_other)]})).split())

    ranks = (["--nnodes", "1", "--node-rank", "0"], ["--nnodes", "1", "--node-rank", "1"])
    assert "with --node-rank 1" in shown(*ranks)
    devices = ["--device", "/dev/x", "--device", "/dev/y"]
    assert "no --device /dev/y" in shown(devices, devices[:2])
    assert "no MASTER_ADDR" in shown([], [], lacks="MASTER_ADDR")
