"""The two forms of the file, the one job of them that is wanted, and the layer that it becomes.

The older form has sections: model_params.(single_node|multi_node).MODEL.GPU. The newer has one model for one GPU, and a
sweep whose runs change some of its parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shakedown.desired import profiles
from shakedown.desired.cvs.document import Given, Notes
from shakedown.desired.cvs.tables import ModelFamily

_TOPOLOGIES = {"single_node": False, "multi_node": True}


@dataclass(frozen=True)
class Choice:
    """What a person chooses of a file; None where the file leaves no choice. `thresholds` is the path of a threshold
    file, where several stand beside the file and it names none."""

    model: str | None = None
    gpu: str | None = None
    run: str | None = None
    thresholds: str | None = None


@dataclass(frozen=True)
class SelectedJob:
    """One job of the file. `cell` holds its model parameters, each with its own path; `path` is the cell's."""

    form: str  # "sections" or "sweep"
    distributed: bool
    model: Given
    gpu: str  # a GPU profile
    path: str
    cell: dict[str, Given]

    @property
    def tags(self) -> set[str]:
        """What parameters.toml calls this kind of file."""
        return {self.form, *(["distributed"] if self.distributed else [])}


def choose(given: Mapping[str, Given], choice: Choice, notes: Notes) -> SelectedJob | None:
    """Return the wanted job; None, with every reason noted, where there is none."""
    params = given.get("model_params")
    if params is None or not isinstance(params.value, dict):
        notes.wrong(params or Given("model_params", "model_params", None), "an object with the model's parameters")
        return None
    if "schema_version" in given or "sweep.combinations" in given:
        return _of_sweep(given, params, choice, notes)
    return _of_sections(given, params, choice, notes)


def profile_of(name: object) -> str | None:
    """Return the GPU profile of a name in these files: mi325 and MI325X are mi325x."""
    profile = str(name).lower().removesuffix("x") + "x"
    return profile if profile in profiles.names("gpu") else None


def _of_sections(given: Mapping[str, Given], params: Given, choice: Choice, notes: Notes) -> SelectedJob | None:
    if choice.run is not None:
        notes.wrong(Given("run", "run", choice.run), "no run: this form of the file has models and GPUs")
    cells: dict[tuple[str, str, str], dict[str, Any]] = {}
    for topology, models in params.value.items():
        for model, gpus in models.items() if isinstance(models, dict) else ():
            for gpu, cell in gpus.items() if isinstance(gpus, dict) else ():
                if isinstance(cell, dict):
                    cells[topology, model, gpu] = cell
    for topology in params.value:
        if topology not in _TOPOLOGIES:
            where = Given("model_params", f"{params.path}.{topology}", topology)
            notes.wrong(where, f"one of {', '.join(_TOPOLOGIES)}")
    wanted = _wanted_topologies(given)
    fitting = [
        key
        for key in cells
        if _TOPOLOGIES.get(key[0]) in wanted
        and choice.model in (None, key[1])
        and (choice.gpu is None or profile_of(choice.gpu) == profile_of(key[2]) or choice.gpu == key[2])
    ]
    if len(fitting) != 1:
        there = ", ".join(f"{model} on {gpu} ({topology})" for topology, model, gpu in cells) or "none is there"
        requested = f"{choice.model or 'any model'} on {choice.gpu or 'any GPU'}"
        expected = f"exactly one, chosen by model and gpu (--model, --gpu), of: {there}"
        notes.wrong(Given("model_params", params.path, requested), expected)
        return None
    topology, model, gpu = fitting[0]
    path = f"{params.path}.{topology}.{model}.{gpu}"
    profile = profile_of(gpu)
    if profile is None:
        notes.wrong(Given("gpu", path, gpu), f"a GPU of {', '.join(profiles.names('gpu'))}")
        return None
    cell = {name: Given(f"model.{name}", f"{path}.{name}", value) for name, value in cells[fitting[0]].items()}
    named = Given("model", f"{params.path}.{topology}.{model}", model)
    return SelectedJob("sections", _TOPOLOGIES[topology], named, profile, path, cell)


def _wanted_topologies(given: Mapping[str, Given]) -> set[bool]:
    """Return both, unless `distributed_training` chooses one."""
    flag = given.get("config.distributed_training")
    wanted = {"true": {True}, "false": {False}}.get(str(flag.value).lower()) if flag else None
    return wanted or {True, False}


def _of_sweep(given: Mapping[str, Given], params: Given, choice: Choice, notes: Notes) -> SelectedJob | None:
    before = len(notes.problems)
    model = Given("model.model_name", f"{params.path}.model_name", params.value.get("model_name"))
    arch = given.get("gpu_arch", Given("gpu_arch", "gpu_arch", None))
    profile = profile_of(arch.value)
    if profile is None:
        notes.wrong(arch, f"a GPU of {', '.join(profiles.names('gpu'))}")
    elif choice.gpu is not None and profile_of(choice.gpu) != profile:
        notes.wrong(Given("gpu", "gpu", choice.gpu), f"{arch.value}, for which the file is, or nothing")
    if not isinstance(model.value, str) or not model.value:
        notes.wrong(model, "a model's name")
    elif choice.model is not None and choice.model.lower() != model.value.lower():
        notes.wrong(Given("model", "model", choice.model), f"{model.value}, for which the file is, or nothing")
    run = _run(given, choice, notes)
    if run is None or profile is None or len(notes.problems) > before:
        return None
    name, combination = run
    path = f"sweep.combinations.{name}"
    cell = {key: Given(f"model.{key}", f"{params.path}.{key}", value) for key, value in params.value.items()}
    cell |= {key: Given(f"model.{key}", f"{path}.{key}", value) for key, value in combination.items()}
    framework = given.get("framework")
    distributed = framework is not None and framework.value == "megatron_distributed"
    return SelectedJob("sweep", distributed, model, profile, path, cell)


def _run(given: Mapping[str, Given], choice: Choice, notes: Notes) -> tuple[str, dict[str, Any]] | None:
    """Return the chosen run and its combination of parameters."""
    combinations = given.get("sweep.combinations", Given("sweep.combinations", "sweep.combinations", None))
    known = combinations.value
    if (
        not isinstance(known, dict)
        or not known
        or not all(isinstance(combination, dict) for combination in known.values())
    ):
        notes.wrong(combinations, "an object with an object for each combination")
        return None
    listed = given.get("sweep.runs", Given("sweep.runs", "sweep.runs", list(known)))
    runs = [str(run) for run in listed.value] if isinstance(listed.value, list) else []
    for index, run in enumerate(runs):
        if run not in known:
            notes.wrong(Given("sweep.runs", f"{listed.path}.{index}", run), f"one of {', '.join(known)}")
    fitting = [run for run in runs if run in known and choice.run in (None, run, known[run].get("name"))]
    if len(fitting) != 1:
        expected = f"exactly one, chosen by run (--run), of sweep.runs: {', '.join(map(str, runs)) or 'none is there'}"
        notes.wrong(Given("run", "run", choice.run), expected)
        return None
    return fitting[0], known[fitting[0]]


@dataclass
class LayerDraft:
    """A layer in the making. `given` and `parsed` are by parameter name; `parsed` holds those of the right type."""

    notes: Notes
    file: Path
    given: dict[str, Given]
    job: SelectedJob | None
    figure_nodes: int | None  # for how many nodes a comment says the figures are
    thresholds: str | None = None  # the threshold file that a person chose
    family: ModelFamily | None = None
    parsed: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)  # smoke.options
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The model's name in the file."""
        return str(self.job.model.value) if self.job else ""

    def put(self, path: str, value: Any) -> None:
        """Set a dotted path of the layer; an object is merged into what is there."""
        *above, last = path.split(".")
        at = self.values
        for part in above:
            at = at.setdefault(part, {})
        if isinstance(value, dict) and isinstance(at.get(last), dict):
            for key, item in value.items():
                self.put(f"{path}.{key}", item) if isinstance(item, dict) else at[last].__setitem__(key, item)
        else:
            at[last] = value
