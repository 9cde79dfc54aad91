"""Whether the recipe's program supports the node's GPUs, as its document says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shakedown.checks import check
from shakedown.desired.models import DesiredState
from shakedown.findings import Finding, Remedy, Verdict
from shakedown.state import NodeState

if TYPE_CHECKING:
    from shakedown.smoke.recipe import Limits

_VERDICTS = {"supported": Verdict.OK, "supported in part": Verdict.DRIFT, "not supported": Verdict.FAIL}


@check("support")
def support(desired: DesiredState, state: NodeState, node: str) -> Finding | None:
    """Support in part is drift: the node may train, and nobody reads it as a pass. gpu_model compares the profile with
    the hardware."""
    if desired.smoke is None:
        return None
    from shakedown.smoke.recipe import recipes  # 80 ms that a drift check without a recipe does not need

    recipe = recipes().get(desired.smoke.recipe)
    limits = recipe.family.limits if recipe else None
    if recipe is None or limits is None or not limits.gpus:
        return None
    level = _level(desired.gpu.profile, limits)
    verdict = _VERDICTS[level]
    remedy = Remedy(text=f"choose another recipe for {desired.gpu.name}, or train on {' or '.join(limits.gpus)}")
    return Finding(
        name="support",
        node=node,
        verdict=verdict,
        wanted=limits.gpus,
        actual=f"{desired.gpu.profile}: {level}",
        evidence=f"{limits.why} ({recipe.document})",
        remedy=None if verdict == Verdict.OK else remedy,
    )


def _level(profile: str, limits: Limits) -> str:
    if profile in limits.gpus:
        return "supported"
    return "supported in part" if profile in limits.partial_gpus else "not supported"
