"""Jobs in pods: one on each named node, commands through the API server, and nothing left behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api import StringCommand

from shakedown.runner.jobs import connection
from shakedown.runner.jobs.connection import allocation_of
from shakedown.schedulers.kubernetes import pods as waiting
from shakedown.schedulers.kubernetes.client import KubernetesError, Server
from shakedown.schedulers.kubernetes.nodes import drain
from shakedown.schedulers.kubernetes.pods import Pods
from shakedown.schedulers.kubernetes.settings import Settings
from tests.kubernetes_api import Cluster, cluster, kubeconfig
from tests.states import desired

WANTED = Settings(image="registry.lab/megatron:1", namespace="jobs", mounts={"/srv/data": "/data:ro"})


@pytest.fixture
def server() -> Iterator[Cluster]:
    with cluster() as found:
        found.node("n1")
        found.node("n2", spec={"taints": [{"key": "amd-dcm", "effect": "PreferNoSchedule"}]})
        found.node("n3", spec={"unschedulable": True})
        yield found


@pytest.fixture
def pods(server: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pods:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, server.url)))
    return Pods(Server(), {"node1.rack": "n1", "node2.rack": "n2", "node3.rack": "n3"}, WANTED, "shakedown-Run_1")


def test_each_node_has_its_pod_and_commands_run_there(pods: Pods, server: Cluster) -> None:
    told: list[str] = []
    pods.allocate(["node1.rack", "node2.rack"], told.append, lambda: None)
    pods.allocate(["node2.rack"], told.append, lambda: None)
    assert len(told) == 1 and "a pod runs on each of 2 nodes (shakedown-run-1-" in told[0]
    made = server.all("v1/pods")
    assert len(made) == 2
    spec = made[0]["spec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    assert spec["containers"][0]["resources"] == {"limits": {"amd.com/gpu": "8"}}
    assert {"name": "host-0", "mountPath": "/data", "readOnly": True} in spec["containers"][0]["volumeMounts"]
    with pods.start("smoke", ["node1.rack"]) as remote:
        said = remote("node1.rack", ["sh", "-c", "echo out; echo err >&2; exit 3"], None, 60)
        assert said == (3, ["out"], ["err"])
        text = "line\n" * 60_000 + "é"
        read = [sys.executable, "-c", "import sys; t = sys.stdin.read(); print(len(t), t[-1] == chr(233))"]
        assert remote("node1.rack", read, text, 60) == (0, [f"{len(text)} True"], [])
        assert remote("node1.rack", ["cat"], "", 60) == (0, [], [])
        assert remote("node2.rack", ["true"], None, 60) == (None, [], ["there is no pod on node2.rack"])
        assert remote("node1.rack", ["sleep", "600"], None, 0.5)[0] == 124
    pods.end()
    assert server.all("v1/pods") == []


def test_pods_are_made_as_the_desired_state_says_and_what_none_can_be_is_refused(
    server: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, server.url)))
    section = {"image": "registry.lab/small:1", "namespace": "jobs", "gpu_resource": "amd.com/gpu"}
    small = {"recipe": "gpt-small", "runtime": "process"}

    def of(smoke: Any = small, **other: Any) -> Pods:
        one = desired("cpu", None, smoke=smoke, kubernetes={**section, "node": "n1"})
        two = desired("cpu", None, smoke=small, kubernetes={**section, **other})
        return allocation_of({"node1.rack": one, "n2": two}, "kubernetes", "run")

    made = of()
    made.allocate(["node1.rack", "n2"], print, lambda: None)
    specs = [pod["spec"] for pod in server.all("v1/pods")]
    assert {spec["containers"][0]["image"] for spec in specs} == {"registry.lab/small:1"}
    terms = [spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] for spec in specs]
    assert [term["nodeSelectorTerms"][0]["matchFields"][0]["values"] for term in terms] == [["n1"], ["n2"]]
    made.end()
    for key in ("image", "context"):
        with pytest.raises(ValueError, match=rf"kubernetes\.{key} has to be the same"):
            of(**{key: "another"})
    for runtime in ({}, {"runtime": "container"}):
        with pytest.raises(ValueError, match=r"smoke\.runtime has to be"):
            of({"recipe": "gpt-small", **runtime})
    with pytest.raises(ValueError, match=r"kubernetes\.image is None: expected"):
        allocation_of({"n1": desired("cpu", None, smoke=small)}, "kubernetes", "run")
    trials = allocation_of({"n1": desired("cpu", None, kubernetes=section)}, "kubernetes", "run")  # without a smoke run
    trials.allocate(["n1"], print, lambda: None)
    trials.end()


def test_a_node_that_others_keep_out_gets_none_and_nothing_is_left(pods: Pods, server: Cluster) -> None:
    with pytest.raises(KubernetesError, match="no pod would come to these nodes: n3: cordoned"):
        pods.allocate(["node1.rack", "node3.rack"], print, lambda: None)
    assert server.all("v1/pods") == []
    with pytest.raises(KubernetesError, match=r"no pod on node1\.rack"), pods.start("smoke", ["node1.rack"]):
        pass


def test_a_node_that_is_out_by_us_is_tried_again(pods: Pods, server: Cluster) -> None:
    drain(Server(), "n1", "shakedown:r1 gpu_count 7 of 8")
    pods.allocate(["node1.rack"], print, lambda: None)
    assert {"key": "shakedown/out", "operator": "Exists"} in server.all("v1/pods")[0]["spec"]["tolerations"]
    pods.end(cancel=True)


def test_pods_that_wait_are_told_and_a_stop_deletes_them(pods: Pods, server: Cluster) -> None:
    server.running = False
    told: list[str] = []
    with pytest.raises(KubernetesError, match=r"stopped by Ctrl-C, before 2 pods"):
        pods.allocate(["node1.rack", "node2.rack"], told.append, lambda: "stopped by Ctrl-C" if told else None)
    assert "2 of 2 pods wait, for 0 s: pending" in told[0] and server.all("v1/pods") == []


def test_pods_that_wait_for_the_same_reason_are_told_once(
    pods: Pods, server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.running = False
    monkeypatch.setattr(waiting, "_ASK_S", (0.0, 0.0))
    told: list[str] = []
    looks = iter(range(4))
    with pytest.raises(KubernetesError, match="enough"):
        pods.allocate(["node1.rack"], told.append, lambda: None if next(looks, None) is not None else "enough")
    assert len(told) == 1 and "1 of 1 pods wait" in told[0]


def test_a_server_that_is_gone_is_no_answer(pods: Pods, server: Cluster) -> None:
    pods.allocate(["node1.rack"], print, lambda: None)
    with pods.start("smoke", ["node1.rack"]) as remote:
        pods._server._api.api_client.configuration.host = "http://127.0.0.1:1"
        done, out, why = remote("node1.rack", ["true"], None, 5)
    assert (done, out) == (None, []) and why


@pytest.mark.parametrize(
    ("errors", "why"), [(["one", "two", "the pod is gone"], "the pod is gone"), (["gone"], "gone"), ([], "no answer")]
)
def test_a_command_without_an_answer_fails_with_the_last_that_was_said(
    monkeypatch: pytest.MonkeyPatch, errors: list[str], why: str
) -> None:
    way = SimpleNamespace(commands=lambda: lambda *_: (None, [], errors))
    monkeypatch.setattr(connection, "connected", lambda *_: way)
    monkeypatch.setattr(connection, "make_unix_command_for_host", lambda _state, _host, command, **_: command)
    monkeypatch.setattr(connection, "execute_command_with_sudo_retry", lambda _host, _arguments, execute: execute())
    there: Any = connection.SchedulerConnector.__new__(connection.SchedulerConnector)
    there.state, there.host, there._scheduler = None, SimpleNamespace(name="node1.rack"), "kubernetes"
    with pytest.raises(OSError, match=f"^{why}$"):
        there.run_shell_command(StringCommand("true"))
