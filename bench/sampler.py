"""What the sampler of a node costs: `python -m bench.sampler [SAMPLES]`, half a minute, no root.

It reads a tree of 8 GPUs and 8 NICs (tests/node_trees.py) with AMD's own package over a library that answers for GPUs
that are not there, and this machine's /proc. What a real driver does to answer is not in it: the sampler counts its own
CPU time, the kernel's included, and takes fewer samples where they cost more than 0.8 % of a core.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from importlib.metadata import distribution
from itertools import pairwise
from pathlib import Path

from shakedown.node.telemetry.sampler import SHARE, Sampler
from shakedown.node.tree import Tree
from tests.libamd_smi.build import build
from tests.node_trees import make_tree

INTERVAL_S = 2.0  # the default of smoke.telemetry_s
PROC = ("stat", "meminfo", "pressure/cpu", "pressure/memory", "pressure/io")


def measured(folder: Path, samples: int, library: bool) -> tuple[float, float, float, int]:
    """CPU seconds to begin, and for each sample the median and the most; and bytes of a sample."""
    root = make_tree(folder / "tree", gid_entries=4)
    for name in PROC:
        path = root / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(f"/proc/{name}")
    if library:
        build(root / "opt/rocm/lib")
        sys.path.append(str(Path(str(distribution("amdsmi").locate_file("amdsmi"))).parent))
    out = folder / "out"
    out.mkdir()
    began = time.process_time()
    sampler = Sampler(str(out), INTERVAL_S, Tree(str(root)))
    sampler.begin()
    sampler.sample()
    used = [sampler._cpu_s()]
    first = time.process_time() - began + sampler._gpus.library.cpu_s
    for _ in range(samples):
        sampler.sample()
        used.append(sampler._cpu_s())
    sampler.stop("measured")
    sampler.end()
    item = [after - before for before, after in pairwise(used)]
    lines = (out / "telemetry.jsonl").read_bytes().splitlines()
    size = statistics.median(len(line) for line in lines if line.startswith(b'{"t":'))
    return first, statistics.fmean(item), max(item), int(size)


def main() -> None:
    """Print the table of docs/developers/accuracy.md."""
    samples = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    print("| GPUs | to begin, s | a sample, ms of CPU | the dearest | of one core at 2 s | bytes of a sample |")
    print("|---|---|---|---|---|---|")
    for library in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            first, item, most, size = measured(Path(folder), samples, library)
        what = "8, libamd_smi" if library else "8, sysfs"
        print(f"| {what} | {first:.2f} | {item * 1e3:.2f} | {most * 1e3:.1f} | {item / INTERVAL_S:.2%} | {size} |")
    print(f"\nThe sampler's own limit: {SHARE:.1%} of a core.")


if __name__ == "__main__":
    main()
