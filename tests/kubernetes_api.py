"""A light stand-in for a Kubernetes API server: kmock, over real HTTP on loopback, in a thread of its own. It keeps
objects and merges patches; it checks neither rights nor versions, and schedules nothing.

Before it stands a kubelet's part: a pod that is made is running at once, and a command that is to run in one runs on
this machine, over the websocket protocol `v4.channel.k8s.io`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import kmock
from aiohttp import web
from kmock._internal import apps


class Cluster:
    """The objects of the stand-in, as JSON."""

    def __init__(self, server: kmock.KubernetesEmulator, loop: asyncio.AbstractEventLoop, url: str) -> None:
        self._server = server
        self._loop = loop
        self.url = url
        self.running = True  # whether a pod that is made runs
        self.mute = False  # whether no command is answered
        self.said: list[bytes] | None = None  # what a node says to every command, frame by frame, and no end
        self.headers: dict[str, str] = {}  # of refusals
        self.refusals: list[int] = []  # the status of each of the next answers to requests that change something

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

    def all(self, resource: str) -> list[dict[str, Any]]:
        """All objects of a resource."""
        plural = resource.rpartition("/")[2]
        return self._call(
            lambda: [
                each.raw for key, each in self._server.objects.items() if key[0].plural == plural and not each.deleted
            ]
        )

    def refuse(self, request: str, status: int, message: str) -> None:
        """Answer a request ("get /api/v1/nodes") with an error from now on."""
        error = kmock.KubernetesError(status=status, reason="Refused", message=message)
        self._call(lambda: self._server[request] << error)


class _Front:
    """Passes requests on to kmock, and is the kubelet of all nodes."""

    def __init__(self, server: kmock.KubernetesEmulator, cluster: Cluster) -> None:
        self._server, self._cluster = server, cluster

    async def start(self) -> str:
        self._session = aiohttp.ClientSession(str(self._server.url))
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/exec"):
            return await self._exec(request)
        body = await request.read()
        if request.method != "GET" and self._cluster.refusals:
            words = {"message": "too many requests"}
            return web.json_response(words, status=self._cluster.refusals.pop(0), headers=self._cluster.headers)
        if request.method == "POST" and request.path.endswith("/pods"):
            document = json.loads(body)
            document["metadata"]["uid"] = secrets.token_hex(8)
            body = json.dumps(document).encode()
        wanted = (
            (json.loads(body or b"{}").get("preconditions") or {}).get("uid") if request.method == "DELETE" else None
        )
        if wanted and (there := self._pod(request.path)) and there.get("metadata", {}).get("uid") != wanted:
            return web.json_response({"message": "the UID in the precondition does not match"}, status=409)
        headers = {key: value for key, value in request.headers.items() if key.lower() in ("content-type", "accept")}
        async with self._session.request(request.method, request.rel_url, data=body or None, headers=headers) as answer:
            given = await answer.read()
        if request.method == "POST" and request.path.endswith("/pods") and self._cluster.running:
            pod = json.loads(body)["metadata"]
            with contextlib.suppress(KeyError):
                self._server.objects["v1/pods", pod["namespace"], pod["name"]].patch({"status": {"phase": "Running"}})
        return web.Response(body=given, status=answer.status, content_type="application/json")

    def _pod(self, path: str) -> dict[str, Any] | None:
        *_, namespace, _, name = path.removesuffix("/exec").split("/")
        key = ("v1/pods", namespace, name)
        with contextlib.suppress(KeyError):
            found = self._server.objects[key]
            return None if found.deleted else dict(found.raw)
        return None

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        if self._cluster.mute:
            await asyncio.sleep(600)
        if self._pod(request.path) is None:
            words = {"kind": "Status", "message": f'pods "{request.path.split("/")[-2]}" not found'}
            return web.json_response(words, status=404)
        way = web.WebSocketResponse(protocols=("v4.channel.k8s.io",), max_msg_size=0)
        await way.prepare(request)
        if self._cluster.said is not None:
            for part in self._cluster.said:
                assert request.transport is not None
                request.transport.write(part)
            await asyncio.sleep(600)
        child = await asyncio.create_subprocess_exec(
            *request.query.getall("command"),
            stdin=asyncio.subprocess.PIPE if request.query.get("stdin") in ("true", "True") else None,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

        async def give(channel: int, pipe: asyncio.StreamReader | None) -> None:
            while pipe is not None and (data := await pipe.read(1 << 16)):
                await way.send_bytes(bytes([channel]) + data)

        async def take() -> None:
            async for message in way:
                data = message.data if isinstance(message.data, bytes) else str(message.data).encode()
                if child.stdin is not None and data[:1] == b"\0":
                    child.stdin.write(data[1:])
                    with contextlib.suppress(ConnectionError):
                        await child.stdin.drain()

        taking = asyncio.create_task(take())
        await asyncio.gather(give(1, child.stdout), give(2, child.stderr))
        code = await child.wait()
        causes = {"causes": [{"reason": "ExitCode", "message": str(code)}]}
        status = (
            {"status": "Failure", "reason": "NonZeroExitCode", "details": causes} if code else {"status": "Success"}
        )
        await way.send_bytes(b"\3" + json.dumps(status).encode())
        await way.close()
        taking.cancel()
        return way


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
            found = Cluster(server, asyncio.get_running_loop(), "")
            front = _Front(server, found)
            found.url = await front.start()
            started.append(found)
            ready.set()
            await over.wait()
            await front.stop()

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
