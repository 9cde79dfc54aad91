"""Kubernetes' nodes: which are free, whose reasons keep them out, and marks that touch nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shakedown import hosts
from shakedown.checks.examination import Examination
from shakedown.desired.models import Service
from shakedown.gates import Gate
from shakedown.ledger.claims import Room, known_of
from shakedown.ledger.store import open_ledger
from shakedown.runner.repair.scheduler import after_run, carry_out, read_scheduler
from shakedown.runs.directory import JobRecord, RunNode, RunRecord
from shakedown.schedulers.kubernetes import client, nodes
from shakedown.schedulers.kubernetes.client import Conflict, KubernetesError, Server
from shakedown.service.marks import Mark, drain_mark
from shakedown.service.model import Incident, Known
from shakedown.state.findings import Finding, Verdict
from tests.kubernetes_api import Cluster, cluster, kubeconfig
from tests.plans import small
from tests.states import desired

REASON = "shakedown:run1 gpu_count 7 of 8 GPUs"


@pytest.fixture
def server() -> Iterator[Cluster]:
    with cluster() as found:
        yield found


@pytest.fixture
def api(server: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, server.url)))
    return Server()


def one(api: Server, name: str) -> nodes.Node:
    (found,) = nodes.read(api, [name])
    return found


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({}, ""),
        ({"spec": {"unschedulable": True}}, "cordoned"),
        ({"spec": {"taints": [{"key": "amd-gpu-unhealthy", "effect": "NoSchedule"}]}}, "amd-gpu-unhealthy=:NoSchedule"),
        ({"spec": {"taints": [{"key": "amd-dcm", "value": "up", "effect": "NoExecute"}]}}, "amd-dcm=up:NoExecute"),
        ({"spec": {"taints": [{"key": "team", "effect": "PreferNoSchedule"}]}}, ""),
        (
            {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}},
            "Unknown",
        ),
        ({"status": {"conditions": []}}, "not ready"),
    ],
)
def test_what_keeps_a_node_out(api: Server, server: Cluster, parts: dict[str, Any], why: str) -> None:
    server.node("node01", **parts)
    said = one(api, "node01").why_not()
    assert why in said and bool(said) == bool(why)


@pytest.mark.parametrize("said", ["1k", "-1", "9" * 5000, "100m"])
def test_what_one_kubelet_says_costs_its_own_node_alone(api: Server, server: Cluster, said: str) -> None:
    server.node("node01", status={"allocatable": {"amd.com/gpu": said}})
    server.node("node02", status={"allocatable": {"amd.com/gpu": "8"}})
    odd, well = nodes.read(api)
    assert not well.why_not() and well.devices == {"amd.com/gpu": 8}
    assert odd.down and not odd.devices and "the count of its devices is no number" in odd.why_not()


@pytest.mark.parametrize(
    ("parts", "busy"),
    [
        ({}, True),
        ({"status": {"phase": "Succeeded"}}, False),
        ({"status": {"phase": "Pending"}}, True),
        ({"metadata": {"ownerReferences": [{"kind": "DaemonSet", "name": "exporter"}]}}, False),
        ({"spec": {"containers": [{"name": "web"}]}}, False),
        ({"metadata": {"ownerReferences": [{"kind": "Job"}]}, "spec": {"containers": [{"name": "prepare"}]}}, True),
        ({"spec": {"nodeName": "node02"}}, False),
        ({"spec": {"containers": [{"resources": {"limits": {"site.example/accelerator": "8"}}}]}}, True),
        ({"spec": {"containers": [{"resources": {"requests": {"rdma/hca": "1"}}}]}}, True),
        ({"spec": {"containers": [{"name": "a"}], "resourceClaims": [{"name": "gpus"}]}}, True),
        ({"spec": {"containers": [{"resources": {"limits": {"cpu": "4", "hugepages-2Mi": "1Gi"}}}]}}, False),
        ({"spec": {"containers": [{"resources": {"limits": {"kubernetes.io/batch-cpu": "4"}}}]}}, False),
        ({"spec": {"containers": [], "initContainers": [{"resources": {"limits": {"amd.com/gpu": "1"}}}]}}, True),
        ({"metadata": {"ownerReferences": [{"kind": "Node", "name": "node01"}]}}, False),
    ],
)
def test_which_pods_are_somebody_s_job(api: Server, server: Cluster, parts: dict[str, Any], busy: bool) -> None:
    server.node("node01")
    server.pod("train-0", "node01", **parts)
    node = one(api, "node01")
    assert node.allocated is busy and bool(node.why_not()) is busy and not node.why_not(allow_allocated=True)


def test_a_mark_is_set_and_taken_away_and_others_stay(api: Server, server: Cluster) -> None:
    theirs = {"key": "team", "value": "a", "effect": "PreferNoSchedule"}
    server.node("node01", spec={"taints": [theirs]}, metadata={"labels": {"zone": "a"}, "annotations": {"note": "x"}})
    nodes.drain(api, "node01", REASON)
    found = one(api, "node01")
    assert found.drained and found.ours and found.reason == REASON and found.why_not() == f"out: {REASON}"
    kept = server.read("v1/nodes", "node01")
    assert kept["spec"]["taints"] == [theirs, {"key": "shakedown/out", "value": "suspect", "effect": "NoSchedule"}]
    assert kept["metadata"]["labels"] == {"zone": "a", "shakedown/verdict": "suspect"}
    condition = {each["type"]: each for each in kept["status"]["conditions"]}
    assert condition["Ready"]["status"] == "True" and condition["ShakedownSuspect"]["message"] == REASON
    nodes.drain(api, "node01", REASON)
    assert len(server.read("v1/nodes", "node01")["spec"]["taints"]) == 2
    nodes.resume(api, "node01", "cleared by smoke in run2")
    kept = server.read("v1/nodes", "node01")
    assert kept["spec"]["taints"] == [theirs] and kept["metadata"]["annotations"] == {"note": "x"}
    assert {each["type"]: each["status"] for each in kept["status"]["conditions"]} == {
        "Ready": "True",
        "ShakedownSuspect": "False",
    }
    assert not one(api, "node01").why_not()


def test_a_condition_keeps_the_time_since_which_it_is_so(api: Server, server: Cluster) -> None:
    before, ready = "2026-01-01T00:00:00Z", {"type": "Ready", "status": "True"}
    suspect = {"type": "ShakedownSuspect", "status": "True", "lastTransitionTime": before}
    server.node("node01", status={"conditions": [ready, suspect]})

    def since() -> str:
        found = server.read("v1/nodes", "node01")["status"]["conditions"]
        return str({each["type"]: each for each in found}["ShakedownSuspect"]["lastTransitionTime"])

    nodes.drain(api, "node01", REASON)
    assert since() == before
    nodes.resume(api, "node01", "cleared")
    assert since() > before


def test_a_node_that_passed_is_verified_until_a_run_names_it_and_others_keep_their_mark(
    api: Server, server: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A readiness rule that wants ShakedownSuspect=False would taint each node that was never a suspect."""
    monkeypatch.setenv("SHAKEDOWN_LEDGER", str(tmp_path / "ledger.sqlite"))
    services = {name: Service(scheduler="kubernetes", drain="yes") for name in ("node01", "node02", "node03")}
    services["node04"] = Service(scheduler="kubernetes", drain="propose")
    wanted = {name: desired(service=service.model_dump()) for name, service in services.items()}
    plan = small()
    members = [plan.nodes[0].model_copy(update={"name": name}) for name in services]
    for name in services:
        server.node(name)

    def run(run_id: str, *findings: Finding, verdicts: dict[str, Verdict]) -> list[str]:
        record = RunRecord(
            run_id=run_id,
            started_at="2026-11-23T08:00:00+00:00",
            finished_at="2026-11-23T08:30:00+00:00",
            inventory="rack.py",
            desired_digest="0" * 64,
            nodes=[RunNode(name=name, verdict=verdicts.get(name, Verdict.OK), part="trained") for name in services],
            gates=[Gate(name="loss", verdict=Verdict.OK)],
            jobs=[JobRecord(plan=plan.model_copy(update={"nodes": members}))],
            findings=list(findings),
        )
        words: list[str] = []
        after_run(record, Examination(wanted), list(wanted), words.append)
        return words

    def mark_of(name: str) -> tuple[str, ...] | None:
        found = {each["type"]: each for each in server.read("v1/nodes", name)["status"]["conditions"]}
        assert found["Ready"]["status"] == "True" and "ShakedownSuspect" not in found
        mark = found.get("ShakedownVerified")
        return mark and tuple(mark[key] for key in ("status", "reason", "message"))

    def since() -> str:
        return str(server.read("v1/nodes", "node01")["status"]["conditions"][-1]["lastTransitionTime"])

    assert run("r1", verdicts={"node03": Verdict.DRIFT}) == []
    assert mark_of("node01") == mark_of("node02") == ("True", "Passed", "smoke in r1")
    assert mark_of("node03") is None, "absent is unknown: nothing was passed there"
    assert mark_of("node04") is None, "its desired state allows no change in the scheduler"
    first = since()
    bad = Finding(name="gpu_count", node="node02", verdict=Verdict.FAIL, wanted=8, actual=7)
    run("r2", bad, verdicts={"node02": Verdict.FAIL})
    assert mark_of("node01") == ("True", "Passed", "smoke in r2") and since() == first
    assert mark_of("node02") == ("False", "Named", "shakedown:r2 gpu_count 7 where 8 is wanted")
    assert mark_of("node03") == ("True", "Passed", "smoke in r2")
    run("r3", bad, verdicts=dict.fromkeys(services, Verdict.DRIFT))
    assert mark_of("node01") == ("True", "Passed", "smoke in r2"), "it passed nothing and is not named"
    server.refuse("patch /api/v1/nodes/node01/status", 403, "no rights")
    (problem,) = run("r4", verdicts={})
    assert problem.startswith("node01: not marked as verified: ") and "docs/kubernetes.md" in problem
    assert mark_of("node02") == ("True", "Passed", "smoke in r4"), "the others are marked all the same"


def test_what_kubernetes_itself_taints_is_nobody_s_mark(api: Server, server: Cluster) -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    server.node("node01", spec={"unschedulable": True, "taints": [taint]})
    assert one(api, "node01").why_not() == "cordoned"
    pressed = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}
    server.node("node02", spec={"taints": [pressed]})
    found = one(api, "node02")
    assert found.down and not found.drained, "ready by its kubelet, and no pod would come"
    assert found.why_not() == "not ready: node.kubernetes.io/disk-pressure"


class Raced(Server):
    """A server on which somebody else is quicker so many times."""

    def __init__(self, lost: int) -> None:
        self.name, self.lost, self.read, self.sent = "lab", lost, 0, list[str]()

    def ask(self, method: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        if method == "read_node":
            self.read += 1
            return {"metadata": {"resourceVersion": str(self.read)}}
        self.sent.append(arguments[1]["metadata"]["resourceVersion"])
        if len(self.sent) <= self.lost:
            raise Conflict("409")
        return {}


def test_a_change_is_made_of_what_stands_there_now_and_nobody_else_s_is_lost(api: Server, server: Cluster) -> None:
    raced = Raced(2)
    raced.change("read_node", "patch_node", "node01", lambda now: {"spec": {}})
    assert raced.sent == ["1", "2", "3"], "each time by the version that was read"
    with pytest.raises(Conflict):
        Raced(99).change("read_node", "patch_node", "node01", lambda now: {"spec": {}})
    server.node("node01")
    server.refuse("patch /api/v1/nodes/node01", 409, "the object has been modified")
    with pytest.raises(Conflict, match="409 the object has been modified"):
        nodes.drain(api, "node01", REASON)


def test_a_list_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Paged(Server):
        def __init__(self) -> None:
            self.name, self.pages = "lab", ["second", "third", ""]

        def ask(self, method: str, *arguments: Any, **options: Any) -> dict[str, Any]:
            return {"items": [{"page": options.get("_continue")}], "metadata": {"continue": self.pages.pop(0)}}

    assert Paged().items("list_node") == [{"page": None}, {"page": "second"}, {"page": "third"}]
    monkeypatch.setattr(client, "MOST", 1)
    with pytest.raises(KubernetesError, match="more than 1 objects"):
        Paged().items("list_node")


def test_a_cordon_is_never_taken_away(api: Server, server: Cluster) -> None:
    server.node("node01", spec={"unschedulable": True})
    nodes.drain(api, "node01", REASON)
    nodes.resume(api, "node01", "cleared")
    assert server.read("v1/nodes", "node01")["spec"]["unschedulable"] is True


def test_an_inventory_has_the_free_nodes_and_names_the_others(
    api: Server, server: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("node01", "node02", "node03"):
        server.node(name)
    server.pod("train-0", "node02")
    nodes.drain(api, "node03", REASON)
    assert hosts.kubernetes() == ["node01"]
    said = capsys.readouterr().err
    assert f"node03: out: {REASON}" in said and "node02: pods with a job are on it: jobs/train-0" in said
    assert hosts.kubernetes(allow_allocated=True) == ["node01", "node02"]
    nodes.drain(api, "node01", REASON)
    with pytest.raises(ValueError, match=r"none of these nodes can be used: node01, node03: out"):
        hosts.kubernetes()


def test_what_the_server_refuses_is_told_with_what_to_do(
    api: Server, server: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KubernetesError, match=r"has no node node99; see: kubectl get nodes"):
        nodes.read(api, ["node99"])
    with pytest.raises(KubernetesError, match=r"read_node node99.*404"):
        nodes.drain(api, "node99", REASON)
    server.refuse("get /api/v1/nodes", 403, 'nodes is forbidden: User "lab"')
    with pytest.raises(KubernetesError, match=r"403 nodes is forbidden.*rights of docs/kubernetes.md"):
        nodes.read(api)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "http://127.0.0.1:1")))
    with pytest.raises(ValueError, match=r"did not answer: .*see: kubectl get nodes"):
        hosts.kubernetes()
    (tmp_path / "torn").write_text("clusters: [")
    (tmp_path / "odd").write_text("{current-context: c, contexts: 3}")
    for name in ("none", "torn", "odd"):
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / name))
        with pytest.raises(ValueError, match="KUBECONFIG names the file"):
            hosts.kubernetes()


def test_the_way_back_into_service_asks_and_marks_a_cluster(
    api: Server, server: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it does with Slurm: a suspect is drained with its reason, one with a job is told as that, and ours is resumed
    once a later run has cleared it."""
    for name in ("node01", "node02"):
        server.node(name)
    server.pod("train-0", "node02")
    services = {name: Service(scheduler="kubernetes", drain="yes") for name in ("node01", "node02", "node03")}
    wanted = {name: desired() for name in services}
    found = read_scheduler(services, wanted)
    assert found.title == "Kubernetes" and set(found.nodes) == {"node01", "node02"} and not found.wrong
    assert found.nodes["node02"].allocated and found.nodes["node02"].states == ["allocated"]
    against = Incident(node="node01", source="finding", name="gpu_count", what="7 of 8", drains=True, at=5, run_id="r1")
    mark = drain_mark("node01", against, found.nodes["node01"])
    ledger = open_ledger(tmp_path / "ledger.sqlite")
    assert carry_out(ledger, found, mark, Known(incidents=(against,)), Room()) == ""
    assert one(api, "node01").reason == "shakedown:r1 gpu_count 7 of 8" == mark.reason
    assert "meanwhile out: shakedown:r1" in carry_out(ledger, found, mark, Known(incidents=(against,)), Room())
    known = known_of(ledger, ["node01"])["node01"]
    back = Mark("node01", "resume", "node01", mark.reason, why="cleared by smoke with 3 others in r2")
    assert carry_out(ledger, found, back, known, Room()) == "" and not one(api, "node01").drained
    different = {**wanted, "node02": desired(kubernetes={"context": "other"})}
    assert "must be the same" in read_scheduler(services, different).wrong


def test_the_documented_rights_make_pods_and_run_commands_in_one_namespace_alone() -> None:
    documents = list(
        yaml.safe_load_all((Path(__file__).parents[2] / "contrib/kubernetes/rbac.yaml").read_text("utf-8"))
    )
    rules = {document["kind"]: document["rules"] for document in documents if "rules" in document}
    assert {"pods/exec"} <= {resource for rule in rules["Role"] for resource in rule["resources"]}
    for rule in rules["ClusterRole"]:
        assert set(rule["resources"]) <= {"nodes", "nodes/status", "pods"}
        assert set(rule["verbs"]) <= ({"list"} if "pods" in rule["resources"] else {"get", "list", "patch"})
