"""The machine besides its tuning: container engine, clock, disk room."""

from __future__ import annotations

from collections.abc import Iterator

from shakedown.checks import check, check_wanted
from shakedown.checks.compare import comparison, data, installed, missing, unknown
from shakedown.desired.models import ContainerEngine, DesiredState
from shakedown.recipes.documents import room
from shakedown.state import images
from shakedown.state.findings import Comparison, Remedy, Verdict
from shakedown.state.mounts import file_system
from shakedown.state.node import NodeState, is_unreadable

# Kernel, firmware and an integrated GPU keep up to a tenth of a small machine's memory; a module that is missing is a
# quarter or more.
RAM_SHARE = 0.9
# As the distributions name them, in order of preference.
TIME_SERVICES = ["chrony.service", "chronyd.service", "systemd-timesyncd.service", "ntpsec.service", "ntpd.service"]
ENGINES = ["docker.service"]  # podman has no daemon
PACKAGES = data("engines.json")["packages"]


@check_wanted("container_engine", "system.container_engine")
def container_engine(desired: DesiredState, state: NodeState, wanted: ContainerEngine) -> Comparison | None:
    """Docker or podman answers."""
    engine = state.containers.engine
    label = "docker or podman" if wanted.name == "any" else wanted.name
    if is_unreadable(engine) and not missing(engine):
        if engine.unreadable == "not permitted":
            join = Remedy(text="put the job's user into the group docker (which makes it root), or use _sudo=True")
            return unknown(label, engine, remedy=join)
        return unknown(label, engine, remedy=_start("engine", ENGINES))
    right = not is_unreadable(engine) and wanted.name in ("any", engine)
    remedy = _install(wanted, label, state)
    version = "" if is_unreadable(state.containers.version) else state.containers.version
    actual, evidence = ("none", str(engine)) if is_unreadable(engine) else (f"{engine} {version}".strip(), "")
    verdict = Verdict.OK if right else Verdict.DRIFT if remedy.operation else Verdict.FAIL
    return comparison(verdict, label, actual, evidence, remedy)


def _start(what: str, names: list[str]) -> Remedy:
    text = f"start the {what}, now and at boot"
    return Remedy(text=text, operation="services.running", arguments={"names": names})


def _install(wanted: ContainerEngine, label: str, state: NodeState) -> Remedy:
    """Return how a missing engine gets there: by its package, where that is requested and the distribution has it."""
    by_hand = f"install {label} and let the job's user talk to it (group docker)"
    system = state.system.os_id
    if not wanted.install:
        return Remedy(text=f"{by_hand}, or set system.container_engine.install: True")
    if is_unreadable(system):
        return Remedy(text=f"{by_hand}: /etc/os-release, which names the distribution, could not be read")
    manager, engines = next(
        ((name, part["engines"]) for name, part in PACKAGES.items() if system in part["systems"]), ("", {})
    )
    name = next((name for name in engines if wanted.name in ("any", name)), None)
    if name is None:
        instead = f", or set system.container_engine.name to {' or '.join(engines)}" if engines else ""
        return Remedy(text=f"{by_hand}: shakedown knows no package of {label} for {system}{instead}")
    return Remedy(
        text=f"install {engines[name]} with {manager}",
        operation="engine.installed",
        arguments={"engine": name, "package": engines[name], "manager": manager},
    )


@check("clock", "system.clock_synchronised")
def clock(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Check that a time service keeps the clock."""
    wanted = desired.system.clock_synchronised
    if wanted is None:
        return None
    reading = state.clock.synchronised
    if is_unreadable(reading):
        return unknown(_synchronised(wanted), reading)
    offset = "" if is_unreadable(state.clock.offset_s) else f", offset {state.clock.offset_s:+.6f} s"
    if is_unreadable(state.clock.service):
        service, wrong, remedy = "no time service", Verdict.DRIFT, _start("node's time service", TIME_SERVICES)
    else:  # a service that runs and is not synchronised reaches no server, and no operation can change that
        service, wrong = state.clock.service, Verdict.FAIL
        remedy = Remedy(text=f"see that {service}, which runs, reaches a time server")
    verdict = Verdict.OK if reading or not wanted else wrong
    return comparison(verdict, _synchronised(wanted), _synchronised(reading), service + offset, remedy)


@check_wanted("memory", "system.memory")
def memory(desired: DesiredState, state: NodeState, wanted: int) -> Comparison | None:
    """RAM, as the kernel has it."""
    total = state.memory.total_bytes
    verdict = Verdict.OK if total >= wanted * RAM_SHARE else Verdict.FAIL
    remedy = Remedy(text="add memory, or look for modules that the firmware does not show")
    return comparison(verdict, wanted, total, "MemTotal of /proc/meminfo", remedy, unit="bytes")


@check_wanted("mpi", "system.mpi")
def mpi(desired: DesiredState, state: NodeState, wanted: str) -> Comparison | None:
    """MPI on the node. Drift and not failure where it is not: the recipes' ranks are started by torchrun."""
    remedy = Remedy(
        text="install Open MPI (openmpi-bin on Debian, openmpi on RHEL), for ROCm where ranks exchange with it"
    )
    return installed(wanted, state.software.mpi, remedy)


@check("disk_free", "system.disk_free", follows=("mounts/part",))
def disk_free(desired: DesiredState, state: NodeState) -> Iterator[Comparison]:
    """Room for an ordinary user on the file system that holds each path, and on the container engine's for the images
    that the node has not yet. `system.disk_free` is the least."""
    root, missing_images = state.containers.root, _missing_images(desired, state)
    bytes_needed = sum(missing_images.values())
    store = None if is_unreadable(root) or is_unreadable(state.disks) else file_system(root, state.disks)
    listed = ", ".join(missing_images)
    for path, wanted in desired.system.disk_free.items():
        shared = store is not None and file_system(path, state.disks) == store  # type: ignore[arg-type]
        if shared and bytes_needed > wanted:
            yield _room(path, bytes_needed, state, f"; for {listed}").about(path)
            bytes_needed = 0
        else:
            yield _room(path, wanted, state).about(path)
            bytes_needed = 0 if shared else bytes_needed
    if bytes_needed and not is_unreadable(root):
        yield _room(root, bytes_needed, state, f"; for {listed}").about(root)


def _missing_images(desired: DesiredState, state: NodeState) -> dict[str, int]:
    """Return the bytes of each image of a known size that is asked for and not in the engine's store."""
    store, engine = state.containers.images, state.containers.engine
    if is_unreadable(store):
        return {}
    references = {image.reference: images.parse(image.reference) for image in desired.images.values()}
    wanted = {name: room(at) for name, at in references.items() if not images.held(store, at, engine)}
    return {name: size for name, size in wanted.items() if size}


def _room(path: str, wanted: int, state: NodeState, purpose: str = "") -> Comparison:
    if is_unreadable(state.disks):
        return unknown(wanted, state.disks)
    disk = file_system(path, state.disks)
    if disk is None:
        evidence = f"no mounted file system holds {path}"
        remedy = Remedy(text=f"mount a file system that holds {path}, or correct system.disk_free")
        return Comparison(verdict=Verdict.UNKNOWN, wanted=wanted, unit="bytes", evidence=evidence, remedy=remedy)
    if is_unreadable(disk.free_bytes):
        return unknown(wanted, disk.free_bytes, evidence=f"{disk.fstype} on {disk.mount}")
    verdict = Verdict.OK if disk.free_bytes >= wanted else Verdict.FAIL
    evidence = f"{disk.fstype} on {disk.mount} ({disk.device}){purpose}"
    remedy = Remedy(text=f"make room on {disk.mount}; shakedown deletes nothing that is not its own")
    return comparison(verdict, wanted, disk.free_bytes, evidence, remedy, unit="bytes")


def _synchronised(value: bool) -> str:
    return "synchronised" if value else "not synchronised"
