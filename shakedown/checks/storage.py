"""Storage: file systems that do not answer, and the health of the node's own drives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shakedown.checks import check_wanted
from shakedown.checks.compare import AS_ROOT, comparison, data, read_again, unknown
from shakedown.desired.models import DesiredState
from shakedown.state.findings import Comparison, Remedy, Verdict
from shakedown.state.node import Drive, NodeState, is_unreadable

STUCK = Remedy(
    text="see that the mount's server and the way to it are up; then `umount -f -l` it, or reboot the node: processes "
    "that wait in it cannot be ended"
)
_TOOLS = Remedy(text="install nvme-cli and smartmontools on the node, then check again")
_NO_DRIVE = Remedy(text="find out why the kernel shows no drive; a node without any needs no system.drive_health")
_VIRTUAL = Remedy(text="check the drives of the machine behind the virtual disk, which has no health of its own")
_GRAVEST = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN)


@check_wanted("mounts", "system.mounts_answer")
def mounts(desired: DesiredState, state: NodeState, _wanted: bool) -> Comparison | None:
    """Check that every mounted file system answers statvfs within the probe's limit. A process that touches a stuck
    mount hangs with it."""
    wanted = "every mount answers"
    if is_unreadable(state.disks):
        return unknown(wanted, state.disks)
    readings = {disk.mount: disk for disk in state.disks if is_unreadable(disk.free_bytes)}
    late = {name: disk for name, disk in readings.items() if disk.free_bytes.unreadable == "timed out"}  # type: ignore[union-attr]
    if not late:
        return Comparison(Verdict.OK, wanted=wanted, actual="all answer", evidence=f"{len(state.disks)} mounts")
    evidence = "\n".join(f"{disk.fstype} of {disk.device} on {name}: {disk.free_bytes}" for name, disk in late.items())
    return comparison(Verdict.FAIL, wanted, dict.fromkeys(late, "no answer"), evidence, STUCK)


@check_wanted("drive_health", "system.drive_health", waivable=False)
def drive_health(desired: DesiredState, state: NodeState, _wanted: bool) -> Comparison | None:
    """Judge NVMe and SMART health of each drive by the limits of `checks/drives.json`. A virtual disk has none, which
    is advice; a drive that could not be asked is unknown. What only a management controller knows (Redfish, its event
    log) is not read."""
    wanted = "healthy drives"
    if is_unreadable(state.drives):
        return unknown(wanted, state.drives)
    if not state.drives:
        return Comparison(Verdict.UNKNOWN, wanted=wanted, evidence="/sys/block has no drive", remedy=_NO_DRIVE)
    drives = [drive for drive in state.drives if drive.kind != "virtual"]
    judged = {drive.name: _judge(drive) for drive in drives}
    wrong = {name: found for name, found in judged.items() if found}
    shown = {name: "; ".join(text for _, text, _ in found) for name, found in wrong.items()}
    evidence = "\n".join(
        f"{_named(drive)}: {'virtual, not judged' if drive.kind == 'virtual' else shown.get(drive.name, 'healthy')}"
        for drive in state.drives
    )
    if not drives:
        actual = f"only virtual disks: {', '.join(drive.name for drive in state.drives)}"
        return Comparison(Verdict.WARN, wanted=wanted, actual=actual, evidence=evidence, remedy=_VIRTUAL)
    if not wrong:
        return Comparison(Verdict.OK, wanted=wanted, actual="healthy", evidence=evidence)
    worst, _, remedy = min((found[0] for found in wrong.values()), key=lambda broken: _GRAVEST.index(broken[0]))
    return Comparison(worst, wanted=wanted, actual=shown, evidence=evidence, remedy=remedy)


def _judge(drive: Drive) -> list[tuple[Verdict, str, Remedy]]:
    """Return what is wrong with a drive, the gravest first."""
    if is_unreadable(drive.health):
        closed, absent = drive.health.unreadable == "not permitted", "not installed" in drive.health.detail
        remedy = AS_ROOT if closed else _TOOLS if absent else read_again(drive.health)
        return [(Verdict.UNKNOWN, str(drive.health), remedy)]
    found = list(_broken(drive.health))
    return sorted(found, key=lambda judged: _GRAVEST.index(judged[0]))


def _broken(health: Mapping[str, int]) -> Iterator[tuple[Verdict, str, Remedy]]:
    """Yield each rule that a drive's readings break. A reading that the drive does not have breaks none."""
    knowledge = data("drives.json")
    for rule in knowledge["rules"]:
        value, limit = health.get(rule["reading"]), health.get(rule.get("at_most", ""))
        if value is None or rule.get("not_with") in health:
            continue
        broken = value >> rule["bit"] & 1 if "bit" in rule else "least" in rule and value >= rule["least"]
        if broken or (limit is not None and value <= limit):
            text = rule["text"].format(value=value, limit=limit)
            yield Verdict(rule["verdict"]), text, Remedy(text=knowledge[rule["remedy"]])


def _named(drive: Drive) -> str:
    """Return a drive with what its label says."""
    about = [value for value in (drive.model, drive.serial) if not is_unreadable(value) and value]
    return f"{drive.name} ({', '.join(about)})" if about else drive.name
