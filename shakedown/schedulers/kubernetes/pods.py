"""Pods on named nodes as the way to run jobs there: one on each for as long as jobs need it, in which commands are run
through the API server. Nothing else has to be reached, and no SSH."""

from __future__ import annotations

import contextlib
import math
import queue
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from shakedown.common.data import read_toml
from shakedown.common.text import counted, load_json, printable
from shakedown.schedulers import interface
from shakedown.schedulers.interface import Answer, Interrupted, Say, lines_of, pause
from shakedown.schedulers.kubernetes.client import WORDS, KubernetesError, Server, understood
from shakedown.schedulers.kubernetes.nodes import OUT, Node, field, read
from shakedown.schedulers.kubernetes.settings import Settings

if TYPE_CHECKING:
    from kubernetes.stream.ws_client import WSClient

SLACK_S = 5.0  # over a command's own limit, and for a server that takes or sends nothing
OUTPUT = 16 << 20  # bytes of a command's output
ERRORS = 256 << 10
IDLE_S = 24 * 3600  # after which a pod ends alone, whatever became of the controller
_GRACE_S = 30  # for what runs in a pod to end in order
_ASK_S = (0.5, 5.0)  # between two looks at the pods: at first, and at most
_REPORT_S = 60.0
_DEAF_S = 10.0  # of a server that does not answer, until no node is blamed for its silence; a node has 20 s
_LATE = "no answer in time"
# Standard input cannot be closed on its own on this way, so the command is given as many bytes as there are.
_FED = 'size=$1; shift; head -c "$size" | exec "$@"'
_STDOUT, _STDERR, _STATUS = 1, 2, 3
_OVER = frozenset({"Failed", "Succeeded", "Gone"})
_STUCK: dict[str, tuple[float, str]] = WORDS["stuck"]  # what a kubelet does not get over, after so many seconds
_BEGINNING = ("PodInitializing", "ContainerCreating")


class Pods(interface.Allocation):
    """One pod on each node. `names`: those in plans -> the cluster's."""

    def __init__(self, server: Server, names: Mapping[str, str], settings: Settings, title: str) -> None:
        self._server = server
        self._names = dict(names)
        self._settings = settings
        word = re.sub(r"[^a-z0-9-]", "-", title.lower()).strip("-")[:30] or "shakedown"
        self._title = f"{word}-{secrets.token_hex(3)}"  # as no other pod is named: a lost answer can be deleted
        self._pods: dict[str, str] = {}  # node in plans -> its pod
        self._uids: dict[str, str] = {}  # of pods: another user's may have the same name later
        self._made = 0
        self._ways: list[Commands] = []
        self._lost: str | None = None
        self._asked_at = -math.inf  # of the monotonic clock
        self._deaf_at = math.inf  # since when the server does not answer
        self._say: Say = lambda text: None

    def allocate(self, among: Sequence[str], say: Say, interrupted: Interrupted) -> None:
        """Have a running pod on each of these nodes, in place of those that were taken away. Raise KubernetesError."""
        self._say = say
        if self._lost or (self._pods and any(phase in _OVER for phase, _ in self._states().values())):
            self.end(cancel=True)
            self._lost = None
        if not (missing := [name for name in among if name not in self._pods]):
            return
        there = {node.name: node for node in read(self._server, [self._names[name] for name in missing])}
        # Our own mark is no reason, and a job is waited for.
        closed = [node for node in there.values() if node.down or node.cordoned or node.tainted]
        if cannot := [f"{node.name}: {node.why_not(allow_allocated=True)}" for node in closed]:
            raise KubernetesError(f"no pod would come to these nodes: {'; '.join(cannot)}")
        try:
            for name in missing:
                self._pods[name] = pod = f"{self._title}-{self._made}"
                self._made += 1
                document = self._document(pod, there[self._names[name]])
                made = self._server.ask("create_namespaced_pod", self._settings.namespace, document)
                self._uids[pod] = str(field(made, "metadata", "uid") or "")
            self._wait(say, interrupted)
        except BaseException:
            self.end(cancel=True)
            raise

    def _document(self, name: str, node: Node) -> dict[str, Any]:
        """Ask the scheduler for this very node, which it may refuse. A node that we have drained may be tried."""
        settings = self._settings
        spec = read_toml("shakedown.schedulers.kubernetes", "pod.toml")["spec"]
        (container,) = spec["containers"]
        gpus = node.devices.get(settings.gpu_resource, 0)
        container |= {"image": settings.image, "command": ["sleep", str(IDLE_S)]}
        container["resources"] = {"limits": {settings.gpu_resource: str(gpus)}} if gpus else {}
        for index, (host, inside) in enumerate(settings.mounts.items()):
            path, _, mode = inside.partition(":")
            mount = {"name": f"host-{index}", "mountPath": path, **({"readOnly": True} if mode == "ro" else {})}
            container["volumeMounts"].append(mount)
            spec["volumes"].append({"name": f"host-{index}", "hostPath": {"path": host}})
        spec |= {"terminationGracePeriodSeconds": _GRACE_S, "activeDeadlineSeconds": IDLE_S}
        here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
        spec |= {"affinity": {"nodeAffinity": required}, "tolerations": [{"key": OUT, "operator": "Exists"}]}
        if settings.service_account:
            spec["serviceAccountName"] = settings.service_account
        labels = {"app.kubernetes.io/name": "shakedown", "shakedown/run": self._title}
        return {"metadata": {"name": name, "namespace": settings.namespace, "labels": labels}, "spec": spec}

    def _wait(self, say: Say, interrupted: Interrupted) -> None:
        began = reported_at = time.monotonic()
        reported, wait_s = "", _ASK_S[0]
        since: dict[str, tuple[str, float]] = {}  # node -> its reason's first word, and when that was first seen
        while True:
            waiting: dict[str, str] = {}
            try:
                states = self._states()
            except KubernetesError as error:  # an hour in the queue is not given up for a moment's trouble
                if 400 <= error.status < 500 and error.status not in (410, 429):
                    raise
                states = dict.fromkeys(self._pods, ("Unknown", str(error)))
            for node, (phase, reason) in states.items():
                if phase in _OVER:
                    raise KubernetesError(f"the pod {self._about(node)} ended before it began: {reason or phase}")
                if phase != "Running":
                    waiting[node] = reason or phase.lower()
                word = reason.partition(" ")[0]
                if node not in since or since[node][0] != word:
                    since[node] = word, time.monotonic()
                limit, remedy = _STUCK.get(word, (math.inf, ""))
                if phase != "Running" and time.monotonic() - since[node][1] >= limit:
                    raise KubernetesError(f"the pod {self._about(node)} cannot begin: {reason}; {remedy}")
            if not waiting:
                say(f"a pod runs on each of {counted(len(self._pods), 'node')} ({self._title})")
                return
            reason, waited = next(iter(waiting.values())), time.monotonic() - began
            if stopped := interrupted():
                raise KubernetesError(f"{stopped}, before {counted(len(waiting), 'pod')} of {self._title} had begun")
            if waited > self._settings.queue_s:
                late = f"{counted(len(waiting), 'pod')} of {self._title} did not begin in {waited:.0f} s: {reason}"
                see = f"kubectl describe pods --namespace {self._settings.namespace}"
                raise KubernetesError(f"{late}; see: {see}")
            if reason != reported or time.monotonic() - reported_at > _REPORT_S:
                reported, reported_at = reason, time.monotonic()
                say(f"{len(waiting)} of {len(self._pods)} pods wait, for {waited:.0f} s: {reason}")
            pause(wait_s, interrupted)
            wait_s = min(wait_s * 1.5, _ASK_S[1])

    @understood()
    def _states(self) -> dict[str, tuple[str, str]]:
        """Return the phase of each node's pod, and why. One that is deleted, or that we did not make, is gone."""
        selector = f"shakedown/run={self._title}"
        pods = self._server.items("list_namespaced_pod", self._settings.namespace, label_selector=selector)
        there = {field(pod, "metadata", "name"): pod for pod in pods}
        return {node: self._state(node, there.get(pod)) for node, pod in self._pods.items()}

    def _about(self, node: str) -> str:
        return f"{self._settings.namespace}/{self._pods[node]} on {self._names[node]}"

    def _state(self, node: str, pod: dict[str, Any] | None) -> tuple[str, str]:
        if pod is None:
            return "Gone", "another user has deleted it"
        place = field(pod, "spec", "nodeName")
        ours = self._uids.get(self._pods[node], "")
        if (ours and field(pod, "metadata", "uid") != ours) or place not in (None, "", self._names[node]):
            return "Gone", f"another user has replaced it (it is on {printable(str(place), 100)})"
        phase, reason = _phase(pod.get("status") or {})
        if field(pod, "metadata", "deletionTimestamp") and phase not in _OVER:
            return "Gone", reason or "it is being deleted"
        return phase, reason

    @contextmanager
    def start(self, title: str, among: Sequence[str]) -> Iterator[Commands]:
        """Open a way to the pods of these nodes. Raise KubernetesError."""
        if missing := [name for name in among if name not in self._pods]:
            raise KubernetesError(f"there is no pod on {', '.join(missing)}")
        way = Commands(self._server, self._settings.namespace, {name: self._pods[name] for name in among}, self._uids)
        self._ways.append(way)
        try:
            yield way
        finally:
            self._ways.remove(way)

    def lost(self) -> str | None:
        """Return which pod was taken away (an eviction, a preemption, another user's deletion), or None. A command
        without an answer alone ends nothing: the server is asked, at most every few seconds."""
        silent = any(way.silent for way in self._ways)
        if self._lost is None and silent and self._asked_at + _ASK_S[1] < time.monotonic():
            self._asked_at = time.monotonic()
            try:
                states, self._deaf_at = self._states(), math.inf
            except KubernetesError as error:
                states, self._deaf_at = {}, min(self._deaf_at, self._asked_at)
                if time.monotonic() - self._deaf_at > _DEAF_S:
                    self._lost = f"no pod can be reached: {error}"
            for node, (phase, reason) in states.items():
                if phase in _OVER:
                    self._lost = f"the pod {self._about(node)} was taken away: {reason or phase}"
        return self._lost

    def end(self, cancel: bool = False) -> None:
        """Delete the pods that we made. Raise nothing: a pod that stays is reported, and ends alone in a day."""
        until, problem = time.monotonic() + _GRACE_S, ""
        while self._pods and time.monotonic() < until:
            for node, pod in list(self._pods.items()):
                try:
                    self._delete(pod, _GRACE_S if cancel else 5)
                    self._pods.pop(node, None)  # only now: a Ctrl-C may come between two of them
                    until = time.monotonic() + _GRACE_S
                except KubernetesError as error:
                    problem = str(error)
                if time.monotonic() > until:
                    break
            time.sleep(_ASK_S[0] if self._pods else 0)
        if self._pods:
            names = " ".join(self._pods.values())
            self._pods = {}
            text = f"pods stay for a day: {problem}; kubectl delete pods --namespace {self._settings.namespace} {names}"
            with contextlib.suppress(Exception):
                self._say(text)

    def _delete(self, pod: str, grace_s: int) -> None:
        body = {"preconditions": {"uid": uid}} if (uid := self._uids.get(pod)) else {}
        options = {"body": body, "grace_period_seconds": grace_s}
        try:
            self._server.ask("delete_namespaced_pod", pod, self._settings.namespace, **options)
        except KubernetesError as error:
            if error.status not in (404, 409):  # gone, or another user's
                raise


def _phase(status: dict[str, Any]) -> tuple[str, str]:
    of_containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    containers = [field(container, "state", "waiting") for container in of_containers]
    telling = (("PodScheduled", "False"), ("DisruptionTarget", "True"))
    conditions = status.get("conditions") or []
    scheduled = [condition for condition in conditions if (condition.get("type"), condition.get("status")) in telling]
    parts = [part for part in (*containers, *scheduled, status) if part and part.get("reason") is not None]
    parts.sort(key=lambda part: part["reason"] in _BEGINNING)  # another container is what it waits for
    reasons = [printable(f"{part['reason']} {part.get('message') or ''}".strip(), 300) for part in parts]
    return str(status.get("phase") or "Pending"), reasons[0] if reasons else ""


class Commands:
    """Commands in pods. `pods`: nodes in plans -> pods. `uids`: of pods; a command is for no other of that name. The
    server runs it by the name alone: one that is replaced just then gets it, and its answer is not taken."""

    def __init__(self, server: Server, namespace: str, pods: Mapping[str, str], uids: Mapping[str, str]) -> None:
        self._server, self._namespace, self._pods, self._uids = server, namespace, dict(pods), uids
        self.silent = False  # a command got no answer: a node's word, or a pod that was taken away

    def __call__(self, node: str, argv: list[str], stdin: str | None, timeout: float) -> Answer:
        if (pod := self._pods.get(node)) is None:
            return None, [], [f"there is no pod on {node}"]
        data = None if stdin is None else stdin.encode()
        bounded = ["timeout", "-k", "5", f"{timeout:g}", *argv]
        command = bounded if data is None else ["sh", "-c", _FED, "sh", str(len(data)), *bounded]
        try:
            until = time.monotonic() + timeout + SLACK_S
            self._ours(pod)
            answer = self._exec(pod, command, data, until)
            self._ours(pod)
            return answer
        except Exception as error:  # websocket-client and urllib3 have many
            self.silent = True
            refusal, *rest = str(error).split(" -+-+- ")  # of a websocket: the headers, and what the server says
            words = printable(" ".join([refusal, *rest[1:]]).strip() or type(error).__name__, 300)
            return None, [], [f"{self._namespace}/{pod}: {words}"]

    def _ours(self, pod: str) -> None:
        """Raise KubernetesError where a pod is not there, or is another user's by now."""
        there = self._server.ask("read_namespaced_pod", pod, self._namespace, _request_timeout=SLACK_S)
        if (uid := self._uids.get(pod)) and field(there, "metadata", "uid") != uid:
            raise KubernetesError("another user has replaced it")

    def _exec(self, pod: str, command: list[str], data: bytes | None, until: float) -> Answer:
        way = self._open(pod, command, data is not None, until)
        taken = {_STDOUT: bytearray(), _STDERR: bytearray()}
        try:
            way.sock.settimeout(SLACK_S)
            way.sock.frame_buffer.recv = _bounded(way.sock.frame_buffer.recv, until)
            for begin in range(0, len(data or b""), 1 << 16):
                way.write_stdin((data or b"")[begin : begin + (1 << 16)])
            while way.is_open():
                if time.monotonic() > until:
                    raise TimeoutError(_LATE)
                way.update(timeout=0.5)
                for channel, kept in taken.items():
                    kept += way.read_channel(channel)
            for channel, kept in taken.items():
                kept += way.read_channel(channel)
            out, err = (lines_of(kept.decode("utf-8", "replace")) for kept in taken.values())
            return _code(way.read_channel(_STATUS)), out, err
        finally:
            way.sock.shutdown()  # at once: a node may say something for ever

    def _open(self, pod: str, command: list[str], stdin: bool, until: float) -> WSClient:
        """Have the server run a command. Its client knows no limit for that, and a node may keep it waiting."""
        from kubernetes.stream import stream  # an optional dependency

        ways: queue.Queue[Any] = queue.Queue()
        api = self._server.apart()
        options: dict[str, Any] = {"command": command, "container": "job", "stdin": stdin, "stdout": True}
        options |= {"stderr": True, "tty": False, "binary": True, "_preload_content": False}

        def open_way() -> None:
            try:
                way = stream(api.connect_get_namespaced_pod_exec, pod, self._namespace, **options)
                ways.put(way)
                if time.monotonic() > until:
                    way.sock.shutdown()
            except Exception as error:
                ways.put(error)

        threading.Thread(target=open_way, daemon=True).start()
        try:
            way = ways.get(timeout=until - time.monotonic())
        except queue.Empty:
            raise TimeoutError(_LATE) from None
        if isinstance(way, Exception):
            raise way
        return cast("WSClient", way)


def _bounded(receive: Callable[[int], bytes], until: float) -> Callable[[int], bytes]:
    """Return a way to receive that ends in time, and when too much came: a node decides on length and number."""
    left = OUTPUT + ERRORS

    def take(size: int) -> bytes:
        nonlocal left
        data = receive(size)
        left -= len(data)
        if left < 0:
            raise OSError("its command printed too much")
        if time.monotonic() > until:
            raise TimeoutError(_LATE)
        return data

    return take


def _code(status: bytes) -> int:
    """Return the exit code of the server's last word on a command. Raise ValueError with what it says instead."""
    document = load_json(bytes(status), ERRORS) if status else {}
    if field(document, "status") == "Success":
        return 0
    causes = field(document, "details", "causes")
    for cause in causes if isinstance(causes, list) else []:
        if field(cause, "reason") == "ExitCode":
            return int(cause["message"])
    raise ValueError(field(document, "message") or "the way to it broke off")
