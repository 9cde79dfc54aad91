"""The gates over logs and runs, offline."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from shakedown import gates
from shakedown.cli.output import format_and_output, show_document, with_all
from shakedown.cli.words import reason, unusable, usable
from shakedown.common.text import complaint, printable
from shakedown.gates.consequences import with_origin
from shakedown.gates.offline import Request, judge_logs, judge_report, reads_report
from shakedown.ledger.compared import Wanted, keep, know_peers, past_of
from shakedown.logs.metrics import METRICS
from shakedown.logs.source import LogSource
from shakedown.report.formats import Judged
from shakedown.runs.archive.read import APART, OpenedRun, is_packed, opened_run
from shakedown.runs.diagnosis import diagnose, of_logs
from shakedown.runs.directory import Evidence, RunDirectory, RunRecord
from shakedown.runs.folder import find_run
from shakedown.runs.judging import judge_jobs, judge_run, verdict_of
from shakedown.runs.watch.notes import remarks
from shakedown.state.findings import Verdict, worst

_COUNT = click.IntRange(min=1, max=10**9)


class Expectation(click.ParamType[tuple[str, float]]):
    """metric=number."""

    name = "metric=number"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a metric."""
        return [CompletionItem(f"{name}=") for name in METRICS if name.startswith(incomplete)]

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, float]:
        metric, _, number = str(value).partition("=")
        try:
            return metric, float(number)
        except ValueError:
            self.fail(f"{value!r} is not metric=number, as throughput_per_gpu=380", param, ctx)


@click.command()
@click.argument("logs", nargs=-1, required=True)
@click.option("--recipe", help="a recipe whose figures are expected (with --gpu)")
@click.option("--gpu", help="the GPU profile: mi300x, mi325x, ...; a recipe's figures, and the peak, are its")
@click.option("--nodes", type=_COUNT, help="of the run; otherwise as the logs say, or one for each log")
@click.option("--merged", is_flag=True, default=None, help="the logs hold all nodes' lines, in fewer files than nodes")
@click.option("--iterations", type=_COUNT, help="how many there must be; otherwise as the lines say")
@click.option("--seq-length", type=_COUNT, help="tokens; where no line has tokens/s, they are derived from it")
@click.option("--global-batch", type=_COUNT, help="sequences; the same")
@click.option("--world-size", type=_COUNT, help="ranks of all nodes; the same")
@click.option("--transport", type=click.Choice(["rdma", "sockets"]), help="between nodes; rdma if it is not given")
@click.option("--expect", multiple=True, type=Expectation(), help="throughput_per_gpu=380; repeatable")
@click.option("--baseline", is_flag=True, help="of a run: judge its figures by earlier passes, as the ledger has them")
@format_and_output(Judged)
@click.option("--ledger", is_flag=True, help="of a run: keep it in the ledger as it is judged now")
@with_all
def judge(
    logs: tuple[str, ...],
    expect: tuple[tuple[str, float], ...],
    baseline: bool,
    form: str,
    output: Path | None,
    show_all: bool,
    ledger: bool,
    **options: Any,
) -> None:
    """Apply the gates to training LOGS from anywhere (one per node; - for standard input), or judge a run again,
    offline: by its id, a part that only its id begins with, latest, its directory, or the file that `shakedown bundle`
    made of it.

    Where there are fewer logs than --nodes, the gates that need every node's log are unknown. The same log given twice
    counts once.

    Metrics: throughput_per_gpu (TFLOP/s/GPU) and tokens_per_gpu (tokens/s/GPU) at least,
    elapsed_time_per_iteration (ms) and mem_usage (fraction) at most.

    \b
    shakedown judge latest
    shakedown judge latest --baseline
    shakedown judge node01.log node02.log --expect throughput_per_gpu=380
    shakedown judge train.log --recipe llama3.1-8b-fp8 --gpu mi300x
    shakedown judge train.log perf.csv --recipe madengine
    """
    if len(logs) == 1 and _is_run(logs[0]):
        with usable():
            is_packed(logs[0]) or find_run(logs[0])  # neither log nor run: which options were given does not matter
        if any(value is not None for value in options.values()) or expect:
            unusable(f"a run is judged by its own plan: leave {_OF_LOGS} and --expect out")
        document = _judge_run(logs[0], baseline, show_all, ledger)
        sys.exit(show_document(document, form, output, document.verdict))
    if baseline:
        unusable("--baseline is for a run: a log does not say which earlier runs it can be compared with")
    if ledger:
        unusable("--ledger keeps a run: logs from anywhere do not say on which nodes they ran")
    if logs.count("-") > 1:
        unusable("standard input (-) can be one log only")
    reported = reads_report(options["recipe"])
    if reported and "-" in logs:
        unusable(f"--recipe {options['recipe']}: its output is read twice: give it as a file")
    with usable(ValueError):
        request = Request(**options, expect=dict(expect))
        nodes, twice = _read_all(_names(logs))
        if reported:
            judged, notes = judge_report({name: LogSource(log) for name, log in _names(logs).items()}, request)
        else:
            judged, notes = judge_logs(nodes, request)
    verdict = gates.verdict(judged.gates)
    died_of = of_logs(nodes, None if request.merged else request.nodes) if verdict != Verdict.OK else None
    measured = [figure for figure in judged.recorded if figure.value is not None]
    document = Judged(verdict, judged.gates, measured, [*notes, *twice], died_of, show_all)
    sys.exit(show_document(document, form, output, verdict))


_OF_LOGS = "--recipe, --gpu, --nodes, --merged, --iterations, --seq-length, --global-batch, --world-size, --transport"


def _is_run(name: str) -> bool:
    """Whether this one argument means a run and not a log: a log of that name goes first."""
    path = Path(name)
    if name == "-" or path.name == "run.json" or not path.exists() or path.is_dir():
        return name != "-"
    return is_packed(name)


def _names(logs: tuple[str, ...]) -> dict[str, str]:
    """Name each log: its own name, its path where two have the same name, with a number where it is given again."""
    short = [Path(log).name or log for log in logs]
    named: dict[str, str] = {}
    for name, log in zip(short, logs, strict=True):
        known = name if short.count(name) == 1 else log
        named[known if known not in named else f"{known} ({logs[: len(named) + 1].count(log)})"] = log
    return named


def _read_all(logs: Mapping[str, str]) -> tuple[dict[str, gates.NodeLog], list[str]]:
    """Read every log, and name those that are a copy of another: a copy, unless empty, is no log of another node."""
    read: dict[str, gates.NodeLog] = {}
    digests: dict[str, str] = {}
    twice = []
    for name, path in logs.items():
        log, digest = _read(path, compared=len(logs) > 1)
        if log.lines and digest in digests:
            twice.append(f"{name} is the same as {digests[digest]}: counted once")
            continue
        digests[digest], read[name] = name, log
    return read, twice


def _read(log: str, compared: bool) -> tuple[gates.NodeLog, str]:
    source = LogSource(log, digest=compared)
    try:
        return gates.read_log(source), source.digest
    except OSError as error:
        raise ValueError(reason(log, error)) from error


def _judge_run(name: str, baseline: bool, show_all: bool, ledger: bool) -> Judged:
    with usable(), opened_run(name) as run:
        directory, messages = run.directory, run.messages
        record = directory.load()
        evidence = directory.load_evidence()
        if baseline:
            _compare(directory, record, evidence)
        judgements = judge_jobs(directory, record, evidence)
        judged = judge_run(directory, record, evidence, judgements)
        died_of = diagnose(record, evidence, directory, judged)
        judged = with_origin(judged, died_of)
        messages = [*messages, *remarks(directory.path, record, bool(run.archive))]
        verdict = worst([verdict_of(record, judged), *([Verdict.UNKNOWN] if run.altered else [])])
        if ledger:
            _keep(run, record.model_copy(update={"gates": judged, "verdict": verdict}))
    pairs = zip(record.jobs, judgements, strict=True)
    shown = [judgement for job, judgement in pairs if job.node is None or len(judgements) == 1]
    recorded = [figure for judgement in shown for figure in judgement.recorded if figure.why]
    measured = [figure for figure in recorded if figure.value is not None]
    begun = dict.fromkeys(past.new_epoch for job in evidence.values() if (past := job.past) and past.new_epoch)
    return Judged(verdict, judged, measured, [*messages, *run.altered, *begun], died_of, show_all)


def _keep(run: OpenedRun, record: RunRecord) -> None:
    """Keep a run in the ledger as it was judged now; what others sent, as theirs."""
    origin = run.origin(record.run_id)
    if why := keep(run.directory, record, origin=origin):
        click.echo(complaint(why), err=True)
    elif origin:
        click.echo(complaint(f"{printable(record.run_id, 100)} {APART.format(origin=origin)}"), err=True)


def _compare(directory: RunDirectory, record: RunRecord, evidence: dict[str, Evidence]) -> None:
    """Put into the evidence of each job the earlier runs that the ledger now has of it."""
    states = {}
    for node in record.nodes:
        with suppress(FileNotFoundError):  # it was never reached
            states[node.name] = directory.load_state(node.name)
    training = [job for job in record.jobs if not job.trials]
    for job in training:
        given = evidence.setdefault(job.name, Evidence())
        wanted = Wanted(judge=True, since=given.past.since, by=given.past.by) if given.past else Wanted(judge=True)
        given.past = past_of(job, states, record.run_id, wanted)
    know_peers({job.node: past for job in training if job.node and (past := evidence[job.name].past)})
