"""The process that stays on the node for one run: it holds the lock, runs the setup, the leader and the cleanup."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import control, folder, lock, processes, sampling

_TURN_S = 0.1  # how often children, the log and the lease are looked at; the resolution of the times in a poll
_CLEANUP_S = 60.0  # for each cleanup command
_SIGTERM_S = 5.0  # the same after SIGTERM: a node that shuts down sends it, and waits up to 90 s for who stays
_KILL_S = 10.0  # SIGKILL is repeated for so long; what is left then is reported
_MARKS = 4_000  # times of log growth that are kept: they have to fit into one answer (control.py)
_ENTRIES = 200  # of a list that a person is to read
_REASON = 1000  # characters of a reason that are kept

SETUP, READY, RUNNING, STOPPING, OVER = "setup", "ready", "running", "stopping", "over"


class Watchdog:
    """One run on one node: setup, ready, running, stopping, over. `ending`: the reason to end the leader early."""

    def __init__(self, held: lock.Lock, requests: control.RequestSocket, path: str, job: Dict[str, Any]) -> None:
        self._lock = held
        self._requests = requests
        self._path = path
        self._job = job
        self._state = SETUP
        self._go = False
        self._removed = False
        self._sigterm_at: Optional[float] = None  # when SIGTERM came
        self._ending: Optional[str] = None
        self._setup_error: Optional[str] = None
        self._lacks = False  # that is why
        self._exit_code: Optional[int] = None
        self._started: Optional[float] = None
        self._exited: Optional[float] = None
        self._running_at_end: List[str] = []
        self._survivors: List[str] = []
        self._cleanup_errors: List[str] = []
        self._children: Dict[int, "subprocess.Popen[bytes]"] = {}
        self._leader: Optional["subprocess.Popen[bytes]"] = None
        self._sampler = sampling.Sampler(path, job.get("sampler"), self._start)
        self._marks: List[Tuple[int, float]] = []  # (bytes in the leader's log, when it had them)
        self._renewed = time.monotonic()
        self._umask = os.umask(0o077)

    def serve(self) -> None:
        """Live the whole life of a run. Whatever fails in here, what was started is ended."""
        processes.adopt_orphans()
        signal.signal(signal.SIGTERM, lambda _number, _frame: self._on_sigterm())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            self._work()
        except Exception:
            self._end("the watchdog failed: " + traceback.format_exc())
        self._finish()
        over = time.monotonic()
        while not (self._removed or self._lease_is_over() or self._out_of_time(over)):
            self._turn()
        self._lock.release()
        self._requests.close()

    def _work(self) -> None:
        self._setup_error = self._lacking()
        self._lacks = bool(self._setup_error)
        if self._lacks:
            return
        for argv in self._job["setup"]:
            self._setup_error = self._run(argv, "setup.log", None)
            if self._setup_error or self._ending:
                return
        self._enter(READY)
        self._wait(lambda: self._go)
        if self._ending:
            return
        self._sampler.start(self._job["mark"])
        self._started = time.monotonic()
        try:
            self._leader = leader = self._start(
                self._job["command"],
                folder.LEADER_LOG,
                self._environment(),
                keep=(self._lock.fileno(),),  # the node stays locked while the leader lives, come what may
            )
        except OSError as error:  # said where the leader's output would be; the exit code is the shell's for this
            with os.fdopen(folder.open_log(self._path, folder.LEADER_LOG), "a", encoding="utf-8") as log:
                log.write("shakedown: cannot start %s: %s\n" % (self._job["command"][0], error.strerror))
            self._exit_code, self._exited = 127, time.monotonic()
            return
        self._enter(RUNNING)
        self._wait(lambda: leader.poll() is not None)
        self._note_exit()
        if not self._ending:
            self._enter(STOPPING)

    def _lacking(self) -> Optional[str]:
        if not self._job.get("needs"):
            return None
        argv = [sys.executable, "-I", "-S", os.path.join(self._path, folder.OWN), "needs"]
        error = self._run(argv, "setup.log", None)
        return error and (self._tail("setup.log") or error)

    def _finish(self) -> None:
        self._enter(STOPPING)
        self._running_at_end = [str(process) for process in self._of_the_job()]
        left = processes.end(self._of_the_job, float(self._job["grace_s"]), _KILL_S, self._turn)
        began = time.monotonic()
        self._sampler.stop(lambda: self._turn() or self._out_of_time(began))  # type: ignore[func-returns-value]
        left += processes.end(lambda: self._sampler.own(self._members()), 0.0, _KILL_S, self._turn)
        self._survivors = [str(process) for process in left]
        self._note_exit()
        errors = (self._run(argv, "cleanup.log", _CLEANUP_S) for argv in self._job["cleanup"])
        self._cleanup_errors = list(filter(None, errors))
        self._job["secrets"] = {}
        self._enter(OVER)

    # -- children ------------------------------------------------------------------------------------------------

    def _environment(self) -> Dict[str, str]:
        """Return the environment of all but the cleanup, which must outlive the end of all that carries the mark."""
        return {**os.environ, **self._job["environment"], **self._job["secrets"], processes.MARK: self._job["mark"]}

    def _start(
        self, argv: List[str], log: str, environment: Dict[str, str], keep: Tuple[int, ...] = ()
    ) -> "subprocess.Popen[bytes]":
        def prepare_child() -> None:
            processes.end_with_parent()
            os.umask(self._umask)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)

        with os.fdopen(folder.open_log(self._path, log), "ab") as output:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._path,
                env=environment,
                start_new_session=True,
                preexec_fn=prepare_child,
                pass_fds=keep,
            )
        self._children[child.pid] = child
        return child

    def _run(self, argv: List[str], log: str, timeout: Optional[float]) -> Optional[str]:
        """Run a setup or cleanup command to its end; what went wrong, or None. A timeout of None: until `ending`."""
        began = time.monotonic()
        try:
            child = self._start(argv, log, self._environment() if timeout is None else dict(os.environ))
        except OSError as error:
            return "%s: %s" % (argv[0], error.strerror or error)
        while child.poll() is None:
            self._turn()
            late = timeout is not None and (time.monotonic() - began > timeout or self._out_of_time(began))
            if late or (timeout is None and self._ending):
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                del self._children[child.pid]
                return "%s: no end after %.0f s" % (" ".join(argv), time.monotonic() - began)
        del self._children[child.pid]
        if child.returncode == 0:
            return None
        return "%s: exit code %d: %s" % (" ".join(argv), child.returncode, self._tail(log))

    def _tail(self, log: str) -> str:
        try:
            _, _, size = folder.chunk(self._path, log, 0, 0)
            return folder.chunk(self._path, log, max(0, size - 2000), 2000)[0].decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def _note_exit(self) -> None:
        if self._leader is not None and self._leader.poll() is not None and self._exited is None:
            self._exit_code, self._exited = self._leader.returncode, time.monotonic()

    def _members(self) -> List[processes.Process]:
        for child in self._children.values():
            child.poll()
        processes.reap_orphans(list(self._children))
        return processes.members(self._job["mark"], os.getpid())

    def _of_the_job(self) -> List[processes.Process]:
        """Return the run's processes except the sampler, which sees the job's end."""
        return self._sampler.own(self._members(), others=True)

    # -- one turn ------------------------------------------------------------------------------------------------

    def _wait(self, until: Callable[[], bool]) -> None:
        while not until() and not self._ending:
            self._turn()

    def _turn(self, seconds: float = _TURN_S) -> None:
        """Answer who asks, for at most `seconds`; then look at the log and the lease."""
        self._requests.serve(seconds, self._answer)
        self._lock.drain()
        self._mark_growth()
        self._look_at_lease()

    def _look_at_lease(self) -> None:
        if self._lease_is_over():
            self._end("the controller was silent for %d s" % self._job["lease_s"])

    def _lease_is_over(self) -> bool:
        return time.monotonic() - self._renewed > float(self._job["lease_s"])

    def _end(self, reason: str) -> None:
        if self._ending is None and self._state not in (STOPPING, OVER):
            self._ending = reason

    def _on_sigterm(self) -> None:
        self._sigterm_at = self._sigterm_at or time.monotonic()
        self._end("the watchdog was sent SIGTERM")

    def _out_of_time(self, since: float) -> bool:
        """Return whether what goes on `since` then has used up the time that is left after SIGTERM."""
        return self._sigterm_at is not None and time.monotonic() - max(since, self._sigterm_at) > _SIGTERM_S

    def _mark_growth(self) -> None:
        with suppress(OSError):
            size = os.lstat(os.path.join(self._path, folder.LEADER_LOG)).st_size
            if not self._marks or self._marks[-1][0] != size:
                self._marks.append((size, time.monotonic()))
                del self._marks[:-_MARKS]

    def _enter(self, state: str) -> None:
        self._state = state
        with suppress(OSError):  # a full disk: a poll still hears it from the watchdog itself
            folder.write_json(self._path, "status.json", self._status(0))

    # -- answers -------------------------------------------------------------------------------------------------

    def _answer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Answer a client of this run. The lease begins anew with each request of this run."""
        command, offset = request.get("command"), request.get("offset", 0)
        if request.get("run_id") != self._job["run_id"]:
            return {"error": "this node runs %s" % self._job["run_id"]}
        if command not in ("go", "poll", "stop", "remove") or type(offset) is not int or offset < 0:
            return {"error": "no such request"}
        self._look_at_lease()  # a request that waited while this process was stopped renews none that is over
        self._renewed = time.monotonic()
        if command == "go":
            self._go = self._state in (READY, RUNNING)
        elif command == "stop":
            self._end(str(request.get("why", "stopped"))[:_REASON])
        elif command == "remove":
            return self._remove()
        return self._status(offset)

    def _remove(self) -> Dict[str, Any]:
        if self._state != OVER:
            return {"error": "the run is not over"}
        left = folder.remove(self._path)
        self._removed = True
        self._lock.release()  # before the answer: a client that hears that the node is free finds it free
        return {"left": left}

    def _status(self, offset: int) -> Dict[str, Any]:
        """Return the status. Times are given as seconds ago: the node's clock need not be right."""
        now = time.monotonic()
        self._marks = [mark for mark in self._marks if mark[0] > offset] or self._marks[-1:]
        return {
            "state": self._state,
            "ending": self._ending,
            "setup_error": self._setup_error,
            "lacking": self._lacks,
            "exit_code": self._exit_code,
            "started_ago_s": None if self._started is None else now - self._started,
            "exited_ago_s": None if self._exited is None else now - self._exited,
            "marks": [[size, round(now - at, 3)] for size, at in self._marks if size > offset],
            "running_at_end": self._running_at_end[:_ENTRIES],
            "survivors": self._survivors[:_ENTRIES],
            "cleanup_errors": self._cleanup_errors,
            "monotonic": now,
        }
