"""The image of the job, pinned: what the nodes hold decides, and all must hold the same."""

from __future__ import annotations

from collections.abc import Mapping

from shakedown.desired.models import DesiredState
from shakedown.desired.problems import Problem
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
    reference = desired.images[desired.smoke.image].reference
    told = []
    if documented and _repository(documented) != _repository(reference):
        told.append(Derived(name="image", value=reference, why=f"the document uses {documented}"))
    problems, found, absent = [], {}, []
    for name, state in states.items():
        if is_unreadable(state.containers.images):
            actual = str(state.containers.images)
            problems.append(Problem(name, "containers.images", actual, "the images of a container engine"))
            continue
        held = [image for image in state.containers.images if _is(image, reference)]
        if held:
            found[name] = _pinned(held[0], reference)
        else:
            absent.append(name)
    if len({_plain(pinned) for pinned in found.values()}) > 1:
        shown = ", ".join(f"{name}: {pinned}" for name, pinned in found.items())
        problems.append(Problem("plan", "image", shown, f"the same {reference} on every node"))
    # With the registry's name, which podman needs and docker takes, where one node says it.
    pinned = max(found.values(), key=len, default=reference)
    if absent:
        told.append(Derived(name="image", value=pinned, why=f"not there yet on {', '.join(absent)}: pull it first"))
    else:
        told.append(Derived(name="image", value=pinned, why="what every node holds"))
    return pinned, told, problems


def _is(image: Image, reference: str) -> bool:
    if "@" in reference:
        name, _, digest = reference.partition("@")
        return any(_plain(held) == f"{_repository(name)}@{digest}" for held in image.digests)
    return any(_tagged(tag) == _tagged(reference) for tag in image.tags)


def _pinned(image: Image, reference: str) -> str:
    """By repository digest; an image that was never pushed or pulled has only its own id."""
    repository = _repository(reference)
    digests = [digest for digest in image.digests if _plain(digest).startswith(f"{repository}@")]
    return digests[0] if digests else image.id


def _tagged(reference: str) -> str:
    plain = _plain(reference.partition("@")[0])
    return plain if ":" in plain.rpartition("/")[2] else f"{plain}:latest"


def _repository(reference: str) -> str:
    tagged = _tagged(reference)
    return tagged[: tagged.rindex(":")]


def _plain(reference: str) -> str:
    """Without the registry that docker leaves out and podman writes."""
    for prefix in ("docker.io/library/", "docker.io/", "localhost/"):
        reference = reference.removeprefix(prefix)
    return reference
