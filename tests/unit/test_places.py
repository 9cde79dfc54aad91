"""Where a path lies, on a node's file systems and in a container's volumes."""

from __future__ import annotations

import pytest

from shakedown.jobs.plan.container import note_shared_cache
from shakedown.recipes.options import choose
from shakedown.recipes.recipe import recipes
from shakedown.state.mounts import file_system, host_path
from shakedown.state.node import Disk
from tests.plans import draft
from tests.states import desired, healthy, with_


def disk(mount: str, fstype: str = "ext4") -> Disk:
    network = fstype.startswith("nfs")
    return Disk(mount=mount, device=f"dev{mount}", fstype=fstype, total_bytes=2, free_bytes=1, network=network)


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/", "/"),
        ("/data", "/data"),
        ("/data/", "/data"),
        ("/data/cache", "/data/cache"),
        ("/data/cached", "/data"),
        ("/database", "/"),
        ("/data/cache/x/y", "/data/cache"),
    ],
)
def test_the_longest_mount_point_above_a_path_holds_it(path: str, mount: str) -> None:
    for disks in ([disk("/"), disk("/data"), disk("/data/cache")], [disk("/data/cache"), disk("/data"), disk("/")]):
        found = file_system(path, disks)
        assert found is not None and found.mount == mount


def test_of_two_on_one_point_the_newer_holds_it_and_outside_of_all_nothing_does() -> None:
    found = file_system("/data/x", [disk("/"), disk("/data"), disk("/data", "nfs4")])
    assert found is not None and found.fstype == "nfs4"
    assert file_system("/srv", [disk("/data")]) is None and file_system("/srv", []) is None


@pytest.mark.parametrize(
    ("inside", "host"),
    [
        ("/data", "/nfs/data"),
        ("/data/x", "/nfs/data/x"),
        ("/data/cache/x", "/ssd/x"),  # the inner volume, wherever it stands
        ("/data/cached", "/nfs/data/cached"),
        ("/ro/x", "/srv/x"),
        ("/elsewhere", None),
        ("/database", None),
    ],
)
def test_a_container_s_path_lies_in_its_innermost_volume(inside: str, host: str | None) -> None:
    volumes = {"/nfs/data": "/data", "/ssd": "/data/cache", "/srv": "/ro:ro"}
    assert host_path(inside, volumes) == host
    assert host_path(inside, dict(reversed(volumes.items()))) == host


def test_a_cache_behind_an_inner_volume_or_a_covering_mount_is_not_shared() -> None:
    """The plan and disk_free ask the same function: a local disk below a shared folder is local."""
    recipe = recipes()["llama3.1-8b-fp8-2nodes"]
    cache = recipe.family.launch.cache_dir
    assert cache is not None
    real = dict(recipe.family.launch.real_data)

    def problems(volumes: dict[str, str], mounts: list[Disk]) -> list[str]:
        options = {**real, cache: "/data/cache"}
        wanted = desired(
            images={"it": "rocm/x:1"},
            smoke={"recipe": recipe.name, "image": "it", "options": options, "volumes": volumes},
        )
        assert wanted.smoke is not None
        chosen, _ = choose(recipe, wanted.smoke)
        state = with_(healthy(), {"disks": [mount.model_dump() for mount in mounts]})
        planned = draft(wanted, {"a": state, "b": state})
        note_shared_cache(planned, chosen)
        return [problem.value for problem in planned.problems]

    nfs = [disk("/"), disk("/nfs", "nfs4")]
    assert problems({"/nfs": "/data"}, nfs) == []
    assert problems({"/nfs": "/data", "/local": "/data/cache"}, nfs) == ["/local on dev/ (ext4)"] * 2
    assert problems({"/nfs": "/data"}, [*nfs, disk("/nfs", "xfs")]) == ["/nfs/cache on dev/nfs (xfs)"] * 2
    assert (
        problems({"/nfs": "/data"}, [*nfs, disk("/nfs/cache", "tmpfs")]) == ["/nfs/cache on dev/nfs/cache (tmpfs)"] * 2
    )
