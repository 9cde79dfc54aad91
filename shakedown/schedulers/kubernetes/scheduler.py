"""Kubernetes as the owner of nodes."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shakedown.schedulers.interface import Allocation, Scheduler
from shakedown.schedulers.kubernetes import nodes
from shakedown.schedulers.kubernetes.client import Server
from shakedown.schedulers.kubernetes.pods import Pods
from shakedown.schedulers.kubernetes.settings import Settings
from shakedown.schedulers.registry import scheduler


@scheduler
class Kubernetes(Scheduler):
    """Kubernetes, through its API server. A taint and a condition of ours mark a node."""

    title = "Kubernetes"
    of_cluster = ("context",)
    no_containers = "where jobs run in pods: the pod is the container"

    @classmethod
    def problems(cls, settings: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        if settings.get("image") is None:
            yield "image", "None", "the image of the pods, where jobs run in pods"

    def read(self, names: Iterable[str] = ()) -> Sequence[nodes.Node]:
        return nodes.read(self._server, names)

    def drain(self, name: str, reason: str) -> None:
        nodes.drain(self._server, name, reason)

    def resume(self, name: str, reason: str) -> None:
        nodes.resume(self._server, name, reason)

    def verify(self, name: str, passed: bool, reason: str) -> bool:
        nodes.verify(self._server, name, passed, reason)
        return True

    def jobs_on(self, names: Iterable[str], beside: Allocation | None = None) -> dict[str, list[str]]:
        """Return the pods with a job that hold each node, as "namespace/name"."""
        return {node.name: node.pods for node in self.read(names) if node.pods}

    def choose(self, conditions: Sequence[str], allow_allocated: bool) -> dict[str, str]:
        """Return the nodes that all selectors of labels match."""
        chosen = nodes.read(self._server, selector=",".join(conditions))
        return {node.name: node.why_not(allow_allocated) for node in chosen}

    def allocation(self, names: Mapping[str, str], title: str) -> Pods:
        return Pods(self._server, names, Settings(**self.settings), title)

    @functools.cached_property
    def _server(self) -> Server:
        return Server(self.settings.get("context"))
