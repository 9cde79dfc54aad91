"""References of images, and whether the declared ones are there."""

from __future__ import annotations

from typing import Any

import pytest

from shakedown.checks.fleet import outliers
from shakedown.checks.support import images
from shakedown.desired.problems import DesiredStateError
from shakedown.jobs.plan.container import pin_image
from shakedown.state.findings import Finding
from shakedown.state.images import held, parse, same
from shakedown.state.node import Image
from tests.plans import draft
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


LOCAL = {**image("localhost/x:dev", ONE), "id": "sha256:" + "c" * 64}


@pytest.mark.parametrize(
    ("written", "stored", "engine", "verdict"),
    [
        ("x:dev", "localhost/x:dev", "podman", "ok"),
        ("rack/x:dev", "localhost/rack/x:dev", "podman", "ok"),
        ("x", "localhost/x:latest", "podman", "ok"),
        ("localhost/x:dev", "localhost/x:dev", "podman", "ok"),
        ("x:dev", "localhost/x:dev", "docker", "drift"),  # docker looks for docker.io/library/x
        ("localhost/x:dev", "x:dev", "docker", "drift"),
        ("localhost/x:dev", "docker.io/library/x:dev", "podman", "drift"),
        ("x:dev", "docker.io/library/x:dev", "podman", "ok"),
        ("docker.io/library/x:dev", "localhost/x:dev", "podman", "drift"),
        ("registry:5000/x:dev", "localhost/x:dev", "podman", "drift"),
        ("x:dev", "localhost/x:prod", "podman", "drift"),
    ],
)
def test_what_podman_built_is_found_by_its_short_name(written: str, stored: str, engine: str, verdict: str) -> None:
    """The check, the plan and the comparison of nodes find the same."""
    state = with_(healthy(), {"containers.images": [image(stored, ONE)], "containers.engine": engine})
    assert seen(written, [image(stored, ONE)], engine).verdict == verdict
    wanted = desired(images={"it": written}, smoke={"recipe": "llama3.1-8b-fp8", "image": "it"})
    planned = draft(wanted, {"n1": state, "n2": state})
    pinned = pin_image(planned)
    assert not planned.problems and pinned == (f"{stored.rpartition(':')[0]}@{ONE}" if verdict == "ok" else written)
    assert ("what every node holds" in planned.derived[-1].why) == (verdict == "ok")
    compared = [f for f in outliers({"n1": state, "n2": state}, {}, {"n1": wanted, "n2": wanted}) if f.node == "n1"]
    assert ("image.it" in compared[0].evidence) == (verdict == "ok")


def test_podman_takes_what_was_built_here_before_what_was_pulled() -> None:
    pulled = image("docker.io/library/x:dev", OTHER)
    assert seen("x:dev", [pulled, LOCAL], "podman").actual == ONE
    assert seen("x:dev", [pulled, LOCAL], "docker").actual == OTHER


def test_an_image_that_was_loaded_is_the_one_that_was_pulled_by_its_id() -> None:
    loaded = {**image(NAME, ONE), "digests": []}
    nodes = {"n1": [image(NAME, ONE)], "n2": [loaded], "n3": [image(f"docker.io/{NAME}", ONE)]}
    states = {
        node: with_(healthy(number), {"containers.images": images})
        for number, (node, images) in enumerate(nodes.items())
    }
    wanted = desired(images={"it": NAME}, smoke={"recipe": "llama3.1-8b-fp8", "image": "it"})
    planned = draft(wanted, states)
    pinned = pin_image(planned)
    assert not planned.problems and pinned == loaded["id"], "the one name that every node knows it by"
    assert not [f for f in outliers(states, {}, dict.fromkeys(states, wanted)) if f.name != "fleet"]
    other = with_(healthy(9), {"containers.images": [{**loaded, "id": "sha256:" + "9" * 64}]})
    planned = draft(wanted, {**states, "n4": other})
    pin_image(planned)
    assert [problem.path for problem in planned.problems] == ["image"]
    (odd,) = [
        f for f in outliers({**states, "n4": other}, {}, dict.fromkeys([*states, "n4"], wanted)) if f.name != "fleet"
    ]
    assert (odd.name, odd.node) == ("fleet.image.it", "n4")


def test_two_that_are_the_same_as_a_third_are_the_same() -> None:
    one = Image.model_validate(image(NAME, ONE))
    other = Image.model_validate({**image(NAME, OTHER), "id": "sha256:" + "7" * 64})
    between = Image.model_validate({**image(NAME, ONE), "id": other.id})
    labels = same({"a": one, "b": other, "c": between}, ["docker.io/rocm/megatron-lm"])
    assert len(set(labels.values())) == 1
    assert len(set(same({"a": one, "b": other}, ["docker.io/rocm/megatron-lm"]).values())) == 2
    assert len(set(same({"a": one, "b": between}, ["elsewhere"]).values())) == 2, "a digest of another name is no proof"


def test_what_came_from_a_mirror_has_its_digest_under_the_mirror_s_name() -> None:
    stored = Image.model_validate({**image("rocm/x:1", ONE), "digests": [f"mirror:5000/hub/rocm/x@{ONE}"]})
    assert held([stored], parse(f"rocm/x:1@{ONE}"), "docker") == [stored]
    assert held([stored], parse(f"rocm/x:2@{ONE}"), "docker") == []


def test_an_image_by_digest_alone_is_compared_by_digest() -> None:
    latest = image("rocm/megatron-lm:latest", OTHER)
    assert seen(f"rocm/megatron-lm@{ONE}", [latest]).verdict == "drift"
    held_ = seen(f"rocm/megatron-lm@{ONE}", [{**image("rocm/megatron-lm:other", ONE)}, latest])
    assert (held_.verdict, held_.actual) == ("ok", ONE)


def test_an_image_that_is_none_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(DesiredStateError, match=r"images.it.reference = 'x:t;rm': expected name:tag"):
        desired(images={"it": "x:t;rm"})
