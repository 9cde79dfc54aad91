"""GPUs: AMD's library where it answers, amdgpu's own files where it does not. A process of its own asks the library,
which may hang or crash, a byte for each sample. It reads the driver's table of metrics by the library's structure:
the package's own function takes a millisecond for each GPU."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import time
from itertools import count
from multiprocessing.connection import Connection
from typing import Any, Dict, List, Optional, Tuple

from .. import gpu, pci, smi
from ..known import KNOWN
from ..tree import Part, Tree, Unreadable, attempt, explain, is_unreadable
from .machine import Source, Values

_START_S = 20.0  # importing the package and asking it for the GPUs
_ANSWER_S = 2.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h: the kernel kills the process when its parent dies
_AMDSMI = KNOWN["amdsmi"]
# Channel -> fields of amdsmi_gpu_metrics_t, the first one that has a value. MI300 has the current ones, MI200 averages.
_FIELDS: Dict[str, List[str]] = _AMDSMI["metrics"]
# Reason -> accumulator of MI300 and newer: how many of the firmware's `accumulation_counter` turns it was limited in,
# as amd-smi's own percentages are computed (amdsmi_get_violation_status).
_RESIDENCY: Dict[str, str] = _AMDSMI["residency"]
# Reason -> bits of indep_throttle_status on older ones.
_MASKS = {reason: sum(1 << bit for bit in bits) for reason, bits in _AMDSMI["throttle_bits"].items()}
REASONS = tuple(_MASKS)


class Library:
    """The process that asks the library. `ask` gives each GPU's values by its BDF; `reason` says why there are none."""

    def __init__(self, tree: Tree) -> None:
        self.reason: Optional[Part] = None
        self.cpu_s = 0.0  # what the process has used
        self._process: Optional[multiprocessing.process.BaseProcess] = None
        self._deadline = _START_S
        path = attempt(smi.library_path, tree)
        if is_unreadable(path):
            self.reason = path
            return
        self._pipe, far_end = multiprocessing.Pipe()
        arguments = (tree, path, far_end, self._pipe)
        self._process = multiprocessing.get_context("fork").Process(target=_serve, args=arguments)
        self._process.start()
        far_end.close()

    def ask(self, with_ras: bool) -> Dict[str, Dict[str, Any]]:
        """Return the channels that have a value, by the GPU's BDF. Empty where the library does not answer."""
        found: Dict[str, Dict[str, Any]] = {}
        if self.reason is not None:
            return found
        try:
            self._pipe.send(with_ras)
            if self._pipe.poll(self._deadline):
                found, self.reason, self.cpu_s = self._pipe.recv()
            else:
                self.reason = Unreadable("timed out", "amdsmi: no answer in %g s" % self._deadline).as_part()
        except (OSError, EOFError):
            self.reason = Unreadable("failed", "amdsmi: its process died").as_part()
        self._deadline = _ANSWER_S
        if self.reason is not None:
            self.close()
        return found

    def close(self) -> None:
        """End the process; one that the kernel does not let die is not waited for."""
        if self._process is not None:
            self._pipe.close()
            self._process.kill()
            self._process.join(0.5)
            self._process = None


def lower_priority() -> None:
    """Take nice 19, the idle class of the disk scheduler, and SCHED_IDLE: a three-hundredth of a CPU that has other
    work. What the kernel refuses stays as it was."""
    attempt(os.nice, 19)
    attempt(_idle_disk)
    attempt(os.sched_setscheduler, 0, os.SCHED_IDLE, os.sched_param(0))


def _idle_disk() -> None:
    psutil = Tree().psutil
    psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


def _serve(tree: Tree, path: str, pipe: Connection, other_end: Connection) -> None:
    """Live the process's whole life. Its standard streams are closed: a library may print."""
    other_end.close()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the sampler ends it, and asks for a last sample before
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    handles, module, error = {}, None, None
    try:
        gpus = smi.open_library(tree, path)
        handles, module = gpus.handles, gpus.module
    except Exception as problem:
        error = explain(problem).as_part()
    for turn in count():
        with_ras = pipe.recv()  # raises EOFError when the sampler has gone
        found = {bdf: _reported(module, handle, with_ras) for bdf, handle in handles.items()}
        pipe.send((found, error, time.process_time()))
        if turn == 0:
            lower_priority()


def _reported(module: Any, handle: Any, with_ras: bool) -> Dict[str, Any]:
    """Return what one GPU reports now. Of the throttling these are raw counts: the sampler sees them grow."""
    wrapper = module.amdsmi_interface.amdsmi_wrapper
    metrics = wrapper.amdsmi_gpu_metrics_t()
    status = wrapper.amdsmi_get_gpu_metrics_info(handle, ctypes.byref(metrics))
    found: Dict[str, Any] = {}
    if status:
        found["unreadable"] = smi.explain_error(module.AmdSmiLibraryException(status)).as_part()
    else:
        for channel, fields in _FIELDS.items():
            readings = (_field(metrics, name) for name in fields)
            value = next((reading for reading in readings if reading is not None), None)
            if value is not None:
                found[channel] = value
        turns, status = _field(metrics, "accumulation_counter"), _field(metrics, "indep_throttle_status")
        read = {reason: _field(metrics, name) for reason, name in _RESIDENCY.items()}
        counts = {reason: number for reason, number in read.items() if number is not None}
        if turns is not None and counts:
            found["residency"] = [turns, counts]
        elif status is not None:
            found["status"] = [reason for reason, mask in _MASKS.items() if status & mask]
    if with_ras:
        totals = attempt(smi.ecc_totals, module, handle)
        if not is_unreadable(totals):
            found.update({"ras_" + kind: totals[kind + "_count"] for kind in ("correctable", "uncorrectable")})
    return found


def _field(metrics: Any, name: str) -> Any:
    """Return a field (of several XCDs' clocks the mean); None where it is missing or all its bits are set."""
    value = getattr(metrics, name, None)
    if value is None:
        return None
    if isinstance(value, ctypes.Array):
        most = (1 << (8 * ctypes.sizeof(value._type_))) - 1
        known = [number for number in value if number not in (0, most)]
        return sum(known) / len(known) if known else None
    size = getattr(type(metrics), name).size
    return None if value == (1 << (8 * size)) - 1 else int(value)


_RAS_EVERY = 15  # samples: the driver asks each block of the GPU
_HWMON: List[str] = list(KNOWN["amdgpu"]["hwmon"])  # channels
_FILES: Dict[str, str] = KNOWN["amdgpu"]["channels"]
_RAS = {"ras_correctable": "ce", "ras_uncorrectable": "ue"}


class Gpus(Source):
    """All GPUs of amdgpu, in PCI order. Throttling is counted in seconds since the sampler began, for each reason."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.library = Library(tree)
        self._folders = {device.name: pci.DEVICES + "/" + device.name for device in gpu.functions(tree)}
        self._throttled: Dict[Tuple[str, str], float] = {}
        self._before: Dict[str, Tuple[float, Any]] = {}  # when, and the accumulators then
        self._turn = 0
        channels = [*_HWMON, *_FILES, *("throttle_%s_s" % reason for reason in REASONS), *_RAS]
        names = ["gpu/%s/%s" % (bdf, channel) for bdf in self._folders for channel in channels]
        self.groups[tuple(names)] = self._values

    def _of_sysfs(self, folder: str, channel: str) -> float:
        if channel in _HWMON:
            return gpu.hwmon(self._tree, folder, channel)
        if channel in _RAS:
            return gpu.ras_totals(self._tree, folder)[_RAS[channel]]
        return self._tree.number(folder + "/" + _FILES[channel])

    def _values(self) -> Values:
        with_ras = self._turn % _RAS_EVERY == 0
        self._turn += 1
        answers = self.library.ask(with_ras) if self._folders else {}
        now = time.monotonic()
        found: Values = {}
        for bdf, folder in self._folders.items():
            answer = answers.get(bdf, {})
            for channel in (*_HWMON, *_FILES, *(_RAS if with_ras else ())):
                value = answer.get(channel)
                own = attempt(self._of_sysfs, folder, channel) if value is None else value
                found["gpu/%s/%s" % (bdf, channel)] = own
            for reason, value in self._throttle(bdf, answer, now).items():
                found["gpu/%s/throttle_%s_s" % (bdf, reason)] = value
        return found

    def _throttle(self, bdf: str, answer: Values, now: float) -> Dict[str, Any]:
        """Return seconds for each reason. The accumulators give the part of the time since the last sample; a status
        gives only this moment, which counts for all of it."""
        if "residency" in answer:
            turns, counts = answer["residency"]
            parts = self._parts(bdf, turns, counts)
            kinds = list(counts)
        elif "status" in answer:
            parts = dict.fromkeys(answer["status"], 1.0)
            kinds = list(REASONS)
        else:
            nothing = Unreadable("missing", "amdsmi does not report what limits this GPU").as_part()
            return dict.fromkeys(REASONS, answer.get("unreadable") or self.library.reason or nothing)
        since = now - self._before.get(bdf, (now, None))[0]
        self._before[bdf] = (now, answer.get("residency"))
        for reason in kinds:
            self._throttled[bdf, reason] = self._throttled.get((bdf, reason), 0.0) + parts.get(reason, 0.0) * since
        nothing = Unreadable("missing", "amdsmi: this GPU does not count it").as_part()
        return {reason: self._throttled[bdf, reason] if reason in kinds else nothing for reason in REASONS}

    def _parts(self, bdf: str, turns: int, counts: Dict[str, int]) -> Dict[str, float]:
        before = self._before.get(bdf, (0.0, None))[1]
        if before is None or turns <= before[0]:  # the first, or the GPU was reset
            return {}
        grown = {reason: count - before[1].get(reason, count) for reason, count in counts.items()}
        return {reason: min(max(more / (turns - before[0]), 0.0), 1.0) for reason, more in grown.items()}
