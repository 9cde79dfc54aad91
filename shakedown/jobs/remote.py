"""The controller's side of the launcher: its commands on one node as methods, over connections that are there."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from shakedown.jobs.answers import (
    Digest,
    HangRecord,
    Lack,
    Lacking,
    Location,
    Piece,
    Prepared,
    Refused,
    Removed,
    Status,
    decode,
    read,
    read_piece,
    refuse_missing,
)
from shakedown.jobs.launch import LaunchPlan, NodePlan
from shakedown.jobs.payload import bootstrap, description, launcher_files, sampler_files
from shakedown.schedulers.interface import Allocation as Where
from shakedown.schedulers.interface import Interrupted, Remote

LOOK_S = 75.0  # for a look at what a job needs: its programs have 60 s
HANG_RECORD_S = 20.0  # for all that a node records of a hang


def lacking(node: NodePlan, container: bool, remote: Remote) -> list[Lack]:
    """Return what a node lacks for its part of a job, looked at as the job's own preparation does; nothing is changed.

    Raise NoAnswer or Refused.
    """
    environment = {} if container else node.environment
    argv, stdin = bootstrap({"needs": [need.model_dump() for need in node.needs], "environment": environment})
    _, out, err = remote(node.name, argv, stdin, LOOK_S)
    return read(Lacking, decode(out, err, LOOK_S)).lacking


class Node:
    """One node of a run: the launcher's commands as methods. Each raises NoAnswer or Refused."""

    def __init__(self, plan: LaunchPlan, node: NodePlan, remote: Remote, poll_timeout_s: float) -> None:
        self.name = node.name
        self.run_id = plan.run_id
        self.plan = node
        self._job = plan
        self._remote = remote
        self._timeout_s = poll_timeout_s
        self._prepare_sent = False
        self._launcher: list[str] = []  # how the launcher on the node is called; empty before `prepare`

    def prepare(self, secrets: dict[str, str], lease_s: float, grace_s: float) -> list[str]:
        """Take the node's lock, make the run folder, and have the watchdog begin with the setup.

        Returns what a person should know: what earlier runs have left on the node, and which other users hold it.
        """
        files = launcher_files()
        if self._job.telemetry_s is not None:
            files |= sampler_files()
        self._prepare_sent = True
        job = description(self._job, self.plan, secrets, {"lease_s": lease_s, "grace_s": grace_s})
        try:
            answer = self._bootstrap({"job": job, "sources": files}, self._timeout_s * 4)
        except Refused:
            self._prepare_sent = False
            raise
        prepared = read(Prepared, answer)
        self._locate(prepared)
        return [*([prepared.note] if prepared.note else []), *prepared.leftovers.notes(self.run_dir.rpartition("/")[0])]

    def go(self) -> Status:
        """Start the leader."""
        return read(Status, self._call("go"))

    def poll(self, offset: int, devices: int = 0) -> Status:
        """Return the status, the leader's log from `offset` (at most a megabyte of it), and the events of devices from
        `devices`. Renew the lease."""
        answer = self._call("poll", "--devices", str(devices), "--offset", str(offset))
        piece = read_piece(answer, offset)
        events = answer.get("devices")
        more = read_piece(events, devices).data if isinstance(events, dict) else b""
        return read(Status, {**answer, "log": piece.data, "offset": piece.offset, "size": piece.size, "devices": more})

    def stop(self, reason: str) -> Status:
        """Have the run ended; it is over when a poll says so.

        Where the answer to `prepare` was lost, the launcher finds the run by its id. It refuses with the kind "absent"
        where the node has no such run.
        """
        if self._launcher:
            return read(Status, self._call("stop", "--why", reason, timeout=self._timeout_s * 2))
        answer = self._bootstrap({"stop": {"run_id": self.run_id, "why": reason}}, self._timeout_s * 2)
        self._locate(read(Location, answer))
        return read(Status, answer)

    def record_hang(self) -> HangRecord:
        """Have the node record what the run's processes are doing; this stops nothing."""
        return read(HangRecord, self._call("standstill", timeout=HANG_RECORD_S))

    def fetch(self, file: str, offset: int) -> Piece:
        """Fetch a part of a log of the plan from `offset`. Refused: not readable."""
        return read_piece(refuse_missing(self._call("fetch", "--file", file, "--offset", str(offset))), offset)

    def digest(self, file: str, length: int, question: str = "") -> Digest:
        """Return a log's size on the node, and the SHA-256 of its first `length` bytes there, signed by the node where
        a `question` (node/sign.py) wants that.

        The digest is None where it would take the node too long. Refused: not readable.
        """
        sign = ["--sign", question] if question else []
        answer = self._call("digest", "--file", file, *sign, "--offset", str(length))
        return read(Digest, refuse_missing(answer))

    def remove(self) -> list[str]:
        """Remove the run's folder and let go of the node; return what could not be removed."""
        return read(Removed, self._call("remove")).left

    @property
    def run_dir(self) -> str:
        """The run folder on the node; empty as long as no answer has named it."""
        return self._launcher[-1].removesuffix("/.launcher") if self._launcher else ""

    @property
    def prepared(self) -> bool:
        """Whether there is, or may be, anything on the node to stop and remove."""
        return self._prepare_sent

    @property
    def confirmed(self) -> bool:
        """Whether an answer of the node shows that there is."""
        return bool(self._launcher)

    def _locate(self, location: Location) -> None:
        self._launcher = [location.python, "-I", "-S", f"{location.run_dir}/.launcher"]

    def _bootstrap(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        argv, stdin = bootstrap(request)
        return self._run(argv, stdin, timeout)

    def _call(self, *arguments: str, timeout: float | None = None) -> dict[str, Any]:
        return self._run([*self._launcher, *arguments], None, timeout or self._timeout_s)

    def _run(self, argv: list[str], stdin: str | None, timeout: float) -> dict[str, Any]:
        _, out, err = self._remote(self.name, argv, stdin, timeout)
        return decode(out, err, timeout)


__all__ = ["Connected", "Interrupted", "Where"]


class Connected:
    """Over connections that are there, as pyinfra's: there is nothing to wait for and nothing to give back."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def allocate(self, among: Sequence[str], say: Callable[[str], None], interrupted: Interrupted) -> None:
        """Nothing: whoever is connected is there."""

    def start(self, title: str, among: Sequence[str]) -> AbstractContextManager[Remote]:
        """Use the connections."""
        return nullcontext(self._remote)

    def lost(self) -> str | None:
        """None: a connection that is gone is one node's."""
        return None

    def end(self, cancel: bool = False) -> None:
        """Nothing."""
