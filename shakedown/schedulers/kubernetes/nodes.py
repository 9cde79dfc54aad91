"""Kubernetes' nodes as typed values, and the marks that we set and take away there.

Out of service means: a taint `shakedown/out` of effect NoSchedule, an annotation `shakedown/reason`, and a condition
`ShakedownSuspect` for who watches conditions. Cordons, taints and conditions of others are read and never touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from shakedown.common.text import printable
from shakedown.schedulers.kubernetes.client import KubernetesError, Server

OUT = "shakedown/out"  # the taint
REASON = "shakedown/reason"  # the annotation
VERDICT = "shakedown/verdict"  # the label: "suspect" or "cleared", to select nodes by
CONDITION = "ShakedownSuspect"
# Resources of a node that are devices have a domain, and not one of these: GPUs, NICs, whatever a site calls them.
_NO_DEVICES = ("kubernetes.io/", "requests.", "limits.")
_OVER = frozenset({"Succeeded", "Failed"})
# Taints that Kubernetes sets itself for what conditions say, and that nobody has to be named for. Some say what is read
# elsewhere; with any other one (disk-pressure, network-unavailable, out-of-service) no pod comes, whatever Ready is
# (kubernetes.io/docs/reference/labels-annotations-taints, read 2026-11).
_BY_CONDITION = "node.kubernetes.io/"
_SAID_ELSEWHERE = {f"{_BY_CONDITION}{word}" for word in ("not-ready", "unreachable", "unschedulable")}

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
Text = Annotated[str, BeforeValidator(lambda value: printable(value, 500) if isinstance(value, str) else value)]


class Node(BaseModel):
    """A node as Kubernetes has it. `states`: for a person, the worst first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    address: Text = ""
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
        """Whether it takes no new jobs, because somebody says so."""
        return self.ours or self.cordoned or bool(self.tainted)

    @property
    def down(self) -> bool:
        """Whether it cannot take jobs now: its kubelet does not say that it is ready, or Kubernetes lets none come."""
        return not self.ready

    @property
    def allocated(self) -> bool:
        """Whether somebody's job is on it."""
        return bool(self.pods)

    def why_not(self, allow_allocated: bool = False) -> str:
        """Why the node cannot be used, for a person to read; empty: it can."""
        if self.drained or self.down:
            return ", ".join(each for each in self.states if each != "allocated") + (
                f": {self.reason}" if self.reason else ""
            )
        if self.allocated and not allow_allocated:
            return f"pods with a job are on it: {', '.join(self.pods[:3])}"
        return ""


def read(server: Server, names: Iterable[str] = (), selector: str = "") -> list[Node]:
    """The nodes, all or those named, with what runs on them. `selector`: of labels, in Kubernetes' own notation. Raises
    KubernetesError."""
    wanted = set(names)
    found = server.items("list_node", **({"label_selector": selector} if selector else {}))
    there = {_field(each, "metadata", "name") for each in found}
    if absent := sorted(wanted - there):
        raise KubernetesError(f"{server.name} has no node {', '.join(absent)}; see: kubectl get nodes")
    jobs: dict[str, list[str]] = {}
    for pod in server.items("list_pod_for_all_namespaces"):
        if (node := _field(pod, "spec", "nodeName")) and _is_job(pod):
            jobs.setdefault(node, []).append(
                f"{_field(pod, 'metadata', 'namespace')}/{_field(pod, 'metadata', 'name')}"
            )
    return [_made(each, jobs) for each in found if not wanted or _field(each, "metadata", "name") in wanted]


def drain(server: Server, name: str, reason: str) -> None:
    """Mark a node as out of service, for this reason. Raises KubernetesError."""

    def taint(now: dict[str, Any]) -> dict[str, Any]:
        others = [each for each in now.get("spec", {}).get("taints") or [] if each.get("key") != OUT]
        ours = {"key": OUT, "value": "suspect", "effect": "NoSchedule"}
        marks = {"annotations": {REASON: reason}, "labels": {VERDICT: "suspect"}}
        return {"metadata": marks, "spec": {"taints": [*others, ours]}}

    server.change("read_node", "patch_node", name, taint)
    _condition(server, name, "True", "Named", reason)


def resume(server: Server, name: str, why: str) -> None:
    """Take our own mark away. Raises KubernetesError."""

    def untaint(now: dict[str, Any]) -> dict[str, Any]:
        others = [each for each in now.get("spec", {}).get("taints") or [] if each.get("key") != OUT]
        marks = {"annotations": {REASON: None}, "labels": {VERDICT: "cleared"}}
        return {"metadata": marks, "spec": {"taints": others}}

    server.change("read_node", "patch_node", name, untaint)
    _condition(server, name, "False", "Cleared", why)


def _condition(server: Server, name: str, status: str, word: str, message: str) -> None:
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def set_to(now: dict[str, Any]) -> dict[str, Any]:
        conditions = now.get("status", {}).get("conditions") or []
        before: dict[str, Any] = next((each for each in conditions if each.get("type") == CONDITION), {})
        since = before.get("lastTransitionTime") if before.get("status") == status else None
        ours = {
            "type": CONDITION,
            "status": status,
            "reason": word,
            "message": message,
            "lastHeartbeatTime": moment,
            "lastTransitionTime": since or moment,
        }
        return {"status": {"conditions": [*(each for each in conditions if each is not before), ours]}}

    server.change("read_node", "patch_node_status", name, set_to)


def _made(found: dict[str, Any], jobs: dict[str, list[str]]) -> Node:
    name = _field(found, "metadata", "name")
    taints = [each for each in _part(found, "spec", "taints") if isinstance(each, dict)]
    conditions = {each.get("type"): each for each in _part(found, "status", "conditions") if isinstance(each, dict)}
    devices, wrong = _devices(_field(found, "status", "allocatable"))
    refusing = [each for each in taints if each.get("effect") in ("NoSchedule", "NoExecute")]
    keys = [str(each.get("key")) for each in refusing]
    held = [each for each in keys if each.startswith(_BY_CONDITION) and each not in _SAID_ELSEWHERE]
    ready = conditions.get("Ready", {}).get("status") == "True" and not wrong and not held
    ours = any(each.get("key") == OUT for each in taints)
    cordoned = _field(found, "spec", "unschedulable") is True
    tainted = [
        f"{each.get('key')}={each.get('value') or ''}:{each.get('effect')}"
        for each in refusing
        if each.get("key") != OUT and not str(each.get("key")).startswith(_BY_CONDITION)
    ]
    busy = sorted(jobs.get(name or "", []))
    states = [word for word, is_so in (("not ready", not ready), ("cordoned", cordoned)) if is_so]
    states += [f"tainted {each}" for each in tainted] + (["out"] if ours else []) + (["allocated"] if busy else [])
    reason = _field(found, "metadata", "annotations", REASON) if ours else ""
    about = conditions.get("Ready", {})
    if not ready and not reason:
        reason = (
            wrong
            or ", ".join(held)
            or f"{about.get('reason') or 'no condition Ready'} {about.get('message') or ''}".strip()
        )
    listed = [each for each in _part(found, "status", "addresses") if isinstance(each, dict)]
    addresses = {each.get("type"): each.get("address") for each in listed}
    try:
        return Node(
            name=name or "",
            address=addresses.get("InternalIP") or "",
            states=states or ["ready"],
            reason=reason or "",
            ours=ours,
            cordoned=cordoned,
            tainted=tainted,
            ready=ready,
            devices=devices,
            pods=busy,
        )
    except (ValidationError, ValueError, TypeError) as error:
        raise KubernetesError(
            f"what is said of the node {printable(repr(name), 100)} cannot be read: {error}"
        ) from None


def _is_device(resource: str) -> bool:
    return "/" in resource and not resource.startswith(_NO_DEVICES)


def _devices(allocatable: Any) -> tuple[dict[str, int], str]:
    """How many of each a node has, and what is wrong with that: its kubelet says it, and may say any quantity ("1k").
    One that says nonsense is to cost its own node, and not the reading of all."""
    said = allocatable if isinstance(allocatable, dict) else {}
    devices = {printable(str(name), 100): str(value) for name, value in said.items() if _is_device(str(name))}
    odd = [f"{name} is {value[:40]!r}" for name, value in devices.items() if not re.fullmatch("[0-9]{1,6}", value)]
    if odd:
        return {}, f"what it says of its devices is no number: {', '.join(odd[:3])}"
    return {name: int(value) for name, value in devices.items()}, ""


def _is_job(pod: dict[str, Any]) -> bool:
    """Whether a pod is work that must not be disturbed: it has devices, or belongs to something that runs to an end.
    What is on every node (a DaemonSet's) is not, whatever it asks for."""
    if _field(pod, "status", "phase") in _OVER:
        return False
    owners = {each.get("kind") for each in _part(pod, "metadata", "ownerReferences") if isinstance(each, dict)}
    if owners & {"DaemonSet", "Node"}:
        return False
    containers = [*_part(pod, "spec", "containers"), *_part(pod, "spec", "initContainers")]
    parts = [_field(each, "resources", kind) for each in containers for kind in ("limits", "requests")]
    wants = {str(name) for part in parts if isinstance(part, dict) for name in part}
    return any(map(_is_device, wants)) or bool(_part(pod, "spec", "resourceClaims")) or "Job" in owners


def _field(found: Any, *names: str) -> Any:
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _part(found: Any, *names: str) -> list[Any]:
    value = _field(found, *names)
    return value if isinstance(value, list) else []
