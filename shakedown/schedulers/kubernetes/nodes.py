"""Kubernetes' nodes as typed values, and the marks that we set and take away there.

Out of service means: a taint `shakedown/out` of effect NoSchedule, an annotation `shakedown/reason`, and a condition
`ShakedownSuspect`. A second condition, `ShakedownVerified`, is on every node that passed a load: readiness rules count
an absent condition as unknown. Cordons, taints and conditions of others are read and never touched.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from shakedown.common.frozen import Frozen
from shakedown.common.text import printable
from shakedown.schedulers.kubernetes.client import WORDS, KubernetesError, Server, understood

OUT = "shakedown/out"  # the taint
REASON = "shakedown/reason"  # the annotation
VERDICT = "shakedown/verdict"  # the label: "suspect" or "cleared", to select nodes by
CONDITION = "ShakedownSuspect"
VERIFIED = "ShakedownVerified"
_OVER = frozenset({"Succeeded", "Failed"})
_BY_CONDITION = "node.kubernetes.io/"  # taints that Kubernetes sets itself: no person is named for them

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
Text = Annotated[str, BeforeValidator(lambda value: printable(value, 500) if isinstance(value, str) else value)]


class Node(Frozen):
    """A node as Kubernetes has it. `states`: for a person, the worst first."""

    name: Name
    states: list[Text] = []
    reason: Text = ""  # why it is out: ours, or whose taint or cordon it is
    ours: bool = False
    cordoned: bool = False
    tainted: list[Text] = []  # by others, so that no pod comes there
    ready: bool = True
    devices: dict[str, int] = {}  # what pods may ask for: "amd.com/gpu" -> 8
    pods: list[Text] = []  # with GPUs, or that run to an end: a job

    @property
    def drained(self) -> bool:
        return self.ours or self.cordoned or bool(self.tainted)

    @property
    def down(self) -> bool:
        """Tell whether the node cannot take jobs now: its kubelet is not ready, or Kubernetes keeps pods away."""
        return not self.ready

    @property
    def allocated(self) -> bool:
        return bool(self.pods)

    def why_not(self, allow_allocated: bool = False) -> str:
        """Return why the node cannot be used, for a person; empty: it can."""
        if self.drained or self.down:
            states = ", ".join(state for state in self.states if state != "allocated")
            return f"{states}: {self.reason}" if self.reason else states
        if self.allocated and not allow_allocated:
            return f"pods with a job are on it: {', '.join(self.pods[:3])}"
        return ""


@understood()
def read(server: Server, names: Iterable[str] = (), selector: str = "") -> list[Node]:
    """Return all nodes, or the named ones, with their jobs. `selector`: of labels. Raise KubernetesError."""
    wanted = set(names)
    documents = server.items("list_node", **({"label_selector": selector} if selector else {}))
    there = {field(document, "metadata", "name") for document in documents}
    if absent := sorted(wanted - there):
        raise KubernetesError(f"{server.name} has no node {', '.join(absent)}; see: kubectl get nodes")
    jobs: dict[str, list[str]] = {}
    for pod in server.items("list_pod_for_all_namespaces"):
        if (node := field(pod, "spec", "nodeName")) and _is_job(pod):
            jobs.setdefault(node, []).append(f"{field(pod, 'metadata', 'namespace')}/{field(pod, 'metadata', 'name')}")
    chosen = [document for document in documents if not wanted or field(document, "metadata", "name") in wanted]
    return [_node(document, jobs) for document in chosen]


def drain(server: Server, name: str, reason: str) -> None:
    """Mark a node as out of service, for this reason. Raise KubernetesError."""

    def taint(now: dict[str, Any]) -> dict[str, Any]:
        ours = {"key": OUT, "value": "suspect", "effect": "NoSchedule"}
        marks = {"annotations": {REASON: reason}, "labels": {VERDICT: "suspect"}}
        return {"metadata": marks, "spec": {"taints": [*_taints_of_others(now), ours]}}

    server.change("read_node", "patch_node", name, taint)
    _condition(server, name, CONDITION, True, "Named", reason)


def resume(server: Server, name: str, reason: str) -> None:
    """Remove our own mark, the taint last: while it is there, what has failed is tried again. Raise KubernetesError."""

    def untaint(now: dict[str, Any]) -> dict[str, Any]:
        marks = {"annotations": {REASON: None}, "labels": {VERDICT: "cleared"}}
        return {"metadata": marks, "spec": {"taints": _taints_of_others(now)}}

    _condition(server, name, CONDITION, False, "Cleared", reason)
    server.change("read_node", "patch_node", name, untaint)


def verify(server: Server, name: str, passed: bool, reason: str) -> None:
    """Set the condition that says whether the node's last run verified it. Raise KubernetesError."""
    _condition(server, name, VERIFIED, passed, "Passed" if passed else "Named", reason)


def _taints_of_others(node: dict[str, Any]) -> list[Any]:
    return [taint for taint in node.get("spec", {}).get("taints") or [] if taint.get("key") != OUT]


def _condition(server: Server, name: str, kind: str, holds: bool, word: str, message: str) -> None:
    status = "True" if holds else "False"
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def set_to(now: dict[str, Any]) -> dict[str, Any]:
        conditions = now.get("status", {}).get("conditions") or []
        before: dict[str, Any] = next((condition for condition in conditions if condition.get("type") == kind), {})
        since = before.get("lastTransitionTime") if before.get("status") == status else None
        ours = {"type": kind, "status": status, "reason": word, "message": message}
        ours |= {"lastHeartbeatTime": moment, "lastTransitionTime": since or moment}
        return {"status": {"conditions": [*(other for other in conditions if other is not before), ours]}}

    server.change("read_node", "patch_node_status", name, set_to)


def _node(document: dict[str, Any], jobs: dict[str, list[str]]) -> Node:
    name = field(document, "metadata", "name")
    taints = [taint for taint in _part(document, "spec", "taints") if isinstance(taint, dict)]
    conditions = _part(document, "status", "conditions")
    about: dict[str, Any] = next((part for part in conditions if field(part, "type") == "Ready"), {})
    devices, wrong = _devices(field(document, "status", "allocatable"))
    refusing = [taint for taint in taints if taint.get("effect") in ("NoSchedule", "NoExecute")]
    keys = [str(taint.get("key")) for taint in refusing]
    held = [key for key in keys if key.startswith(_BY_CONDITION) and key not in WORDS["node"]["elsewhere"]]
    ready = about.get("status") == "True" and not wrong and not held
    ours = any(taint.get("key") == OUT for taint in taints)
    cordoned = field(document, "spec", "unschedulable") is True
    rows = zip(keys, refusing, strict=True)
    others = [(key, taint) for key, taint in rows if key != OUT and not key.startswith(_BY_CONDITION)]
    tainted = [f"{key}={taint.get('value') or ''}:{taint.get('effect')}" for key, taint in others]
    busy = sorted(jobs.get(name or "", []))
    states = [word for word, is_so in (("not ready", not ready), ("cordoned", cordoned)) if is_so]
    states += [f"tainted {taint}" for taint in tainted] + (["out"] if ours else []) + (["allocated"] if busy else [])
    reason = field(document, "metadata", "annotations", REASON) if ours else ""
    if not ready and not reason:
        unready = f"{about.get('reason') or 'no condition Ready'} {about.get('message') or ''}".strip()
        reason = wrong or ", ".join(held) or unready
    fields = {"name": name or "", "states": states or ["ready"], "reason": reason or "", "devices": devices}
    fields |= {"ours": ours, "cordoned": cordoned, "tainted": tainted, "ready": ready, "pods": busy}
    try:
        return Node.model_validate(fields)
    except (ValueError, TypeError) as error:
        what = f"the document of the node {printable(repr(name), 100)}"
        raise KubernetesError(f"{what} cannot be read: {error}") from None


def _is_device(resource: str) -> bool:
    return "/" in resource and not resource.startswith(tuple(WORDS["node"]["no_devices"]))


def _devices(allocatable: Any) -> tuple[dict[str, int], str]:
    """Count a node's devices by resource, and return what is wrong: nonsense costs its own node alone."""
    reported = allocatable if isinstance(allocatable, dict) else {}
    devices = {printable(str(name), 100): str(value) for name, value in reported.items() if _is_device(str(name))}
    odd = [f"{name} is {value[:40]!r}" for name, value in devices.items() if not re.fullmatch("[0-9]{1,6}", value)]
    if odd:
        return {}, f"the count of its devices is no number: {', '.join(odd[:3])}"
    return {name: int(value) for name, value in devices.items()}, ""


def _is_job(pod: dict[str, Any]) -> bool:
    """Tell whether a pod is work that must not be disturbed: it has devices, or its owner runs to an end. A DaemonSet's
    pod, which is on every node, is not, whatever it requests."""
    if field(pod, "status", "phase") in _OVER:
        return False
    owners = {owner.get("kind") for owner in _part(pod, "metadata", "ownerReferences") if isinstance(owner, dict)}
    if owners & {"DaemonSet", "Node"}:
        return False
    containers = [*_part(pod, "spec", "containers"), *_part(pod, "spec", "initContainers")]
    parts = [field(container, "resources", kind) for container in containers for kind in ("limits", "requests")]
    wants = {str(name) for part in parts if isinstance(part, dict) for name in part}
    return any(map(_is_device, wants)) or bool(_part(pod, "spec", "resourceClaims")) or "Job" in owners


def field(part: Any, *names: str) -> Any:
    """Return what a document has there; None: nothing."""
    for name in names:
        part = part.get(name) if isinstance(part, dict) else None
    return part


def _part(document: Any, *names: str) -> list[Any]:
    value = field(document, *names)
    return value if isinstance(value, list) else []
