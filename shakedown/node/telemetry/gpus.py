"""GPUs: AMD's library where it answers, amdgpu's own files where it does not."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Callable, Dict, Tuple

from .. import gpu, pci
from ..tree import Part, Tree, Unreadable, attempt, is_unreadable
from .library import REASONS, Library
from .reading import Source, Values, together

_RAS_EVERY = 15  # samples: the driver asks each block of the GPU
# Channel -> files of a hwmon folder, the first that is there, and what one of their units is. temp2 is the junction
# (hotspot), temp3 the memory (Linux, Documentation/gpu/amdgpu/thermal.rst).
_HWMON = {
    "power_w": (("power1_input", "power1_average"), 1e-6),
    "temperature_c": (("temp2_input",), 1e-3),
    "memory_temperature_c": (("temp3_input",), 1e-3),
    "gfx_clock_mhz": (("freq1_input",), 1e-6),
    "memory_clock_mhz": (("freq2_input",), 1e-6),
}
_FILES = {"busy_pct": "gpu_busy_percent", "vram_used_bytes": "mem_info_vram_used"}
_RAS = {"ras_correctable": "ce", "ras_uncorrectable": "ue"}


class Gpus(Source):
    """All GPUs of amdgpu, in PCI order. Throttling is counted in seconds since the sampler began, for each reason."""

    def __init__(self, tree: Tree) -> None:
        super().__init__()
        self._tree = tree
        self.library = Library(tree)
        self._folders = {device.name: pci.DEVICES + "/" + device.name for device in gpu.functions(tree)}
        self._readings = {bdf: self._of_sysfs(folder) for bdf, folder in self._folders.items()}
        self._throttled: Dict[Tuple[str, str], float] = {}
        self._before: Dict[str, Tuple[float, Any]] = {}  # when, and the accumulators then
        self._turn = 0
        channels = [*_HWMON, *_FILES, *("throttle_%s_s" % reason for reason in REASONS), *_RAS]
        self.names = ["gpu/%s/%s" % (bdf, channel) for bdf in self._folders for channel in channels]

    def _of_sysfs(self, folder: str) -> Dict[str, Callable[[], Any]]:
        tree = self._tree
        readings: Dict[str, Callable[[], Any]] = {}
        monitors = ["%s/hwmon/%s" % (folder, name) for name in tree.names(folder + "/hwmon")]
        for channel, (names, unit) in _HWMON.items():
            paths = ["%s/%s" % (monitor, name) for monitor in monitors for name in names]
            readable = (path for path in paths if not is_unreadable(attempt(tree.number, path)))
            wanted = next(readable, "%s/hwmon/*/%s" % (folder, names[0]))
            readings[channel] = partial(lambda path, unit: tree.number(path) * unit, wanted, unit)
        for channel, name in _FILES.items():
            readings[channel] = partial(tree.number, folder + "/" + name)
        return readings

    def read(self) -> Values:
        with_ras = self._turn % _RAS_EVERY == 0
        self._turn += 1
        answers = self.library.ask(with_ras) if self._folders else {}
        now = time.monotonic()
        found: Values = {}
        for bdf, folder in self._folders.items():
            answer = answers.get(bdf, {})
            for channel, reading in self._readings[bdf].items():
                value = answer.get(channel)
                found["gpu/%s/%s" % (bdf, channel)] = attempt(reading) if value is None else value
            for reason, value in self._throttle(bdf, answer, now).items():
                found["gpu/%s/throttle_%s_s" % (bdf, reason)] = value
            if with_ras:
                totals = answer if "ras_correctable" in answer else together(_RAS, partial(self._ras, folder))
                found.update({"gpu/%s/%s" % (bdf, channel): totals[channel] for channel in _RAS})
        return found

    def _ras(self, folder: str) -> Values:
        totals = gpu.ras_totals(self._tree, folder)
        return {channel: totals[kind] for channel, kind in _RAS.items()}

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
            return dict.fromkeys(REASONS, self._reason(answer))
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

    def _reason(self, answer: Values) -> Part:
        nothing = Unreadable("missing", "amdsmi does not report what limits this GPU").as_part()
        return dict(answer.get("unreadable") or self.library.reason or nothing)
