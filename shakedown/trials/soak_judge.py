"""What the jobs of a soak found, out of the nodes' logs, and its gates."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median
from typing import Any

from shakedown.common.text import counted, decimal, load_sound, printable, some
from shakedown.gates import Gate
from shakedown.state.findings import Verdict
from shakedown.trials.models import Reading, read_log
from shakedown.trials.soak import KIND, Figure, Growth, SoakRecord, catalogue, length, stage_of, tools_of
from shakedown.trials.workload.soak import MARK

LINES = 100_000  # of one node's log that are read
_LINE = 1 << 17  # characters: every counter of a large node
_NAMES = 4096  # counters of a node
NO_COUNTER = "no counter of uncorrectable errors can be read"
LOAD_EDAC = "load the EDAC driver of the memory controller (amd64_edac), and amdgpu where there are GPUs"
FAULT = "the kernel reported a fault"  # as `SoakRecord.ended` begins then
FEWEST = 2  # figures that a comparison of the first with the last needs
SURE = 3  # figures in each tenth from which a fall is more than chance


@dataclass(frozen=True)
class Part:
    """A job of a soak. `loads`: its program reports its own time; else `took`, in seconds. `texts`: each node's log."""

    stage: str
    loads: bool
    took: float
    texts: Mapping[str, str]


@dataclass
class _Node:
    """What a node reported in all jobs."""

    figures: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))  # stage, tool
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    hours: float = 0.0
    hottest: dict[str, tuple[float, float]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    rose: str = ""
    samples: int = 0
    absent: dict[str, str] = field(default_factory=dict)


def read_part(node: _Node, stage: str, text: str) -> float:
    """Read a node's log of one job. Return its seconds under load. What is no line of a report is left out."""
    loaded = seconds = 0.0
    for number, line in enumerate(text.splitlines()):
        if number >= LINES or not line.startswith(MARK):
            continue
        try:
            document = load_sound(line[len(MARK) :], _LINE)
        except ValueError:
            continue
        if isinstance(document, dict):
            loaded, seconds = _number(document, "loaded", loaded), _number(document, "t", seconds)
            _take(node, stage, document)
    node.hours += seconds / 3600
    return loaded


def _number(document: Mapping[str, Any], name: str, otherwise: float) -> float:
    value = document.get(name)
    known = isinstance(value, int | float) and 0 <= value <= 1e12
    return float(value) if known and value is not None else otherwise


def _take(node: _Node, stage: str, document: Mapping[str, Any]) -> None:
    tool = printable(str(document.get("figure") or document.get("wrong") or document.get("failed") or ""), 60)
    if "figure" in document and (value := _number(document, "value", -1.0)) > 0 and tool in catalogue().tool:
        node.figures[stage, tool].append(value)
    if "wrong" in document or "failed" in document:
        kind = "wrong result" if "wrong" in document else "failed"
        node.wrong.append(f"{stage}: {tool}: {kind}: {printable(str(document.get('text', '')), 200)}")
    if "rose" in document:
        node.rose = node.rose or (
            f"{printable(str(document['rose']), 120)} rose from {_number(document, 'before', 0):.0f} to "
            f"{_number(document, 'after', 0):.0f} in stage {stage}"
        )
    if (absent := document.get("absent")) in [*catalogue().tool]:
        node.absent[absent] = printable(str(document.get("why", "")), 200)
    if isinstance(counters := document.get("counters"), dict):
        node.samples += 1
        for name, value in counters.items():
            if type(value) is int and 0 <= value < 1 << 63 and (name in node.last or len(node.last) < _NAMES):
                node.first.setdefault(printable(name, 120), value)
                node.last[printable(name, 120)] = value
    if isinstance(hottest := document.get("hottest"), dict):
        for name, pair in list(hottest.items())[:_NAMES]:
            if isinstance(pair, list) and len(pair) == 2 and all(type(value) in (int, float) for value in pair):
                reading, bound = (float(value) for value in pair)
                node.hottest[printable(name, 60)] = max(node.hottest.get(name, (reading, bound)), (reading, bound))


def _take_trial(node: _Node, stage: str, trial: str, readings: Sequence[Reading]) -> None:
    """Take the readings of a trial, whose program ends well where its tools are not installed."""
    if all(reading.value is None for reading in readings):
        node.absent[trial] = next((reading.note for reading in readings if reading.note), "it measured nothing")
    node.wrong += [f"{stage}: {trial}: wrong result: {reading.note}" for reading in readings if reading.wrong]


def judge_parts(record: SoakRecord, parts: Sequence[Part]) -> SoakRecord:
    """Return the record with all that the jobs' logs say."""
    nodes: dict[str, _Node] = {name: _Node() for name in record.nodes}
    done: dict[str, float] = defaultdict(float)
    for part in parts:
        loaded = [  # what the smoke run's own program prints says nothing of counters
            read_part(nodes.setdefault(name, _Node()), part.stage, text if part.loads else "")
            for name, text in sorted(part.texts.items())
        ]
        done[part.stage] += min(loaded, default=0.0) if part.loads else part.took
        trial = "" if part.loads else stage_of(part.stage).trial
        for name in () if part.loads else part.texts:
            nodes[name].hours += part.took / 3600
            if trial:
                readings = read_log(name, part.texts[name].splitlines()).readings
                _take_trial(nodes[name], part.stage, trial, readings)
    return record.model_copy(
        update={
            "stages": [stage.model_copy(update={"done_s": round(done[stage.name], 1)}) for stage in record.stages],
            "figures": list(chain.from_iterable(_figures(name, node) for name, node in nodes.items())),
            "growth": [
                Growth(node=name, counter=counter, first=node.first[counter], last=last, hours=round(node.hours, 4))
                for name, node in nodes.items()
                for counter, last in node.last.items()
            ],
            "hottest": {name: node.hottest for name, node in nodes.items() if node.hottest},
            "wrong": {name: node.wrong[:100] for name, node in nodes.items() if node.wrong},
            "rose": {name: node.rose for name, node in nodes.items() if node.rose},
            "samples": {name: node.samples for name, node in nodes.items()},
            "absent": {name: node.absent for name, node in nodes.items() if node.absent},
        }
    )


def _figures(name: str, node: _Node) -> Iterator[Figure]:
    limit = catalogue().limits["throughput"].value
    for (stage, tool), values in node.figures.items():
        tenth = max(1, len(values) // 10)
        first, last = values[:tenth], values[-tenth:]
        slower = median(last) < (1 - limit) * median(first)
        sure = tenth >= SURE and max(last) < (1 - limit) * min(first)
        verdict = "unknown" if len(values) < FEWEST else "fail" if sure else "warn" if slower else "ok"
        yield Figure(
            node=name,
            stage=stage,
            tool=tool,
            unit=catalogue().tool[tool].unit,
            count=len(values),
            first=median(first),
            last=median(last),
            verdict=verdict,
        )


def soak_gates(record: SoakRecord, throttled: Mapping[str, Mapping[str, float]], failed: bool = False) -> list[Gate]:
    """Make the gates of a judged soak. `throttled`: node -> reason -> seconds. `failed`: a gate of one of its jobs."""
    judges = (_uncorrectable, _correctable, _results, _throughput)
    gates = [_stressed(record), *(gate for judge in judges for gate in judge(record)), *_heat(record, throttled)]
    failed |= broken(record) or any(gate.verdict == Verdict.FAIL for gate in gates)
    return [_time(record, failed), *gates]


def _gate(name: str, verdict: Verdict, wanted: Any, actual: Any, evidence: str, remedy: str, node: str = "") -> Gate:
    advice = None if verdict is Verdict.OK else remedy
    return Gate(
        name=f"soak_{name}",
        verdict=verdict,
        wanted=wanted,
        actual=actual,
        evidence=evidence,
        remedy=advice,
        job=KIND,
        node=node or None,
    )


def broken(record: SoakRecord) -> bool:
    """Return whether a soak found what ends it: an uncorrectable error, a fault of the kernel's log, a wrong result."""
    wrong = any("wrong result" in text for texts in record.wrong.values() for text in texts)
    grown = any(growth.uncorrectable and growth.grown for growth in record.growth)
    return bool(record.rose or wrong or grown or record.ended.startswith(FAULT))


def gaps(record: SoakRecord) -> list[str]:
    """Return the stages that have no tool on a node: a tool that is not installed stresses nothing."""
    missing: dict[str, dict[str, None]] = defaultdict(dict)
    for node, tools in record.absent.items():
        for stage in record.stages:
            for tool in (*tools_of(record, stage.name), stage_of(stage.name).trial):
                if tool in tools:
                    missing[f"{stage.name} ({tools[tool]})"][node] = None
    return [f"{stage}: not run on {some([*nodes])}" for stage, nodes in missing.items()]


def _time(record: SoakRecord, failed: bool) -> Gate:
    wanted, done = length(record.total_s), length(record.done_s)
    stages = some([f"{stage.name} {length(stage.done_s)} of {length(stage.wanted_s)}" for stage in record.stages])
    without = [f"{name} ({why})" for name, why in record.left_out.items()]
    left = f"; left out: {some(without)}" if without else ""
    left += f"; only {', '.join(record.only)} was asked for" if record.only else ""
    left += f"; {record.ended}" if record.ended else ""
    first = "do first what soak_stressed says, then " if gaps(record) else ""
    remedy = f"{first}give the same command again: the soak goes on where it ended"
    if failed:
        remedy = "repair what has failed, then begin a new soak"
    verdict = Verdict.OK if record.over else Verdict.UNKNOWN
    return _gate("time", verdict, wanted, wanted if record.over else f"unfinished: {done}", f"{stages}{left}", remedy)


def _stressed(record: SoakRecord) -> Gate:
    """Judge whether every part of every node was loaded."""
    unsampled = [node for node in record.nodes if not record.samples.get(node)] if record.done_s else []
    texts = gaps(record)
    texts += [f"no reading of a counter: {some(unsampled)}"] if unsampled else []
    verdict = Verdict.UNKNOWN if texts else Verdict.OK
    evidence = "; ".join(texts) or f"{counted(len(record.nodes), 'node')}, {some([s.name for s in record.stages])}"
    remedy = "install the package that a line names, raise trials.limit_s where a trial was late, or use --only"
    return _gate("stressed", verdict, "every stage on every node", counted(len(texts), "gap"), evidence, remedy)


def _uncorrectable(record: SoakRecord) -> Iterator[Gate]:
    remedy = "take the node out of service and replace the part that the counter names"
    for node, text in record.rose.items():
        yield _gate("uncorrectable", Verdict.FAIL, 0, 1, f"{node}: {text}", remedy, node)
    counters = [growth for growth in record.growth if growth.uncorrectable]
    grown = [growth for growth in counters if growth.grown and growth.node not in record.rose]
    for growth in grown:  # between two jobs: no program watched
        text = f"{growth.node}: {growth.counter} rose by {growth.grown}"
        yield _gate("uncorrectable", Verdict.FAIL, 0, growth.grown, text, remedy, growth.node)
    blind = unseen(record, [stage.name for stage in record.stages if stage.done_s])
    if blind or not counters:
        text = f"{NO_COUNTER}: {some(blind) or 'on no node'}"
        yield _gate("uncorrectable", Verdict.UNKNOWN, 0, "not seen", text, LOAD_EDAC)
    elif not record.rose and not grown:
        yield _gate("uncorrectable", Verdict.OK, 0, 0, f"{counted(len(counters), 'counter')} did not rise", "")


def unseen(record: SoakRecord, stages: Iterable[str]) -> list[str]:
    """Return the nodes, with the kind of part, of which no counter shows uncorrectable errors after these stages."""
    seen = {(growth.node, growth.counter.partition(" ")[0]) for growth in record.growth if growth.uncorrectable}
    needed = [counter.name for counter in catalogue().counter if set(stages) & set(counter.needed)]
    needed = [name for name in needed if record.gpus or name != "gpu"]
    return [f"{node}: {name}" for name in needed for node in record.nodes if (node, name) not in seen]


def _correctable(record: SoakRecord) -> Iterator[Gate]:
    limit = catalogue().limits["correctable"]
    for growth in record.growth:
        if growth.uncorrectable or not growth.grown:
            continue
        rate = decimal(growth.grown / max(growth.hours, 1e-6), 3)
        text = (
            f"{growth.node}: {growth.counter} grew by {growth.grown} in {length(growth.hours * 3600)}: {rate} an hour"
        )
        wanted = f"at most {limit.value:g} {limit.unit} ({limit.source})"
        remedy = "watch the part, or replace it"
        yield _gate("correctable", Verdict(growth.verdict), wanted, growth.grown, text, remedy, growth.node)


def _results(record: SoakRecord) -> Iterator[Gate]:
    for node, texts in record.wrong.items():
        wrong = any("wrong result" in text for text in texts)
        remedy = "run the tool of the line again on this node; a wrong result again names the part"
        verdict = Verdict.FAIL if wrong else Verdict.UNKNOWN
        yield _gate("results", verdict, "every result right", len(texts), some(texts), remedy, node)


def _throughput(record: SoakRecord) -> Iterator[Gate]:
    limit = catalogue().limits["throughput"]
    wanted = f"at most {100 * limit.value:g} % less in the last tenth ({limit.source})"
    remedy = "look at temperatures and clocks of the node in the samples of this run"
    unsure = [figure for figure in record.figures if figure.verdict == "unknown"]
    for figure in record.figures:
        if figure.verdict in ("fail", "warn"):
            change = f"{100 * (1 - figure.last / figure.first):.3g} % less"
            values = f"{decimal(figure.first, 4)} -> {decimal(figure.last, 4)} {figure.unit}"
            text = f"{figure.node}: {figure.stage}: {figure.tool}: {values} over {counted(figure.count, 'run')}"
            yield _gate("throughput", Verdict(figure.verdict), wanted, change, text, remedy, figure.node)
    if unsure or (not record.figures and any(tools_of(record, stage.name) for stage in record.stages)):
        short = [f"{figure.node} {figure.stage} {figure.tool}: {figure.count} of {FEWEST} figures" for figure in unsure]
        yield _gate("throughput", Verdict.UNKNOWN, wanted, "not judged", some(short) or "no figure", "let it finish")
    elif record.figures and all(figure.verdict == "ok" for figure in record.figures):
        yield _gate("throughput", Verdict.OK, wanted, "as at the begin", counted(len(record.figures), "figure"), "")


def _heat(record: SoakRecord, throttled: Mapping[str, Mapping[str, float]]) -> Iterator[Gate]:
    """Judge temperatures and throttling, where there are GPUs."""
    hotspot, throttling = catalogue().limits["hotspot"], catalogue().limits["throttling"]
    remedy = "look at fans, filters and the inlet temperature of the node"
    wanted = f"below {hotspot.unit} ({hotspot.source})"
    for node, gpus in record.hottest.items():
        hot = [f"{gpu} {reading:g} of {bound:g} °C" for gpu, (reading, bound) in gpus.items() if reading >= bound]
        highest = max(reading for reading, _ in gpus.values())
        text = some(hot) or f"{counted(len(gpus), 'GPU')}, at most {highest:g} °C"
        yield _gate("hotspot", Verdict.FAIL if hot else Verdict.OK, wanted, highest, f"{node}: {text}", remedy, node)
    wanted = f"{throttling.value:g} s by {', '.join(throttling.reasons)} ({throttling.source})"
    for node, reasons in throttled.items():
        seconds = {name: value for name, value in reasons.items() if name in throttling.reasons}
        if any(value > throttling.value for value in seconds.values()):
            text = some([f"{name} {decimal(value, 3)} s" for name, value in seconds.items()])
            yield _gate("throttling", Verdict.FAIL, wanted, round(max(seconds.values()), 1), text, remedy, node)
