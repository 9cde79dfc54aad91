"""The job: its container images, what its recipe's document says of GPUs and image, and variables that were made for
other GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shakedown.checks import check
from shakedown.checks.compare import comparison, unknown
from shakedown.common.text import counted
from shakedown.desired.models import DesiredState
from shakedown.desired.models import Image as DeclaredImage
from shakedown.node.rocm import numbers
from shakedown.state import images as references
from shakedown.state.findings import Comparison, Remedy, Verdict
from shakedown.state.node import Image, NodeState, is_unreadable

if TYPE_CHECKING:
    from shakedown.recipes.recipe import Recipe


@check("images", "images", follows=("container_engine",), waivable=False)
def images(desired: DesiredState, state: NodeState) -> Iterator[Comparison]:
    """Each declared image is in the engine's store, under the digest it is pinned to."""
    for name, image in desired.images.items():
        yield _image(image, state).about(name)


def _image(image: DeclaredImage, state: NodeState) -> Comparison:
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
            evidence = f"{'smoke' if variable in of_site else 'gpu'}.environment: {caution.why}"
            remedy = Remedy(text=f"take {variable} out of the inventory's environment")
            yield comparison(Verdict.WARN, "not set", caution.value, evidence, remedy).about(variable)


_VERDICTS = {"supported": Verdict.OK, "supported in part": Verdict.WARN, "not supported": Verdict.FAIL}


@check("support", "smoke.recipe")
def support(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Support in part is a warning: the node may train. gpu_model compares the profile with the hardware."""
    recipe = _recipe(desired)
    limits = recipe.family.limits if recipe else None
    if recipe is None or limits is None or not limits.gpus:
        return None
    partial = "supported in part" if desired.gpu.profile in limits.partial_gpus else "not supported"
    level = "supported" if desired.gpu.profile in limits.gpus else partial
    actual, evidence = f"{desired.gpu.profile}: {level}", f"{limits.why} ({recipe.document})"
    remedy = Remedy(text=f"choose another recipe for {desired.gpu.name}, or train on {' or '.join(limits.gpus)}")
    return comparison(_VERDICTS[level], limits.gpus, actual, evidence, remedy)


@check("image_version", "smoke.image", "smoke.recipe", follows=("container_engine", "images.*"))
def image_version(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Check that the job's image is the document's very one, by digest, or has in it what the document names, by the
    image's own labels. A tag is a name that anybody may give, and proves nothing."""
    recipe = _recipe(desired)
    versions = recipe.family.container.versions if recipe else {}
    if recipe is None or not versions or desired.smoke is None or desired.smoke.image not in desired.images:
        return None
    wanted = ", ".join(f"{part} {version}" for part, version in versions.items())
    reference = references.parse(desired.images[desired.smoke.image].reference)
    store, engine = state.containers.images, state.containers.engine
    if is_unreadable(store):
        return unknown(wanted, store)
    held = references.held(store, reference, engine)
    documented = references.parse(recipe.family.container.image or reference.name).digest
    if not held:
        # Pinned to the document's digest it can be no other once it is there, which is the finding of images.
        verdict, actual = Verdict.UNKNOWN, None
        evidence = f"not there yet: see images.{desired.smoke.image}"
    elif documented in [entry.partition("@")[2] for entry in held[0].digests]:
        verdict, actual, evidence = Verdict.OK, wanted, f"the image that {recipe.document} names, by its digest"
    else:
        verdict, actual, evidence = _by_labels(held[0], versions)
    remedy = Remedy(text=f"use {recipe.family.container.image}, or label the image with the versions that are in it")
    return comparison(verdict, wanted, actual, evidence, remedy)


def _by_labels(image: Image, versions: dict[str, str]) -> tuple[Verdict, str | None, str]:
    labelled: dict[str, str] = {}
    for label, value in image.labels.items():
        part = re.sub(r"\.version$", "", re.sub(r"[_-]", ".", label.lower())).rpartition(".")[2]
        if part in versions:
            labelled[part] = value
    wanted = {part: numbers(versions[part]) for part in labelled}
    wrong = [part for part, value in labelled.items() if numbers(value)[: len(wanted[part])] != wanted[part]]
    silent = [part for part in versions if part not in labelled]
    shown = ", ".join(f"{part} {value}" for part, value in labelled.items()) or None
    if wrong:
        return Verdict.FAIL, shown, f"by the image's labels another {' and '.join(wrong)}"
    if silent:
        return Verdict.UNKNOWN, shown, f"another digest than the document's, and no label names {', '.join(silent)}"
    return Verdict.OK, shown, "by the image's labels"


def _recipe(desired: DesiredState) -> Recipe | None:
    if desired.smoke is None:
        return None
    from shakedown.recipes.recipe import recipes  # 80 ms that a drift check without a recipe does not need

    return recipes().get(desired.smoke.recipe)
