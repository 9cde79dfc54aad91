"""The controller's side of the launcher: what travels to a node, and the launcher's answers as typed values."""

from __future__ import annotations

import base64
import json
import zlib
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from shakedown.smoke.launch import LaunchPlan, NodePlan

# In the order of their imports.
_SOURCES = ("__init__", "processes", "control", "folder", "leftovers", "watchdog", "commands")
_ENTRY = "import sys\nfrom launcher.commands import main\nmain(sys.argv[1:])\n"

# Takes the launcher from the first line of standard input and the job from the second: the package has to run before
# it has a folder to lie in, and secrets must not stand in argv.
_BOOTSTRAP = """
import json, sys, types
sources = json.loads(sys.stdin.readline())
for name, text in sources:
    full = "launcher" if name == "__init__" else "launcher." + name
    module = sys.modules[full] = types.ModuleType(full)
    module.__package__, module.__path__ = "launcher", []
    if full != "launcher":
        setattr(sys.modules["launcher"], name, module)
    exec(compile(text, full, "exec"), module.__dict__)
files = json.loads(sys.stdin.readline())
print(json.dumps(sys.modules["launcher.commands"].prepare(json.loads(sys.stdin.readline()), files)))
"""


class Remote(Protocol):
    """A way to run a command on a node, by its name in the plan.

    Returns whether it came to exit code 0, and the lines of its standard output and standard error. It never raises
    for a node that does not answer: that is (False, [], [why]) within about `timeout` seconds.
    """

    def __call__(
        self, node: str, argv: list[str], stdin: str | None, timeout: float
    ) -> tuple[bool, list[str], list[str]]: ...


class NoAnswer(Exception):
    """The node did not answer, or not with what the launcher prints."""


class Refused(Exception):
    """The launcher on the node refused: `kind` is "busy" (another run holds the node) or "unusable"."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Leftovers(BaseModel):
    """Run folders of this user's earlier runs on a node, newest first (launcher/leftovers.py has the rule)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    kept: list[str] = []
    removed: list[str] = []
    bytes: int = 0  # of the kept ones

    def notes(self, folder: str) -> list[str]:
        """What a person should know of them; `folder` is the one that holds them."""
        size = f"{self.bytes / 2**20:.1f} MiB"
        kept = f"{folder} still has {', '.join(self.kept)} ({size}): logs that no controller has fetched"
        removed = f"removed from {folder}, where nobody fetched them: {', '.join(self.removed)}"
        return [*([kept] if self.kept else []), *([removed] if self.removed else [])]


class Status(BaseModel):
    """One poll of a node. Times are seconds before the poll, by the node's own monotonic clock."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    watchdog: bool  # False: it has died, and `state` is the last one that it wrote down
    rebooted: bool = False  # that is why: the node's boot id is another one
    state: str = "unknown"  # setup, ready, running, stopping, over
    ending: str | None = None  # why the run was ended from outside
    setup_error: str | None = None
    exit_code: int | None = None  # of the leader; negative: the signal that killed it
    started_ago_s: float | None = None
    exited_ago_s: float | None = None
    marks: list[tuple[int, float]] = []  # (bytes in the leader's log, seconds ago)
    running_at_end: list[str] = []
    survivors: list[str] = []
    cleanup_errors: list[str] = []
    disk_free_bytes: int | None = None
    offset: int = 0
    size: int = 0
    log: bytes = b""

    @property
    def over(self) -> bool:
        """Nothing of the run is left running that could be ended, and its cleanup has run."""
        return self.state == "over"


def _compressed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


def _tree(folder: Traversable, path: str) -> dict[str, str]:
    files: dict[str, str] = {}
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            files |= _tree(entry, f"{path}/{entry.name}")
        elif entry.is_file():
            files[f"{path}/{entry.name}"] = _compressed(entry.read_bytes())
    return files


def _package(dotted: str) -> Traversable:
    top, *rest = dotted.split(".")
    return resources.files(top).joinpath(*rest)


def _folders(node: NodePlan) -> list[str]:
    """Folders of the run folder that the job writes into, made beforehand: what a container's root writes into a
    folder of the user's the user can remove, but not a folder that the container has made."""
    logs = [log.removeprefix("{run_dir}/").rpartition("/")[0] for log in node.logs if log.startswith("{run_dir}/")]
    caches = [f"{upload_folder(dotted)}/__pycache__" for dotted in node.upload]
    return sorted({folder for folder in logs + caches if folder})


def upload_folder(dotted: str) -> str:
    """Where a folder of the package lands, below the run folder: "shakedown.smoke.workload" is `workload`."""
    return dotted.rpartition(".")[2]


class Node:
    """One node of a run: the launcher's commands as methods. Each raises NoAnswer or Refused."""

    def __init__(self, plan: LaunchPlan, node: NodePlan, remote: Remote, poll_timeout_s: float) -> None:
        self.name = node.name
        self.plan = node
        self._job = plan
        self._remote = remote
        self._timeout_s = poll_timeout_s
        self._visit: list[str] = []  # how the launcher on the node is called, known after prepare

    def prepare(self, secrets: dict[str, str], lease_s: float, grace_s: float) -> Leftovers:
        """Take the node's lock, make the run folder, and have the watchdog begin with the setup. Returns what earlier
        runs have left on the node."""
        texts = _launcher_sources()
        files = {f".launcher/launcher/{name}.py": _compressed(text.encode()) for name, text in texts}
        files[".launcher/__main__.py"] = _compressed(_ENTRY.encode())
        lines = [json.dumps(texts), json.dumps(files), json.dumps(self._description(secrets, lease_s, grace_s))]
        answer = self._call(["python3", "-c", _BOOTSTRAP], "\n".join(lines) + "\n", self._timeout_s * 4)
        self._visit = [answer["python"], "-E", "-s", "-S", f"{answer['run_dir']}/.launcher"]
        return Leftovers.model_validate(answer["leftovers"])

    def _description(self, secrets: dict[str, str], lease_s: float, grace_s: float) -> dict[str, Any]:
        node = self.plan
        files = {name: _compressed(text.encode()) for name, text in node.files.items()}
        for dotted in node.upload:
            files |= _tree(_package(dotted), upload_folder(dotted))
        return {
            "run_id": self._job.run_id,
            "mark": f"{self._job.run_id}/{node.name}",
            "command": node.command,
            # A container's variables stand in a file of the plan; the engine's client gets the secrets alone.
            "environment": {} if self._job.runtime == "container" else node.environment,
            "secrets": {name: secrets[name] for name in node.secrets},
            "files": files,
            "folders": _folders(node),
            "setup": node.setup,
            "cleanup": node.cleanup,
            "lease_s": lease_s,
            "grace_s": grace_s,
        }

    def go(self) -> Status:
        """Start the leader."""
        return self._status(self._call([*self._visit, "go"]))

    def poll(self, offset: int) -> Status:
        """The status, and the leader's log from `offset` (at most a megabyte of it). Renews the lease."""
        return self._status(self._call([*self._visit, "poll", "--offset", str(offset)]))

    def stop(self, why: str) -> Status:
        """Have the run ended; it is over when a poll says so."""
        return self._status(self._call([*self._visit, "stop", "--why", why], timeout=self._timeout_s * 2))

    def fetch(self, file: str, offset: int) -> tuple[bytes, int, int]:
        """A part of a log of the plan: the bytes, the offset behind them, the file's size. Refused: not readable."""
        answer = self._call([*self._visit, "fetch", "--file", file, "--offset", str(offset)])
        if "missing" in answer:
            raise Refused("missing", answer["missing"])
        return _expand(answer["data"]), answer["offset"], answer["size"]

    def digest(self, file: str, length: int) -> tuple[int, str | None]:
        """A log's size on the node, and the SHA-256 of its first `length` bytes there; None where that would take the
        node too long. Refused: not readable."""
        answer = self._call([*self._visit, "digest", "--file", file, "--offset", str(length)])
        if "missing" in answer:
            raise Refused("missing", answer["missing"])
        return answer["size"], answer["sha256"]

    def remove(self) -> list[str]:
        """Remove the run's folder and let go of the node; returns what could not be removed."""
        left: list[str] = self._call([*self._visit, "remove"]).get("left", [])
        return left

    @property
    def run_dir(self) -> str:
        """The run folder on the node; empty before `prepare`."""
        return self._visit[-1].removesuffix("/.launcher") if self._visit else ""

    @property
    def prepared(self) -> bool:
        """Whether there is anything on the node to stop and remove."""
        return bool(self._visit)

    def _status(self, answer: dict[str, Any]) -> Status:
        return Status.model_validate({**answer, "log": _expand(answer.get("data", ""))})

    def _call(self, argv: list[str], stdin: str | None = None, timeout: float | None = None) -> dict[str, Any]:
        limit = timeout or self._timeout_s
        _, out, err = self._remote(self.name, argv, stdin, limit)
        try:
            answer = json.loads(out[-1]) if out else None  # an answer in time, also of a command that was ended later
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise NoAnswer(" ".join((err or out)[-3:]) or f"no answer within {limit:.0f} s")
        if "error" in answer:
            raise Refused(answer.get("kind", "refused"), answer["error"])
        return answer


def _expand(data: str) -> bytes:
    return zlib.decompress(base64.b64decode(data)) if data else b""


def _launcher_sources() -> list[tuple[str, str]]:
    folder = resources.files("shakedown.smoke.launcher")
    return [(name, folder.joinpath(f"{name}.py").read_text("utf-8")) for name in _SOURCES]
