"""A step of an allocation: `srun` brings a relay to each of its nodes, and what is to run there goes through it.
Standard input and output of srun are the whole way: neither SSH nor a shared file system is needed. A text for many
nodes goes out once, since srun sends its input to every node of the step."""

import contextlib
import json
import queue
import re
import secrets
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shakedown.common.text import load_json, printable
from shakedown.schedulers.interface import Answer, lines_of
from shakedown.schedulers.slurm import commands, relay
from shakedown.transport.program import command, program

START_S = 90.0  # for srun to have a relay on every node
SLACK_S = 3.0  # over a command's own limit
END_S = 20.0  # for relays to end what they have running, and srun with them
_BEAT_S = 15.0  # between two words to the relays
_LONG = 512  # characters of a text from which on it is sent once for all nodes
_LINE = 4096  # characters of a line that srun prints
_ANSWER = 2 * (relay.OUTPUT + relay.ERRORS)  # characters of an answer
_LINES = 40  # of srun's own words that are kept
_OF_A_TASK = re.compile(r"\s*\d+: ")
_ANSWERED = re.compile(r"\s*(\d+): (\S+) (\S+) (\d+) (\d+)/(\d+) (.*)", re.DOTALL)


class Step:
    """Commands on the nodes of a step. `nodes`: in plans -> Slurm's; `holder`: where the job hears of its relays."""

    def __init__(self, job: int, nodes: Mapping[str, str], title: str, options: Sequence[str], holder: str) -> None:
        self._nodes = dict(nodes)
        self._job = job
        self._argv = [
            *("srun", f"--jobid={job}", f"--job-name={title}", f"--nodelist={commands.as_list(nodes.values())}"),
            *(f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", "--ntasks-per-node=1", "--overlap", "--label"),
            *("--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--mpi=none", "--input=all", *commands.EXPORT, *options),
        ]
        self._token = secrets.token_hex(8)
        self._holder = holder
        self._numbers = 0
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, int], _Pieces] = {}
        self._ranks: dict[int, str] = {}  # of srun's labels -> Slurm's name of the node
        self._sent: set[str] = set()
        self._queue: queue.Queue[bytes | None] = queue.Queue()
        self._errors: deque[str] = deque(maxlen=_LINES)
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self.may_have_ended = False  # a relay reports its end: a node's word, which Slurm has to confirm

    def open(self, limit_s: float = START_S) -> None:
        """Start the relays and wait for all of them. Raise SlurmError, with the nodes that have none."""
        relays = command(program(Path(relay.__file__)), self._token, *([self._holder] if self._holder else []))
        argv, env, pipe = [*self._argv, "sh", "-c", relays], commands.environment(), subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, start_new_session=True
            )
        except OSError as error:
            raise commands.not_there(self._argv, error) from error
        for work in (self._write, self._read, self._listen):
            threading.Thread(target=work, daemon=True).start()
        until = time.monotonic() + limit_s
        while missing := sorted(set(self._nodes.values()) - set(self._ranks.values())):
            if self._process.poll() is not None or time.monotonic() > until:
                reason = self.last_line() or f"no node answered within {limit_s:g} s"
                self.close()
                raise commands.SlurmError(f"Slurm job {self._job}: no step on {', '.join(missing)}: {reason}")
            time.sleep(0.02)

    def __call__(self, node: str, argv: list[str], stdin: str | None, timeout: float) -> Answer:
        if (name := self._nodes.get(node)) is None:
            return None, [], [f"{node} is not among the nodes of Slurm job {self._job}"]
        with self._lock:
            self._numbers += 1
            number = self._numbers
            answer = self._waiting[name, number] = _Pieces()
        try:
            self._request(name, {"id": number, "argv": argv, "stdin": self._parts(stdin), "limit": timeout})
            until = time.monotonic() + timeout + SLACK_S
            while not answer.whole.wait(0.5):
                if self._is_over() or time.monotonic() > until:
                    return None, [], [self._silent(name, timeout)]
            return _read(answer)
        finally:
            with self._lock:
                del self._waiting[name, number]

    def close(self) -> None:
        """End the step: the relays end what is still running, and are waited for."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
            commands.end(self._process)

    def last_line(self, about: str = "") -> str:
        """Return the last line on srun's error output, of a node or at all; empty for none."""
        return next((line for line in reversed([*self._errors]) if about in line), "")

    def end_by_slurm(self) -> str:
        """Return Slurm's own line that it ended the step ("*** STEP 7.0 ON node1 CANCELLED AT ..."); empty for none.
        srun puts a rank before what tasks print, so that no program on a node can print such a line."""
        lines = reversed([*self._errors])
        return next((line for line in lines if "***" in line and not _OF_A_TASK.match(line)), "")

    def _is_over(self) -> bool:
        return self._process is None or self._process.poll() is not None or self._closed

    def _silent(self, name: str, timeout: float) -> str:
        line = self.last_line(name) or (self.last_line() if self._is_over() else "")
        event = "its step has ended" if self._is_over() else f"no answer within {timeout:g} s"
        return f"{event} (Slurm job {self._job}){f': {line}' if line else ''}"

    def _parts(self, stdin: str | None) -> list[Any] | None:
        """Split a text. Its long parts are only named: they go to all nodes, once."""
        if stdin is None:
            return None
        parts: list[Any] = []
        for part in re.split('(")', stdin):
            if len(part) >= _LONG:
                name = relay.name_of(part)
                with self._lock:
                    new = name not in self._sent
                    self._sent.add(name)
                if new:
                    self._request("*", {"keep": part})
                parts.append([name])
            elif parts and isinstance(parts[-1], str):
                parts[-1] += part
            else:
                parts.append(part)
        return parts

    def _request(self, node: str, document: dict[str, Any]) -> None:
        self._queue.put(f"{node} {json.dumps(document)}\n".encode())

    def _write(self) -> None:
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError), self._process.stdin as pipe:
            while True:
                try:
                    line = self._queue.get(timeout=_BEAT_S)
                except queue.Empty:
                    line = b"* {}\n"
                if line is None:
                    return
                pipe.write(line)
                if self._queue.empty():
                    pipe.flush()

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        before = b"\n"
        while line := self._process.stdout.readline(_LINE):
            if before.endswith(b"\n") and line.endswith(b"\n"):  # the middle of a longer one has no label of srun's
                self._take(line.decode("utf-8", "replace"))
            before = line

    def _take(self, line: str) -> None:
        """Take a line of a relay. The node that srun's label names has to be the node that the line names."""
        match = _ANSWERED.fullmatch(line.rstrip("\n"))
        if match is None or match[2] != self._token:
            return
        rank, name, number = int(match[1]), match[3], int(match[4])
        with self._lock:
            if number == 0 and rank not in self._ranks and name not in self._ranks.values():
                self._ranks[rank] = name
            elif number == 0 and self._ranks.get(rank) == name and '"ended"' in match[7]:
                self.may_have_ended = True
            answer = self._waiting.get((name, number)) if self._ranks.get(rank) == name else None
        if answer is not None:
            answer.add(int(match[5]), int(match[6]), match[7])

    def _listen(self) -> None:
        assert self._process is not None and self._process.stderr is not None
        while line := self._process.stderr.readline(_LINE):
            if text := printable(line.decode("utf-8", "replace").strip(), 300):
                self._errors.append(text)


class _Pieces:
    def __init__(self) -> None:
        self.whole = threading.Event()
        self.text = ""
        self._pieces: list[str] = []
        self._size = 0

    def add(self, index: int, count: int, piece: str) -> None:
        """Add the next piece. A piece out of order, or too much, makes the answer unreadable."""
        self._size += len(piece)
        if index != len(self._pieces) + 1 or index > count or self._size > _ANSWER:
            self.whole.set()
            return
        self._pieces.append(piece)
        if index == count:
            self.text = "".join(self._pieces)
            self.whole.set()


def _read(answer: _Pieces) -> Answer:
    try:
        document = load_json(answer.text, _ANSWER)
        code, out, err = document["code"], document["out"], document["err"]
        if not (isinstance(code, int) and isinstance(out, str) and isinstance(err, str)):
            raise ValueError("not an answer")
        return code, lines_of(out), lines_of(err)
    except (ValueError, KeyError, TypeError):
        return None, [], ["the answer of the node's relay cannot be read"]
