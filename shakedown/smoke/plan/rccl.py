"""RCCL's warnings: a run whose log cannot hold them could not be judged on them, so a plan sees to it that it does."""

from __future__ import annotations

from collections.abc import Mapping

from shakedown.smoke.gates.evidence import HEARD

LEVEL = "NCCL_DEBUG"
FILE = "NCCL_DEBUG_FILE"
WARN = "WARN"


def audible(environment: Mapping[str, str], distributed: bool) -> dict[str, str]:
    """The environment with RCCL's warnings in the job's own output: a level that is too low is raised, whoever set it,
    and none is given a file. `distributed`: several nodes, where RCCL's tuning matters and is always heard."""
    found = dict(environment)
    asked = found.get(LEVEL)
    if (asked is not None or distributed) and (asked or "").upper() not in HEARD:
        found[LEVEL] = WARN
    if LEVEL in found:
        found.pop(FILE, None)
    return found


def told(asked: Mapping[str, str], given: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """What was changed of what somebody asked for: name, value, why."""
    changes = []
    if LEVEL in asked and given.get(LEVEL) != asked[LEVEL]:
        why = f"{asked[LEVEL] or 'an empty value'} was asked for, and would keep back the warnings that are judged"
        changes.append((LEVEL, given[LEVEL], why))
    if FILE in asked and FILE not in given:
        why = f"{asked[FILE]} was asked for: RCCL's lines would not be in the logs that are judged"
        changes.append((FILE, "left out", why))
    return changes
