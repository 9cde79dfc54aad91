"""The image of the job, pinned: what the nodes hold decides, and all must hold the same."""

from __future__ import annotations

from collections.abc import Mapping

from shakedown.desired.models import DesiredState
from shakedown.desired.problems import Problem
from shakedown.images import Reference, digests_of, held, long_name, parse, same
from shakedown.smoke.launch import Derived
from shakedown.smoke.recipe import Recipe
from shakedown.state import Image, NodeState, is_unreadable


def pin(
    recipe: Recipe, desired: DesiredState, states: Mapping[str, NodeState]
) -> tuple[str | None, list[Derived], list[Problem]]:
    """The reference to start, with the digest that the nodes report for it."""
    documented = recipe.family.container.image
    if desired.smoke is None or desired.smoke.image is None:
        expected = f"the name of an image in images{f' (documented: {documented})' if documented else ''}"
        return None, [], [Problem("smoke", "smoke.image", "nothing", expected)]
    text = desired.images[desired.smoke.image].reference
    wanted, told, problems = parse(text), [], []
    if documented and parse(documented).name != wanted.name:
        told.append(Derived(name="image", value=text, why=f"the document uses {documented}"))
    found: dict[str, Image] = {}
    names: dict[str, None] = {}
    for name, state in states.items():
        store, engine = state.containers.images, state.containers.engine
        if is_unreadable(store):
            problems.append(Problem(name, "containers.images", str(store), "the images of a container engine"))
            continue
        names |= dict.fromkeys(wanted.names(engine))
        if images := held(store, wanted, engine):
            found[name] = images[0]
    if len(set(same(found, list(names)).values())) > 1:
        shown = ", ".join(f"{name}: {_pinned(image, list(names))}" for name, image in found.items())
        problems.append(Problem("plan", "image", shown, f"the same {text} on every node"))
    pinned = _common(wanted, list(found.values()), list(names)) or text
    absent = [name for name in states if name not in found]
    if absent:
        told.append(Derived(name="image", value=pinned, why=f"not there yet on {', '.join(absent)}: pull it first"))
    else:
        told.append(Derived(name="image", value=pinned, why="what every node holds"))
    return pinned, told, problems


def _common(wanted: Reference, images: list[Image], names: list[str]) -> str | None:
    """What every node starts this very image by: a registry digest that all hold it under, else its id. Of a name with
    and without its registry the one with it, which podman needs and docker takes."""
    if not images:
        return None
    every = [{_plain(entry): entry for entry in image.digests if _plain(entry)[0] in names} for image in images]
    common = sorted(set.intersection(*(set(each) for each in every)), key=lambda key: (key[1] != wanted.digest, key))
    if common:
        return max((each[common[0]] for each in every), key=len)
    return images[0].id


def _plain(entry: str) -> tuple[str, str]:
    name, _, digest = entry.partition("@")
    return long_name(name), digest


def _pinned(image: Image, names: list[str]) -> str:
    return ", ".join(digests_of(image, names)) or image.id
