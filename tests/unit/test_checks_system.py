"""Container engine, clock, disk room, kernel log."""

from __future__ import annotations

from typing import Any

import pytest

from shakedown.checks.system import clock, container_engine, disk_free
from shakedown.desired.layers import Layer, merge
from shakedown.desired.resolve import _long_form
from shakedown.state.findings import Finding
from tests.plans import DIGEST
from tests.states import GIB, bare, desired, healthy, image, unreadable, with_


def seen(check: Any, changes: dict[Any, Any], **system: Any) -> Finding:
    result = check(desired(system=system) if system else desired(), with_(healthy(), changes), "node01")
    found = list(result) if isinstance(result, list) else [result]
    assert len(found) == 1
    assert isinstance(found[0], Finding)
    return found[0]


@pytest.mark.parametrize("check", [container_engine, clock, disk_free])
def test_a_healthy_node_is_ok(check: Any) -> None:
    assert seen(check, {}).verdict == "ok"


@pytest.mark.parametrize("check", [container_engine, clock])
def test_nothing_is_asked_that_is_not_desired(check: Any) -> None:
    assert check(desired("cpu", nic=None), bare(), "node01") is None


def test_a_node_without_an_engine_fails_and_one_that_does_not_answer_is_unknown() -> None:
    assert seen(container_engine, {"containers.engine": unreadable("missing")}).verdict == "fail"
    finding = seen(container_engine, {"containers.engine": unreadable("not permitted", "/run/docker.sock")})
    assert finding.verdict == "unknown" and finding.remedy is not None and "group docker" in finding.remedy.text


def test_the_other_engine_than_the_one_wanted_fails() -> None:
    finding = seen(container_engine, {}, container_engine="podman")
    assert finding.verdict == "fail" and finding.actual == "docker 27.5.1"


def test_a_time_service_that_is_stopped_is_started_and_one_without_a_server_is_a_persons_work() -> None:
    stopped = seen(clock, {"clock.synchronised": False, "clock.service": unreadable("missing")})
    assert (stopped.verdict, stopped.remedy.operation) == ("drift", "services.running")
    alone = seen(clock, {"clock.synchronised": False, "clock.service": "chronyd"})
    assert (alone.verdict, alone.remedy.operation) == ("fail", None)


def test_an_engine_that_does_not_answer_is_started_and_one_that_is_forbidden_is_not() -> None:
    dead = seen(container_engine, {"containers.engine": unreadable("failed", "docker.sock: connection refused")})
    assert (dead.verdict, dead.remedy.operation) == ("unknown", "services.running")
    closed = seen(container_engine, {"containers.engine": unreadable("not permitted", "docker.sock")})
    assert (closed.verdict, closed.remedy.operation) == ("unknown", None)


MISSING = {"containers.engine": unreadable("missing")}


@pytest.mark.parametrize(
    ("system", "name", "package", "manager"),
    [
        ("debian", "any", "docker.io", "apt"),
        ("ubuntu", "podman", "podman", "apt"),
        ("rocky", "any", "podman", "dnf"),
        ("rhel", "podman", "podman", "dnf"),
    ],
)
def test_a_missing_engine_is_installed_where_that_is_asked(system: str, name: str, package: str, manager: str) -> None:
    asked = {"name": name, "install": True}
    finding = seen(container_engine, {**MISSING, "system.os_id": system}, container_engine=asked)
    assert finding.remedy is not None
    assert (finding.verdict, finding.remedy.operation) == ("drift", "engine.installed")
    arguments = finding.remedy.arguments
    assert (arguments["package"], arguments["manager"]) == (package, manager)
    assert finding.remedy.text == f"install {package} with {manager}"


@pytest.mark.parametrize(
    ("system", "name", "words"),
    [
        ("rhel", "docker", "no package of docker for rhel, or set system.container_engine.name to podman"),
        ("sles", "any", "no package of docker or podman for sles"),
        (unreadable("missing"), "docker", "/etc/os-release"),
    ],
)
def test_an_engine_without_a_known_package_is_a_persons_work(system: Any, name: str, words: str) -> None:
    asked = {"name": name, "install": True}
    finding = seen(container_engine, {**MISSING, "system.os_id": system}, container_engine=asked)
    assert finding.remedy is not None
    assert (finding.verdict, finding.remedy.operation) == ("fail", None)
    assert words in finding.remedy.text


def test_a_missing_engine_is_a_persons_work_where_nobody_asks_to_install_it() -> None:
    finding = seen(container_engine, MISSING, container_engine="docker")
    assert finding.remedy is not None
    assert (finding.verdict, finding.remedy.operation) == ("fail", None)
    assert finding.remedy.text.endswith("or set system.container_engine.install: True")


def test_an_engine_asked_for_by_a_lower_layer_is_installed_by_one_key_of_a_higher_one() -> None:
    layers = [{"container_engine": "docker"}, {"container_engine": {"install": True}}]
    merged = merge([Layer(str(number), _long_form({"system": layer})) for number, layer in enumerate(layers)])
    assert merged.values["system"]["container_engine"] == {"name": "docker", "install": True}


def test_a_clock_that_nothing_keeps_fails() -> None:
    assert seen(clock, {"clock.synchronised": False}).verdict == "fail"
    assert seen(clock, {"clock.synchronised": unreadable("missing")}).verdict == "unknown"


def disk(mount: str, free: Any, **more: Any) -> dict[str, Any]:
    return {
        "mount": mount,
        "device": f"dev{mount}",
        "fstype": "ext4",
        "total_bytes": 900 * GIB,
        "free_bytes": free,
        "network": False,
        **more,
    }


def test_room_is_looked_for_on_the_file_system_that_holds_the_path() -> None:
    disks = [disk("/", GIB), disk("/var", 500 * GIB), disk("/variable", 1)]
    wanted = desired(system={"disk_free": {"/var/lib/docker": "100G"}})
    result: Any = disk_free(wanted, with_(healthy(), {"disks": disks}), "node01")
    found = {finding.name: finding for finding in result}
    assert found["disk_free./var/lib/docker"].verdict == "ok"
    assert found["disk_free./"].verdict == "fail"


def test_little_room_fails_naming_the_mount() -> None:
    finding = seen(disk_free, {"disks.0.free_bytes": 99 * GIB})
    assert finding.verdict == "fail" and finding.unit == "bytes" and "on / " in finding.evidence
    assert finding.wanted == 100 * GIB and finding.actual == 99 * GIB


def test_of_two_mounts_on_one_point_the_newer_counts() -> None:
    assert seen(disk_free, {"disks": [disk("/", 500 * GIB), disk("/", 1)]}).verdict == "fail"


@pytest.mark.parametrize("change", [{"disks.0.free_bytes": unreadable("timed out")}, {"disks": []}])
def test_a_file_system_that_does_not_answer_is_unknown(change: dict[Any, Any]) -> None:
    assert seen(disk_free, change).verdict == "unknown"


def room_for(references: list[str], free: dict[str, int], **changes: Any) -> dict[str, Any]:
    """The findings on disk room, with these images asked for and these bytes free by mount."""
    names = {f"image{index}": {"reference": reference} for index, reference in enumerate(references)}
    state = with_(healthy(), {"disks": [disk(mount, size) for mount, size in free.items()], **changes})
    result: Any = disk_free(desired(images=names), state, "node01")
    return {finding.name: finding for finding in result}


def test_the_room_is_that_of_the_images_that_are_asked_for_and_not_there() -> None:
    two = ["rocm/primus:v26.4", "rocm/primus:v26.7"]
    (finding,) = room_for(two, {"/": 120 * 10**9}).values()
    assert (finding.verdict, finding.wanted) == ("fail", 129_700_000_000), "75.9 and 53.8 GB, of the release notes"
    assert "docker.io" not in finding.evidence and "rocm/primus:v26.4, rocm/primus:v26.7" in finding.evidence
    assert room_for(two, {"/": 130 * 10**9})["disk_free./"].verdict == "ok"
    (finding,) = room_for(["registry.example/own:1"], {"/": 120 * 10**9}).values()
    assert (finding.verdict, finding.wanted) == ("ok", 100 * GIB), "what the profile asks for is the least"
    there = [image("rocm/primus:v26.4", DIGEST), image("rocm/primus:v26.7", DIGEST)]
    assert room_for(two, {"/": 120 * 10**9}, **{"containers.images": there})["disk_free./"].wanted == 100 * GIB


def test_the_images_need_room_on_the_engines_own_file_system() -> None:
    free = {"/": 500 * GIB, "/var/lib/docker": 100 * 10**9}
    found = room_for(["rocm/primus:v26.4", "registry.example/own:1"], free)
    assert found["disk_free./"].wanted == 100 * GIB
    assert (found["disk_free./var/lib/docker"].verdict, found["disk_free./var/lib/docker"].wanted) == (
        "ok",
        75_900_000_000,
    ), "an image that no page lists counts nothing"
