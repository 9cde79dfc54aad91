"""The controller's side of the launcher: what travels to a node with a job, and the launcher's commands as methods."""

import base64
import functools
import json
import os
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from shakedown.common.data import read_toml
from shakedown.common.secret_file import read_secret
from shakedown.jobs import answers
from shakedown.jobs.launch import LaunchPlan, NodePlan
from shakedown.node.launcher.sampling import FOLDER as SAMPLER_FOLDER
from shakedown.node.launcher.standstill import FOLDER as HANG
from shakedown.schedulers.interface import Allocation, Remote
from shakedown.transport.program import command

TOKEN = "HF_TOKEN"


def token(file: str | None) -> str | None:
    """Return the token itself. Raise SecretError where the file cannot be used."""
    return os.environ.get(TOKEN) or (read_secret(file) if file else None)


_CARRIED = read_toml("shakedown.jobs", "carried.toml")
_ENTRY = "import sys\nfrom node.launcher.commands import main\nmain(sys.argv[1:])\n"
_SAMPLER_ENTRY = "import sys\nfrom shakedown.node.telemetry.sampler import main\nmain(sys.argv[1:])\n"

# Takes the launcher from the first line of standard input and the job from the second: the package has to run before
# it has a folder to lie in, and secrets must not stand in argv.
_BOOTSTRAP = """
import json, sys, types
sources = json.loads(sys.stdin.readline())
for name, text in sources:
    package, _, last = name.rpartition(".")
    full = package if last == "__init__" else name
    module = sys.modules[full] = types.ModuleType(full)
    module.__package__, module.__path__ = package, []
    above, _, last = full.rpartition(".")
    if above:
        setattr(sys.modules[above], last, module)
    exec(compile(text, full, "exec"), module.__dict__)
request = json.loads(sys.stdin.readline())
print(json.dumps(sys.modules["node.launcher.commands"].begin(request)))
"""


@functools.lru_cache(maxsize=256)  # each node gets the same files
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


def _folders(node: NodePlan) -> list[str]:
    """Return the folders of the run folder that the job writes into. They are made beforehand: the user can remove what
    a container's root writes into them, but not a folder that the container has made."""
    logs = [log.removeprefix("{run_dir}/").rpartition("/")[0] for log in node.logs if log.startswith("{run_dir}/")]
    caches = [f"{dotted.rpartition('.')[2]}/__pycache__" for dotted in node.upload]
    return sorted({folder for folder in [*logs, *caches, HANG] if folder})


def bootstrap(request: dict[str, Any]) -> tuple[list[str], str]:
    """Return the command, and its input, of a launcher without a known folder on the node. It imports nothing of the
    folder in which the connection happens to begin, of the user's site or of the user's variables."""
    lines = [json.dumps(launcher_sources()), json.dumps(request)]
    return ["sh", "-c", command(_BOOTSTRAP)], "\n".join(lines) + "\n"


def description(plan: LaunchPlan, node: NodePlan, secrets: dict[str, str], times: dict[str, float]) -> dict[str, Any]:
    """Describe the node's part of the job for the launcher. `times`: the lease and the grace, in seconds."""
    files = {name: _compressed(text.encode()) for name, text in node.files.items()}
    for dotted in node.upload:
        top, *rest = dotted.split(".")  # no import of the package itself: it may need torch
        files |= _tree(resources.files(top).joinpath(*rest), rest[-1])
    sampler = None
    if plan.telemetry_s is not None:
        sampler = {"interval": plan.telemetry_s, "interface": node.interface}
    return {
        "run_id": plan.run_id,
        "mark": f"{plan.run_id}/{node.name}",
        "command": node.command,
        # A container's variables stand in a file of the plan; the engine's client gets the secrets alone.
        "environment": {} if plan.runtime == "container" else node.environment,
        "secrets": {name: secrets[name] for name in node.secrets},
        "files": files,
        "folders": _folders(node),
        "needs": [need.model_dump() for need in node.needs],
        "setup": node.setup,
        "cleanup": node.cleanup,
        **times,
        "sampler": sampler,
    }


def sampler_files() -> dict[str, str]:
    """Return the sampler as files of the run folder; no container can write there."""
    node = resources.files("shakedown.node")
    modules = {f"{name}.py": node.joinpath(f"{name}.py") for name in _CARRIED["sampler"]}
    modules["known.json"] = node.joinpath("known.json")
    entries = node.joinpath("telemetry").iterdir()
    modules |= {f"telemetry/{entry.name}": entry for entry in entries if entry.name.endswith(".py")}
    texts = {f"shakedown/node/{path}": file.read_text("utf-8") for path, file in modules.items()}
    texts |= {"__main__.py": _SAMPLER_ENTRY, "shakedown/__init__.py": ""}
    return {f"{SAMPLER_FOLDER}/{path}": _compressed(text.encode()) for path, text in texts.items()}


def launcher_sources() -> list[tuple[str, str]]:
    """Return the launcher's modules, and what it shares with the probe, with their texts in the order of imports."""
    package = resources.files("shakedown")
    names: list[str] = _CARRIED["launcher"]
    return [(name, package.joinpath(f"{name.replace('.', '/')}.py").read_text("utf-8")) for name in names]


LOOK_S = 75.0  # for a look at what a job needs: its programs have 60 s
HANG_RECORD_S = 20.0  # for all that a node records of a hang


def lacking(node: NodePlan, container: bool, remote: Remote) -> list[answers.Lack]:
    """Return what a node lacks for its part of a job; nothing is changed. Raise NoAnswer or Refused."""
    environment = {} if container else node.environment
    argv, stdin = bootstrap({"needs": [need.model_dump() for need in node.needs], "environment": environment})
    _, out, err = remote(node.name, argv, stdin, LOOK_S)
    return answers.read(answers.Lacking, answers.decode(out, err, LOOK_S)).lacking


class Node:
    """One node of a run: the launcher's commands as methods. Each raises NoAnswer or Refused."""

    def __init__(self, plan: LaunchPlan, node: NodePlan, remote: Remote, poll_timeout_s: float) -> None:
        self.name = node.name
        self.run_id = plan.run_id
        self.plan = node
        self._job = plan
        self._remote = remote
        self._timeout_s = poll_timeout_s
        self.prepared = False  # whether there is, or may be, anything on the node to stop and remove
        self._launcher: list[str] = []  # how the launcher on the node is called; empty before `prepare`

    def prepare(self, secrets: dict[str, str], lease_s: float, grace_s: float) -> list[str]:
        """Take the node's lock, make the run folder, and have the watchdog begin with the setup. Returns what a person
        should know: what earlier runs have left on the node, and which other users hold it."""
        sources = [(f"{name.replace('.', '/')}.py", text) for name, text in launcher_sources()]
        files = {f".launcher/{path}": _compressed(text.encode()) for path, text in [*sources, ("__main__.py", _ENTRY)]}
        if self._job.telemetry_s is not None:
            files |= sampler_files()
        self.prepared = True
        job = description(self._job, self.plan, secrets, {"lease_s": lease_s, "grace_s": grace_s})
        try:
            answer = self._bootstrap({"job": job, "sources": files}, self._timeout_s * 4)
        except answers.Refused:
            self.prepared = False
            raise
        prepared = answers.read(answers.Prepared, answer)
        self._locate(prepared)
        return [*([prepared.note] if prepared.note else []), *prepared.leftovers.notes(self.run_dir.rpartition("/")[0])]

    def go(self) -> answers.Status:
        return answers.read(answers.Status, self._call("go"))

    def poll(self, offset: int, devices: int = 0) -> answers.Status:
        """Return the status, a part of the leader's log, and events of devices, from these offsets. Renew the lease."""
        answer = self._call("poll", devices=devices, offset=offset)
        piece = answers.read_piece(answer, offset)
        events = answer.get("devices")
        more = answers.read_piece(events, devices).data if isinstance(events, dict) else b""
        parts = {"log": piece.data, "offset": piece.offset, "size": piece.size, "devices": more}
        return answers.read(answers.Status, answer | parts)

    def stop(self, reason: str) -> answers.Status:
        """Have the run ended; it is over when a poll says so. Where the answer to `prepare` was lost, the launcher
        finds the run by its id. It refuses with the kind "absent" where the node has no such run."""
        if self._launcher:
            return answers.read(answers.Status, self._call("stop", self._timeout_s * 2, reason=reason))
        answer = self._bootstrap({"stop": {"run_id": self.run_id, "why": reason}}, self._timeout_s * 2)
        self._locate(answers.read(answers.Location, answer))
        return answers.read(answers.Status, answer)

    def record_hang(self) -> answers.HangRecord:
        """Have the node record what the run's processes are doing; this stops nothing."""
        return answers.read(answers.HangRecord, self._call("standstill", HANG_RECORD_S))

    def fetch(self, file: str, offset: int) -> answers.Piece:
        """Fetch a part of a log of the plan from `offset`. Refused: not readable."""
        return answers.read_piece(answers.refuse_missing(self._call("fetch", name=file, offset=offset)), offset)

    def digest(self, file: str, length: int, question: str = "") -> answers.Digest:
        """Return a log's size on the node, and the SHA-256 of its first `length` bytes there, signed where a `question`
        (node/sign.py) wants that; None where it would take the node too long. Refused: not readable."""
        answer = self._call("digest", name=file, length=length, question=question)
        return answers.read(answers.Digest, answers.refuse_missing(answer))

    def remove(self) -> list[str]:
        """Remove the run's folder and let go of the node; return what could not be removed."""
        return answers.read(answers.Removed, self._call("remove")).left

    @property
    def run_dir(self) -> str:
        """The run folder on the node; empty as long as no answer has named it."""
        return self._launcher[-1].removesuffix("/.launcher") if self._launcher else ""

    @property
    def confirmed(self) -> bool:
        """Whether an answer of the node shows that there is."""
        return bool(self._launcher)

    def _locate(self, location: answers.Location) -> None:
        self._launcher = [location.python, "-I", "-S", f"{location.run_dir}/.launcher"]

    def _bootstrap(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        argv, stdin = bootstrap(request)
        return self._run(argv, stdin, timeout)

    def _call(self, command: str, timeout: float | None = None, **arguments: Any) -> dict[str, Any]:
        return self._run([*self._launcher, command, json.dumps(arguments)], None, timeout or self._timeout_s)

    def _run(self, argv: list[str], stdin: str | None, timeout: float) -> dict[str, Any]:
        _, out, err = self._remote(self.name, argv, stdin, timeout)
        return answers.decode(out, err, timeout)


class Connected(Allocation):
    """Over connections that are there, as pyinfra's."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def start(self, title: str, among: Sequence[str]) -> AbstractContextManager[Remote]:
        return nullcontext(self._remote)
