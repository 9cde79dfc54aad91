"""References of images, and whether the declared ones are there."""

from __future__ import annotations

from typing import Any

import pytest

from shakedown.checks.images import images
from shakedown.findings import Finding
from shakedown.images import agreed_digest, parse
from shakedown.state import Image
from tests.states import desired, healthy, image, unreadable, with_

ONE, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64
NAME = "rocm/megatron-lm:v25.5_py310"


def seen(reference: str, stored: Any, engine: Any = "docker") -> Finding:
    state = with_(healthy(), {"containers.images": stored, "containers.engine": engine})
    (finding,) = images(desired(images={"megatron": reference}), state, "node01")  # type: ignore[misc]
    assert isinstance(finding, Finding) and finding.name == "images.megatron"
    return finding


@pytest.mark.parametrize(
    ("text", "name", "tag", "digest"),
    [
        ("busybox", "docker.io/library/busybox", "latest", None),
        (NAME, "docker.io/rocm/megatron-lm", "v25.5_py310", None),
        (f"rocm/x:1@{ONE}", "docker.io/rocm/x", "1", ONE),
        (f"rocm/x@{ONE}", "docker.io/rocm/x", None, ONE),
        ("127.0.0.1:5000/a/b:2", "127.0.0.1:5000/a/b", "2", None),
        ("registry:5000/b", "registry:5000/b", "latest", None),
        ("localhost/b:2", "localhost/b", "2", None),
    ],
)
def test_the_parts_of_a_reference(text: str, name: str, tag: str | None, digest: str | None) -> None:
    reference = parse(text)
    assert (reference.name, reference.tag, reference.digest) == (name, tag, digest)


@pytest.mark.parametrize("text", ["", "a b", "x@sha256:12", "x:", "x:t;rm", "-x", "a/$(id)", "x@"])
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an image reference"):
        parse(text)


@pytest.mark.parametrize("stored_as", [NAME, f"docker.io/{NAME}"])
def test_a_tag_that_is_there_is_ok_under_docker_s_and_podman_s_names(stored_as: str) -> None:
    finding = seen(NAME, [image(stored_as, ONE)])
    assert finding.verdict == "ok" and finding.actual == ONE


def test_a_pinned_image_is_ok_by_its_digest() -> None:
    assert seen(f"{NAME}@{ONE}", [image(NAME, ONE)]).verdict == "ok"
    untagged = {**image(NAME, ONE), "tags": []}
    assert seen(f"{NAME}@{ONE}", [untagged]).verdict == "ok"


def test_an_absent_image_is_drift_that_a_pull_mends() -> None:
    finding = seen(NAME, [image("rocm/megatron-lm:v25.4", ONE)])
    assert finding.verdict == "drift" and finding.actual == "not there" and finding.remedy is not None
    assert finding.remedy.operation == "images.pull"
    assert finding.remedy.arguments["reference"] == NAME and finding.remedy.arguments["engine"] == "docker"


def test_the_same_tag_with_another_digest_is_drift_that_names_it() -> None:
    finding = seen(f"{NAME}@{ONE}", [image(NAME, OTHER)])
    assert finding.verdict == "drift" and OTHER in str(finding.actual)


def test_the_tag_on_another_image_is_drift_although_the_digest_is_there_too() -> None:
    assert seen(f"{NAME}@{ONE}", [image(NAME, OTHER), {**image(NAME, ONE), "tags": []}]).verdict == "drift"


def test_the_digest_of_another_repository_does_not_count() -> None:
    assert seen(f"{NAME}@{ONE}", [image("other/megatron-lm:v25.5_py310", ONE)]).verdict == "drift"


def test_a_store_that_cannot_be_read_is_unknown() -> None:
    assert seen(NAME, unreadable("not permitted")).verdict == "unknown"
    assert seen(NAME, [], unreadable("failed")).verdict == "unknown"


def test_the_nodes_that_pull_later_get_the_digest_that_the_others_hold() -> None:
    one, other = (Image.model_validate(image(NAME, digest)) for digest in (ONE, OTHER))
    assert agreed_digest([[one], [], [one]], parse(NAME)) == ONE
    assert agreed_digest([[one], [other]], parse(NAME)) is None
    assert agreed_digest([[], []], parse(NAME)) is None
