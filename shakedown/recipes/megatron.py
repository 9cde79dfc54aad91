"""What Megatron-LM itself refuses: the rules of megatron.toml, in the words of a family's options."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from shakedown.common.data import read_toml
from shakedown.recipes.option import Option, Value
from shakedown.recipes.program import further_option
from shakedown.recipes.recipe import Family, Rule, families

_TRUE_FALSE = ["true", "false"]  # the flags of configuration files


@cache
def megatron_rules() -> list[Rule]:
    """Return the rules in Megatron-LM's own arguments."""
    return TypeAdapter(list[Rule]).validate_python(read_toml("shakedown.recipes", "megatron.toml")["rules"])


@cache
def rules_of(family_name: str) -> list[Rule]:
    """Return the rules that a family's program can break; none where the program is not Megatron-LM."""
    family = families().get(family_name)
    in_own_words = [_translate(rule, family) for rule in megatron_rules()] if family and family.programs else []
    return [rule for rule in in_own_words if rule is not None]


def option_of(family: Family, name: str) -> Option | None:
    """Return an option of the family, or any other argument of its program."""
    return family.options.get(name) or further_option(family, name)


def _translate(rule: Rule, family: Family) -> Rule | None:
    """Return a rule with the family's options; None where its condition cannot hold."""

    def own(name: str) -> str:
        return family.names.get(name, name.replace("-", "_") if family.in_file else name)

    def values(given: Mapping[str, Value]) -> dict[str, Value]:
        return {own(name): _value(option_of(family, own(name)), value) for name, value in given.items()}

    condition = [own(name) for name in (*rule.when, *rule.given)]
    passed = {name for part in family.conditional for name in part.passes}
    if any(option_of(family, name) is None and name not in passed for name in condition):
        return None
    changes: dict[str, Any] = {
        "when": values(rule.when),
        "given": [own(name) for name in rule.given],
        "require": {name: value for name, value in values(rule.require).items() if option_of(family, name)},
        "needs": [] if family.in_file else [own(name) for name in rule.needs],  # the file may have them
        "excludes": [own(name) for name in rule.excludes],
        "at_least": {
            own(name): own(other) if isinstance(other, str) else other for name, other in rule.at_least.items()
        },
    }
    return rule.model_copy(update=changes)


def _value(option: Option | None, value: Value) -> Value:
    return _TRUE_FALSE[value == 0] if option is not None and option.values == _TRUE_FALSE else value
