"""The job's environment: variables that were made for other GPUs than this node's."""

from __future__ import annotations

from collections.abc import Iterator

from shakedown.checks import check
from shakedown.desired.models import DesiredState
from shakedown.state.findings import Comparison, Remedy, Verdict
from shakedown.state.node import NodeState


@check("environment", "smoke.environment", "gpu.environment")
def environment(desired: DesiredState, state: NodeState) -> Iterator[Comparison]:
    """Warn of each variable that a recipe family cautions against on this GPU model: the node trains, only slower than
    it could."""
    of_site = desired.smoke.environment if desired.smoke else {}
    given = {**desired.gpu.environment, **of_site}
    if not given:
        return
    from shakedown.recipes.recipe import families  # 80 ms that a drift check without such variables does not need

    cautions = {caution.variable: caution for family in families().values() for caution in family.cautions}
    for variable, caution in cautions.items():
        if desired.gpu.profile in caution.gpus and given.get(variable) == caution.value:
            yield Comparison(
                verdict=Verdict.WARN,
                wanted="not set",
                actual=caution.value,
                evidence=f"{'smoke' if variable in of_site else 'gpu'}.environment: {caution.why}",
                remedy=Remedy(text=f"take {variable} out of the inventory's environment"),
            ).about(variable)
