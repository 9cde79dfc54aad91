"""The simulated job: what each node says of it, at which time, with the noise of a healthy run and the faults."""

import math
import random
from collections.abc import Iterator

from shakedown.jobs.launch import LaunchPlan
from shakedown.runner.demo.nodes import Part
from shakedown.runner.demo.scenario import SIMULATED, Fault, Scenario, line_of

_FIRST_S = 40.0  # from the start to the first iteration
_NOISE = 0.004  # standard deviation of an iteration's time: FIELD data of healthy MI300X runs show 0.3 to 0.6 %
_ABOVE = 1.03  # a healthy rack against the figures that are expected
_FIGURES = {"throughput_per_gpu": 600.0, "tokens_per_gpu": 12000.0}  # where nothing is expected at this size
_AT = 0.4  # of the iterations, when a fault of the job shows
_START_S = 3.0  # when a fault shows that keeps the program from starting


def parts_of(plan: LaunchPlan, scenario: Scenario, seed: int) -> dict[str, Part]:
    """Return what each node does in a job of the plan."""
    nodes = [node.name for node in plan.nodes]
    active = {node: [fault for fault in scenario.of_node(node) if fault.in_job] for node in nodes}
    every = [fault for found in active.values() for fault in found]
    iterations = list(_iterations(plan, every, random.Random(f"demo/job/{seed}")))
    at = iterations[int(_AT * len(iterations))][0] - 1.0
    common = next((fault for fault in every if fault.nodes == 0 and fault.entry), None)
    if common is not None:
        last = (_START_S, line_of(common.entry))
        return {node: Part([*_begins(node), last], (_START_S + 0.3, common.code)) for node in nodes}
    bad = {node: fault for node, found in active.items() for fault in found if _ends(fault)}
    parts = {node: Part(_begins(node)) for node in nodes}
    parts[nodes[-1]].says += [(when, line) for when, line in iterations if not bad or when < at]
    for node, part in parts.items():
        if node in bad:
            _goes_wrong(part, bad[node], at)
        elif any(not fault.stops for fault in bad.values()):
            part.says.append((at + 0.8, line_of("peer_lost")))
        elif not bad:
            part.ends = (iterations[-1][0] + 2.0, 0)
    return parts


def _ends(fault: Fault) -> bool:
    """Return whether the job cannot go on with the fault."""
    return bool(fault.entry or fault.stops or fault.lost)


def _goes_wrong(part: Part, fault: Fault, at: float) -> None:
    if fault.kernel:
        part.kernel.append((at - 0.2, line_of(fault.kernel)))
    if fault.lost:
        part.lost_s = at
    if fault.entry:
        part.says.append((at, line_of(fault.entry)))
        part.ends = (at + 0.3, fault.code)


def _begins(node: str) -> list[tuple[float, str]]:
    rccl = f"{node}:1201:1201 [0] NCCL INFO NET/IB : Using [0]bnxt_re0:1/RoCE [1]bnxt_re1:1/RoCE [RO]; OOB eth0"
    return [(0.1, f"{SIMULATED} by shakedown demo: no hardware was used"), (1.0, rccl)]


def _iterations(plan: LaunchPlan, every: list[Fault], dice: random.Random) -> Iterator[tuple[float, str]]:
    """Yield the iteration lines in Megatron-LM's form, with the times at which they come."""
    expect = _FIGURES | {name: value for name, value in plan.expect.items() if name in _FIGURES}
    tokens = plan.seq_length * plan.global_batch / plan.world_size
    slow = max([1.0, *(fault.slow for fault in every)])
    loss_kind = next((fault.loss for fault in every if fault.loss), "")
    at = _FIRST_S
    for number in range(1, plan.iterations + 1):
        factor = slow * math.exp(dice.gauss(0, _NOISE)) / _ABOVE * (3.0 if number == 1 else 1.0)
        seconds = tokens / expect["tokens_per_gpu"] * factor
        at += seconds
        loss, norm = _loss(number / plan.iterations, loss_kind, dice)
        yield (
            at,
            f" iteration {number:8d}/{plan.iterations:8d} | consumed samples: {number * plan.global_batch:12d} |"
            f" elapsed time per iteration (ms): {seconds * 1000:.1f} | mem usages: 0.7412 |"
            f" throughput per GPU (TFLOP/s/GPU): {expect['throughput_per_gpu'] / factor:.1f} |"
            f" learning rate: 1.000000E-05 | global batch size: {plan.global_batch:5d} | lm loss: {loss} |"
            f" loss scale: 1.0 | grad norm: {norm:.3f} | number of skipped iterations:   0 |"
            f" number of nan iterations:   {int(loss == 'nan')} |",
        )


def _loss(share: float, kind: str, dice: random.Random) -> tuple[str, float]:
    """Return the loss after a share of the iterations, and the norm of the gradient."""
    loss = 6.2 + 5.7 * math.exp(-3 * share) + dice.gauss(0, 0.02)
    if kind == "nan" and share > _AT:
        return "nan", math.nan
    if kind == "rises" and share > _AT:
        loss += 18 * (share - _AT)
    return f"{loss:.6E}", 1.2 + 2 * math.exp(-4 * share)
