"""What a deploy that is made for one document asks of the desired state, besides what every deploy does."""

from __future__ import annotations

from pyinfra.context import host as current_host

from deploy.session import session
from shakedown.images import parse
from shakedown.smoke.recipe import families


def recipe_of(family: str, by_digest: bool = False) -> None:
    """Fail the current host unless its smoke run, where it has one, is a recipe of this family and, if asked for, its
    image is named by digest."""
    current = session()
    desired = current.examination.desired[current_host.name]
    if desired.smoke is None:
        return
    known = families()[family]
    why = None
    if desired.smoke.recipe not in known.recipes:
        why = f"smoke.recipe = {desired.smoke.recipe!r}: expected one of {', '.join(known.recipes)}"
    elif by_digest and (desired.smoke.image is None or not parse(_reference()).digest):
        why = f"smoke.image: expected an image that is named by digest; the document's is {known.container.image}"
    if why:
        current.fail(current.host(current_host.name), why)


def _reference() -> str:
    desired = session().examination.desired[current_host.name]
    assert desired.smoke is not None and desired.smoke.image is not None
    return desired.images[desired.smoke.image].reference
