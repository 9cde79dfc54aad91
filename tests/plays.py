"""Jobs of scripted nodes under the real supervision, and faults of each phase in which a job can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from shakedown.evidence.results import JobResult
from shakedown.jobs.launch import Event, Timeouts
from shakedown.jobs.supervise import Job, run_job
from tests.nodes import launch_plan
from tests.turns import Rack, Script, Turns

TIMEOUTS = Timeouts()  # the defaults, in seconds: polls 1, unreachable 20, prepare 300, last exit 30, stop 60, echo 1.5
LINE = "[2026-09-24 09:43:42] iteration {i}/5 | elapsed time per iteration (ms): 9.5 | lm loss: 1.250274E+01 |\n"
WAITS = Script()


def trains(*at: float, exits: float | None = None) -> Script:
    """A node that prints an iteration at each of these times."""
    lines = [(when, LINE.format(i=i + 1)) for i, when in enumerate(at)]
    return Script(says=lines, exits=None if exits is None else (exits, 0))


class Play:
    """One job, to its end."""

    def __init__(self, turns: Turns, folder: Path) -> None:
        self.turns, self.folder = turns, folder
        self.logs: Path | None = None  # elsewhere than in the folder
        self.events: list[Event] = []
        self.phases: list[tuple[str, float]] = []
        self.at: dict[str, float] = {}  # kind of event -> when it came last, after the beginning
        self.interrupted: Callable[[], str | None] = lambda: None

    def __call__(self, timeouts: Timeouts = TIMEOUTS, plan: dict[str, Any] | None = None, **nodes: Script) -> JobResult:
        self.rack = Rack(self.turns, **nodes)
        self.folder, self.events, self.phases, self.at = self.folder / "play", [], [], {}
        self.began = self.turns.now
        self.plan = launch_plan({name: ["true"] for name in nodes}, **(plan or {}))
        logs = self.logs or self.folder / "logs"
        job = Job(lambda: self.plan, logs, plan=self.plan, on_event=self._on_event, timeouts=timeouts)
        result = run_job(job, self.rack, interrupted=lambda: self.interrupted(), scheduler=self.turns)
        self.took = self.turns.now - self.began
        return result

    def _on_event(self, event: Event) -> None:
        self.events.append(event)
        self.at[event.kind] = self.turns.now - self.began
        self.phases.append((event.text, self.turns.now - self.began))

    @property
    def started(self) -> float:
        """When the job started, after the beginning: the leaders a moment later."""
        return next(at for text, at in self.phases if text.endswith("starting"))


def after(since: float, **fields: Any) -> Callable[[float], dict[str, Any]]:
    """Return these fields in each status from so many seconds after the start."""
    return lambda elapsed: fields if elapsed >= since else {}


def setup_fails(text: str) -> Callable[[float], Script]:
    """A node whose preparation fails."""
    return lambda at: Script(ready_s=1e9, more=lambda _since: {"setup_error": text})


def prints(text: str, code: int = 1) -> Callable[[float], Script]:
    """A node whose leader prints that at a time, and ends."""
    return lambda at: Script(says=[(at, text + "\n")], exits=(at + 0.25, code))


STORE = "RendezvousConnectionError: The connection to the C10d store has failed."
PHASES: dict[str, Callable[[float], Script]] = {
    "connect": lambda at: Script(lost_from_the_beginning=True),
    "image": setup_fails("image registry.example/train:1 is not there"),
    "venv": prints("shakedown: cannot start /opt/x/bin/python: No such file or directory", 127),
    "torch": prints("ModuleNotFoundError: No module named 'torch'"),
    "mount": prints("FileNotFoundError: [Errno 2] No such file or directory: '/data/c4_text_document.idx'"),
    "token": prints("OSError: You are trying to access a gated repo."),
    "port": prints("DistNetworkError: The server socket has failed to listen: EADDRINUSE, Address already in use"),
    "rendezvous": prints(f"torch.distributed.elastic.rendezvous.api.{STORE}"),
    "an exception without an entry": prints("Traceback (most recent call last):\nValueError: no rank 7"),
    "first iteration": prints("torch.OutOfMemoryError: HIP out of memory."),
}

TORCHRUN = "E torch api.py:1002] failed (exitcode: -9) local_rank: 0\n"  # it notices a tenth of a second after the peer
