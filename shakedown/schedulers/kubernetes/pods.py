"""Pods on named nodes as the way to run jobs there: one on each for as long as jobs need it, in which commands are run
through the API server. Nothing else has to be reached, and no SSH."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from shakedown.common.text import counted, printable
from shakedown.schedulers import interface
from shakedown.schedulers.interface import Answer, lines_of
from shakedown.schedulers.kubernetes.client import LIMIT_S, KubernetesError, Server
from shakedown.schedulers.kubernetes.nodes import OUT, Node, read
from shakedown.schedulers.kubernetes.settings import Settings

SLACK_S = 5.0  # over a command's own limit
OUTPUT = 16 << 20  # bytes of a command's output
ERRORS = 256 << 10
IDLE_S = 24 * 3600  # after which a pod ends alone, whatever became of the controller
_GRACE_S = 30  # for what runs in a pod to end in order
_ASK_S = (0.5, 5.0)  # between two looks at the pods: at first, and at most
_REPORT_S = 60.0
# Standard input cannot be closed on its own on this way, so the command is given as many bytes as there are.
_FED = 'size=$1; shift; head -c "$size" | exec "$@"'
_STDOUT, _STDERR = 1, 2


class Pods(interface.Allocation):
    """One pod on each node. `names`: those in plans -> the cluster's."""

    def __init__(self, server: Server, names: Mapping[str, str], settings: Settings, title: str = "shakedown") -> None:
        self._server = server
        self._names = dict(names)
        self._settings = settings
        word = re.sub(r"[^a-z0-9-]", "-", title.lower()).strip("-")[:30] or "shakedown"
        self._title = f"{word}-{secrets.token_hex(3)}"  # as no other pod is named: a lost answer can be deleted
        self._pods: dict[str, str] = {}  # node in plans -> its pod

    def allocate(
        self,
        among: Sequence[str],
        say: Callable[[str], None] = lambda text: None,
        interrupted: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Have a running pod on each of these nodes; a node that has one costs nothing. Raise KubernetesError."""
        missing = [name for name in among if name not in self._pods]
        if not missing:
            return
        there = {node.name: node for node in read(self._server, [self._names[name] for name in missing])}
        # Our own mark is no reason, and a job is waited for.
        closed = [node for node in there.values() if node.down or node.cordoned or node.tainted]
        cannot = [f"{node.name}: {node.why_not(allow_allocated=True)}" for node in closed]
        if cannot:
            raise KubernetesError(f"no pod would come to these nodes: {'; '.join(cannot)}")
        try:
            for name in missing:
                number = len(self._pods)
                self._pods[name] = f"{self._title}-{number}"
                document = self._document(self._pods[name], there[self._names[name]])
                self._server.ask("create_namespaced_pod", self._settings.namespace, document)
            self._wait(say, interrupted)
        except BaseException:
            self.end(cancel=True)
            raise

    def _document(self, name: str, node: Node) -> dict[str, Any]:
        """Ask the scheduler for this very node, which it may refuse. A node that we have drained may be tried."""
        settings = self._settings
        here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}
        gpus = node.devices.get(settings.gpu_resource, 0)
        container: dict[str, Any] = {
            "name": "job",
            "image": settings.image,
            "command": ["sleep", str(IDLE_S)],
            "resources": {"limits": {settings.gpu_resource: str(gpus)}} if gpus else {},
            "securityContext": {"capabilities": {"add": ["IPC_LOCK", "SYS_PTRACE"]}},
            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        }
        volumes: list[dict[str, Any]] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
        for index, (host, inside) in enumerate(settings.mounts.items()):
            path, _, mode = inside.partition(":")
            mount = {"name": f"host-{index}", "mountPath": path, **({"readOnly": True} if mode == "ro" else {})}
            container["volumeMounts"].append(mount)
            volumes.append({"name": f"host-{index}", "hostPath": {"path": host}})
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "hostNetwork": True,  # the RDMA devices' interfaces are the node's
            "terminationGracePeriodSeconds": _GRACE_S,
            "activeDeadlineSeconds": IDLE_S,
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
            },
            "tolerations": [{"key": OUT, "operator": "Exists"}],
            "containers": [container],
            "volumes": volumes,
            "automountServiceAccountToken": False,
        }
        if settings.service_account:
            spec["serviceAccountName"] = settings.service_account
        labels = {"app.kubernetes.io/name": "shakedown", "shakedown/run": self._title}
        return {"metadata": {"name": name, "namespace": settings.namespace, "labels": labels}, "spec": spec}

    def _wait(self, say: Callable[[str], None], interrupted: Callable[[], str | None]) -> None:
        began = reported_at = time.monotonic()
        reported, pause = "", _ASK_S[0]
        while True:
            waiting: dict[str, str] = {}
            states = self._states()
            for node, pod in self._pods.items():
                phase, reason = states.get(pod, ("Gone", "another user has deleted it"))
                if phase in ("Failed", "Succeeded", "Gone"):
                    words = reason or phase
                    raise KubernetesError(f"the pod {pod} on {self._names[node]} ended before it began: {words}")
                if phase != "Running":
                    waiting[node] = reason or phase.lower()
            if not waiting:
                say(f"a pod runs on each of {counted(len(self._pods), 'node')} ({self._title})")
                return
            reason, waited = next(iter(waiting.values())), time.monotonic() - began
            if stopped := interrupted():
                raise KubernetesError(f"{stopped}, before {counted(len(waiting), 'pod')} of {self._title} had begun")
            if waited > self._settings.queue_s:
                raise KubernetesError(
                    f"{counted(len(waiting), 'pod')} of {self._title} did not begin in {waited:.0f} s: {reason}"
                )
            if reason != reported or time.monotonic() - reported_at > _REPORT_S:
                reported, reported_at = reason, time.monotonic()
                say(f"{len(waiting)} of {len(self._pods)} pods wait, for {waited:.0f} s: {reason}")
            until = time.monotonic() + pause
            while time.monotonic() < until and not interrupted():
                time.sleep(0.1)
            pause = min(pause * 1.5, _ASK_S[1])

    def _states(self) -> dict[str, tuple[str, str]]:
        selector = f"shakedown/run={self._title}"
        pods = self._server.items("list_namespaced_pod", self._settings.namespace, label_selector=selector)
        return {str(pod.get("metadata", {}).get("name")): _phase(pod.get("status") or {}) for pod in pods}

    @contextmanager
    def start(self, title: str, among: Sequence[str]) -> Iterator[Commands]:
        """Open a way to the pods of these nodes. Raise KubernetesError."""
        if missing := [name for name in among if name not in self._pods]:
            raise KubernetesError(f"there is no pod on {', '.join(missing)}")
        yield Commands(self._server, self._settings.namespace, {name: self._pods[name] for name in among})

    def end(self, cancel: bool = False) -> None:
        """Delete the pods. Raise nothing: a pod that stays ends alone in a day."""
        pods, self._pods = self._pods, {}
        for pod in pods.values():
            with contextlib.suppress(KubernetesError):
                self._server.ask(
                    "delete_namespaced_pod",
                    pod,
                    self._settings.namespace,
                    grace_period_seconds=_GRACE_S if cancel else 5,
                )


def _phase(status: dict[str, Any]) -> tuple[str, str]:
    containers = [container.get("state", {}).get("waiting") for container in status.get("containerStatuses") or []]
    scheduled = [
        condition
        for condition in status.get("conditions") or []
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False"
    ]
    parts = [part for part in (*containers, *scheduled, status) if part and part.get("reason") is not None]
    reasons = [printable(f"{part['reason']} {part.get('message') or ''}".strip(), 300) for part in parts]
    return str(status.get("phase") or "Pending"), reasons[0] if reasons else ""


class Commands(interface.Commands):
    """Commands in pods. `pods`: nodes in plans -> pods."""

    def __init__(self, server: Server, namespace: str, pods: Mapping[str, str]) -> None:
        self._server, self._namespace, self._pods = server, namespace, dict(pods)

    def run(self, node: str, argv: list[str], stdin: str | None, timeout: float) -> Answer:
        pod = self._pods.get(node)
        if pod is None:
            return None, [], [f"there is no pod on {node}"]
        data = None if stdin is None else stdin.encode()
        bounded = ["timeout", "-k", "5", f"{timeout:g}", *argv]
        command = bounded if data is None else ["sh", "-c", _FED, "sh", str(len(data)), *bounded]
        try:
            return self._exec(pod, command, data, timeout + SLACK_S)
        except Exception as error:  # websocket-client and urllib3 have many
            return None, [], [f"{pod}: {printable(str(error) or type(error).__name__, 300)}"]

    def _exec(self, pod: str, command: list[str], data: bytes | None, timeout: float) -> Answer:
        from kubernetes.stream import stream  # an optional dependency

        way = stream(
            self._server.apart().connect_get_namespaced_pod_exec,
            pod,
            self._namespace,
            command=command,
            container="job",
            stdin=data is not None,
            stdout=True,
            stderr=True,
            tty=False,
            binary=True,
            _preload_content=False,
            _request_timeout=LIMIT_S[0],
        )
        taken = {_STDOUT: bytearray(), _STDERR: bytearray()}
        try:
            for begin in range(0, len(data or b""), 1 << 16):
                way.write_stdin((data or b"")[begin : begin + (1 << 16)])
            until = time.monotonic() + timeout
            while way.is_open():
                if time.monotonic() > until:
                    return None, [], [f"{pod}: no answer within {timeout:g} s"]
                way.update(timeout=0.5)
                for channel, kept in taken.items():
                    kept += way.read_channel(channel)
                if len(taken[_STDOUT]) > OUTPUT or len(taken[_STDERR]) > ERRORS:
                    return None, [], [f"{pod}: its command printed too much"]
            for channel, kept in taken.items():
                kept += way.read_channel(channel)
            out, err = (lines_of(kept.decode("utf-8", "replace")) for kept in taken.values())
            return way.returncode, out, err
        finally:
            way.close()
