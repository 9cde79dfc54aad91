"""Tests that are collected once and run per change, in a fork: importing and collecting them is most of the time.

A server is pytest after its collection, in a copy of the tree. Per change it forks. The child gives the functions of
the changed module their new code; where the change is outside of any function, the child imports everything anew.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import pickle
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.machine_state import SOURCE_CHANGES

TIMEOUT_S = 900  # a change that makes a loop endless is noticed too; on a busy machine an area's tests take minutes
MEMORY = 8 * 2**30  # such a loop may fill a list
Key = tuple[str, int]
"""A function: its qualified name and its first line."""


@dataclass
class Seen:
    """What one test did without any change."""

    cpu_s: float = 0.0
    functions: dict[str, set[Key]] = field(default_factory=dict)  # of which module it called which
    processes: bool = False  # it started some: what they call is not seen
    failed: bool = False


def parts(before: str, after: str, path: str) -> dict[Key, CodeType] | None:
    """Return the functions with other code, and that code; None where the module itself or a class has other code."""
    changed: dict[Key, CodeType] = {}

    def compare(old: CodeType, new: CodeType) -> bool:
        inner = [[each for each in code.co_consts if isinstance(each, CodeType)] for code in (old, new)]
        fits = _own(old) == _own(new) or bool(old.co_flags & 1)  # CO_OPTIMIZED: a function
        fits = fits and len(inner[0]) == len(inner[1]) and old.co_freevars == new.co_freevars
        if old != new and old.co_flags & 1:
            fits = fits and (old.co_qualname, old.co_firstlineno) not in changed
            changed[old.co_qualname, old.co_firstlineno] = new
        return fits and all(compare(*pair) for pair in zip(*inner, strict=True))

    return changed if compare(compile(before, path, "exec"), compile(after, path, "exec")) else None


def _own(code: CodeType) -> tuple[Any, ...]:
    constants = [(type(each), each) for each in code.co_consts if not isinstance(each, CodeType)]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_cellvars


class Server:
    """The plugin of pytest that answers instead of running the tests."""

    def __init__(self, folder: Path, pipe: Connection) -> None:
        self.folder = folder
        self.pipe = pipe
        self.items: dict[str, pytest.Item] = {}
        self.functions: dict[str, list[FunctionType]] = {}
        self.failed: str | None = None

    def pytest_sessionstart(self) -> None:
        """A failing example need not become a small one."""
        settings.register_profile("mutants", deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer a file of tests with what they call, and a change with the test that fails."""
        self.session = session
        self.items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # what conftest.py has put aside is not among the objects
        for each in gc.get_objects():
            if isinstance(each, FunctionType):
                path = each.__code__.co_filename
                self.functions.setdefault(path, []).append(each)
        for path in list(self.functions):
            if (real := _without_links(path)) != path:
                self.functions.setdefault(real, []).extend(self.functions.pop(path))
        gc.collect()
        gc.freeze()
        while (request := self.pipe.recv()) is not None:
            if isinstance(request, str):
                names = [name for name in self.items if name.split("::")[0] == request]
                self.pipe.send(forked(lambda names=names: self.look(names), None))
                continue
            module, before, after, names, cpu_s = request
            path = str(self.folder / module)
            self.pipe.send(forked(lambda p=path, b=before, a=after, n=names: self.change(p, b, a, n), cpu_s))
        return True

    def change(self, path: str, before: str, after: str, names: list[str]) -> str | None:
        """Return the test that fails once the change is made."""
        changed = parts(before, after, path) if before != after else {}
        made = changed == {}
        for function in self.functions.get(path, []):
            new = (changed or {}).get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if new is not None:
                function.__code__ = new
                made = True
        return self.run(names) if made else self.anew(names)

    def run(self, names: Sequence[str]) -> str | None:
        """Run tests until one fails."""
        self.failed = None
        for index, name in enumerate(names):
            after = self.items[names[index + 1]] if index + 1 < len(names) else None
            self.items[name].config.hook.pytest_runtest_protocol(item=self.items[name], nextitem=after)
            if self.failed:
                with contextlib.suppress(BaseException):
                    self.session._setupstate.teardown_exact(None)
                break
        return self.failed

    def anew(self, names: list[str]) -> str | None:
        """Import and collect again: what a module computes when it is imported may differ."""
        _forget()
        again = _Again()
        code = pytest.main([*ARGUMENTS, "-x", *names], plugins=[again])
        return again.failed or (None if code == 0 else f"pytest ended with {code}")

    def look(self, names: list[str]) -> dict[str, Seen]:
        """Run each test and see what it calls. A test's time is that of this process and of those that have ended."""
        found: dict[str, Seen] = {}
        seen = Seen()
        root = str(self.folder) + "/"
        modules: dict[str, str | None] = {}

        def call(frame: FrameType, _event: str, _argument: object) -> None:  # and no line of it
            code = frame.f_code
            path = code.co_filename
            if path not in modules:
                real = _without_links(path)
                own = real.startswith((f"{root}shakedown/", f"{root}operations/", f"{root}facts/"))
                modules[path] = real.removeprefix(root) if own else None
            if (module := modules[path]) is not None:
                seen.functions.setdefault(module, set()).add((code.co_qualname, code.co_firstlineno))

        def started(event: str, _arguments: tuple[Any, ...]) -> None:
            if event in ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.exec"):
                seen.processes = True

        sys.addaudithook(started)
        threading.settrace(call)
        for index, name in enumerate(names):
            found[name] = seen = Seen()
            began = os.times()
            following = self.items[names[index + 1]] if index + 1 < len(names) else None
            sys.settrace(call)
            self.items[name].config.hook.pytest_runtest_protocol(item=self.items[name], nextitem=following)
            sys.settrace(None)
            seen.cpu_s = sum(os.times()[:4]) - sum(began[:4])
            seen.failed, self.failed = self.failed is not None, None
        return found


def _without_links(path: str) -> str:
    """Follow the links of the tree without asking the file system, which a test may have replaced."""
    return path.replace("/shakedown/operations/", "/operations/").replace("/shakedown/facts/", "/facts/")


def _forget() -> None:
    for name in list(sys.modules):
        own = name.split(".")[0] in ("shakedown", "facts", "operations", "tests", "deploy")
        if own and not name.startswith("tests.mutants"):
            del sys.modules[name]


class _Again:
    failed: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = report.nodeid


ARGUMENTS = ("-q", "--tb=no", "-p", "no:cacheprovider")


def forked(function: Callable[[], Any], cpu_s: float | None) -> Any:
    """Return what a function returns in a child process; a sentence where the child does not come so far."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setsid()
        atexit._clear()
        if cpu_s is not None:
            os.environ |= SOURCE_CHANGES
            sys.dont_write_bytecode = True
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 1))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        try:
            answer = pickle.dumps(function())
        except BaseException as error:
            answer = pickle.dumps(f"{type(error).__name__}: {error}")
        with os.fdopen(writing, "wb") as file:
            file.write(answer)
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
        os._exit(0)
    os.close(writing)
    ends = time.monotonic() + TIMEOUT_S if cpu_s is not None else None
    pieces: list[bytes] = []
    while True:
        left = None if ends is None else max(ends - time.monotonic(), 0)
        if not select.select([reading], [], [], left)[0]:
            pieces = [pickle.dumps(f"no end within {TIMEOUT_S} s")]
            break
        if not (piece := os.read(reading, 2**20)):
            break
        pieces.append(piece)
    os.close(reading)
    if ends is not None and time.monotonic() > ends:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    try:
        return pickle.loads(b"".join(pieces))
    except (EOFError, pickle.UnpicklingError):
        return "the tests' process ended"


def serve(folder: Path, tests: Sequence[str], pipe: Connection) -> int:
    """Collect the tests in a copy of the tree, and answer until there is nothing more to answer."""
    os.chdir(folder)
    _forget()
    sys.path[:] = [str(folder), *(path for path in sys.path if path not in ("", str(Path(__file__).parents[2])))]
    os.environ["PYTHONPATH"] = str(folder)
    sys.dont_write_bytecode = False
    null = os.open(os.devnull, os.O_RDWR)
    for each in (0, 1, 2):
        os.dup2(null, each)
    return int(
        pytest.main(
            [*ARGUMENTS, f"--basetemp={folder.parent}/pytest-{folder.name}-{os.getpid()}", *tests],
            plugins=[Server(folder, pipe)],
        )
    )


@contextlib.contextmanager
def server(folder: Path, tests: Sequence[str]) -> Iterator[Connection]:
    """One that runs, and the connection to it."""
    mine, its = Pipe()
    child = os.fork()
    if child == 0:
        mine.close()
        code = 70
        try:
            code = serve(folder, tests, its)
        finally:
            os._exit(code)
    its.close()
    try:
        yield mine
    finally:
        with contextlib.suppress(OSError):
            mine.send(None)
        os.waitpid(child, 0)
