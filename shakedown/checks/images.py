"""The declared container images: there, and the ones that were meant."""

from __future__ import annotations

from collections.abc import Iterator

from shakedown import images as references
from shakedown.checks import check
from shakedown.checks.compare import unknown
from shakedown.desired.models import DesiredState, Image
from shakedown.findings import Finding, Remedy, Verdict
from shakedown.state import NodeState, is_unreadable


@check("images")
def images(desired: DesiredState, state: NodeState, node: str) -> Iterator[Finding]:
    """Each declared image is in the engine's store, under the digest it is pinned to."""
    for name, image in desired.images.items():
        yield _image(f"images.{name}", image, state, node)


def _image(name: str, image: Image, state: NodeState, node: str) -> Finding:
    store, engine = state.containers.images, state.containers.engine
    if is_unreadable(store):
        return unknown(name, node, image.reference, store)
    if is_unreadable(engine):
        return unknown(name, node, image.reference, engine)
    wanted = references.parse(image.reference)
    tagged = [entry for entry in store if wanted.tag and references.has_tag(entry, wanted)]
    pinned = [entry for entry in store if wanted.digest in references.digests_of(entry, wanted.name)]
    moved = [entry for entry in tagged if entry not in pinned] if wanted.digest else []
    held = (pinned if wanted.digest else tagged) if not moved else []
    if held:
        digests = references.digests_of(held[0], wanted.name)
        verdict, actual = Verdict.OK, ", ".join(sorted(digests)) or held[0].id
    elif moved:
        digests = references.digests_of(moved[0], wanted.name)
        verdict, actual = Verdict.DRIFT, f"{wanted.tagged} is {', '.join(sorted(digests)) or moved[0].id}"
    else:
        verdict, actual = Verdict.DRIFT, "not there"
    pull = Remedy(
        text=f"pull {image.reference} with {engine}",
        operation="images.pull",
        as_root=False,  # whoever may talk to the engine may pull
        arguments={"engine": engine, **image.model_dump(exclude_none=True)},
    )
    return Finding(
        name=name,
        node=node,
        verdict=verdict,
        wanted=image.reference,
        actual=actual,
        evidence=f"{len(store)} images of {engine}",
        remedy=None if verdict is Verdict.OK else pull,
    )
