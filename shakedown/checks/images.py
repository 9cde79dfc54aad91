"""The declared container images: there, and the ones that were meant."""

from __future__ import annotations

from collections.abc import Iterator

from shakedown.checks import check
from shakedown.checks.compare import comparison, unknown
from shakedown.common.text import counted
from shakedown.desired.models import DesiredState, Image
from shakedown.state import images as references
from shakedown.state.findings import Comparison, Remedy, Verdict
from shakedown.state.node import NodeState, is_unreadable


@check("images", "images", follows=("container_engine",), waivable=False)
def images(desired: DesiredState, state: NodeState) -> Iterator[Comparison]:
    """Each declared image is in the engine's store, under the digest it is pinned to."""
    for name, image in desired.images.items():
        yield _image(image, state).about(name)


def _image(image: Image, state: NodeState) -> Comparison:
    store, engine = state.containers.images, state.containers.engine
    if is_unreadable(store):
        return unknown(image.reference, store)
    if is_unreadable(engine):
        return unknown(image.reference, engine)
    wanted = references.parse(image.reference)
    names = wanted.names(engine)
    held = references.held(store, wanted, engine)
    moved = [entry for entry in references.tagged(store, wanted, engine) if entry not in held]
    if moved:
        is_now = ", ".join(references.digests_of(moved[0], names)) or moved[0].id
        verdict, actual = Verdict.DRIFT, f"{wanted.tagged} is {is_now}"
    elif held:
        verdict, actual = Verdict.OK, ", ".join(references.digests_of(held[0], names)) or held[0].id
    else:
        verdict, actual = Verdict.DRIFT, "not there"
    pull = Remedy(
        text=f"pull {image.reference} with {engine}",
        operation="images.pull",
        as_root=False,  # whoever may talk to the engine may pull
        arguments={"engine": engine, **image.model_dump(exclude_none=True)},
    )
    return comparison(verdict, image.reference, actual, f"{counted(len(store), 'image')} of {engine}", pull)
