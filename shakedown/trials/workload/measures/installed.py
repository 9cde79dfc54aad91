"""The field's own tools, where they are installed on the node or in the image. They run where they are asked for by
name: some take minutes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from .. import tools
from ..registry import Measured, Place, trial


def _outputs(place: Place, name: str) -> Iterator[tuple[str, str]]:
    """What each command of a tool said, by its first words; nothing where it is not installed. All of it goes to the
    log of this process as well."""
    for words in tools.COMMANDS[name]:
        program = tools.found(words[0])
        if program is None:
            continue
        given = [word.replace("{gpus}", str(place.gpus)).replace("{rvs}", tools.RVS) for word in words[1:]]
        sys.stderr.write(f"$ {' '.join([program, *given])}\n")
        done = subprocess.run(
            [program, *given], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False
        )
        text = done.stdout.decode("utf-8", "replace")
        sys.stderr.write(f"{text}\nexit code {done.returncode}\n")
        if done.returncode:
            raise RuntimeError(f"{words[0]} ended with exit code {done.returncode}")
        yield words[0], text


@trial(on="tool", figures={"*": "GB/s"}, seconds=60, needs_gpu=True)
def rccl_tests(place: Place) -> Iterator[Measured]:
    """rccl-tests over the GPUs of a node: bus bandwidth at the largest message, in place, and its wrong results."""
    for program, text in _outputs(place, "rccl_tests"):
        busbw, wrong = tools.rccl(text)
        yield Measured(f"{program.removesuffix('_perf')}.busbw", busbw, wrong)


@trial(on="tool", figures={"*": "GB/s"}, seconds=60, needs_gpu=True)
def transferbench(place: Place) -> Iterator[Measured]:
    """TransferBench's p2p and a2a between the GPUs of a node: averages."""
    for _program, text in _outputs(place, "transferbench"):
        for figure, value in tools.transferbench(text).items():
            yield Measured(figure, value)


@trial(on="tool", figures={"*": "GB/s"}, seconds=30, needs_gpu=True)
def babelstream(place: Place) -> Iterator[Measured]:
    """BabelStream on the first GPU, with the sums that it checks itself."""
    for _program, text in _outputs(place, "babelstream"):
        rates, wrong = tools.babelstream(text)
        for function, rate in rates.items():
            yield Measured(function, rate, wrong)


@trial(on="tool", figures={"*": "TFLOPS"}, seconds=120, needs_gpu=True)
def rvs(place: Place) -> Iterator[Measured]:
    """RVS' GPU stress test: of each of its actions the slowest GPU."""
    for _program, text in _outputs(place, "rvs"):
        slowest: dict[str, tools.Stress] = {}
        for each in tools.rvs(text):
            known = slowest.get(each.action)
            slowest[each.action] = each if known is None or each.value < known.value else known
        for action, each in slowest.items():
            missed = "" if each.met else f"GPU {each.gpu} misses its target of {each.target:g} TFLOPS"
            yield Measured(f"gst.{action}", each.value, note=missed)
