"""Kubernetes as the owner of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shakedown.schedulers.kubernetes import nodes
from shakedown.schedulers.kubernetes.client import Server


class Kubernetes:
    """Marked by a taint and a condition of ours. `context`: of the kubeconfig; None: its current one."""

    title = "Kubernetes"

    def __init__(self, context: str | None = None) -> None:
        self._context = context
        self._server: Server | None = None

    def read(self, names: Iterable[str] = ()) -> Sequence[nodes.Node]:
        """The nodes, all or those named."""
        return nodes.read(self._connected(), names)

    def drain(self, name: str, reason: str) -> None:
        """The taint, and the condition with the reason."""
        nodes.drain(self._connected(), name, reason)

    def resume(self, name: str, why: str) -> None:
        """Our taint goes, the condition says why."""
        nodes.resume(self._connected(), name, why)

    def _connected(self) -> Server:
        if self._server is None:
            self._server = Server(self._context)
        return self._server
