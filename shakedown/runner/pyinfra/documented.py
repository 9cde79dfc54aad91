"""What a deploy for one document requires of the desired state, besides the requirements of every deploy."""

from collections.abc import Iterator, Mapping

from shakedown.desired import DesiredState, Problem
from shakedown.recipes.recipe import families
from shakedown.state.images import parse

# Deploy -> the family of its document's recipes, and whether its image is to be named by digest.
DOCUMENTED = {"megatron_source": ("radeon", False), "stanford_megatron": ("stanford", True)}


def problems(deploy: str, hosts: Mapping[str, DesiredState]) -> Iterator[Problem]:
    """Yield the smoke runs that are no recipe of this deploy's family or, where it is required, have an image without
    digest."""
    if deploy not in DOCUMENTED:
        return
    family, by_digest = DOCUMENTED[deploy]
    known = families()[family]
    for name, desired in hosts.items():
        smoke = desired.smoke
        if smoke is None:
            continue
        where = f"host {name}, for deploy/{deploy}.py"
        if smoke.recipe not in known.recipes:
            yield Problem(where, "smoke.recipe", repr(smoke.recipe), f"one of {', '.join(known.recipes)}")
        elif by_digest:
            reference = desired.images[smoke.image].reference if smoke.image else "no image"
            if smoke.image is None or not parse(reference).digest:
                wanted = f"an image that is named by digest; the document's is {known.container.image}"
                yield Problem(where, "smoke.image", reference, wanted)
