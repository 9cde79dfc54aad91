"""Whether a job is of the recipe that it is to be judged by, and its image as the image's page lists it."""

from shakedown.catalogue import advice
from shakedown.gates.model import Outcome, some
from shakedown.gates.observed import Expected, Training
from shakedown.gates.registry import gate
from shakedown.recipes.documents import published, same_version
from shakedown.state.findings import Verdict
from shakedown.state.images import parse


@gate
def image_versions(training: Training) -> Outcome | None:
    """Compare the versions that the containers printed with those of the image's page (recipes/images.toml).

    A tag is a name that anybody may give. The gate is skipped for an image that no page lists, and where no container
    printed a version. A component that no container printed is named, and is no difference. A node that printed nothing
    while others did is named, and its image is unknown.
    """
    image = published(parse(training.image)) if training.image else None
    printed: dict[str, set[str]] = {}
    for component, version in sorted(training.shape.in_image):
        printed.setdefault(component, set()).add(version)
    if image is None or not printed.keys() & image.versions.keys():
        return None
    listed = {name: version for name, version in image.versions.items() if name in printed}
    others = [
        f"{name} {value} and not {version}"
        for name, version in listed.items()
        for value in sorted(printed[name])
        if not same_version(value, version)
    ]
    unseen = [name for name in image.versions if name not in printed]
    silent = f"; no container printed {', '.join(unseen)}" if unseen else ""
    silent += f"; no version from {some(training.silent)}" if training.silent else ""
    verdict = Verdict.FAIL if others else Verdict.UNKNOWN if training.silent else Verdict.OK
    return Outcome(
        verdict=verdict,
        wanted=", ".join(f"{name} {version}" for name, version in listed.items()),
        actual=", ".join(f"{name} {' or '.join(sorted(printed[name]))}" for name in listed),
        evidence=(f"{training.image} has {'; '.join(others)}" if others else f"as the page of {training.image} lists")
        + silent,
        remedy=advice("image") if others or training.silent else None,
    )


@gate
def recipe(expected: Expected) -> Outcome | None:
    """Log and recipe are of the same job. Without that the recipe's figures cannot be judged, so another job is
    unknown."""
    if not expected.recipe:
        return None
    return Outcome(
        verdict=Verdict.UNKNOWN,
        wanted=expected.recipe,
        actual="another job",
        evidence=f"the recipe has {', '.join(expected.differences)}",
        remedy="judge the log of a run of this recipe, or leave out --recipe and give the bounds with --expect",
    )
