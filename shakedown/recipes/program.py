"""Arguments and variables of programs at the commits read, one file each under `programs/`, by
tests/program_arguments.py. Recipes are held against them; other arguments can be options too. Megatron-LM's own rules
are in megatron.toml."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from shakedown.common.data import kept_toml, read_toml
from shakedown.recipes.option import Option, Value
from shakedown.recipes.recipe import Family, Rule, families


@dataclass(frozen=True)
class Program:
    """A program at a commit. `arguments` without dashes; a script's `variables` it takes, `sets` it always sets."""

    name: str
    source: str
    commit: str
    date: str  # of the commit
    arguments: dict[str, dict[str, Any]]
    variables: dict[str, dict[str, str]]  # script -> variable -> default, as written there
    sets: dict[str, list[str]]  # script -> variables

    def names(self, script: str | None) -> list[str]:
        """Its arguments, and the variables of one of its scripts."""
        return [*self.arguments, *self.variables.get(script or "", {})]

    def takes(self, name: str, script: str | None) -> bool:
        """Is this one of its arguments, or a variable of the script?"""
        return name in self.arguments or name in self.variables.get(script or "", {})


@cache
def program(name: str) -> Program:
    """Return a program of `programs/`."""
    document = read_toml("shakedown.recipes", f"programs/{name}.toml")
    scripts = document.get("scripts", {})
    taken = {script: values["variables"] for script, values in scripts.items()}
    fixed = {script: values["sets"] for script, values in scripts.items()}
    own = {key: document[key] for key in ("source", "commit", "date", "arguments")}
    return Program(name=name, variables=taken, sets=fixed, **own)


def of_image(family: Family, reference: str | None) -> list[Program]:
    """Return the versions of a family's program that may be in an image: the documented one, or any that was read."""
    own = family.images.get(reference or "")
    return [program(name) for name in ([own] if own else family.programs)]


def further_option(family: Family, name: str) -> Option | None:
    """Return an argument or a variable that the family leaves to the program, at any of the commits that were read."""
    if name in {*family.refused, *family.names, *family.launch.variables()} or name.startswith(ENVIRONMENT):
        return None
    rows = [known.arguments[name] for known in programs(family) if name in known.arguments]
    if rows:
        values = [value for row in rows for value in row.get("values", [])]
        return Option(
            type=rows[0]["type"],
            description="an argument of the program",
            values=list(dict.fromkeys(values)) if all(row.get("values") for row in rows) else [],
            argument=f"--{name}",
            many=any(row.get("many", False) for row in rows),
            loose=rows[0]["type"] == "text",
            in_volume=name.replace("_", "-") in _DATA,
        )
    if any(known.takes(name, family.script) for known in programs(family)):
        return Option(type="text", description="a variable of the script", loose=True)
    return None


def programs(family: Family) -> list[Program]:
    """Return the versions of a family's program that were read."""
    return [program(name) for name in family.programs]


# Data that a program reads, among the arguments that no family names.
_DATA = ("data-path", "train-data-path", "valid-data-path", "test-data-path", "data-args-path", "vocab-file", "load")

# Variables of RCCL, HIP and the like: scripts hand them on, and their place is smoke.environment.
ENVIRONMENT = ("NCCL_", "RCCL_", "GLOO_", "TORCH_", "HIP_", "CUDA_", "HSA_", "GPU_", "HF_", "HUGGING", "WANDB_")
# Of what scripts set themselves, those that reach a library all the same: the job's environment holds for torchrun.
HANDED_ON = (*ENVIRONMENT, "TOKENIZERS_", "TE_", "NVTE_", "PYTHONPATH")


def gated(model: str) -> bool:
    """Return whether Hugging Face requires a token of an account that has accepted the model's licence."""
    return any(fnmatchcase(model, pattern) for pattern in kept_toml("shakedown.recipes", "gated.toml")["models"])


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
        "absent": [own(name) for name in rule.absent],
        **{
            kind: {own(name): own(other) if isinstance(other, str) else other for name, other in pairs.items()}
            for kind, pairs in (("at_least", rule.at_least), ("below", rule.below))
        },
    }
    return rule.model_copy(update=changes)


def _value(option: Option | None, value: Value) -> Value:
    return _TRUE_FALSE[value == 0] if option is not None and option.values == _TRUE_FALSE else value
