"""The only place that runs Slurm's commands: scontrol, squeue, sbatch, srun, scancel. Without a controller they hang
for minutes, so each has a time limit of ours. What they print is bounded. They get no more of this process'
environment than they need: they hand it on to the job, secrets and all."""

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from typing import IO, Any

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from shakedown.common.data import read_toml
from shakedown.common.text import printable
from shakedown.schedulers.interface import SchedulerError

WORDS: dict[str, Any] = read_toml("shakedown.schedulers.slurm", "words.toml")
LIMIT_S = 20.0  # for one command: a controller that is there answers in well under a second, a busy one in a few
OUTPUT_BYTES = 128 << 20  # of one command: `scontrol show nodes` has some 1 kB for each node
_ERRORS = 64 << 10  # bytes of standard error that are read
_TURN_S = 0.05

# What goes on from our own environment: where Slurm is and who asks it. SLURM_CONF as `module load slurm` sets it.
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "TZ", "LD_LIBRARY_PATH", "SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
EXPORT = ("--export=PATH,HOME,USER,LOGNAME,LC_ALL",)
"""Option of sbatch and srun: what a job gets of `environment`; Slurm adds its own variables."""
_ABSENT = re.compile(r"invalid job id specified|invalid node name specified|node \S+ not found", re.IGNORECASE)


class SlurmError(SchedulerError):
    """A command of Slurm that failed, did not end, or said what cannot be read; names command, host and remedy."""


class Absent(SlurmError):
    """Slurm answers, and does not know the job or the node that it was asked for."""


def environment() -> dict[str, str]:
    """Return the environment of Slurm's commands, and so of what they start."""
    path = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
    return path | {name: os.environ[name] for name in _KEPT if name in os.environ}


def run(*argv: str, limit_s: float = LIMIT_S, stdin: str | None = None) -> str:
    """Run one command to its end and return what it printed. Raise SlurmError."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment(),
                start_new_session=True,  # Ctrl-C is ours: what it means for the job is decided here
            )
        except OSError as error:
            raise not_there(argv, error) from error
        try:
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
                    pipe.write((stdin or "").encode())
            if not _ends(process, out, limit_s):
                reason = "the controller (slurmctld) is down, busy or not reachable from here; see: scontrol ping"
                raise SlurmError(f"{_place(argv)}: no answer within {limit_s:g} s: {reason}")
        finally:
            end(process)
        return _output(argv, process.returncode, out, err)


def _ends(process: subprocess.Popen[bytes], out: IO[bytes], limit_s: float) -> bool:
    """Wait until the command has ended, or has printed too much. Return whether it did within the limit."""
    until = time.monotonic() + limit_s
    while process.poll() is None and os.fstat(out.fileno()).st_size <= OUTPUT_BYTES:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TURN_S)
        if time.monotonic() > until and process.poll() is None:
            return False
    return True


def end(process: subprocess.Popen[bytes]) -> None:
    """End a command, and what it has started here."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _output(argv: Sequence[str], code: int, out: IO[bytes], err: IO[bytes]) -> str:
    err.seek(0)
    complaint = err.read(_ERRORS).decode("utf-8", "replace")
    out.seek(0)
    data = out.read(OUTPUT_BYTES + 1)
    if len(data) > OUTPUT_BYTES:
        raise SlurmError(f"{_place(argv)}: it printed more than {OUTPUT_BYTES >> 20} MiB")
    output = data.decode("utf-8", "replace")
    if code == 0:
        return output
    words = printable((complaint or output[-2000:]).strip(), 600) or f"exit code {code}"
    if _ABSENT.search(f"{complaint}\n{output[-2000:]}"):
        raise Absent(f"{_place(argv)}: {words}{_remedy(words)}")
    raise SlurmError(f"{_place(argv)}: {words}{_remedy(words)}")


def _place(argv: Sequence[str]) -> str:
    return f"{printable(shlex.join(argv), 100)} (on {socket.gethostname()})"


def not_there(argv: Sequence[str], error: OSError) -> SlurmError:
    """Return the error for a command that could not be started."""
    remedy = "run this where Slurm's commands are (a login node), or have them in PATH (module load slurm)"
    return SlurmError(f"{_place(argv)}: {error.strerror or error}; {remedy}")


def _remedy(words: str) -> str:
    return next((f"; {remedy}" for sign, remedy in WORDS["remedy"].items() if sign.lower() in words.lower()), "")


def names(text: str) -> list[str]:
    """Read a list in Slurm's notation ("node[01-08],login1"); empty for none. Raise SlurmError."""
    if text in ("", "(null)", "None assigned"):
        return []
    try:
        return [str(name) for name in NodeSet(text, resolver=RESOLVER_NOGROUP)]
    except NodeSetException as error:
        raise SlurmError(f"Slurm's list of nodes {printable(text, 200)!r} cannot be read: {error}") from None


def as_list(nodes: Iterable[str]) -> str:
    """Write nodes in Slurm's notation, for --nodelist and NodeName=. Raise SlurmError for a text that is no name."""
    names = list(nodes)
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", name, re.ASCII):
            raise SlurmError(f"{printable(name, 100)!r} is no name of a node in Slurm; slurm.node gives it")
    return str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))


def update_nodes(nodes: Iterable[str], *settings: str) -> None:
    """Run `scontrol update NodeName=... SETTINGS`, as "State=DRAIN", "Reason=...". Raise SlurmError."""
    run("scontrol", "update", f"NodeName={as_list(nodes)}", *settings)
