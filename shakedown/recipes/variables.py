"""Variables that a job's environment cannot set, and those that name devices of a node: variables.toml."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

from shakedown.common.data import read_toml
from shakedown.common.section import Section
from shakedown.desired.models import DesiredState, Smoke
from shakedown.desired.problems import Problem
from shakedown.recipes.options import NO_TOKEN_HERE, TOKENS, ResolvedOptions, condition_of
from shakedown.recipes.program import HANDED_ON, program, programs, rules_of
from shakedown.recipes.variable_words import meant


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
