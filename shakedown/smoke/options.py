"""The options of one smoke run: the recipe's values, those of the desired state over them, checked all at once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from shakedown.desired.models import Smoke
from shakedown.desired.problems import Problem
from shakedown.smoke.recipe import Family, Recipe, Value


@dataclass
class Chosen:
    """The values of a recipe's options, and where they came from."""

    recipe: Recipe
    given: dict[str, Value] = field(default_factory=dict)  # passed to the program
    changed: list[str] = field(default_factory=list)  # differ from the recipe, so its figures do not hold
    forced: dict[str, str] = field(default_factory=dict)  # set by a rule -> why

    def value(self, option: str) -> Value | None:
        """The value that the program will work with; None where only the program knows."""
        return self.given.get(option, self.recipe.family.options[option].default)

    def role(self, role: str, otherwise: int = 1) -> int:
        """The number that an option of this role carries."""
        option = self.recipe.family.roles.items().get(role)
        value = self.value(option) if option else None
        return otherwise if value is None else int(value)

    def matches(self, when: Mapping[str, Value]) -> bool:
        """Do the options have these values?"""
        parse = self.recipe.family.options
        return all(self.value(name) == parse[name].parse(value) for name, value in when.items())

    def arguments(self) -> list[str]:
        """The options that the program takes on its command line, in the family's order."""
        words: list[str] = []
        for name, option in self.recipe.family.options.items():
            if option.argument and name in self.given:
                if option.type != "flag":
                    words += [option.argument, as_text(self.given[name])]
                elif self.given[name]:
                    words.append(option.argument)
        return words

    def variables(self) -> dict[str, str]:
        """The options that the program takes from its environment."""
        options = self.recipe.family.options
        return {
            name: as_text(value)
            for name, value in self.given.items()
            if not (options[name].argument or options[name].placed)
        }

    def place(self, words: str, run_dir: str) -> str:
        """A word of the family's command or working folder, with the options that stand in it."""
        placed = {name: option for name, option in self.recipe.family.options.items() if option.placed}
        values = {name: as_text(value) for name in placed if (value := self.value(name)) is not None}
        for name, value in {**values, "run_dir": run_dir}.items():
            words = words.replace(f"{{{name}}}", value)
        return words


def as_text(value: Value) -> str:
    """A value as scripts take it: flags as 1 and 0."""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def choose(recipe: Recipe, smoke: Smoke) -> tuple[Chosen, list[Problem]]:
    """Merge and check. Every unknown option, wrong value and broken rule is a problem; none stops the others."""
    family = recipe.family
    problems: list[Problem] = []
    wanted, shorthand_problems = _spell_out(family, smoke)
    problems += shorthand_problems
    chosen = Chosen(recipe)
    own = {name: family.options[name].parse(value) for name, value in recipe.entry.options.items()}
    chosen.given.update(own)
    for name, value in wanted.items():
        if name not in family.options:
            problems.append(_unknown(family, name, value))
            continue
        option = family.options[name]
        try:
            parsed = option.parse(value)
        except ValueError as error:
            problems.append(Problem("smoke", f"smoke.options.{name}", repr(value), str(error)))
            continue
        chosen.given[name] = parsed
        if option.affects_figures and parsed != own.get(name, option.default):
            chosen.changed.append(name)
    for name, option in family.options.items():
        if option.required and chosen.value(name) is None and name not in wanted:
            problems.append(
                Problem("smoke", f"smoke.options.{name}", "nothing", f"{option.expected()}: {option.description}")
            )
    problems += _iterations(chosen, smoke)
    problems += _apply_rules(chosen, own, wanted)
    for name in family.roles.items().values():
        default = family.options[name].default
        if default is not None:  # a program whose own default is another in its next version must not surprise the plan
            chosen.given.setdefault(name, default)
    return chosen, problems


def _spell_out(family: Family, smoke: Smoke) -> tuple[dict[str, Value], list[Problem]]:
    """The desired options with each shorthand replaced by what it stands for."""
    wanted: dict[str, Value] = {name: v for name, v in smoke.options.items() if name not in family.shorthand}
    problems = []
    for name, meanings in family.shorthand.items():
        if name not in smoke.options:
            continue
        value = smoke.options[name]
        path = f"smoke.options.{name}"
        if value not in meanings:
            problems.append(Problem("smoke", path, repr(value), f"one of {', '.join(meanings)}"))
            continue
        for option, meaning in meanings[str(value)].items():
            if wanted.setdefault(option, meaning) != meaning:
                expected = f"what {option} = {as_text(wanted[option])} says, or no {option}"
                problems.append(Problem("smoke", path, repr(value), expected))
    return wanted, problems


def _unknown(family: Family, name: str, value: Value) -> Problem:
    path = f"smoke.options.{name}"
    if name in family.refused:
        return Problem("smoke", path, repr(value), f"no such option: {family.refused[name]}")
    if name in family.launch.variables():
        return Problem("smoke", path, repr(value), "no such option: it is derived from the nodes")
    near = difflib.get_close_matches(name, [*family.options, *family.shorthand], n=1, cutoff=0.6)
    known = f"did you mean {near[0]}?" if near else f"one of {', '.join([*family.options, *family.shorthand])}"
    return Problem("smoke", path, repr(value), f"a known option ({known})")


def _iterations(chosen: Chosen, smoke: Smoke) -> list[Problem]:
    """`smoke.iterations` is the plain way to say it; fewer than 4 leave no steady iteration."""
    option = chosen.recipe.family.roles.iterations
    if smoke.iterations is not None:
        if option in smoke.options and smoke.options[option] != smoke.iterations:
            expected = f"{smoke.options[option]} as smoke.options.{option} says, or one of the two"
            return [Problem("smoke", "smoke.iterations", str(smoke.iterations), expected)]
        try:
            chosen.given[option] = chosen.recipe.family.options[option].parse(smoke.iterations)
        except ValueError as error:
            return [Problem("smoke", "smoke.iterations", str(smoke.iterations), str(error))]
    if chosen.role("iterations") < 4:
        return [Problem("smoke", f"smoke.options.{option}", str(chosen.value(option)), "at least 4")]
    return []


def _apply_rules(chosen: Chosen, own: Mapping[str, Value], wanted: Mapping[str, Value]) -> list[Problem]:
    problems = []
    for rule in chosen.recipe.family.rules:
        if not chosen.matches(rule.when):
            continue
        condition = " and ".join(f"{name} = {as_text(value)}" for name, value in rule.when.items())
        for name, value in rule.require.items():
            required = chosen.recipe.family.options[name].parse(value)
            if name not in own and name not in wanted:
                if chosen.value(name) != required:
                    chosen.given[name] = required
                    chosen.forced[name] = f"{condition}: {rule.why}"
            elif (given := chosen.given.get(name, required)) != required:
                expected = f"{as_text(required)} with {condition}: {rule.why}"
                problems.append(Problem("smoke", f"smoke.options.{name}", as_text(given), expected))
    return problems
