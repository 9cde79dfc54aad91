"""Nodes that lie, users who share the cluster, an API server in trouble: no pod of ours stays or speaks for another, no
silence of the way is a node's, and nothing waits for ever."""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
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
    pods.allocate(["a", "b"], print, lambda: None)
    with pods.start("smoke", ["a", "b"]) as remote:
        assert remote("a", ["true"], None, 60)[0] == 0 and pods.lost() is None
        changed(server, pods, "a", **parts)
        assert pods.lost() is None, "nothing is asked while all nodes answer"
        pods._ways[0].silent = True
        lost = pods.lost() or ""
    assert lost.startswith("the pod jobs/run1-") and f"-0 on n1 was taken away: {why}" in lost


def test_a_pod_that_somebody_deletes_ends_the_job_at_its_next_silence(pods: Pods, server: Cluster) -> None:
    pods.allocate(["a", "b"], print, lambda: None)
    with pods.start("smoke", ["a", "b"]) as remote:
        pods._server.ask("delete_namespaced_pod", pods._pods["b"], "jobs")
        assert remote("a", ["true"], None, 60)[0] == 0 and pods.lost() is None
        assert remote("b", ["true"], None, 60)[0] is None
        assert "-1 on n2 was taken away: another user has deleted it" in (pods.lost() or "")


@pytest.mark.parametrize(("parts", "why"), TAKEN)
def test_a_pod_that_was_taken_away_gets_no_command_of_the_next_job(
    pods: Pods, server: Cluster, parts: dict[str, Any], why: str
) -> None:
    pods.allocate(["a", "b"], print, lambda: None)
    before = dict(pods._pods)
    changed(server, pods, "a", **parts)
    pods.allocate(["a", "b"], print, lambda: None)
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
        pods.allocate(["a"], say, lambda: None)
    assert f"-0 on n1 ended before it began: {why}" in str(error.value) and "the pod jobs/run1-" in str(error.value)


def held(reason: str, of: str = "containerStatuses", message: str = "said so") -> dict[str, Any]:
    waiting = {"state": {"waiting": {"reason": reason, "message": message}}}
    others = {"containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}]}
    return {
        "status": {"phase": "Pending", **others, of: [{"state": {"waiting": {"reason": "ContainerCreating"}}}, waiting]}
    }


@pytest.mark.parametrize("of", ["containerStatuses", "initContainerStatuses"])
@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("InvalidImageName", "correct kubernetes.image"),
        ("ErrImageNeverPull", "load the image on that node"),
        ("CreateContainerConfigError", "what the cluster's rules put into pods"),
        ("CreateContainerError", "the container runtime's log on that node"),
    ],
)
def test_a_pod_that_can_never_begin_is_not_waited_for(
    pods: Pods, server: Cluster, monkeypatch: pytest.MonkeyPatch, reason: str, remedy: str, of: str
) -> None:
    monkeypatch.setattr(waiting, "_STUCK", {word: (0.0, text) for word, (_, text) in waiting._STUCK.items()})
    server.running = False
    with pytest.raises(KubernetesError) as error:
        pods.allocate(["a"], lambda text: changed(server, pods, "a", **held(reason, of)), lambda: None)
    words = str(error.value)
    assert words.startswith("the pod jobs/run1-") and f"-0 on n1 cannot begin: {reason} said so; " in words
    assert remedy in words and server.all("v1/pods") == []


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError"])
def test_what_a_kubelet_tries_again_is_waited_for(pods: Pods, server: Cluster, reason: str) -> None:
    server.running = False
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        changed(server, pods, "a", **(held(reason) if len(told) == 1 else {"status": {"phase": "Running"}}))

    pods.allocate(["a"], say, lambda: None)
    assert f"1 of 1 pods wait, for 0 s: {reason} said so" in told and "a pod runs on each of 1 node" in told[-1]


def test_a_reason_that_a_kubelet_got_over_in_between_counts_anew(
    pods: Pods, server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda s: None))
    server.running = False
    states = [("CreateContainerError", 100), ("ContainerCreating", 1), ("CreateContainerError", 100)]

    def look(_: str = "") -> None:
        if states:
            reason, seconds = states.pop(0)
            changed(server, pods, "a", **held(reason))
            clock[0] += seconds

    monkeypatch.setattr(pods, "_settings", WANTED.model_copy(update={"queue_s": 3600}))
    asked, ask = pods._states, []

    def states_() -> Any:
        ask.append(1)
        if len(ask) > 1:
            look()
        if len(ask) == 6:
            changed(server, pods, "a", status={"phase": "Running"})
        return asked()

    monkeypatch.setattr(pods, "_states", states_)
    pods.allocate(["a"], print, lambda: None)
    assert not states and clock[0] == 201


def test_a_pod_that_another_user_put_in_place_of_ours_gets_no_command(
    pods: Pods, server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods.allocate(["a"], print, lambda: None)
    ran: list[Any] = []
    with pods.start("smoke", ["a"]) as remote:
        changed(server, pods, "a", metadata={"uid": "another"})
        (way,) = pods._ways
        monkeypatch.setattr(way, "_exec", lambda *given: ran.append(given))
        assert remote("a", ["true"], "a token", 5)[0] is None
        assert not ran and "another user has replaced it" in (pods.lost() or "")


def test_an_answer_of_a_pod_that_was_replaced_meanwhile_is_none(
    pods: Pods, server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods.allocate(["a"], print, lambda: None)
    with pods.start("smoke", ["a"]) as remote:
        (way,) = pods._ways
        run = way._exec

        def replaced(*given: Any) -> Any:
            changed(server, pods, "a", metadata={"uid": "another"})
            return run(*given)

        monkeypatch.setattr(way, "_exec", replaced)
        done, out, (why,) = remote("a", ["echo", "theirs"], None, 5)
    assert (done, out) == (None, []) and why.endswith("another user has replaced it")


def test_a_silent_node_with_its_pod_is_its_own_silence(pods: Pods, server: Cluster) -> None:
    pods.allocate(["a", "b"], print, lambda: None)
    with pods.start("smoke", ["a", "b"]) as remote:
        server.mute = True
        waiting_s = waiting.SLACK_S
        waiting.SLACK_S = 0.5
        try:
            began = time.monotonic()
            done, out, why = remote("a", ["true"], None, 0.5)
        finally:
            waiting.SLACK_S = waiting_s
        assert (done, out) == (None, []) and "no answer in time" in why[0] and time.monotonic() - began < 30
        assert pods._ways[0].silent and pods.lost() is None


def test_a_server_that_answers_nobody_blames_no_node(
    pods: Pods, server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_DEAF_S", 0.3)
    pods.allocate(["a", "b"], print, lambda: None)
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
    pods.allocate(["a"], print, lambda: None)
    server.said = said
    with pods.start("smoke", ["a"]) as remote:
        done, out, words = remote("a", ["true"], None, 3)
    assert (done, out) == (None, []) and why in words[0] and words[0].isprintable(), words
    assert words[0].startswith("jobs/run1-")


def test_a_pod_that_is_not_there_is_named_without_the_server_s_headers(
    pods: Pods, server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods.allocate(["a"], print, lambda: None)
    name = pods._pods["a"]
    pods._server.ask("delete_namespaced_pod", name, "jobs")
    with pods.start("smoke", ["a"]) as remote:
        _, _, (gone,) = remote("a", ["true"], None, 5)
        monkeypatch.setattr(pods._ways[0], "_ours", lambda pod: None)  # it is deleted after that look
        _, _, (words,) = remote("a", ["true"], None, 5)
    assert f"{name} jobs of" in gone and " 404 " in gone
    assert f'pods \\"{name}\\" not found' in words and "404" in words and "content-" not in words, words


def test_pods_are_deleted_though_the_server_has_trouble_and_what_stays_is_told(
    pods: Pods, server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods.allocate(["a", "b"], print, lambda: None)
    server.refusals = [500, 503, 429, 500]
    pods.end(cancel=True)
    assert server.all("v1/pods") == [] and server.refusals == []
    told: list[str] = []
    pods.allocate(["a"], told.append, lambda: None)
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
    pods.allocate(["a", "b"], print, lambda: None)
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
    pods.allocate(["a"], told.append, lambda: None)
    assert "trouble 500" in told[0] and "a pod runs on each of 1 node" in told[-1]
    pods.end()
    answers[:] = [403]
    with pytest.raises(KubernetesError, match="trouble 403"):
        pods.allocate(["a"], print, lambda: None)
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


class Aged(Server):
    """A server that forgets a list after its first page, so many times."""

    def __init__(self, times: int, status: int = 410) -> None:
        self.name, self.times, self.asked, self.status = "lab", times, 0, status

    def ask(self, method: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        self.asked += 1
        if "_continue" not in options:
            return {"items": [{"page": 1}], "metadata": {"continue": "more"}}
        if self.times:
            self.times -= 1
            raise self._refused(method, self.status, b'{"message": "The provided continue parameter is too old"}')
        return {"items": [{"page": 2}]}


def test_a_list_that_the_server_forgot_is_begun_again_a_few_times() -> None:
    found = Aged(3)
    assert found.items("list_node") == [{"page": 1}, {"page": 2}] and found.asked == 8
    found = Aged(1000)
    with pytest.raises(KubernetesError, match=r"410 The provided continue .*too old; .*try again when"):
        found.items("list_node")
    assert found.asked == 8


def test_a_list_that_is_refused_at_its_beginning_is_not_asked_again() -> None:
    class Gone(Aged):
        def ask(self, method: str, *arguments: Any, **options: Any) -> dict[str, Any]:
            self.asked += 1
            raise self._refused(method, 410, b"{}")

    found = Aged(1, 500)
    with pytest.raises(KubernetesError, match="500"):
        found.items("list_node")
    found = Gone(0)
    with pytest.raises(KubernetesError, match="410"):
        found.items("list_node")
    assert found.asked == 1


def test_a_program_of_the_kubeconfig_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_PLUGIN_S", 0.5)
    made: list[subprocess.Popen[str]] = []
    kill = client._Plugin.kill

    def ended(self: Any) -> None:
        made.append(self)
        kill(self)

    monkeypatch.setattr(client._Plugin, "kill", ended)
    api = "client.authentication.k8s.io/v1"

    def of(code: str) -> Server:
        plugin = {"apiVersion": api, "command": sys.executable, "args": ["-c", code, "secret"]}
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "http://127.0.0.1:1", exec=plugin)))
        return Server()

    with pytest.raises(KubernetesError) as error:
        of("import time; time.sleep(600)")
    assert f"{sys.executable} brought no token in 0.5 s; run it by hand" in str(error.value)
    assert "secret" not in str(error.value) and made[0].returncode
    monkeypatch.setattr(client, "_PLUGIN_S", 300.0)
    answer = {"apiVersion": api, "kind": "ExecCredential", "status": {"token": "t"}}
    well = of(f"print({json.dumps(json.dumps(answer))})")
    assert well._api.api_client.configuration.api_key["BearerToken"] == "Bearer t"


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


class Odd(Server):
    """A server, or what stands before it, that answers with one object, of which one part is of another type."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.name, self.answer = "lab", answer

    def ask(self, method: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        return {"items": [self.answer]} if "list" in method else self.answer


def with_odd_parts(document: Any, odd: Any) -> Iterator[Any]:
    """A document again and again, each time with another part of it replaced."""
    yield odd
    parts = (
        document.items() if isinstance(document, dict) else enumerate(document if isinstance(document, list) else ())
    )
    for key, part in parts:
        for other in with_odd_parts(part, odd):
            now = dict(document) if isinstance(document, dict) else list(document)
            now[key] = other
            yield now


OBJECT = {
    "metadata": {
        "name": "run",
        "resourceVersion": "1",
        "ownerReferences": [{"kind": "Job"}],
        "annotations": {"a": "b"},
    },
    "spec": {"nodeName": "n1", "taints": [{"key": "a", "effect": "NoSchedule"}], "containers": [{"resources": {}}]},
    "status": {
        "phase": "Pending",
        "allocatable": {"amd.com/gpu": "8"},
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "x", "message": "y"}],
        "containerStatuses": [{"state": {"waiting": {"reason": "x"}}}],
    },
}


@pytest.mark.parametrize("odd", [None, 1, True, "x", [1], [None], {"a": 1}, {}, [[]], "9" * 5000], ids=range(10))
def test_an_answer_of_wrong_types_is_a_refusal_in_words(odd: Any) -> None:
    for answer in with_odd_parts(OBJECT, odd):
        if not isinstance(answer, dict):
            continue  # refused where it comes in
        server = Odd(answer)
        pods = Pods(server, {"a": "n1"}, WANTED, "run1")
        pods._pods = {"a": "run"}
        acts: list[tuple[Callable[..., Any], Any]] = [
            (nodes.read, [server]),
            (nodes.drain, [server, "n1", "x"]),
            (nodes.resume, [server, "n1", "x"]),
            (nodes.verify, [server, "n1", True, "x"]),
            (pods._states, []),
        ]
        for act, words in acts:
            with contextlib.suppress(KubernetesError):
                act(*words)
