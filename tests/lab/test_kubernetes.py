"""Marks and rights on a real API server, and what the real scheduler makes of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config, utils
from kubernetes.client.exceptions import ApiException

from shakedown import hosts
from shakedown.schedulers.kubernetes import nodes
from shakedown.schedulers.kubernetes.client import KubernetesError, Server
from shakedown.schedulers.kubernetes.pods import Pods
from shakedown.schedulers.kubernetes.settings import Settings
from tests.kubernetes_api import cluster as stand_in
from tests.kubernetes_api import kubeconfig
from tests.lab import kubernetes

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.xdist_group("kubernetes")]

RIGHTS = Path(__file__).parents[2] / "contrib/kubernetes/rbac.yaml"
REASON = "shakedown:run1 gpu_count 7 of 8 GPUs"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kubernetes.Cluster]:
    with kubernetes.serve(tmp_path_factory.mktemp("kubernetes")) as found:
        yield found


@pytest.fixture(scope="module")
def admin(cluster: kubernetes.Cluster) -> Any:
    """Two nodes with GPUs, as kubelets register them, and the rights of docs/kubernetes.md for the user `shakedown`."""
    made = config.new_client_from_config(str(cluster.kubeconfig("admin")))
    api = client.CoreV1Api(made)
    for name in ("node01", "node02", "node03"):
        resources = {"amd.com/gpu": "8", "cpu": "96", "memory": "1Ti", "pods": "110"}
        labels = {"kubernetes.io/hostname": name, "rack": name[-1]}
        api.create_node({"metadata": {"name": name, "labels": labels}})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
        api.patch_node(name, {"spec": {"taints": None}})  # not-ready, which the controller of nodes takes away
        api.patch_node_status(
            name, {"status": {"conditions": [ready], "capacity": resources, "allocatable": resources}}
        )
    api.create_namespace({"metadata": {"name": "jobs"}})
    rights = RIGHTS.read_text("utf-8").replace("namespace: bringup", "namespace: jobs")
    for document in yaml.safe_load_all(rights):
        utils.create_from_dict(made, document)
    return api


@pytest.fixture
def api(cluster: kubernetes.Cluster, admin: Any, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig("shakedown")))
    return Server()


def pod(name: str, **selector: str) -> dict[str, Any]:
    limits = {"limits": {"amd.com/gpu": "8"}}
    container = {"name": "main", "image": "none.invalid/none", "resources": limits}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "nodeSelector": selector}}


def scheduled(admin: Any, name: str, seconds: float) -> str | None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = admin.read_namespaced_pod(name, "jobs")
        if found.spec.node_name:
            return str(found.spec.node_name)
        if any(each.reason == "Unschedulable" for each in found.status.conditions or []):
            return None
        time.sleep(0.2)
    raise AssertionError(f"the scheduler has said nothing of {name}: {found.status}")


def test_no_job_comes_to_a_marked_node_until_it_is_cleared(api: Server, admin: Any) -> None:
    nodes.drain(api, "node01", REASON)
    (found,) = nodes.read(api, ["node01"])
    assert found.ours and found.reason == REASON and not found.down
    condition = next(c for c in admin.read_node("node01").status.conditions if c.type == nodes.CONDITION)
    assert (condition.status, condition.message) == ("True", REASON)
    admin.create_namespaced_pod("jobs", pod("waits", **{"kubernetes.io/hostname": "node01"}))
    assert scheduled(admin, "waits", 60) is None
    nodes.resume(api, "node01", "cleared by smoke in run2")
    until = time.monotonic() + 120  # an unschedulable pod is tried again when a node changes
    while not admin.read_namespaced_pod("waits", "jobs").spec.node_name and time.monotonic() < until:
        time.sleep(0.5)
    assert admin.read_namespaced_pod("waits", "jobs").spec.node_name == "node01"
    (found,) = nodes.read(api, ["node01"])
    assert found.pods == ["jobs/waits"] and "pods with a job" in found.why_not()
    assert hosts.kubernetes("rack=2") == ["node02"]
    admin.delete_namespaced_pod("waits", "jobs", grace_period_seconds=0)


def test_a_change_that_somebody_else_makes_meanwhile_is_not_lost(api: Server, admin: Any) -> None:
    """Their taint comes between our reading of the node and our change to it."""
    ask, theirs = api.ask, {"key": "amd-gpu-unhealthy", "effect": "NoSchedule"}
    read = []

    def slow(method: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        answer = ask(method, *arguments, **options)
        if method == "read_node" and not read:
            read.append(method)
            admin.patch_node("node03", {"spec": {"taints": [theirs]}})
        return answer

    api.ask = slow  # type: ignore[method-assign]
    nodes.drain(api, "node03", REASON)
    api.ask = ask  # type: ignore[method-assign]
    assert {each.key for each in admin.read_node("node03").spec.taints} >= {"amd-gpu-unhealthy", nodes.OUT}
    nodes.resume(api, "node03", "cleared")
    assert "amd-gpu-unhealthy" in {each.key for each in admin.read_node("node03").spec.taints}


def test_pods_of_ours_come_to_their_very_nodes_marked_ones_too(api: Server, admin: Any) -> None:
    """No kubelet runs them: what it would report is written here."""
    nodes.drain(api, "node01", REASON)
    wanted = Settings(image="none.invalid/none", namespace="jobs", queue_s=120)
    pods, told = Pods(api, {"a": "node01", "b": "node02"}, wanted, "shakedown-run1"), []

    def say(text: str) -> None:
        told.append(text)
        for each in admin.list_namespaced_pod("jobs", label_selector="app.kubernetes.io/name=shakedown").items:
            if each.spec.node_name:
                admin.patch_namespaced_pod_status(each.metadata.name, "jobs", {"status": {"phase": "Running"}})

    def look() -> None:
        say("look")

    pods.allocate(["a", "b"], say, look)
    placed = {each.metadata.name: each.spec.node_name for each in admin.list_namespaced_pod("jobs").items}
    assert sorted(placed.values()) == ["node01", "node02"] and placed[pods._pods["a"]] == "node01"
    assert "a pod runs on each of 2 nodes" in told[-1]
    assert "jobs/" in nodes.read(api, ["node02"])[0].why_not()
    pods.end()
    for name in placed:
        with suppress(ApiException):
            admin.delete_namespaced_pod(name, "jobs", grace_period_seconds=0)  # a kubelet would confirm the end
    nodes.resume(api, "node01", "cleared")


def test_without_rights_nothing_is_read_or_marked(
    cluster: kubernetes.Cluster, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig("nobody")))
    with pytest.raises(KubernetesError, match=r"403 .*nobody.*rights of docs/kubernetes.md"):
        nodes.read(Server())
    with pytest.raises(KubernetesError, match="403"):
        nodes.drain(Server(), "node01", REASON)
    with pytest.raises(KubernetesError, match="403"):
        Server().ask("delete_node", "node01")


def test_its_own_rights_are_no_more_than_it_needs(api: Server) -> None:
    for method, *arguments in (
        ("delete_node", "node01"),
        ("list_namespaced_secret", "default"),
        ("create_namespaced_pod", "default", pod("foreign")),
        ("connect_get_namespaced_pod_exec", "any", "default"),
    ):
        with pytest.raises(KubernetesError, match="403"):
            api.ask(method, *arguments)


def test_a_training_in_a_pod_passes_its_gates(tmp_path: Path) -> None:
    """The kubelet is a stand-in that runs the pod's commands on this machine."""
    inventory = tmp_path / "rack.py"
    smoke = {"recipe": "gpt-small", "via": "kubernetes", "runtime": "process", "iterations": 12}
    smoke["steady"] = False  # other work takes turns on the cores
    data = {"gpu": "cpu", "tuning": {"numa_balancing": None}, "smoke": smoke}
    data |= {"kubernetes": {"node": "n1", "image": "none.invalid/none"}}
    inventory.write_text(f"nodes = (['@local'], {data!r})\n")
    with stand_in() as served:
        served.node("n1", status={"allocatable": {}})
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, "KUBECONFIG": str(kubeconfig(tmp_path, served.url)), "PATH": path}
        command = ["shakedown", "run", str(inventory)]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "smoke run: PASSED" in done.stdout + done.stderr
        (record,) = tmp_path.glob("runs/2*/plan.txt")  # and not through the link latest
        assert "gpt-small" in record.read_text() and served.all("v1/pods") == []
