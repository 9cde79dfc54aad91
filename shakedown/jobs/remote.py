"""The controller's side of the launcher: what travels to a node, and the launcher's answers as typed values.

An answer is input: bounded in size before and after it is expanded, typed, its texts cleaned. One that is anything else
than what the launcher prints is no answer, and that is one node's trouble alone.
"""

from __future__ import annotations

import base64
import json
import zlib
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from shakedown.common.text import load_json, printable
from shakedown.jobs.launch import LaunchPlan, NodePlan
from shakedown.node.launcher.commands import FETCH_LIMIT
from shakedown.node.launcher.sampling import FOLDER as SAMPLER_FOLDER
from shakedown.node.launcher.standstill import FOLDER as HANG
from shakedown.schedulers.interface import Remote as Remote
from shakedown.transport.program import command

# In the order of their imports.
_SOURCES = (
    *("__init__", "processes", "folder", "lock", "control", "leftovers"),
    *("sampling", "standstill", "watchdog", "commands"),
)
_ENTRY = "import sys\nfrom launcher.commands import main\nmain(sys.argv[1:])\n"
_SAMPLER_ENTRY = "import sys\nfrom shakedown.node.telemetry.sampler import main\nmain(sys.argv[1:])\n"
# What the sampler takes along of the probe.
_SAMPLER_MODULES = (
    "__init__",
    "children",
    "dcb",
    "gpu",
    "kernel_log",
    "lossless",
    "pci",
    "rdma",
    "smi",
    "tree",
    "udev",
)

_ANSWER_LIMIT = 8 << 20  # characters: a megabyte of log that cannot be compressed, and 10,000 times of its growth
_BYTES = (1 << 63) - 1  # the kernel's own limit; shared file systems have petabytes
_AGO_S = 1e8  # three years: no run is older
STANDSTILL_S = 20.0  # for all that a node writes down of a standstill
_ENTRIES = 200  # of a list that a person is to read

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
request = json.loads(sys.stdin.readline())
print(json.dumps(sys.modules["launcher.commands"].begin(request)))
"""


class NoAnswer(Exception):
    """The node did not answer, or not with what the launcher prints. `heard`: the node did, and its watchdog did
    not."""

    def __init__(self, text: str, heard: bool = False) -> None:
        super().__init__(text)
        self.heard = heard


class Refused(Exception):
    """The launcher on the node refused: `kind` is "busy" (another run holds the node), "unusable", "absent" (there is
    no such run), "missing" (no such log) or "refused"."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def _clean(limit: int, *, lines: bool = False) -> BeforeValidator:
    return BeforeValidator(lambda text: printable(text, limit, lines=lines) if isinstance(text, str) else text)


Line = Annotated[str, _clean(400)]
Text = Annotated[str, _clean(4000, lines=True)]
Bytes = Annotated[int, Field(ge=0, le=_BYTES)]
Ago = Annotated[float, Field(ge=0, le=_AGO_S, allow_inf_nan=False)]
_FEW = BeforeValidator(lambda value: value[:_ENTRIES] if isinstance(value, list) else value)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Leftovers(_Answer):
    """Run folders of this user's earlier runs on a node, newest first (launcher/leftovers.py has the rule)."""

    kept: Annotated[list[Line], _FEW] = []
    removed: Annotated[list[Line], _FEW] = []
    bytes: Bytes = 0  # of the kept ones

    def notes(self, folder: str) -> list[str]:
        """What a person should know of them; `folder` is the one that holds them."""
        size = f"{self.bytes / 2**20:.1f} MiB"
        why = "logs that no controller has fetched; copy what you need, later runs remove them when they are old"
        kept = f"{folder} still has {', '.join(self.kept)} ({size}): {why}"
        removed = f"removed from {folder}, which were never fetched: {', '.join(self.removed)}"
        return [*([kept] if self.kept else []), *([removed] if self.removed else [])]


class _Place(_Answer):
    """Where the launcher is on the node."""

    python: Annotated[str, Field(pattern=r"^/[^\x00-\x1f]{1,4000}$")]
    run_dir: Annotated[str, Field(pattern=r"^/[^\x00-\x1f]{1,4000}$")]


class _Prepared(_Place):
    leftovers: Leftovers
    note: Line = ""  # who else holds the node


class _Removed(_Answer):
    left: Annotated[list[Line], _FEW] = []


class _Digest(_Answer):
    size: Bytes
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None


_Written = Annotated[str, Field(pattern=r"^hang/[A-Za-z0-9][A-Za-z0-9._-]{0,80}$")]


class Looked(_Answer):
    """What a node has written down of a standstill: the files, below the run folder, and what did not come in time."""

    files: Annotated[list[_Written], Field(max_length=256)]
    late: Annotated[list[Line], _FEW] = []
    processes: Bytes = 0


class Piece(_Answer):
    """A part of a file of the node: `data` up to `offset`, of `size` bytes that the file has."""

    offset: Bytes
    size: Bytes
    data: bytes = b""


class Status(_Answer):
    """One poll of a node. Times are seconds before the poll, by the node's own monotonic clock."""

    watchdog: bool  # False: it has died, and `state` is the last one that it wrote down
    rebooted: bool = False  # that is why: the node's boot id is another one
    state: Literal["unknown", "setup", "ready", "running", "stopping", "over"] = "unknown"
    ending: Line | None = None  # why the run was ended from outside
    setup_error: Text | None = None
    exit_code: Annotated[int, Field(ge=-255, le=255)] | None = (
        None  # of the leader; negative: the signal that killed it
    )
    started_ago_s: Ago | None = None
    exited_ago_s: Ago | None = None
    marks: Annotated[list[tuple[Bytes, Ago]], Field(max_length=20_000)] = []  # (bytes in the leader's log, seconds ago)
    running_at_end: Annotated[list[Line], _FEW] = []
    survivors: Annotated[list[Line], _FEW] = []
    cleanup_errors: Annotated[list[Text], _FEW] = []
    disk_free_bytes: Bytes | None = None
    monotonic: Ago | None = None  # the node's monotonic clock when it answered
    offset: Bytes = 0
    size: Bytes = 0
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
    return sorted({folder for folder in [*logs, *caches, HANG] if folder})


def upload_folder(dotted: str) -> str:
    """Where a folder of the package lands, below the run folder: "shakedown.jobs.workload" is `workload`."""
    return dotted.rpartition(".")[2]


class Node:
    """One node of a run: the launcher's commands as methods. Each raises NoAnswer or Refused."""

    def __init__(self, plan: LaunchPlan, node: NodePlan, remote: Remote, poll_timeout_s: float) -> None:
        self.name = node.name
        self.run_id = plan.run_id
        self.plan = node
        self._job = plan
        self._remote = remote
        self._timeout_s = poll_timeout_s
        self._asked = False  # whether `prepare` was sent, whatever came back
        self._visit: list[str] = []  # how the launcher on the node is called, known after prepare

    def prepare(self, secrets: dict[str, str], lease_s: float, grace_s: float) -> list[str]:
        """Take the node's lock, make the run folder, and have the watchdog begin with the setup. Returns what a person
        should know: what earlier runs have left on the node, and who else says that he uses it."""
        texts = _launcher_sources()
        files = {f".launcher/launcher/{name}.py": _compressed(text.encode()) for name, text in texts}
        files[".launcher/__main__.py"] = _compressed(_ENTRY.encode())
        if self._job.telemetry_s is not None:
            files |= _sampler_sources()
        self._asked = True
        job = self._description(secrets, lease_s, grace_s)
        try:
            answer = self._begin({"job": job, "sources": files}, self._timeout_s * 4)
        except Refused:
            self._asked = False
            raise
        prepared = self._read(_Prepared, answer)
        self._settle(prepared)
        return [*([prepared.note] if prepared.note else []), *prepared.leftovers.notes(self.run_dir.rpartition("/")[0])]

    def _begin(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Run a command of a launcher that has no folder on the node, or none that is known here. Nothing of the folder
        in which the connection happens to begin, of the user's site or of his variables is imported by it."""
        lines = [json.dumps(_launcher_sources()), json.dumps(request)]
        return self._call(["sh", "-c", command(_BOOTSTRAP)], "\n".join(lines) + "\n", timeout)

    def _settle(self, place: _Place) -> None:
        self._visit = [place.python, "-I", "-S", f"{place.run_dir}/.launcher"]

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
            "sampler": None
            if self._job.telemetry_s is None
            else {"interval": self._job.telemetry_s, "interface": node.interface},
        }

    def go(self) -> Status:
        """Start the leader."""
        return self._read(Status, self._call([*self._visit, "go"]))

    def poll(self, offset: int) -> Status:
        """The status, and the leader's log from `offset` (at most a megabyte of it). Renews the lease."""
        answer = self._call([*self._visit, "poll", "--offset", str(offset)])
        piece = self._piece(answer, offset)
        return self._read(Status, {**answer, "log": piece.data, "offset": piece.offset, "size": piece.size})

    def stop(self, why: str) -> Status:
        """Have the run ended; it is over when a poll says so.

        Where the answer to `prepare` was lost, the run is found by its id; Refused with the kind "absent" then says
        that the node has none of it.
        """
        if self._visit:
            return self._read(Status, self._call([*self._visit, "stop", "--why", why], timeout=self._timeout_s * 2))
        answer = self._begin({"stop": {"run_id": self.run_id, "why": why}}, self._timeout_s * 2)
        self._settle(self._read(_Place, answer))
        return self._read(Status, answer)

    def standstill(self) -> Looked:
        """Have the node write down what the run's processes are doing; nothing is stopped by it."""
        return self._read(Looked, self._call([*self._visit, "standstill"], timeout=STANDSTILL_S))

    def fetch(self, file: str, offset: int) -> Piece:
        """A part of a log of the plan from `offset`. Refused: not readable."""
        answer = self._call([*self._visit, "fetch", "--file", file, "--offset", str(offset)])
        return self._piece(self._here(answer), offset)

    def digest(self, file: str, length: int) -> tuple[int, str | None]:
        """A log's size on the node, and the SHA-256 of its first `length` bytes there; None where that would take the
        node too long. Refused: not readable."""
        answer = self._call([*self._visit, "digest", "--file", file, "--offset", str(length)])
        digest = self._read(_Digest, self._here(answer))
        return digest.size, digest.sha256

    def remove(self) -> list[str]:
        """Remove the run's folder and let go of the node; returns what could not be removed."""
        return self._read(_Removed, self._call([*self._visit, "remove"])).left

    @property
    def run_dir(self) -> str:
        """The run folder on the node; empty as long as it is not known."""
        return self._visit[-1].removesuffix("/.launcher") if self._visit else ""

    @property
    def prepared(self) -> bool:
        """Whether there is, or may be, anything on the node to stop and remove."""
        return self._asked

    @property
    def known(self) -> bool:
        """Whether an answer has said that there is."""
        return bool(self._visit)

    def _piece(self, answer: dict[str, Any], begin: int) -> Piece:
        piece = self._read(Piece, {**answer, "data": _expand(answer.get("data", ""))})
        if piece.offset != begin + len(piece.data) or piece.size < piece.offset:
            what = f"{len(piece.data)} bytes from {begin} to {piece.offset} of {piece.size}"
            raise NoAnswer(f"an answer that contradicts itself: {what}")
        return piece

    def _here(self, answer: dict[str, Any]) -> dict[str, Any]:
        if "missing" in answer:
            raise Refused("missing", printable(str(answer["missing"]), 400))
        return answer

    def _read(self, model: type[_Model], answer: dict[str, Any]) -> _Model:
        try:
            return model.model_validate(answer)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise NoAnswer(f"not what the launcher answers: {printable(where, 100)}: {first['msg']}") from None

    def _call(self, argv: list[str], stdin: str | None = None, timeout: float | None = None) -> dict[str, Any]:
        limit = timeout or self._timeout_s
        _, out, err = self._remote(self.name, argv, stdin, limit)
        try:
            # An answer in time counts, also of a command that was ended later.
            answer = load_json(out[-1], _ANSWER_LIMIT) if out else None
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            said = " ".join(line[:1000] for line in (err or out)[-3:])
            raise NoAnswer(printable(said, 1000) or f"no answer within {limit:.0f} s")
        if "silent" in answer:
            raise NoAnswer(printable(str(answer["silent"]), 1000), heard=True)
        if "error" in answer:
            kind = answer.get("kind")
            raise Refused(kind if kind in _KINDS else "refused", printable(str(answer["error"]), 1000))
        return answer


_Model = TypeVar("_Model", bound=_Answer)
_KINDS = ("busy", "unusable", "absent")


def _expand(data: Any) -> bytes:
    """The bytes of a log, of which there are never more than were asked for, whatever they expand to."""
    if not data:
        return b""
    try:
        expander = zlib.decompressobj()
        found = expander.decompress(base64.b64decode(data, validate=True), FETCH_LIMIT + 1)
    except (ValueError, TypeError, zlib.error):
        raise NoAnswer("a part of a log that cannot be expanded") from None
    if len(found) > FETCH_LIMIT or not expander.eof:
        raise NoAnswer(f"a part of a log that is cut, or of more than the {FETCH_LIMIT} bytes that were asked for")
    return found


def _sampler_sources() -> dict[str, str]:
    """The sampler as files of the run folder; no container can write there."""
    node = resources.files("shakedown.node")
    modules = {f"{name}.py": node.joinpath(f"{name}.py") for name in _SAMPLER_MODULES}
    modules |= {
        f"telemetry/{entry.name}": entry for entry in node.joinpath("telemetry").iterdir() if entry.name.endswith(".py")
    }
    texts = {f"shakedown/node/{path}": file.read_text("utf-8") for path, file in modules.items()}
    texts |= {"__main__.py": _SAMPLER_ENTRY, "shakedown/__init__.py": ""}
    return {f"{SAMPLER_FOLDER}/{path}": _compressed(text.encode()) for path, text in texts.items()}


def _launcher_sources() -> list[tuple[str, str]]:
    folder = resources.files("shakedown.node.launcher")
    return [(name, folder.joinpath(f"{name}.py").read_text("utf-8")) for name in _SOURCES]
