"""Nodes that lie, users who share the cluster, an API server in trouble: no pod of ours stays or speaks for another, no
silence of the way is a node's, and nothing waits for ever."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shakedown.runner.jobs.connection import allocation_of
from shakedown.schedulers.interface import LINES
from shakedown.schedulers.kubernetes import client, nodes
from shakedown.schedulers.kubernetes import pods as waiting
from shakedown.schedulers.kubernetes.client import KubernetesError, Server
from shakedown.schedulers.kubernetes.pods import Pods
from shakedown.schedulers.kubernetes.scheduler import Kubernetes
from shakedown.schedulers.kubernetes.settings import Settings
from tests.kubernetes_api import Cluster, cluster, kubeconfig
from tests.states import desired

WANTED = Settings(image="registry.lab/megatron:1", namespace="jobs", queue_s=20)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with cluster() as found:
        found.node("n1")
        found.node("n2")
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, found.url)))
        monkeypatch.setattr(client, "_PAUSE_S", 0.01)
        monkeypatch.setattr(waiting, "_ASK_S", (0.0, 0.0))
        yield found


@pytest.fixture
def pods(server: Cluster) -> Iterator[Pods]:
    made = Pods(Server(), {"a": "n1", "b": "n2"}, WANTED, "run1")
    yield made
    server.refusals.clear()
    made.end()


def changed(server: Cluster, pods: Pods, node: str, **parts: Any) -> None:
    """The pod of a node as it is, with other parts."""
    name = pods._pods[node]
    found = server.read("v1/pods", name, "jobs")
    for part, values in parts.items():
        found[part] = {**found.get(part, {}), **values}
    server.put("v1/pods", name, found, "jobs")


EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
PREEMPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": "by pod urgent",
}
TAKEN = [
    ({"metadata": {"uid": "another"}}, "another user has replaced it"),
    ({"spec": {"nodeName": "n9"}}, "another user has replaced it (it is on n9)"),
    ({"metadata": {"deletionTimestamp": "2026-11-30T00:00:00Z"}}, "it is being deleted"),
    ({"status": EVICTED}, "Evicted The node was low on resource"),
    (
        {"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Running", "conditions": [PREEMPTED]}},
        "PreemptionByScheduler by pod urgent",
    ),
]


@pytest.mark.parametrize(("parts", "why"), TAKEN)
def test_a_pod_that_was_taken_away_ends_the_job_as_nobody_s_fault(
    pods: Pods, server: Cluster, parts: dict[str, Any], why: str
) -> None:
    pods.allocate(["a", "b"])
    with pods.start("smoke", ["a", "b"]) as remote:
        assert remote("a", ["true"], None, 60)[0] and pods.lost() is None
        changed(server, pods, "a", **parts)
        assert pods.lost() is None, "nothing is asked while all nodes answer"
        pods._ways[0].silent = True
        lost = pods.lost() or ""
    assert lost.startswith("the pod jobs/run1-") and f"-0 on n1 was taken away: {why}" in lost


def test_a_pod_that_somebody_deletes_ends_the_job_at_its_next_silence(pods: Pods, server: Cluster) -> None:
    pods.allocate(["a", "b"])
    with pods.start("smoke", ["a", "b"]) as remote:
        pods._server.ask("delete_namespaced_pod", pods._pods["b"], "jobs")
        assert remote("a", ["true"], None, 60)[0] and pods.lost() is None
        assert not remote("b", ["true"], None, 60)[0]
        assert "-1 on n2 was taken away: another user has deleted it" in (pods.lost() or "")


@pytest.mark.parametrize(("parts", "why"), TAKEN)
def test_a_pod_that_was_taken_away_gets_no_command_of_the_next_job(
    pods: Pods, server: Cluster, parts: dict[str, Any], why: str
) -> None:
    pods.allocate(["a", "b"])
    before = dict(pods._pods)
    changed(server, pods, "a", **parts)
    pods.allocate(["a", "b"])
    assert not set(before.values()) & set(pods._pods.values())
    left = {pod["metadata"]["name"] for pod in server.all("v1/pods")}
    assert left == {*pods._pods.values(), *([before["a"]] if "another" in str(parts) else [])}, "theirs is theirs"


@pytest.mark.parametrize(("parts", "why"), TAKEN)
def test_a_pod_that_is_taken_away_while_it_waits_is_not_waited_for(
    pods: Pods, server: Cluster, parts: dict[str, Any], why: str
) -> None:
    server.running = False

    def say(text: str) -> None:
        changed(server, pods, "a", **parts)

    with pytest.raises(KubernetesError) as error:
        pods.allocate(["a"], say)
    assert f"-0 on n1 ended before it began: {why}" in str(error.value) and "the pod jobs/run1-" in str(error.value)


def test_a_silent_node_with_its_pod_is_its_own_silence(pods: Pods, server: Cluster) -> None:
    pods.allocate(["a", "b"])
    with pods.start("smoke", ["a", "b"]) as remote:
        server.mute = True
        waiting_s = waiting.SLACK_S
        waiting.SLACK_S = 0.5
        try:
            began = time.monotonic()
            done, out, why = remote("a", ["true"], None, 0.5)
        finally:
            waiting.SLACK_S = waiting_s
        assert (done, out) == (False, []) and "no answer in time" in why[0] and time.monotonic() - began < 30
        assert pods._ways[0].silent and pods.lost() is None


def test_a_server_that_answers_nobody_blames_no_node(
    pods: Pods, server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_DEAF_S", 0.3)
    pods.allocate(["a", "b"])
    host = pods._server._api.api_client.configuration.host
    with pods.start("smoke", ["a", "b"]) as remote:
        pods._server._api.api_client.configuration.host = "http://127.0.0.1:1"
        remote("a", ["true"], None, 1)
        assert pods.lost() is None, "it may answer again in a moment"
        pods._server._api.api_client.configuration.host = host
        time.sleep(0.5)
        assert pods.lost() is None
        pods._server._api.api_client.configuration.host = "http://127.0.0.1:1"
        assert pods.lost() is None
        time.sleep(0.5)
        assert "no pod can be reached: http" in (pods.lost() or "")
    pods._server._api.api_client.configuration.host = host


def frame(data: bytes, size: int | None = None) -> bytes:
    """A websocket's frame that a server sends."""
    return b"\x82\x7f" + struct.pack(">Q", len(data) if size is None else size) + data


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([frame(b"\x01" + b"x" * (1 << 20))] * 40, "printed too much"),
        ([frame(b"\x09" + b"x" * (1 << 20))] * 40, "printed too much"),
        ([frame(b"\x01", 1 << 40) + b"x" * (40 << 20)], "printed too much"),
        ([frame(b"\x01", 1 << 40)], "timed out"),
        ([frame(b"\x01" + b"\n" * (LINES + 1)), frame(b'\x03{"status": "Success"}'), b"\x88\x00"], "lines"),
        ([b"\x88\x00"], "the way to it broke off"),
        ([frame(b"\x03" + b"[" * 60_000), b"\x88\x00"], "nested too deeply"),
        ([frame(b'\x03{"status": "Failure", "message": "no \\u001b[2Jcontainer"}'), b"\x88\x00"], "no container"),
        ([frame(b'\x03{"status": "Failure", "message": "container not found"}'), b"\x88\x00"], "container not found"),
    ],
)
def test_what_a_node_says_costs_little_and_is_no_success(
    pods: Pods, server: Cluster, monkeypatch: pytest.MonkeyPatch, said: list[bytes], why: str
) -> None:
    monkeypatch.setattr(waiting, "SLACK_S", 3.0)
    pods.allocate(["a"])
    server.said = said
    with pods.start("smoke", ["a"]) as remote:
        done, out, words = remote("a", ["true"], None, 3)
    assert (done, out) == (False, []) and why in words[0] and words[0].isprintable(), words
    assert words[0].startswith("jobs/run1-")


def test_a_pod_that_is_not_there_is_named_without_the_server_s_headers(pods: Pods, server: Cluster) -> None:
    pods.allocate(["a"])
    name = pods._pods["a"]
    pods._server.ask("delete_namespaced_pod", name, "jobs")
    with pods.start("smoke", ["a"]) as remote:
        _, _, (words,) = remote("a", ["true"], None, 5)
    assert f'pods \\"{name}\\" not found' in words and "404" in words and "content-" not in words, words


def test_pods_are_deleted_though_the_server_has_trouble_and_what_stays_is_told(
    pods: Pods, server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods.allocate(["a", "b"])
    server.refusals = [500, 503, 429, 500]
    pods.end(cancel=True)
    assert server.all("v1/pods") == [] and server.refusals == []
    told: list[str] = []
    pods.allocate(["a"], told.append)
    name = pods._pods["a"]
    monkeypatch.setattr(waiting, "_GRACE_S", 1)
    server.refusals = [403] * 10_000
    pods.end(cancel=True)
    assert "403" in told[-1] and told[-1].endswith(f"kubectl delete pods --namespace jobs {name}")
    server.refusals = []
    pods._server.ask("delete_namespaced_pod", name, "jobs")


def test_a_second_ctrl_c_while_pods_are_deleted_leaves_the_rest_to_the_end(
    pods: Pods, server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods.allocate(["a", "b"])
    ask, asked = pods._server.ask, []

    def stopped(method: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        asked.append(method)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return ask(method, *arguments, **options)

    monkeypatch.setattr(pods._server, "ask", stopped)
    with pytest.raises(KeyboardInterrupt):
        pods.end(cancel=True)
    pods.end(cancel=True)
    assert server.all("v1/pods") == []


def test_a_queue_outlives_a_moment_s_trouble_and_a_refusal_ends_it(
    pods: Pods, server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.running = False
    items, answers = pods._server.items, [500, 0, 410, 429]

    def troubled(method: str, *arguments: Any, **options: Any) -> list[dict[str, Any]]:
        if method == "list_namespaced_pod" and answers:
            error = KubernetesError(f"trouble {answers[0]}")
            error.status = answers.pop(0)
            raise error
        if method == "list_namespaced_pod":
            changed(server, pods, "a", status={"phase": "Running"})
        return items(method, *arguments, **options)

    monkeypatch.setattr(pods._server, "items", troubled)
    told: list[str] = []
    pods.allocate(["a"], told.append)
    assert "trouble 500" in told[0] and "a pod runs on each of 1 node" in told[-1]
    pods.end()
    answers[:] = [403]
    with pytest.raises(KubernetesError, match="trouble 403"):
        pods.allocate(["a"])
    assert server.all("v1/pods") == []


def test_a_busy_server_is_asked_again_whatever_it_says_of_the_time(server: Cluster) -> None:
    server.refusals, server.headers = [429, 429], {"Retry-After": "100000"}
    nodes.drain(Server(), "n1", "shakedown:r1 gpu_count")
    assert server.refusals == [] and nodes.read(Server(), ["n1"])[0].ours
    server.refusals = [429] * 100
    with pytest.raises(KubernetesError, match="429 too many requests"):
        nodes.drain(Server(), "n2", "shakedown:r1 gpu_count")
    server.refusals = [503]
    with pytest.raises(KubernetesError, match="503"):  # urllib3 would wait for a deletion's Retry-After
        Server().ask("delete_namespaced_pod", "none", "jobs")


def test_pages_without_an_end_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty(Server):
        def __init__(self) -> None:
            self.name = "lab"

        def ask(self, method: str, *arguments: Any, **options: Any) -> dict[str, Any]:
            return {"items": [], "metadata": {"continue": "more"}}

    with pytest.raises(KubernetesError, match="or pages"):
        Empty().items("list_node")


def test_a_node_is_in_service_again_only_when_its_condition_says_so_too(server: Cluster) -> None:
    """Remediation of others acts by the condition: one that stays behind on a node in service costs an innocent one."""
    nodes.drain(Server(), "n1", "shakedown:r1 gpu_count")
    server.refusals = [500]
    with pytest.raises(KubernetesError):
        nodes.resume(Server(), "n1", "cleared")
    assert nodes.read(Server(), ["n1"])[0].ours, "the next run tries it again"
    nodes.resume(Server(), "n1", "cleared")
    kept = server.read("v1/nodes", "n1")
    found = {each["type"]: each["status"] for each in kept["status"]["conditions"]}
    assert found["ShakedownSuspect"] == "False" and not nodes.read(Server(), ["n1"])[0].ours


@pytest.mark.parametrize("via", ["kubernetes", "slurm"])
def test_no_two_hosts_have_their_jobs_on_one_node(server: Cluster, via: str) -> None:
    """The name of one copied to the other: a job on the one would speak for both."""
    section = {"kubernetes": {"image": "registry.lab/small:1"}, "slurm": {}}[via]
    one, two = (desired("cpu", None, **{via: {**section, "node": "n1"}}) for _ in range(2))
    with pytest.raises(ValueError, match=rf"{via}\.node: a, b are all n1 there"):
        allocation_of({"a": one, "b": two}, via, "run")
    other = desired("cpu", None, **{via: section})
    with pytest.raises(ValueError, match="are all n1 there"):
        allocation_of({"a": one, "n1": other}, via, "run")
    allocation_of({"a": one, "n2": other}, via, "run")


def test_who_holds_a_node_is_named_with_the_namespace(server: Cluster) -> None:
    server.pod("train-0", "n1")
    assert Kubernetes().jobs_on(["n1", "n2"]) == {"n1": ["jobs/train-0"]}
