"""The field's own tools, where they are installed. They run on request by name, since some take minutes."""

from __future__ import annotations

import math
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from .. import programs, tools
from ..registry import Measured, Place, trial


def _outputs(place: Place, name: str) -> Iterator[tuple[str, str]]:
    """Run the commands of a tool that are installed: yields program and output. The output also goes to the log."""
    for words in tools.COMMANDS[name]:
        program = programs.find(words[0])
        if program is None:
            continue
        command = [program, *(word.replace("{gpus}", str(place.gpus)) for word in words[1:])]
        yield words[0], _run([command])[0]


def _run(commands: Sequence[Sequence[str]]) -> list[str]:
    """Run commands at the same time, and return their output. Raises Failed."""
    with ExitStack() as stack:
        started = [(words, *stack.enter_context(programs.running(words))) for words in commands]
        texts = []
        for words, process, output in started:
            reason = programs.failure(process)
            texts.append(programs.read_output(output))
            sys.stderr.write(f"$ {' '.join(words)}\n{texts[-1]}\n{reason or 'exit code 0'}\n")
            if reason:
                raise programs.Failed(f"{words[0]}: {reason}")
    return texts


@trial(on="tool", figures={"*": "GB/s"}, seconds=60, needs_gpu=True, needs_torch=False)
def rccl_tests(place: Place) -> Iterator[Measured]:
    """Run rccl-tests over the GPUs of a node: bus bandwidth at the largest message, in place, and wrong results."""
    for program, text in _outputs(place, "rccl_tests"):
        busbw, wrong = tools.rccl(text)
        yield Measured(f"{program.removesuffix('_perf')}.busbw", busbw, wrong)


@trial(on="tool", figures={"*": "GB/s"}, seconds=60, needs_gpu=True, needs_torch=False)
def transferbench(place: Place) -> Iterator[Measured]:
    """Run TransferBench's p2p and a2a between the GPUs of a node: averages."""
    for _program, text in _outputs(place, "transferbench"):
        for figure, value in tools.transferbench(text).items():
            yield Measured(figure, value)


@trial(on="tool", figures={"*": "GB/s"}, seconds=30, needs_gpu=True, needs_torch=False)
def babelstream(place: Place) -> Iterator[Measured]:
    """Run BabelStream on every GPU at the same time; the tool checks its own sums."""
    (words,) = tools.COMMANDS["babelstream"]
    program = programs.find(words[0])
    if program is None:
        return
    commands = [[program, *(word.replace("{gpu}", str(gpu)) for word in words[1:])] for gpu in range(place.gpus)]
    for gpu, text in enumerate(_run(commands)):
        rates, wrong = tools.babelstream(text)
        if not rates:
            raise programs.Failed(f"{words[0]} on GPU {gpu}: its output has no figure")
        for function, rate in rates.items():
            yield Measured(function, rate, wrong, part=f"gpu{gpu}")


READ = (
    "--readonly", "--direct=1", "--allow_file_create=0", "--output-format=json", "--rw=read", "--bs=1M",
    "--ioengine=libaio", "--iodepth=16", "--numjobs=4", "--group_reporting", "--time_based", "--runtime=10",
)  # fmt: skip
_FILES, _ENTRIES, _LEAST = 16, 20_000, 16 << 20  # files that are read, entries that are looked at, bytes of a file


def largest_files(folder: str) -> list[str]:
    """Return the largest files of a folder, links left out, and names that fio would take for several."""
    found, seen = [], 0
    for above, _, names in os.walk(folder):
        for name in names:
            seen += 1
            path = str(Path(above) / name)
            if ":" not in path and "\\" not in path:
                with suppress(OSError):
                    entry = os.lstat(path)
                    if stat.S_ISREG(entry.st_mode) and entry.st_size >= _LEAST:
                        found.append((-entry.st_size, path))
        if seen > _ENTRIES:
            break
    return [path for _, path in sorted(found)[:_FILES]]


@trial(on="tool", figures={"bandwidth": "GB/s", "latency": "us"}, seconds=15, needs_torch=False)
def dataset_read(place: Place) -> Iterator[Measured]:
    """Read the data sets' largest files with fio, past the page cache: bandwidth, and the 99th percentile of a read of
    1 MiB. Nothing is written or created. All nodes read at once; `--limit NODE` is one node alone."""
    program = programs.find("fio")
    if program is None:
        return
    for folder in place.folders:
        files = largest_files(folder)
        if not files:
            yield Measured("", math.nan, note=f"{folder}: no file of {_LEAST >> 20} MiB or more to read")
            continue
        (text,) = _run([[program, "--name=dataset", *READ, f"--filename={':'.join(files)}"]])
        bandwidth, latency = tools.fio(text)
        yield Measured("bandwidth", bandwidth, part=f"data {folder}" if len(place.folders) > 1 else "")
        yield Measured("latency", latency, part=f"data {folder}" if len(place.folders) > 1 else "")
    if not place.folders:
        yield Measured("", math.nan, note="the inventory has no data set: section datasets")


def _register_rvs(module: str, unit: str, seconds: float, doc: str, *options: str) -> None:
    """Register the trial of one module of RVS, which runs with the module's configuration for the GPU model."""

    def measure(place: Place) -> Iterator[Measured]:
        program, configuration = programs.find("rvs"), tools.configuration(module, place.model)
        if program is None or configuration is None:
            return
        (text,) = _run([[program, "-c", str(configuration), *options]])
        numbers, figures = tools.gpu_numbers(), tools.MODULES[module](text)
        if not figures:
            raise programs.Failed(f"rvs -c {configuration}: its output has no figure of {module}")
        for stress in figures:
            part = numbers.get(stress.gpu, f"gpu{stress.gpu}")
            note = f"RVS asks for {stress.missed}" if stress.missed else ""
            figure = re.sub(r"[^A-Za-z0-9_.-]", "-", stress.action)[:60]
            yield Measured(figure, stress.value, note=note, part=part, missed=bool(stress.missed))

    measure.__name__, measure.__doc__ = f"rvs_{module}", doc
    trial(on="tool", figures={"*": unit}, seconds=seconds, needs_gpu=True, needs_torch=False)(measure)


_STRESS = "Run RVS' GPU stress test on all GPUs at the same time: products of each data type, against RVS' own targets."
_register_rvs("gst", "TFLOPS", 300, _STRESS, "-p", "true")
_register_rvs("iet", "W", 700, "Run RVS' power test: the highest power of each GPU, against RVS' own target.")
_register_rvs("babel", "GB/s", 300, "Run RVS' BabelStream: the average of each kernel on each GPU.")
_NEAREST = "Run RVS' PCIe bandwidth: each GPU with the memory of the nearest CPU, and of the other CPUs."
_register_rvs("pebb", "GB/s", 300, _NEAREST)
_register_rvs("pbqt", "GB/s", 500, "Run RVS' transfers between GPUs: each GPU to the GPU that it reaches most slowly.")
