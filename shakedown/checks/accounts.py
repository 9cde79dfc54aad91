"""The user that runs jobs: limits and groups. A session keeps what it began with, so the next login counts too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shakedown.checks import check
from shakedown.checks.compare import NEW_LOGIN, compare_setting
from shakedown.desired.models import DesiredState
from shakedown.state.findings import Comparison, Remedy, Verdict
from shakedown.state.node import Account, NodeState, Setting

_LISTED = ("render", "video", "docker")  # the groups whose members the probe reads


@check("memlock", "tuning.memlock")
def memlock(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Memory that may be locked, which RDMA registers."""
    wanted = desired.tuning.memlock
    return None if wanted is None else _limit("memlock", wanted, state.limits.memlock, "KiB", state)


@check("nofile", "tuning.nofile")
def nofile(desired: DesiredState, state: NodeState) -> Comparison | None:
    """Files that may be open at once."""
    wanted = desired.tuning.nofile
    return None if wanted is None else _limit("nofile", wanted, state.limits.nofile, "files", state)


def _limit(name: str, wanted: int | str, setting: Setting, unit: str, state: NodeState) -> Comparison:
    user = state.account.user
    remedy = Remedy(
        text=f"set {name} to {wanted} for all users in limits.d, from the next login on",
        operation="tuning.limits",
        arguments={name: wanted, "user": user},
    )
    evidence = f"/proc/self/limits of {user}, /etc/security/limits.d"
    found = compare_setting(wanted, setting, evidence=evidence, unit=unit, remedy=remedy)
    # Written down and not in this session: it is a login that is waited for, not a boot.
    return replace(found, reboot_pending=False, remedy=NEW_LOGIN) if found.reboot_pending else found


@check("groups", "tuning.groups")
def groups(desired: DesiredState, state: NodeState) -> Iterator[Comparison]:
    """One finding per group: it exists, the user is a member, and the session has it. Root's sessions need none."""
    for group in desired.tuning.groups:
        yield _group(group, state.account).about(group)


def _group(group: str, account: Account) -> Comparison:
    user = account.user
    in_session = group in account.groups
    # A directory server may give groups that no file names; of those the session is all the evidence there is.
    member = group in account.at_login or (group not in _LISTED and in_session)
    if member and (in_session or user == "root"):
        actual, remedy = "member", None
    elif member:
        actual, remedy = "member, not in this session", NEW_LOGIN
    else:
        exists = group not in _LISTED or group in account.members
        actual = "not a member" if exists else "no such group"
        remedy = Remedy(
            text=f"make {user or 'the user'} a member of {group}, from the next login on",
            operation="tuning.groups",
            arguments={"user": user, "groups": [group]},
        )
    return Comparison(
        verdict=Verdict.DRIFT if remedy else Verdict.OK,
        wanted="member",
        actual=actual,
        persisted="member" if member else None,
        evidence=f"/etc/group, groups of the session of {user}",
        remedy=remedy,
    )
