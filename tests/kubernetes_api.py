"""A light stand-in for a Kubernetes API server: kmock, over real HTTP on loopback, in a thread of its own. It keeps
objects and merges patches; it checks neither rights nor versions, and schedules nothing."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kmock
from kmock._internal import apps


class Cluster:
    """The objects of the stand-in, as JSON."""

    def __init__(self, server: kmock.KubernetesEmulator, loop: asyncio.AbstractEventLoop, url: str) -> None:
        self._server = server
        self._loop = loop
        self.url = url

    def _call(self, function: Any) -> Any:
        async def call() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(30)

    def put(self, resource: str, name: str, document: dict[str, Any], namespace: str | None = None) -> None:
        def put() -> None:
            self._server.objects[resource, namespace, name] = document

        self._call(put)

    def node(self, name: str, **parts: Any) -> None:
        """A node that is ready, with 8 GPUs; `parts`: spec, status, metadata to be laid over that."""
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"conditions": [ready], "allocatable": {"amd.com/gpu": "8", "cpu": "96"}, "addresses": []}
        document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, **parts.get("metadata", {})},
            "spec": parts.get("spec", {}),
            "status": {**status, **parts.get("status", {})},
        }
        self.put("v1/nodes", name, document)

    def pod(self, name: str, node: str, **parts: Any) -> None:
        """A running pod with a GPU."""
        container = {"name": "main", "resources": {"limits": {"amd.com/gpu": "1"}}}
        document = {
            "metadata": {"name": name, "namespace": "jobs", **parts.get("metadata", {})},
            "spec": {"nodeName": node, "containers": [container], **parts.get("spec", {})},
            "status": {"phase": "Running", **parts.get("status", {})},
        }
        self.put("v1/pods", name, document, "jobs")

    def read(self, resource: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        return json.loads(json.dumps(self._call(lambda: self._server.objects[resource, namespace, name].raw)))

    def refuse(self, request: str, status: int, message: str) -> None:
        """Answer a request ("get /api/v1/nodes") with an error from now on."""
        error = kmock.KubernetesError(status=status, reason="Refused", message=message)
        self._call(lambda: self._server[request] << error)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """The stand-in, until the end of the context."""
    started: list[Cluster] = []
    ready, over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        server = kmock.KubernetesEmulator()
        async with server, apps.Server(server):
            server.resources["v1/nodes"] = kmock.ResourceInfo(kind="Node", namespaced=False)
            server.resources["v1/pods"] = kmock.ResourceInfo(kind="Pod", namespaced=True)
            started.append(Cluster(server, asyncio.get_running_loop(), str(server.url)))
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield started[0]
    finally:
        started[0]._loop.call_soon_threadsafe(over.set)
        thread.join(30)


def kubeconfig(folder: Path, url: str, certificate: Path | None = None, **user: Any) -> Path:
    """A kubeconfig with one context, `lab`."""
    path = folder / "kubeconfig"
    place = {"server": url.rstrip("/"), **({"certificate-authority": str(certificate)} if certificate else {})}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": place}],
        "users": [{"name": "lab", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
    }
    path.write_text(json.dumps(document))
    return path
