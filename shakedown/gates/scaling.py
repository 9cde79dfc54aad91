"""Whether nodes do together what the same nodes do alone."""

from shakedown.catalogue import advice
from shakedown.common.text import decimal
from shakedown.gates.model import Outcome, some
from shakedown.gates.observed import Expected, Speed
from shakedown.gates.registry import gate
from shakedown.logs.metrics import MEAN, metric_of
from shakedown.state.findings import Verdict

_ADD_UP = ("tokens_per_gpu", "throughput_per_gpu")  # over GPUs
OF_ALL = (*_ADD_UP, *(name + MEAN for name in _ADD_UP))


@gate
def scaling_efficiency(expected: Expected, speed: Speed) -> Outcome | None:
    """Together the nodes have the wanted share (smoke.scaling) of what they have alone in sum, in tokens/s and TFLOP/s;
    unknown where a node's own figure is missing. Statistic: the lowest share of the medians and of the means."""
    alone = expected.alone
    if alone is None:
        return None
    texts: list[str] = []
    shares, missing = {}, []
    values = speed.figures.values()
    for metric in OF_ALL:
        together = values.get(metric)
        own = {
            name: one.figures[metric] * one.ranks for name, one in alone.nodes.items() if one and metric in one.figures
        }
        unit = metric_of(metric).unit.removesuffix("/GPU") + (" (mean)" if metric.endswith(MEAN) else "")
        if not own and (together is None or metric.endswith(MEAN)):  # earlier runs may have no means
            continue
        without = [name for name in alone.nodes if name not in own]
        if together is None or without:
            missing.append(f"{unit}: {f'nothing of {some(without)} alone' if without else 'no figure together'}")
            continue
        total, of_all = sum(own.values()), together * speed.ranks
        if not (of_all and all(own.values())):
            texts.append(f"{unit}: some print 0, which is rounded, and cannot be compared")
            continue
        shares[metric] = of_all / total
        nodes = some([f"{name} {decimal(value)}" for name, value in own.items()])
        texts.append(f"{decimal(of_all)} {unit} together, {decimal(total)} alone ({nodes})")
    short = [metric for metric, share in shares.items() if share < alone.share]
    unknown = bool(missing) or not shares
    runs = dict.fromkeys(run for one in alone.nodes.values() if one for run in one.runs)
    texts += missing or ([] if shares else ["no node has a figure of its own"])
    texts += [f"alone in {some(list(runs))}"] if runs else []
    return Outcome(
        verdict=Verdict.FAIL if short else Verdict.UNKNOWN if unknown else Verdict.OK,
        wanted=alone.share,
        actual=min(shares.values(), default=None),
        unit="of the sum alone",
        evidence="; ".join(texts),
        remedy=advice("scaling") if short else advice("not_alone") if unknown else None,
    )
