"""An allocation of Slurm's for jobs of ours: submitted, waited for, used by steps, ended."""

import contextlib
import math
import os
import re
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shakedown.common.text import printable
from shakedown.schedulers import interface
from shakedown.schedulers.interface import Interrupted, Say, pause
from shakedown.schedulers.slurm import commands, nodes, relay
from shakedown.schedulers.slurm.commands import Absent, SlurmError
from shakedown.schedulers.slurm.settings import Settings
from shakedown.schedulers.slurm.step import Step
from shakedown.transport.program import command, program

IDLE_S = 600.0  # without a step, or with a controller that is gone, until the batch script lets the nodes go
_ASK_S = (0.2, 5.0)  # between two looks at the queue: at first, and at most
_REPORT_S = 60.0  # between two reports of a job that waits for the same reason
_END_S = 15.0  # for a job to end in order before it is cancelled
_WAITS = frozenset(commands.WORDS["job"]["waits"])
_RUNS = frozenset({"RUNNING"})
_NEVER: dict[str, str] = commands.WORDS["never"]


@dataclass(frozen=True)
class State:
    """A job as Slurm has it: its state in capitals ("GONE": no longer known), and why."""

    state: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.state} ({self.reason})" if self.reason and self.reason != "None" else self.state


def state_of(job: int) -> State:
    """Read a job's state. Raise SlurmError where Slurm does not answer."""
    form = "--format=%T|%r"
    try:
        output = commands.run("squeue", "--all", "--noheader", "--states=all", f"--jobs={job}", form).strip()
    except Absent:
        output = ""
    state, _, reason = output.partition("\n")[0].partition("|")
    return State(printable(state.strip(), 40), printable(reason.strip(), 200)) if state else State("GONE")


class Allocation(interface.Allocation):
    """One job of Slurm's over nodes of an inventory, made when it is needed. `names`: those in plans -> Slurm's."""

    def __init__(self, names: Mapping[str, str], settings: Settings, title: str) -> None:
        self._names = dict(names)
        self._settings = settings
        self._title = re.sub(r"[^A-Za-z0-9._-]", "_", title)[:80]
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._options: list[str] = []
        self._steps: list[Step] = []
        self._lost: str | None = None
        self._asked_at = -math.inf  # of the monotonic clock
        self._holder = ""  # the name under which the batch script hears of the relays
        self.job: int | None = None

    def allocate(self, among: Sequence[str], say: Say, interrupted: Interrupted) -> None:
        """Have these nodes, and wait in the queue for them; nothing where they are here already. Raise SlurmError."""
        with self._lock:
            if self.job is not None and set(among) <= self._held and state_of(self.job).state in _RUNS:
                return
            self._release(cancel=False)
            there = {node.name: node for node in nodes.read(self._names[name] for name in among)}
            cannot = [f"{node.name}: {node.why_not(True)}" for node in there.values() if node.drained or node.down]
            if cannot:
                raise SlurmError(f"Slurm would not give these nodes: {'; '.join(cannot)}")
            gres = self._gres(there.values())
            self._options = [f"--gres={gres}"] if gres else []
            self._lost = None
            self._submit(list(there))
            self._held = set(among)
            self._wait(say, interrupted)

    def _gres(self, there: Iterable[nodes.Node]) -> str | None:
        gpus = min((node.gpus for node in there), default=0)
        return self._settings.gres or (f"gpu:{gpus}" if gpus else None)

    def ask(self, among: Sequence[str]) -> dict[str, str]:
        """Ask whether Slurm would take a job over these nodes, now or later; submit nothing. Return the nodes that
        Slurm would not give, each with why, and ask about the others. Raise SlurmError, which names the wrong key."""
        of_slurm = {self._names[name]: name for name in among}
        there = [node for node in nodes.read(of_slurm) if node.name in of_slurm]
        out = {of_slurm[node.name]: node.why_not(True) for node in there if node.drained or node.down}
        if usable := [node for node in there if of_slurm[node.name] not in out]:
            self._ask_for_time()
            gres = None if self._settings.gres else self._gres(usable)
            argv = self._argv([node.name for node in usable], self._title, [f"--gres={gres}"] if gres else [])
            commands.run(*argv, "--test-only", stdin="#!/bin/sh\n")
        return out

    def _ask_for_time(self) -> None:
        """Compare the time limit with the partition's, which --test-only does not. A QOS may allow more."""
        partition, minutes_wanted = self._settings.partition, self._settings.time_min
        if partition is None or minutes_wanted is None or any("qos" in option for option in self._settings.options):
            return
        output = commands.run("scontrol", "--oneliner", "show", "partition", partition)
        most = re.search(r"\sMaxTime=(?:(\d+)-)?(\d+):(\d+):(\d+)(?=\s|$)", output)  # or UNLIMITED
        if most is None:
            return
        days, hours, minutes, seconds = (int(part or 0) for part in most.groups())
        if minutes_wanted > (limit := days * 1440 + hours * 60 + minutes + seconds / 60):
            allowed = f"jobs of the partition {partition} have at most {limit:g} minutes"
            remedy = "a QOS that has more is named in slurm.options, as --qos=long"
            raise SlurmError(f"slurm.time_min is {minutes_wanted}, and {allowed}; {remedy}")

    def _argv(self, names: Sequence[str], title: str, own: Sequence[str]) -> list[str]:
        return [
            *("sbatch", "--parsable", f"--job-name={title}", f"--nodelist={commands.as_list(names)}"),
            *(f"--nodes={len(names)}", "--ntasks-per-node=1", "--exclusive", "--mem=0", "--no-kill", "--no-requeue"),
            *("--chdir=/", "--output=/dev/null", "--error=/dev/null", *commands.EXPORT),
            *(*own, *self._settings.options_of_sbatch()),
        ]

    def _submit(self, names: Sequence[str]) -> None:
        title = f"{self._title}-{secrets.token_hex(3)}"  # as no other job is named: a lost answer can be cancelled
        holder = command(program(Path(relay.__file__)), "hold", f"{IDLE_S:g}")
        argv = self._argv(names, title, [] if self._settings.gres else self._options)
        try:
            self._holder = secrets.token_hex(16)
            output = commands.run(*argv, stdin=f"#!/bin/sh\nexport {relay.HOLDER}={self._holder}\n{holder}\n")
        except BaseException:  # a Ctrl-C too: whoever has not heard the job's number has its name
            with contextlib.suppress(SlurmError):
                commands.run("scancel", f"--name={title}", f"--user={os.getuid()}")
            raise
        if (job := re.match(r"(\d{1,10})(;|\s|$)", output.strip())) is None:
            raise SlurmError(f"sbatch printed {printable(output, 200)!r} in place of a job's number")
        self.job = int(job[1])

    def _wait(self, say: Say, interrupted: Interrupted) -> None:
        assert self.job is not None
        began = reported_at = time.monotonic()
        reported, wait_s = "", _ASK_S[0]
        try:
            while True:
                stop, waited = interrupted(), time.monotonic() - began
                if stop:
                    raise SlurmError(f"{stop}, while Slurm job {self.job} was queued")
                try:
                    state = state_of(self.job)
                except SlurmError as error:  # an hour in the queue is not given up for a moment's trouble
                    state = State("PENDING", printable(str(error), 200))
                if state.state in _RUNS:
                    say(f"Slurm job {self.job} runs on {commands.as_list(self._names[name] for name in self._held)}")
                    return
                if state.state not in _WAITS:
                    raise SlurmError(f"Slurm job {self.job} ended before it began: {state}")
                if state.state == "PENDING" and state.reason in _NEVER:
                    raise SlurmError(f"Slurm job {self.job} would never begin: {state}: {_NEVER[state.reason]}")
                if waited > self._settings.queue_s:
                    raise SlurmError(f"Slurm job {self.job} did not begin within {waited:.0f} s in the queue: {state}")
                late = time.monotonic() - reported_at > _REPORT_S
                if state.reason not in ("", "None") and (state.reason != reported or late):
                    reported, reported_at = state.reason, time.monotonic()
                    say(f"Slurm job {self.job} is queued ({state.reason}), for {waited:.0f} s")
                pause(wait_s, interrupted)
                wait_s = min(wait_s * 1.5, _ASK_S[1])
        except BaseException:
            self._release(cancel=True)
            raise

    @contextmanager
    def start(self, title: str, among: Sequence[str]) -> Iterator[Step]:
        """Open a step over some of the nodes, for as long as a job of ours needs it. Raise SlurmError."""
        if self.job is None:
            raise SlurmError("there is no allocation in Slurm")
        step = Step(self.job, {name: self._names[name] for name in among}, title, self._options, self._holder)
        step.open()
        self._steps.append(step)
        try:
            yield step
        finally:
            self._steps.remove(step)
            step.close()

    def lost(self) -> str | None:
        """Return why Slurm ends the steps before we do (a time limit, a preemption, another user's scancel), or None. A
        relay's word alone ends nothing: Slurm is asked, at most every few seconds."""
        steps = [step for step in self._steps if step.may_have_ended]
        if self._lost is None and self.job is not None and steps and time.monotonic() - self._asked_at >= _ASK_S[1]:
            self._asked_at = time.monotonic()
            line = steps[0].end_by_slurm()
            state = State("UNKNOWN")
            with contextlib.suppress(SlurmError):
                state = state_of(self.job)
            if line or state.state not in {*_RUNS, "UNKNOWN"}:
                self._lost = f"Slurm ended its job {self.job}: {line or state}"
        return self._lost

    def end(self, cancel: bool = False) -> None:
        """Let the nodes go; `cancel`: a person has stopped the run. Raise nothing: a job that Slurm does not end
        now ends alone, since its batch script hears of no step any more."""
        with self._lock:
            self._release(cancel)

    def _release(self, cancel: bool) -> None:
        job, self.job, self._held = self.job, None, set()
        if job is None:
            return
        with contextlib.suppress(SlurmError):
            if not cancel:
                commands.run("scancel", "--batch", "--signal=TERM", str(job))
                until = time.monotonic() + _END_S
                while time.monotonic() < until:
                    if state_of(job).state not in _RUNS:
                        return
                    time.sleep(0.2)
        with contextlib.suppress(SlurmError):
            commands.run("scancel", str(job))
