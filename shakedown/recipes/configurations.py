"""AMD's experiment files for each GPU: one toml per program here, by tests/primus_configurations.py."""

import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import yaml

from shakedown.common import plain_yaml
from shakedown.common.data import read_toml
from shakedown.common.section import Section
from shakedown.recipes.option import Text, Value

MOST = 2**18  # bytes of a site's file: AMD's longest has 6,000
TRAINER = "pre_trainer"  # the module of an experiment that trains
_VARIABLE = re.compile(r"\$\{(\w{1,100})(?::([^}$]{0,1000}))?\}")
_SWITCHES = ("use_torch_fsdp2",)  # written as true, 1 or "true"; the program's arguments take words


class Experiment(Section):
    """One experiment file: the model, the precision, and the options that the file sets."""

    model: Text
    precision: Text
    options: dict[Text, Value]
    nodes: int | None = None  # the file is made for this many
    source: Text | None = None  # of values that are newer than the commit


class Gpu(Section):
    """The files of a GPU, and its architecture."""

    folder: Text
    arch: Text


class Configurations(Section):
    """The experiment files of one program, read at one commit."""

    source: Text
    commit: Text
    date: Text  # of the commit
    read: Text  # the day on which they were read
    path: Text  # {folder} and {experiment} stand for themselves
    gpus: dict[Text, Gpu]  # by the name of the profile
    unsupported: dict[Text, dict[Text, Text]]  # architecture -> precision -> reason
    titles: dict[Text, Text]  # experiment -> what a person calls it
    files: dict[Text, Experiment]

    def file(self, profile: str, experiment: str) -> str:
        """Return the path of the file for a GPU; it need not exist."""
        return self.path.format(folder=self.gpus[profile].folder, experiment=experiment)

    def published(self, experiment: str) -> list[str]:
        """Return the GPU profiles for which AMD publishes an experiment."""
        return [profile for profile in self.gpus if self.file(profile, experiment) in self.files]


@cache
def configurations(name: str) -> Configurations:
    """Return the files of a program."""
    return Configurations.model_validate(read_toml("shakedown.recipes", f"{name}.toml"))


def entries(name: str) -> dict[str, dict[str, Any]]:
    """Return one recipe for each experiment. Its values are those of the GPU's file, so the recipe alone has none."""
    made = {}
    for experiment, title in configurations(name).titles.items():
        short = experiment.lower().replace("_v0.1", "").replace("_", "-")
        made[f"{name}-{short}"] = {"description": title, "experiment": experiment}
    return made


def read_experiment(text: str, keys: Callable[[str], bool]) -> Experiment:
    """Read the options of an experiment file for which `keys` holds. Raise ValueError with the reason."""
    if len(text) > MOST:
        raise ValueError(f"an experiment file of at most {MOST} characters")
    try:
        document = yaml.load(text, _Loader)
        if "extends" in document or "extends" in document["modules"][TRAINER]:
            raise ValueError("a file without `extends`: values of other files are not read here")
        module = document["modules"][TRAINER]
        overrides = module["overrides"] or {}
        model = str(_value(module["model"])).removesuffix(".yaml")
        options = dict(_options(overrides, keys))
    except (yaml.YAMLError, RecursionError, KeyError, TypeError, AttributeError) as error:
        shape = f"modules.{TRAINER} with model and overrides"
        raise ValueError(f"an experiment file in YAML with {shape} ({' '.join(str(error).split())[:80]})") from None
    return Experiment(model=model, precision=_precision(overrides), options=options)


class _Loader(plain_yaml.Loader):
    """Loads a file in which each key stands once. Aliases, by which a short file becomes a long one, are refused."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias, which is not read here")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = [str(key.value) for key, _ in node.value]
        if len(names) > len(set(names)):
            raise yaml.YAMLError(f"{max(names, key=names.count)[:40]!r} stands there twice")
        return super().construct_mapping(node, deep)


def _options(overrides: dict[str, Any], keys: Callable[[str], bool]) -> Iterator[tuple[str, Value]]:
    for name, written in overrides.items():
        value = _value(written) if keys(name) else None
        if name in _SWITCHES and value is not None:
            value = "true" if value in (True, 1, "true") else "false"
        if value is not None:
            yield name, value


def _value(written: object) -> Any:
    """Return a value with `${NAME:default}` as its default: the plan passes every size, so no variable is needed."""
    if isinstance(written, str) and (match := _VARIABLE.search(written)):
        if match[2] is None:
            raise ValueError(f"a value in place of ${{{match[1]}}}, which has no default")
        whole = match.span() == (0, len(written))
        written = yaml.load(match[2], _Loader) if whole else written.replace(match[0], match[2], 1)
    if isinstance(written, float) and not math.isfinite(written):
        raise ValueError(f"a number in place of {written}")
    return written


def _precision(overrides: dict[str, Any]) -> str:
    for key in ("fp4", "fp8"):
        if _value(overrides.get(key)):
            recipe = str(overrides.get(f"{key}_recipe", ""))
            return recipe.upper() if recipe.startswith("mx") else key.upper()
    return "BF16"
