"""Runs commands on a node that a scheduler's step has brought this program to.

Requests come in on standard input, which all nodes of the step share, and answers go out on standard output.

A request is a line: the node that it is for ("*": all), a blank, a JSON document. An answer is lines of at most a
kilobyte, for that is what Slurm keeps whole on their way: token, node, request, piece of pieces, JSON cut to length.
When its standard input ends, or nothing has come for a while, the program ends what the step still has running here.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import IO, Any, Dict, List, Optional, Tuple

PIECE = 850  # characters of an answer on one line
OUTPUT = 16 << 20  # bytes of a command's output
ERRORS = 256 << 10
KEPT = 64 << 20  # characters of texts that are sent once and used often
SILENT_S = 600.0  # without a word from the controller, which says one every 15 s unless it computes
GRACE_S = 12.0  # for what is still running here to end after SIGTERM: a watchdog needs 5 for its cleanup
BEAT_S = 10.0
HOLDER = "SHAKEDOWN_HOLDER"  # variable: the name that the batch script takes; command lines are everybody's to read
_SCM_CREDENTIALS = 2  # linux/socket.h; Python has no name for it
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid, as the kernel says them: unix(7)
# Of the step's variables: those of the scheduler's own ranks would be taken for the job's. Which GPUs it gave stays.
_FOREIGN = ("PMI", "PMIX_", "SLURM_", "SRUN_")
_OURS = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURMD_NODENAME")


class Relay:
    """The program's state: texts that are kept, commands that run."""

    def __init__(self, token: str, node: str, holder: str = "") -> None:
        self._token = token
        self._holder = holder
        self._node = node
        self._heard = time.monotonic()
        self._over = threading.Event()
        self._told_to_end = False
        self._lock = threading.Lock()
        self._texts: Dict[str, str] = {}
        names = [name for name in os.environ if name in _OURS or not name.startswith(_FOREIGN)]
        self._environment = {name: os.environ[name] for name in names}
        home = os.path.expanduser("~")
        self._folder = home if os.path.isdir(home) else "/"

    def serve(self) -> None:
        """Serve until the input ends or the controller has fallen silent; then end what is left."""
        signal.signal(signal.SIGTERM, lambda _number, _frame: self._on_sigterm())
        self._say(0, {"hello": self._node})
        threading.Thread(target=self._read, daemon=True).start()
        while not self._over.wait(BEAT_S) and time.monotonic() - self._heard < SILENT_S:
            self._tell_holder()
        if self._told_to_end:
            self._say(0, {"ended": self._node})
        self._end()

    def _on_sigterm(self) -> None:
        """Note that the scheduler ends the step: time is over, another job comes, or a user cancelled it."""
        self._told_to_end = True
        self._over.set()

    def _tell_holder(self) -> None:
        """Send a sign of life to the batch script, which keeps the allocation as long as it gets them."""
        if not self._holder:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way, suppress(OSError):
            way.setblocking(False)
            way.sendto(b"here", holder_address(self._holder))

    def _read(self) -> None:
        mine, everybody = self._node.encode(), b"*"
        for line in sys.stdin.buffer:
            self._heard = time.monotonic()
            target, _, rest = line.partition(b" ")
            if target in (mine, everybody):
                self._take(json.loads(rest))
        self._over.set()

    def _take(self, request: Dict[str, Any]) -> None:
        if "keep" in request:
            text = request["keep"]
            while self._texts and sum(map(len, self._texts.values())) + len(text) > KEPT:
                del self._texts[next(iter(self._texts))]
            self._texts[name_of(text)] = text
        elif "id" in request:
            parts = request.get("stdin")
            try:
                texts = [part if isinstance(part, str) else self._texts[part[0]] for part in parts or ()]
                given = None if parts is None else "".join(texts)
            except KeyError:
                self._say(request["id"], {"code": 125, "out": "", "err": "the relay lacks a part of the request"})
                return
            threading.Thread(target=self._carry_out, args=(request, given), daemon=True).start()

    def _carry_out(self, request: Dict[str, Any], stdin: Optional[str]) -> None:
        code, out, err = self._run(request["argv"], stdin, float(request["limit"]))
        self._say(request["id"], {"code": code, "out": out, "err": err})

    def _run(self, argv: List[str], stdin: Optional[str], limit: float) -> Tuple[int, str, str]:
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            return 127, "", "%s: %s" % (argv[0], error.strerror or error)
        out, err = _Taken(child, child.stdout, OUTPUT), _Taken(child, child.stderr, ERRORS)
        if child.stdin is not None:
            threading.Thread(target=_feed, args=(child.stdin, (stdin or "").encode()), daemon=True).start()
        late = ""
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            late = "the command did not end within %g s" % limit
            _kill(child)
        texts = [taken.text() for taken in (out, err)]
        return (124, texts[0], texts[1] + late) if late else (child.returncode, texts[0], texts[1])

    def _say(self, number: int, document: Dict[str, Any]) -> None:
        text = json.dumps(document)
        pieces = [text[begin : begin + PIECE] for begin in range(0, len(text), PIECE)]
        with self._lock:
            for index, piece in enumerate(pieces, 1):
                sys.stdout.write("%s %s %d %d/%d %s\n" % (self._token, self._node, number, index, len(pieces), piece))
            sys.stdout.flush()

    def _end(self) -> None:
        """Have what the step has running here end in order: a watchdog cleans up after SIGTERM, and after the SIGKILL
        that follows when this program is gone it could not."""
        until = time.monotonic() + GRACE_S
        signalled: List[int] = []
        while time.monotonic() < until:
            if not (left := of_the_step()):
                break
            for pid in left:
                if pid not in signalled:
                    signalled.append(pid)
                    with suppress(OSError):
                        os.kill(pid, signal.SIGTERM)
            time.sleep(0.1)
        os._exit(0)


class _Taken:
    """What comes out of a pipe, up to a limit; beyond it the command is ended."""

    def __init__(self, child: "subprocess.Popen[bytes]", pipe: Optional[IO[bytes]], limit: int) -> None:
        self._child = child
        self._pipe = pipe
        self._limit = limit
        self._parts: List[bytes] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        size = 0
        while self._pipe is not None:
            if not (part := os.read(self._pipe.fileno(), 1 << 16)):
                break
            size += len(part)
            if size > self._limit:
                _kill(self._child)
                break
            self._parts.append(part)

    def text(self) -> str:
        """Return all of it, once the command has ended; another process that holds the pipe is not waited for."""
        self._thread.join(2.0)
        return b"".join(self._parts).decode("utf-8", "replace")


def _feed(pipe: IO[bytes], data: bytes) -> None:
    with suppress(OSError), pipe:
        pipe.write(data)


def _kill(child: "subprocess.Popen[bytes]") -> None:
    for number, seconds in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
        with suppress(OSError, subprocess.TimeoutExpired):
            os.killpg(child.pid, number)
            child.wait(seconds)
            return


def name_of(text: str) -> str:
    """Return the name by which later requests refer to a text that is kept."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def holder_address(holder: str) -> str:
    """Return where the batch script of a job listens: a name of the network namespace, no file. Any user of the node
    may take such a name, so `holder` is one that no user knows before it is taken."""
    return "\0shakedown-slurm-%s" % holder


def of_the_step() -> List[int]:
    """Return processes of this user that carry the step's variables, except this one and those above it."""
    mine = ["%s=%s" % (name, os.environ.get(name, "")) for name in _OURS]
    above = {os.getpid(), os.getppid()}
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in above:
            continue
        try:
            if os.stat("/proc/" + name).st_uid != os.getuid():
                continue
            with open("/proc/%s/environ" % name, "rb") as file:
                variables = file.read(1 << 20).decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if all(variable in variables for variable in mine):
            found.append(int(name))
    return found


def hold(holder: str, idle_s: float) -> None:
    """Keep the allocation (the batch script) until SIGTERM, or until no relay of this user was heard of for so long."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        heard.bind(holder_address(holder))
        until = time.monotonic() + idle_s
        while time.monotonic() < until:
            heard.settimeout(max(until - time.monotonic(), 0.001))
            try:
                _, more, _, _ = heard.recvmsg(64, socket.CMSG_SPACE(_CREDENTIALS.size))
            except socket.timeout:
                return
            for level, kind, data in more:
                known = (level, kind, len(data)) == (socket.SOL_SOCKET, _SCM_CREDENTIALS, _CREDENTIALS.size)
                if known and _CREDENTIALS.unpack(data)[1] == os.getuid():
                    until = time.monotonic() + idle_s


if __name__ == "__main__":
    if sys.argv[1] == "hold":
        hold(os.environ[HOLDER], float(sys.argv[2]))
    else:
        Relay(sys.argv[1], os.environ.get("SLURMD_NODENAME", socket.gethostname()), *sys.argv[2:3]).serve()
