"""The only place that asks a Kubernetes API server, within time limits of ours. A refusal becomes one line."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from shakedown.common.data import read_toml
from shakedown.common.text import load_json, printable
from shakedown.schedulers.interface import SchedulerError

if TYPE_CHECKING:
    from kubernetes.client import CoreV1Api

WORDS: dict[str, Any] = read_toml("shakedown.schedulers.kubernetes", "words.toml")
LIMIT_S = (5.0, 20.0)  # to connect, and between two pieces of an answer
PAGE = 500  # objects of a list in one answer
MOST = 100_000  # objects of a list
MOST_BYTES = 256 << 20  # of one answer
_TRIES = 4  # of a change that another client came before, and of a request that a busy server puts off
_PAUSE_S = 1.0
_PLUGIN_S = 300.0  # for a program that a kubeconfig names to bring a token: a person may have to log in


class KubernetesError(SchedulerError):
    """A refused, unanswered or unclear request; the text has server, object and remedy. `status`: HTTP's, or 0."""

    status = 0


class Conflict(KubernetesError):
    """Another client has changed the object since it was read."""


@contextmanager
def understood() -> Iterator[None]:
    """Raise KubernetesError where a part of an answer is of another type than the API has."""
    try:
        yield
    except (AttributeError, TypeError) as error:
        raise KubernetesError(f"the API server's answer has a part of a wrong type: {error}") from None


class Server:
    """One API server, as a kubeconfig's `context` (None: the current one) or, in a pod, its account names it."""

    def __init__(self, context: str | None = None) -> None:
        self._api, self.name = _connected(context)

    def ask(self, method: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Send one request, by its name in the CoreV1Api, and return the answer as it is. Raise KubernetesError."""
        for _ in range(_TRIES - 1):
            try:
                return self._ask(method, *arguments, **options)
            except KubernetesError as error:
                if error.status != 429:  # the server has too much to do, and has done nothing of the request
                    raise
            time.sleep(_PAUSE_S)
        return self._ask(method, *arguments, **options)

    def _ask(self, method: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        from kubernetes.client import exceptions, rest  # an optional dependency, and its urllib3

        about = " ".join([method, *(part for part in arguments if isinstance(part, str))])
        try:
            options = {"_preload_content": False, "_request_timeout": LIMIT_S, **options}
            answer = getattr(self._api, method)(*arguments, **options)
            body = answer.read(MOST_BYTES + 1)
        except exceptions.ApiException as error:
            raise self._refused(about, error.status or 0, error.body or str(error.reason)) from None
        except (rest.urllib3.exceptions.HTTPError, OSError, ValueError) as error:  # type: ignore[attr-defined]
            words = printable(str(getattr(error, "reason", None) or error), 300)
            raise KubernetesError(f"{self.name} did not answer: {words}; see: kubectl get nodes") from None
        if not 200 <= answer.status < 300:
            raise self._refused(about, answer.status, body)
        try:
            document = load_json(body, MOST_BYTES)
        except ValueError as error:
            raise KubernetesError(f"{about} of {self.name}: {error}") from None
        if not isinstance(document, dict):
            raise KubernetesError(f"{about} of {self.name}: the answer is no object")
        return document

    def apart(self) -> CoreV1Api:
        """Return a separate client: a stream changes its client meanwhile."""
        client = self._api.api_client
        return type(self._api)(type(client)(client.configuration))

    def items(self, method: str, *arguments: Any, **options: Any) -> list[dict[str, Any]]:
        """Return all objects of a list, read page by page. Raise KubernetesError."""
        objects: list[dict[str, Any]] = []
        again = _TRIES - 1
        for _ in range(MOST // PAGE + 1):  # a page may be empty, and name a next one all the same
            try:
                page = self.ask(method, *arguments, limit=PAGE, **options)
            except KubernetesError as error:  # 410: the server no longer has the rest of the list as it was
                if error.status != 410 or not again or options.pop("_continue", None) is None:
                    raise
                objects, again = [], again - 1
                continue
            items, about = page.get("items"), page.get("metadata")
            if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
                raise KubernetesError(f"{method} of {self.name}: the answer is no list of objects")
            objects += items
            token = about.get("continue") if isinstance(about, dict) else None
            if not token:
                return objects
            options["_continue"] = token
        raise KubernetesError(f"{method} of {self.name}: more than {MOST} objects, or pages")

    @understood()
    def change(self, read: str, patch: str, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Change an object as it is now: `change` takes it and returns what to merge into it. It is called again where
        another client was quicker, so that no change is lost. Raise KubernetesError."""
        for left in reversed(range(_TRIES)):
            now = self.ask(read, name)
            body = change(now)
            if version := now.get("metadata", {}).get("resourceVersion"):
                body = {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": version}}
            try:
                self.ask(patch, name, body, _content_type="application/merge-patch+json")
                return
            except Conflict:
                if not left:
                    raise

    def _refused(self, about: str, status: int, body: str | bytes) -> KubernetesError:
        try:
            message = load_json(body, MOST_BYTES)["message"]
        except (ValueError, KeyError, TypeError):
            message = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
        words = f"{about} of {self.name}: {status} {printable(str(message), 400)}"
        remedy = WORDS["remedy"].get(str(status))
        error = (Conflict if status == 409 else KubernetesError)(f"{words}; {remedy}" if remedy else words)
        error.status = status
        return error


class _Plugin(subprocess.Popen[str]):
    """A program of a kubeconfig that brings a token. The client waits for it without a limit, and asks the server
    without a token when it fails; what it starts itself may stay. `late`: what is to be said of one that was ended."""

    late: ClassVar[str] = ""

    def communicate(self, *arguments: Any, **options: Any) -> Any:
        """Wait for the end. Raise TimeoutError, which the client logs."""
        try:
            return super().communicate(*arguments, **{"timeout": _PLUGIN_S, **options})
        except subprocess.TimeoutExpired:
            self.kill()
            with suppress(subprocess.TimeoutExpired):
                self.wait(1)
        program = self.args[0] if isinstance(self.args, list) else self.args  # its options may hold secrets
        _Plugin.late = f"{printable(str(program), 200)} brought no token in {_PLUGIN_S:g} s; run it by hand"
        raise TimeoutError(_Plugin.late)


def _connected(context: str | None) -> tuple[CoreV1Api, str]:
    try:
        from kubernetes import client, config  # an optional dependency
        from kubernetes.client import rest
        from kubernetes.config import exec_provider, kube_config
    except ImportError:
        absent = "Kubernetes' Python client is not installed: pip install 'shakedown[kubernetes]'"
        raise KubernetesError(absent) from None
    place = os.environ.get("KUBECONFIG") or "~/.kube/config"  # the client looks for it when it is imported, no later
    made = client.Configuration()
    retry = rest.urllib3.Retry  # type: ignore[attr-defined]
    made.retries = retry(1, respect_retry_after_header=False)  # a proxy may name hours
    _Plugin.late = ""
    for module in (exec_provider, kube_config):
        vars(module)["subprocess"] = SimpleNamespace(Popen=_Plugin, PIPE=subprocess.PIPE)
    try:
        if context is None and "KUBERNETES_SERVICE_HOST" in os.environ and not os.environ.get("KUBECONFIG"):
            config.load_incluster_config(client_configuration=made)
        else:
            config.load_kube_config(place, context=context, client_configuration=made)
        if _Plugin.late:
            raise TimeoutError(_Plugin.late)
    except Exception as error:  # of the YAML, of a key that is missing: the client checks little of what it reads
        if not os.environ.get("KUBECONFIG") and not Path(place).expanduser().exists():
            raise KubernetesError(f"{place}: no such file on this machine; KUBECONFIG names another") from None
        raise KubernetesError(f"{place}: {printable(str(error), 300)}; KUBECONFIG names the file") from None
    return client.CoreV1Api(client.ApiClient(made)), printable(made.host, 200)
