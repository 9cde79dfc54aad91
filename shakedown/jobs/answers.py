"""The launcher's answers as typed values, and the events of devices that come with them. An answer is input: bounded in
size before and after it is expanded, typed, its texts cleaned. A wrong one is one node's trouble."""

import base64
import zlib
from collections import deque
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from shakedown.common.frozen import first_problem
from shakedown.common.text import load_json, printable
from shakedown.evidence.results import NodeClock
from shakedown.evidence.telemetry.kernel import timed
from shakedown.logs.lines import LineSplitter
from shakedown.node.launcher.commands import FETCH_LIMIT
from shakedown.node.telemetry.kernel import DEVICES_LIMIT

_ANSWER_LIMIT = 8 << 20  # characters: a megabyte of log that cannot be compressed, and 4,000 times of its growth
_BYTES = (1 << 63) - 1  # the kernel's own limit; shared file systems have petabytes
_AGO_S = 1e8  # three years: no run is older
_ENTRIES = 200  # of a list that a person is to read
_KINDS = ("busy", "unusable", "absent")


class NoAnswer(Exception):
    """The node did not answer, or with something else. `heard`: it answered, and its watchdog did not."""

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


class Answer(BaseModel):
    """What the launcher prints for one command."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class Leftovers(Answer):
    """Run folders of this user's earlier runs on a node, newest first (launcher/folder.py has the rule)."""

    kept: Annotated[list[Line], _FEW] = []
    removed: Annotated[list[Line], _FEW] = []
    bytes: Bytes = 0  # of the kept ones

    def notes(self, folder: str) -> list[str]:
        """Return what a person should know of them; `folder` is the one that holds them."""
        size = f"{self.bytes / 2**20:.1f} MiB"
        reason = "logs that no controller has fetched; copy what you need, later runs remove them when they are old"
        kept = f"{folder} still has {', '.join(self.kept)} ({size}): {reason}"
        removed = f"removed from {folder}, which were never fetched: {', '.join(self.removed)}"
        return [*([kept] if self.kept else []), *([removed] if self.removed else [])]


class Location(Answer):
    """Where the launcher is on the node."""

    python: Annotated[str, Field(pattern=r"^/[^\x00-\x1f]{1,4000}$")]
    run_dir: Annotated[str, Field(pattern=r"^/[^\x00-\x1f]{1,4000}$")]


class Prepared(Location):
    leftovers: Leftovers
    note: Line = ""  # who else holds the node


class Lack(Answer):
    kind: Line
    text: Line


class Lacking(Answer):
    lacking: Annotated[list[Lack], _FEW]


class Removed(Answer):
    left: Annotated[list[Line], _FEW] = []


class Digest(Answer):
    size: Bytes
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None
    signed: dict[str, Any] | None = None  # the node's signature on it, where one was wanted


_Written = Annotated[str, Field(pattern=r"^hang/[A-Za-z0-9][A-Za-z0-9._-]{0,80}$")]


class HangRecord(Answer):
    """What a node recorded of a hang: the files, below the run folder, and what did not come in time."""

    files: Annotated[list[_Written], Field(max_length=256)]
    late: Annotated[list[Line], _FEW] = []
    processes: Bytes = 0


class Piece(Answer):
    """A part of a file of the node: `data` up to `offset`, of `size` bytes that the file has."""

    offset: Bytes
    size: Bytes
    data: bytes = b""


class Status(Answer):
    """One poll of a node. Times are seconds before the poll, by the node's own monotonic clock."""

    watchdog: bool  # False: it has died, and `state` is the last one that it wrote down
    rebooted: bool = False  # that is why: the node's boot id is another one
    state: Literal["unknown", "setup", "ready", "running", "stopping", "over"] = "unknown"
    ending: Line | None = None  # why the run was ended from outside
    setup_error: Text | None = None
    lacking: bool = False  # the setup did not begin: the error is what the node lacks for the job
    # Of the leader. Negative: the signal that killed it.
    exit_code: Annotated[int, Field(ge=-255, le=255)] | None = None
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
    devices: bytes = b""  # the events of devices, which came since the last poll

    @property
    def over(self) -> bool:
        """Return whether nothing of the run is left running that could be ended, and its cleanup has run."""
        return self.state == "over"


_Model = TypeVar("_Model", bound=Answer)


def decode(out: Sequence[str], err: Sequence[str], limit_s: float) -> dict[str, Any]:
    """Return the answer among a command's lines. Raise NoAnswer where there is none, Refused where it is a refusal."""
    try:
        # An answer in time counts, also of a command that was ended later.
        answer = load_json(out[-1], _ANSWER_LIMIT) if out else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        output = " ".join(line[:1000] for line in (err or out)[-3:])
        raise NoAnswer(printable(output, 1000) or f"no answer within {limit_s:.0f} s")
    if "silent" in answer:
        raise NoAnswer(printable(str(answer["silent"]), 1000), heard=True)
    if "error" in answer:
        kind = answer.get("kind")
        raise Refused(kind if kind in _KINDS else "refused", printable(str(answer["error"]), 1000))
    return answer


def read(model: type[_Model], answer: dict[str, Any]) -> _Model:
    """Return the typed answer. Raise NoAnswer where it has another form."""
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        raise NoAnswer(f"not what the launcher answers: {first_problem(error)}") from None


def refuse_missing(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer about a file. Raise Refused where the node cannot read the file."""
    if "missing" in answer:
        raise Refused("missing", printable(str(answer["missing"]), 400))
    return answer


def read_piece(answer: dict[str, Any], begin: int) -> Piece:
    """Return the part of a file that begins at `begin`. Raise NoAnswer where it contradicts itself."""
    piece = read(Piece, {**answer, "data": _expand(answer.get("data", ""))})
    if piece.offset != begin + len(piece.data) or piece.size < piece.offset:
        extent = f"{len(piece.data)} bytes from {begin} to {piece.offset} of {piece.size}"
        raise NoAnswer(f"an answer that contradicts itself: {extent}")
    return piece


def _expand(data: Any) -> bytes:
    """Expand the bytes of a log. There are never more than were requested, whatever they expand to."""
    if not data:
        return b""
    try:
        expander = zlib.decompressobj()
        content = expander.decompress(base64.b64decode(data, validate=True), FETCH_LIMIT + 1)
    except (ValueError, TypeError, zlib.error):
        raise NoAnswer("a part of a log that cannot be expanded") from None
    if len(content) > FETCH_LIMIT or not expander.eof:
        raise NoAnswer(f"a part of a log that is cut, or of more than the {FETCH_LIMIT} bytes that were requested")
    return content


_DAY_S = 86400.0  # an event that claims to be older, or to come, has no time of its own


class DeviceEvents:
    """`waiting` holds Unix time and text of the newest events. `size`: bytes that were read of the node's file."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[float, str]] = deque()
        self.size = 0
        self._splitter = LineSplitter()

    def take(self, data: bytes, clock: NodeClock | None, now: float) -> None:
        """Take what came since the last poll. An honest node writes no more than the sampler's limit."""
        self.size += len(data)
        if self.size > DEVICES_LIMIT:
            return
        for record in filter(None, map(timed, self._splitter.feed(data))):
            at = clock.at(record[0]) if clock else now
            self.waiting.append((at if abs(at - now) < _DAY_S else now, record[1]))
