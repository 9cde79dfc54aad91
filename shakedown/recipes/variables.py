"""Variables that a job's environment cannot set, those that name devices of a node (variables.toml), and misspelt
names: those that no library reads, and that differ by a slip from one that a library reads."""

import json
from collections.abc import Collection, Iterator, Mapping
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Literal

from shakedown.common.data import read_toml
from shakedown.common.section import Section
from shakedown.desired.models import DesiredState, Smoke
from shakedown.desired.problems import Problem
from shakedown.recipes.options import NO_TOKEN_HERE, TOKENS, ResolvedOptions, condition_of
from shakedown.recipes.program import HANDED_ON, program, programs, rules_of


class _Derived(Section):
    names: list[str]  # with * for the rest of a name
    why: str


class Device(Section):
    """What a variable names, and how its list is written."""

    what: Literal["interface", "hca", "any", "gid"]
    list: Literal["nccl", "names"]


class _Variables(Section):
    known: list[str]
    derived: list[_Derived]
    devices: dict[str, Device]


@cache
def variables() -> _Variables:
    """Return the data of the file."""
    return _Variables.model_validate(read_toml("shakedown.recipes", "variables.toml"))


def environment_problems(chosen: ResolvedOptions, smoke: Smoke) -> Iterator[Problem]:
    """Refuse among the site's own variables what another place sets: derived values, options, tokens, the script."""
    return _problems(chosen, "smoke", smoke.environment)


def layer_problems(chosen: ResolvedOptions, desired: DesiredState) -> Iterator[Problem]:
    """Refuse in the environments of GPU and NIC what the plan or an option sets over them."""
    yield from _problems(chosen, "gpu", desired.gpu.environment)
    yield from _problems(chosen, "rdma", desired.rdma.environment)


def _problems(chosen: ResolvedOptions, section: str, environment: Mapping[str, str]) -> Iterator[Problem]:
    for name, value in environment.items():
        path = f"{section}.environment.{name}"
        if name in TOKENS:
            yield Problem(section, path, "(not shown)", NO_TOKEN_HERE)
        elif section != "smoke" and name in variables().devices:
            yield Problem(
                section, path, repr(value), f"smoke.environment.{name}: the plan's own value wins over it here"
            )
        elif (reason := _elsewhere(chosen, name, value) or _misspelt(chosen, name)) is not None:
            yield Problem(section, path, repr(value), reason)


def _misspelt(chosen: ResolvedOptions, name: str) -> str | None:
    """Return what was expected in place of a variable that nothing reads, and whose name is like a known one."""
    family = chosen.recipe.family
    own = [known for known in (*family.options, *family.launch.variables()) if known == known.upper()]
    own += [word for known in programs(family) for word in known.variables.get(family.script or "", ())]
    derived = [known for row in variables().derived for known in row.names if "*" not in known]
    near = meant(name, {*own, *derived, *variables().devices})
    return f"a known variable: did you mean {near}?" if near else None


def _elsewhere(chosen: ResolvedOptions, name: str, value: str) -> str | None:
    """Return what was expected in place of a variable that does nothing, or ends the program; None: it may be set."""
    family = chosen.recipe.family
    if name in family.launch.variables():
        return "no such variable: it is derived from the nodes"
    for row in variables().derived:
        if any(fnmatchcase(name, pattern) for pattern in row.names):
            return f"no such variable: it is derived from the nodes ({row.why})"
    if name in chosen.variables() or (name in family.options and not family.options[name].argument):
        return f"smoke.options.{name}"
    if name in family.refused and name == name.upper():
        return f"no such variable: {family.refused[name]}"
    sets = [program(known).sets.get(family.script or "", []) for known in family.programs]
    if sets and all(name in own for own in sets) and not name.startswith(HANDED_ON):
        return f"no such variable: {family.script} sets it itself"
    for rule in rules_of(chosen.recipe.family_name):
        if rule.variables.get(name) == value and chosen.holds(rule):
            return f"another value{condition_of(rule)}: {rule.why}"
    return None


_WHOLE = ("NCCL", "RCCL", "HSA", "HIP", "ROCR", "GLOO")  # families of which nearly all names are known
_ALIKE = 0.7  # of two parts there, as IDX and INDEX, or IFACE and IFNAME
_LONG = 5  # characters of a part of a name from which one other letter is a slip: FWD and BWD are two names


@cache
def _known() -> frozenset[str]:
    names = json.loads((files("shakedown.recipes") / "variable_names.json").read_text("utf-8"))["names"]
    return frozenset([*names, *variables().known])


def meant(name: str, others: Collection[str] = ()) -> str:
    """Return the variable of libraries or `others` that a name was meant to be; empty: known, or like none."""
    known = _known()
    if name in known or name in others:
        return ""
    return next((other for other in sorted({*known, *others}) if _slip(name, other)), "")


def _slip(name: str, other: str) -> bool:
    """Return whether a name is another one with its case, its order, an underscore, or a letter of one part wrong."""
    if abs(len(name) - len(other)) > 2:
        return False
    parts, right = name.upper().split("_"), other.split("_")
    if "".join(parts) == "".join(right) or (sorted(parts) == sorted(right) and len(right) > 1):
        return True
    if len(parts) != len(right) or len(right) == 1:
        return False
    wrong = [(number, a, b) for number, (a, b) in enumerate(zip(parts, right, strict=True)) if a != b]
    return len(wrong) == 1 and _near(*wrong[0], right[0] in _WHOLE)


def _near(number: int, part: str, right: str, whole: bool) -> bool:
    """Return whether one letter of a part is missing, extra, exchanged or other. Digits tell a family's names apart."""
    if part.strip("0123456789") == right.strip("0123456789"):
        return False
    if sorted(part) == sorted(right):
        return sum(a != b for a, b in zip(part, right, strict=True)) == 2
    short, long = sorted((part, right), key=len)
    if len(short) == len(long) and sum(a != b for a, b in zip(part, right, strict=True)) == 1:
        return len(right) >= _LONG or number == 0 or (whole and len(right) > 2)
    if len(long) - len(short) == 1 and any(long[:place] + long[place + 1 :] == short for place in range(len(long))):
        return True
    return whole and number > 1 and SequenceMatcher(None, part, right).ratio() >= _ALIKE
