"""Programs over pyinfra as processes of their own that begin at once.

Importing pyinfra and this project takes most of two seconds of CPU, and some hundred tests begin such a process. Here
one process imports what needs no patch of gevent's, another one pyinfra and the rest too. They fork for each program: a
child has its own arguments, environment, folder and files. What a user's process imports, and in which order, is tested
in processes from nothing: interrupts while things are loaded, in test_ending; other people's deploys, in test_guard.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

RANKS = str(Path(__file__).with_name("forked_ranks.py"))
_FORK, _WAIT = os.fork, os.waitpid  # before gevent replaces them


class Program:
    """One that runs: as much of `subprocess.Popen` as its callers need. Its output goes to files, in no terminal."""

    def __init__(
        self, argv: list[str], cwd: Path, environment: Mapping[str, str], checkout: Path | None = None
    ) -> None:
        """`checkout`: a folder with another `shakedown` than the one of these tests."""
        self.argv = argv
        self.returncode: int | None = None
        from shakedown.cli import needs

        plain = argv[0].endswith("/shakedown") and "gevent" not in needs("".join(argv[1:2]))
        self._server = _server("torch" if argv[0] == RANKS else "plain" if plain else "pyinfra", checkout)
        with contextlib.ExitStack() as files:
            self._out, self._err = (files.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            names = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (self._out, self._err)]
            self._server.say({"argv": argv, "cwd": str(cwd), "environment": dict(environment), "files": names})
            self.pid: int = self._server.hear(60)["pid"]
            files.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.returncode is None:
            self.send_signal(signal.SIGKILL)
            self.wait(60)
        self._out.close()
        self._err.close()

    def send_signal(self, number: int) -> None:
        """To the program alone."""
        os.kill(self.pid, number)

    def wait(self, timeout: float) -> int:
        """Its exit code; negative: the signal that ended it."""
        if self.returncode is None:
            try:
                self.returncode = self._server.hear(timeout)["code"]
            except TimeoutError:
                raise subprocess.TimeoutExpired(
                    self.argv, timeout, self._text(self._out), self._text(self._err)
                ) from None
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float) -> tuple[str, str]:
        """What it has said, when it has ended."""
        self.wait(timeout)
        return self._text(self._out), self._text(self._err)

    @staticmethod
    def _text(file: Any) -> str:
        file.seek(0)
        text: str = file.read().decode()
        return text


def run(
    argv: list[str], cwd: Path, environment: Mapping[str, str], timeout: float = 120, checkout: Path | None = None
) -> tuple[int, str, str]:
    """A program's exit code, output and errors. `argv` begins with the path of a Python program."""
    with Program(argv, cwd, environment, checkout) as program:
        out, err = program.communicate(timeout)
        return program.wait(0), out, err


def called(
    program: str, *words: str | Path, cwd: Path | None = None, timeout: float = 120, **variables: str
) -> subprocess.CompletedProcess[str]:
    """A program of this environment, by its name, with variables of its own: as `subprocess.run` answers."""
    argv = [str(Path(sys.executable).with_name(program)), *map(str, words)]
    return subprocess.CompletedProcess(argv, *run(argv, cwd or Path.cwd(), os.environ | variables, timeout))


def python(code: str, *words: str | Path, timeout: float = 120, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python code over pyinfra's command line, which patches the process that imports it."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(code)
        file.flush()
        argv = [file.name, *map(str, words)]
        return subprocess.CompletedProcess(argv, *run(argv, Path.cwd(), os.environ | variables, timeout))


class _Server:
    def __init__(self, loaded: str, checkout: Path | None) -> None:
        command = [sys.executable, __file__, loaded]
        environment = os.environ | ({"PYTHONPATH": str(checkout)} if checkout else {})
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        atexit.register(self.end)

    def end(self) -> None:
        self._process.communicate()

    def say(self, request: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def hear(self, timeout: float) -> dict[str, Any]:
        assert self._process.stdout
        descriptor = self._process.stdout.fileno()
        until, line = time.monotonic() + timeout, b""
        while not line.endswith(b"\n"):
            if not select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
                assert not line
                raise TimeoutError
            chunk = os.read(descriptor, 1)
            assert chunk, "the process that forks has ended"
            line += chunk
        answer: dict[str, Any] = json.loads(line)
        return answer


@functools.cache
def _server(loaded: str, checkout: Path | None) -> _Server:
    return _Server(loaded, checkout)


def _serve() -> dict[str, Any]:
    """In the process that forks: never returns there. In each child: what to run.

    Only calls that are not gevent's: its event loop is to begin in the child.
    """
    waiting = b""
    while True:
        while b"\n" not in waiting:
            chunk = os.read(0, 65536)
            if not chunk:
                os._exit(0)
            waiting += chunk
        line, _, waiting = waiting.partition(b"\n")
        request: dict[str, Any] = json.loads(line)
        pid = _FORK()
        if pid == 0:
            return request
        os.write(1, json.dumps({"pid": pid}).encode() + b"\n")
        _, status = _WAIT(pid, 0)
        os.write(1, json.dumps({"code": os.waitstatus_to_exitcode(status)}).encode() + b"\n")


def _become(request: dict[str, Any]) -> None:
    """What exec would have made of this process."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    for target, (name, flags) in enumerate(
        [(os.devnull, os.O_RDONLY), *((name, os.O_WRONLY | os.O_APPEND) for name in request["files"])]
    ):
        descriptor = os.open(name, flags)
        os.dup2(descriptor, target)
        os.close(descriptor)
    sys.argv = request["argv"]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)


LOADED = """
ClusterShell.NodeSet click jinja2 packaging.requirements paramiko rich.console rich.live sqlalchemy.dialects.sqlite
sqlalchemy.orm typeguard shakedown.checks shakedown.gates.judge shakedown.jobs.plan.make shakedown.jobs.supervise
shakedown.ledger.claims shakedown.report.files shakedown.report.summary shakedown.runner.features
shakedown.runs.judging shakedown.schedulers.registry click.shell_completion rich._emoji_codes http.client
shakedown.cli.words shakedown.cli.output shakedown.common.log
"""
PATCHED = """
shakedown.runner.pyinfra.patched pyinfra_cli.main shakedown.runner.stages shakedown.runner.preview gevent.fileobject
"""


def _load(what: str) -> None:
    """What programs import, what they read of our own data, and what is installed: gevent and pyinfra ask for that some
    thirty times."""
    if what == "torch":
        os.environ["OMP_NUM_THREADS"] = "1"  # read once, here
        import torch

        from shakedown.jobs.workload import cpu

        torch.compile = cpu._uncompiled  # before Megatron-Core, as `cpu.install` does, which each rank calls
        importlib.import_module("shakedown.jobs.workload.trainer")
        return
    for name in LOADED.split():
        importlib.import_module(name)
    _load_modules("shakedown.report.formats")
    from shakedown.checks import checks
    from shakedown.transport import bundle

    checks()
    bundle.launch_command()
    assert not {"gevent", "pyinfra", "shakedown.runner.session"}.intersection(sys.modules)
    for name in ("importlib.metadata", "importlib_metadata"):  # pyinfra takes the second where it is installed
        with contextlib.suppress(ImportError):
            module: Any = importlib.import_module(name)
            module.entry_points = module.entry_points().select
    if what == "pyinfra":
        for name in PATCHED.split():
            importlib.import_module(name)
        _load_modules("pyinfra.connectors")


def _load_modules(package: str) -> None:
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(module.name)


if __name__ == "__main__":
    import runpy

    _load(sys.argv[1])
    gc.freeze()
    _become(_serve())
    runpy.run_path(sys.argv[0], run_name="__main__")
