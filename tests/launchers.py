"""Commands of a launcher that begin at once: a python that has loaded what they load is forked for each.

A job of a test gives each node some dozen commands, of which each would take 0.1 s of CPU to start a python. The
commands that ask (`FORKED`) come from here, with their own arguments, environment and folder; those that begin and end
a run on a node are processes from nothing, as are all of other users and of changed environments.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

FORKED = ("go", "poll", "fetch", "digest")
LOADED = "base64 ctypes hashlib ipaddress pathlib select shutil traceback typing zlib"


def is_forked(argv: list[str]) -> bool:
    """Whether a node's command is one of those: [PYTHON, -I, -S, .../.launcher, COMMAND, ...]."""
    return len(argv) > 4 and argv[1:3] == ["-I", "-S"] and argv[3].endswith("/.launcher") and argv[4] in FORKED


def run(argv: list[str], environment: Mapping[str, str], cwd: Path | None, timeout: float) -> tuple[int, str, str]:
    """A command's exit code, output and errors; 124, as of timeout(1), where it takes longer."""
    request = {"argv": argv[3:], "environment": dict(environment), "cwd": str(cwd or Path.cwd()), "timeout": timeout}
    with socket.socket(socket.AF_UNIX) as way:
        way.connect(_server(argv[0]))
        way.sendall(json.dumps(request).encode())
        way.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: way.recv(1 << 16), b""))
    if not answer:
        return 124, "", ""
    code, out, err = json.loads(answer)
    return code, out, err


@functools.cache
def _server(python: str) -> str:
    """Start the python that is forked; the place of its socket. It ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="launchers-")
    place = f"{folder.name}/socket"
    process = subprocess.Popen([python, "-I", "-S", __file__, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout and process.stdout.readline() == b"listens\n"

    def end() -> None:
        process.communicate()
        folder.cleanup()

    atexit.register(end)
    return place


def _serve(place: str) -> None:
    """Fork for each that connects, until standard input ends."""
    for name in LOADED.split():
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, _reap)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(place)
    listening.listen(64)
    os.write(1, b"listens\n")
    while True:
        if sys.stdin in select.select([sys.stdin, listening], [], [])[0]:
            return
        way, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _answer(way)
        way.close()


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _answer(way: socket.socket) -> None:
    """Be the command that is asked for, and end."""
    request = json.loads(b"".join(iter(lambda: way.recv(1 << 16), b"")))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, request["timeout"])
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.argv = request["argv"]
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    code: object = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    way.sendall(json.dumps([code, sys.stdout.getvalue(), sys.stderr.getvalue()]).encode())
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1])
