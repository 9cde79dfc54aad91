"""What the notes of a run add up to: at which stage it is, how far each job has come, and what failed first."""

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime

from shakedown.jobs.pace import Pace
from shakedown.logs.iterations import Iteration
from shakedown.runs.watch.notes import Note
from shakedown.state.findings import Verdict

POINTS = 60  # iterations that a curve shows
_JOBS = 8192  # of one run, whatever the notes say


@dataclass
class JobPicture:
    """One job as far as it has come."""

    name: str
    what: str = ""  # its recipe and nodes
    nodes: int = 0
    phase: str = "planned"
    iteration: Iteration | None = None
    losses: deque[float | None] = field(default_factory=lambda: deque(maxlen=POINTS))
    throughputs: deque[float | None] = field(default_factory=lambda: deque(maxlen=POINTS))
    pace: Pace = field(default_factory=Pace)
    failed: bool = False
    over: bool = False

    @property
    def kind(self) -> str:
        """`together`, `each`, or the kind of a trial."""
        return self.name.partition("/")[0]

    @property
    def node(self) -> str:
        """The node that has it for itself; empty: it is over all nodes."""
        return self.name.partition("/")[2]

    def take(self, note: Note) -> None:
        """One note of this job."""
        if note.kind == "plan":
            self.what, self.nodes = note.text, note.count or 0
        elif note.iteration is not None:
            self._iteration(note.iteration)
        elif note.kind == "failure":
            self.failed = True
        elif note.kind in ("phase", "end"):
            self.phase = note.text
            self.over = note.kind == "end"

    def _iteration(self, iteration: Iteration) -> None:
        if self.iteration is not None and iteration.iteration <= self.iteration.iteration:
            return  # some scripts repeat the lines on other nodes
        self.iteration = iteration
        self.phase = "training"
        self.losses.append(iteration.lm_loss)
        self.throughputs.append(iteration.tflops_per_gpu)
        self.pace.take(iteration)


@dataclass
class Picture:
    """A whole run."""

    began: datetime | None = None
    inventory: str = ""
    stage: str = ""
    waiting: str = ""  # what a long operation waits for; empty: nothing has been waited for in this stage
    jobs: dict[str, JobPicture] = field(default_factory=dict)
    first: Note | None = None  # the first failure
    failures: int = 0
    verdict: Verdict | None = None  # once the run is over

    def take(self, note: Note) -> None:
        """Add one note."""
        if note.job is not None:
            if note.job not in self.jobs and len(self.jobs) >= _JOBS:
                return
            self.jobs.setdefault(note.job, JobPicture(note.job)).take(note)
        if note.kind == "failure":
            self.first = self.first or note
            self.failures += 1
        elif note.kind == "run":
            self.began, self.inventory = note.at, note.text
        elif note.kind == "stage":
            self.stage, self.waiting = note.text, ""
        elif note.kind == "wait":
            self.waiting = note.text
        elif note.kind == "verdict":
            self.verdict = Verdict(note.text) if note.text in list(Verdict) else Verdict.UNKNOWN

    @property
    def over_all(self) -> list[JobPicture]:
        """The jobs over all nodes: the training, trials of pairs."""
        return [job for job in self.jobs.values() if not job.node]

    @property
    def of_nodes(self) -> dict[str, list[JobPicture]]:
        """The nodes' own jobs, by their kind: `each`, or that of a trial."""
        kinds: dict[str, list[JobPicture]] = {}
        for job in self.jobs.values():
            if job.node:
                kinds.setdefault(job.kind, []).append(job)
        return kinds
