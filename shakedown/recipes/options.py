"""The options of one smoke run: the recipe's values, those of the desired state over them, checked all at once."""

import difflib
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from shakedown.common.text import counted
from shakedown.desired.models import Smoke
from shakedown.desired.problems import Problem
from shakedown.recipes.option import Option, Value, as_text
from shakedown.recipes.program import ENVIRONMENT, further_option, option_of, programs, rules_of
from shakedown.recipes.recipe import Conditional, Family, Recipe, Rule

SENT = {"config": "experiment.yaml"}
"""Options whose file of the controller goes with the job: their name in the run's folder."""


@dataclass
class ResolvedOptions:
    """The values of a recipe's options, and where they came from."""

    recipe: Recipe
    given: dict[str, Value] = field(default_factory=dict)  # passed to the program
    changed: list[str] = field(default_factory=list)  # differ from the recipe, so its figures do not hold
    forced: dict[str, str] = field(default_factory=dict)  # set by a rule -> why
    extra: dict[str, Option] = field(default_factory=dict)  # given, and named by the program alone
    requested: frozenset[str] = frozenset()  # the site's own: they stay as given

    def option(self, name: str) -> Option | None:
        """Return the description of an option, from the family or from what was given besides."""
        return self.recipe.family.options.get(name) or self.extra.get(name)

    def value(self, option: str) -> Value | None:
        """Return the value that the program will work with; None where only the program knows."""
        known = self.option(option)
        return self.given.get(option, known.default if known else None)

    def role(self, role: str, otherwise: int = 1) -> int:
        """Return the number that an option of this role carries."""
        option = self.recipe.family.role_options.get(role)
        value = self.value(option) if option else None
        return otherwise if value is None else int(value)

    def matches(self, when: Mapping[str, Value]) -> bool:
        """Do the options have these values? A flag that is not set is off."""
        return all(self._has(name, value) for name, value in when.items())

    def _has(self, name: str, value: Value) -> bool:
        if name in self.recipe.family.facts:
            return self.recipe.entry.facts.get(name) == value
        option, own = option_of(self.recipe.family, name), self.value(name)
        if option is None or (option.values and value not in option.values):  # this program does not know it
            return False
        return (False if own is None and option.type == "flag" else own) == option.parse(value)

    def is_given(self, name: str) -> bool:
        """Is the option passed to the program? A flag that is off is not."""
        return name in self.given and self.given[name] is not False

    def is_on(self, name: str) -> bool:
        """Will the program work with it, whoever passes it?"""
        return name in self.passed() or self.value(name) not in (None, False, "false")

    def passed(self) -> set[str]:
        """Return the arguments that the program's script itself passes."""
        return {name for part in self.conditions() for name in part.passes}

    def holds(self, rule: Rule) -> bool:
        """Return whether the condition of a rule holds."""
        passed = self.passed()
        given = {name for name in (*rule.given, *rule.absent) if self.is_given(name) or name in passed}
        return self.matches(rule.when) and given == set(rule.given)

    def conditions(self) -> list[Conditional]:
        """Return what goes with the options as they are."""
        parts = self.recipe.family.conditional
        return [part for part in parts if self.matches(part.when) and all(self.is_given(name) for name in part.given)]

    def data(self) -> Iterator[tuple[str, str]]:
        """Yield the options that name data of the site, with the paths as the program sees them. Mock data are none."""
        family = self.recipe.family
        real, program = family.launch.real_data, self.place(family.workdir or "", "").rstrip("/")
        if real and not self.matches(real):
            return
        for name, option in {**family.options, **self.extra}.items():
            value = None if name in self.recipe.entry.sent else self.value(name)  # this package sends it along
            for path in str(value).split() if option.in_volume and value is not None else ():
                if path.startswith("/") and not (program and path.startswith(f"{program}/")):  # else the image's files
                    yield name, path

    def arguments(self) -> list[str]:
        """Return the options for the program's command line, in the family's order, and what goes with them."""
        words: list[str] = []
        for name, option in {**self.recipe.family.options, **self.extra}.items():
            if option.argument and self.is_given(name):
                value = as_text(self.given[name])
                own = [] if option.type == "flag" else value.split() if option.many else [value]
                words += [option.argument, *own]
        for part in self.conditions():
            if not any(word.removeprefix("--") in self.given for word in part.arguments):
                words += [self._filled(word) for word in part.arguments]
        return words

    def _filled(self, word: str) -> str:
        for name in self.recipe.family.options:
            if f"{{{name}}}" in word:
                value = self.value(name)
                word = word.replace(f"{{{name}}}", "" if value is None else as_text(value))
        return word

    def variables(self) -> dict[str, str]:
        """Return the options that the program takes from its environment."""
        return {
            name: as_text(value)
            for name, value in self.given.items()
            if (option := self.option(name)) and not (option.argument or option.placed)
        }

    def parameters(self) -> dict[str, str]:
        """Return the options that figures depend on, where they differ from the program's own defaults."""
        return {
            name: as_text(value)
            for name, value in self.given.items()
            if (option := self.option(name)) and option.affects_figures and value != option.default
            if name != self.recipe.family.role_options.get("iterations")
        }

    def place(self, words: str, run_dir: str) -> str:
        """Return a word of the family's command or working folder, with the options that stand in it filled in."""
        placed = {name: option for name, option in self.recipe.family.options.items() if option.placed}
        values = {name: as_text(value) for name in placed if (value := self.value(name)) is not None}
        sent = {name: f"{run_dir}/{SENT[name]}" for name in self.recipe.entry.sent}
        for name, value in {**values, **sent, "run_dir": run_dir}.items():
            words = words.replace(f"{{{name}}}", value)
        return words


def choose(recipe: Recipe, smoke: Smoke) -> tuple[ResolvedOptions, list[Problem]]:
    """Merge and check. Every unknown option, wrong value and broken rule is a problem; none stops the others."""
    family = recipe.family
    problems: list[Problem] = []
    wanted, shorthand_problems = _spell_out(family, smoke)
    problems += shorthand_problems
    chosen = ResolvedOptions(recipe, requested=frozenset(wanted))
    own = {name: family.options[name].parse(value) for name, value in recipe.entry.options.items()}
    chosen.given.update(own)
    for name, value in wanted.items():
        option = family.options.get(name) or further_option(family, name)
        if option is None:
            problems.append(_unknown(family, name, value))
            continue
        if name not in family.options:
            chosen.extra[name] = option
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
            expected = f"{option.expected()}: {option.description}"
            problems.append(Problem("smoke", f"smoke.options.{name}", "nothing", expected))
    problems += _iterations(chosen, smoke)
    for rule in (*family.rules, *rules_of(recipe.family_name)):
        if chosen.holds(rule):
            problems += _apply(rule, chosen, {*own, *wanted})
    for name in family.role_options.values():
        default = family.options[name].default
        if default is not None:  # a program whose own default is another in its next version must not surprise the plan
            chosen.given.setdefault(name, default)
    return chosen, problems


def _spell_out(family: Family, smoke: Smoke) -> tuple[dict[str, Value], list[Problem]]:
    """Return the desired options with every shorthand replaced by what it stands for."""
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


TOKENS = ("HF_TOKEN", "HF_HUB_TOKEN", "HUGGING_FACE_HUB_TOKEN", "hf_token")
NO_TOKEN_HERE = (
    "no token in the open: smoke.hf_token_file names a file of this machine, or HF_TOKEN is exported where this runs"
)


def _unknown(family: Family, name: str, value: Value) -> Problem:
    path = f"smoke.options.{name}"
    if name in TOKENS:
        return Problem("smoke", path, "(not shown)", NO_TOKEN_HERE)
    if name in family.refused or name in family.names:
        reason = family.refused.get(name) or f"it is {family.names[name]}"
        return Problem("smoke", path, repr(value), f"no such option: {reason}")
    if name in family.launch.variables():
        return Problem("smoke", path, repr(value), "no such option: it is derived from the nodes")
    if name.startswith(ENVIRONMENT):
        return Problem("smoke", path, repr(value), f"no such option: it is a variable, smoke.environment.{name}")
    own = [*family.options, *family.shorthand]
    further = [word for version in programs(family) for word in version.names(family.script)]
    near = _nearest(name, [*further, *family.refused, *family.names, *own])
    known = f"did you mean {near}?" if near else f"such as {', '.join(own)}, or another of the program's own"
    return Problem("smoke", path, repr(value), f"a known option ({known})")


def _nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the word that was meant: dashes, underscores and case are no difference."""
    plain = {word.replace("_", "-").lower(): word for word in known}
    near = difflib.get_close_matches(name.lstrip("-").replace("_", "-").lower(), plain, n=1, cutoff=0.6)
    return plain[near[0]] if near else None


def _iterations(chosen: ResolvedOptions, smoke: Smoke) -> list[Problem]:
    """`smoke.iterations` is the plain way to say it; fewer than 4 leave no steady iteration."""
    option = chosen.recipe.family.role_options.get("iterations")
    if option is None:
        wanted = f"nothing: {chosen.recipe.name} chooses their number"
        return [Problem("smoke", "smoke.iterations", str(smoke.iterations), wanted)] if smoke.iterations else []
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


def _apply(rule: Rule, chosen: ResolvedOptions, requested: Collection[str]) -> Iterator[Problem]:
    condition = condition_of(rule)
    for name, value in rule.require.items():
        option = option_of(chosen.recipe.family, name)
        if option is None:
            continue
        required = option.parse(value)
        if name not in requested:
            if chosen.value(name) != required:
                chosen.given[name] = required
                chosen.forced[name] = f"{condition.removeprefix(' with ')}: {rule.why}"
                if name not in chosen.recipe.family.options:
                    chosen.extra[name] = option
        elif (given := chosen.given.get(name, required)) != required:
            yield _broken(name, as_text(given), f"{as_text(required)}{condition}: {rule.why}")
    for name in rule.needs:
        if not chosen.is_on(name):
            own = chosen.value(name)
            yield _broken(name, "nothing" if own is None else as_text(own), f"a value{condition}: {rule.why}")
    for name in rule.excludes:
        if chosen.is_on(name):
            own = chosen.value(name)
            shown = as_text(own) if own else "as the script passes it"
            yield _broken(name, shown, f"no {name}{condition}: {rule.why}")
    for words, bounds, fits in (("at least", rule.at_least, operator.ge), ("less than", rule.below, operator.lt)):
        for name, other in bounds.items():
            mine, bound = chosen.value(name), chosen.value(other) if isinstance(other, str) else other
            if mine is not None and bound is not None and not fits(float(mine), float(bound)):
                which = f"{other} = {as_text(bound)}" if isinstance(other, str) else as_text(bound)
                yield _broken(name, as_text(mine), f"{words} {which}{condition}: {rule.why}")


def condition_of(rule: Rule) -> str:
    """Return the condition of a rule for a person, " with FSDP = 1"; empty: the rule always holds."""
    words = [*(f"{name} = {as_text(value)}" for name, value in rule.when.items()), *rule.given]
    return f" with {' and '.join(words)}" if words else ""


def _broken(name: str, value: str, expected: str) -> Problem:
    return Problem("smoke", f"smoke.options.{name}", value, expected)


@dataclass(frozen=True)
class Documented:
    """The global batch of a recipe's document, and the steps that a replica does there in one iteration."""

    steps: int
    batch: int | None  # None: the document gives none
    source: str  # for the reader of a plan


def model_parallel(chosen: ResolvedOptions) -> int:
    """Return the number of ranks that hold one replica of the model."""
    return chosen.role("tensor_parallel") * chosen.role("pipeline_parallel") * chosen.role("context_parallel")


def documented(recipe: Recipe, nodes: int | None = None) -> Documented:
    """Return the document's batch as steps: batch / (micro batch x data parallel), of `nodes` or the recipe's."""
    option = recipe.family.options[recipe.family.batch_option]
    own, _ = choose(recipe, Smoke(recipe=recipe.name))
    batch = own.value(recipe.family.batch_option)
    if batch is None:
        steps = option.micro_batches or 1
        return Documented(steps, None, f"{recipe.name} has {counted(steps, 'step')}")
    count = nodes or recipe.entry.nodes or 1
    data = count * (recipe.ranks_per_node or recipe.family.document_gpus) // model_parallel(own)
    steps = int(batch) // (own.role("micro_batch") * data)
    source = f"{recipe.name} has {batch} on {counted(count, 'node')}: {counted(steps, 'step')}"
    return Documented(steps, int(batch), source)


def share(recipe: Recipe, smoke: Smoke, part: int, nodes: int, ranks: int) -> dict[str, Value]:
    """Return options for `part` of `nodes` nodes, of so many `ranks`: a site's global batch keeps its steps."""
    chosen, _ = choose(recipe, smoke)
    option = recipe.family.batch_option
    if option not in chosen.requested:
        return dict(smoke.options)
    parts = model_parallel(chosen)
    whole, own = (chosen.role("micro_batch") * max(1, count * ranks // parts) for count in (nodes, part))
    return {**smoke.options, option: max(1, chosen.role("global_batch") // whole) * own}
