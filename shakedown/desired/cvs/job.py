"""The forms of the file, told apart by content; its wanted job, and the layer that it becomes. The oldest form has
sections, model_params.(single_node|multi_node).MODEL.GPU. The newer has one model for one GPU, and a sweep of runs. The
present one (`train_params`) has sizes in the runs' names, and needs no sweep."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shakedown.common.section import Section
from shakedown.desired import profiles
from shakedown.desired.cvs.document import Given, Imported
from shakedown.desired.cvs.tables import ModelFamily, other_names
from shakedown.desired.problems import one_of

_SIZES = re.compile(r"MBS=(?P<micro_batch_size>[^,]+),GBS=(?P<global_batch_size>[^,]+),PRECISION=(?P<precision>[^,]+)")
# Without a sweep, and of the cell `smoke` on one node and on several: ROCm/cvs, megatron.rst at 01b906e8
_DEFAULTS = {"micro_batch_size": "2", "global_batch_size": "128", "precision": "BF16"}
_SMOKE = {"iters": 10, "micro_batch_size": "1", "precision": "BF16"}
_SMOKE_BATCHES = ("8", "16")
DEFAULT, SMOKE = "default", "smoke"
_LOOPBACK = re.compile(r"127\..*|localhost|::1")
_TOPOLOGIES = {"single_node": False, "multi_node": True}


class Choice(Section):
    """A person's choice of a file, None where it leaves none. `thresholds`: path of one of several threshold files."""

    model: str | None = None
    gpu: str | None = None
    run: str | None = None
    thresholds: str | None = None


@dataclass(frozen=True)
class SelectedJob:
    """One job of the file. `cell` holds its model parameters, each with its own path; `path` is the cell's."""

    form: str  # "sections", "sweep" or "present", which has sweeps too
    distributed: bool
    model: Given
    gpu: str  # a GPU profile
    path: str
    cell: dict[str, Given]
    run: str = ""
    thresholds: Mapping[str, str] = field(default_factory=dict)  # run -> its cell in the threshold file

    @property
    def tags(self) -> set[str]:
        """What parameters.toml calls this kind of file. The present form derives the NIC family."""
        if self.form == "present":
            return {"sweep"}
        return {self.form, *(["distributed"] if self.distributed else [])}


def choose(given: Mapping[str, Given], choice: Choice, notes: Imported) -> SelectedJob | None:
    """Return the wanted job; None, with every reason noted, where there is none."""
    present = any(name in given and given[name].path != name for name in ("gpu_arch", "model_params"))
    params = given.get("model_params")
    if params is None or not isinstance(params.value, dict):
        absent = Given("model_params", "train_params" if present else "model_params", None)
        notes.wrong(params or absent, "an object with the model's parameters")
        return None
    if present or "schema_version" in given or "sweep.combinations" in given:
        return _of_sweep(given, params, choice, notes)
    return _of_sections(given, params, choice, notes)


def profile_of(name: object) -> str | None:
    """Return the GPU profile of a name in these files: mi325 and MI325X are mi325x."""
    profile = str(name).lower().removesuffix("x") + "x"
    return profile if profile in profiles.names("gpu") else None


def _of_sections(given: Mapping[str, Given], params: Given, choice: Choice, notes: Imported) -> SelectedJob | None:
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
            notes.wrong(where, one_of(topology, _TOPOLOGIES))
    flag = given.get("config.distributed_training")
    wanted = {"true": [True], "false": [False]}.get(str(flag.value if flag else "").lower(), [True, False])
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


def _of_sweep(given: Mapping[str, Given], params: Given, choice: Choice, notes: Imported) -> SelectedJob | None:
    """Return the chosen run. Where the GPU or the run is an error, another stands in, so that all errors are listed."""
    model = Given("model.model_name", f"{params.path}.model_name", params.value.get("model_name"))
    if not isinstance(model.value, str) or not model.value:
        notes.wrong(model, "a model's name")
    elif choice.model is not None and choice.model.lower() != model.value.lower():
        notes.wrong(Given("model", "model", choice.model), f"{model.value}, for which the file is, or nothing")
    present = params.path == "train_params"
    framework = given["framework"].value if "framework" in given else ""
    distributed = _is_distributed(given, notes) if present else framework == "megatron_distributed"
    run = _run(given, choice, notes, present)
    if run is None:
        return None
    name, path, combination = run
    if name == SMOKE:
        batch = combination.get("global_batch_size") or _SMOKE_BATCHES[distributed]
        combination = {**_SMOKE, **combination, "global_batch_size": batch}
        combination["training_iterations"] = combination.pop("iters")
    base = _DEFAULTS | params.value if name == DEFAULT else params.value
    cell = _cell(params.path, base) | _cell(path, combination)
    for key in combination.keys() & params.value.keys():
        instead = f"the run {name} has {combination[key]!r}"
        notes.refuse(Given(f"model.{key}", f"{params.path}.{key}", params.value[key]), instead)
    for key in _DEFAULTS.keys() - params.value.keys() if name == DEFAULT else ():
        notes.derive(Given(f"model.{key}", f"{params.path}.{key}", _DEFAULTS[key]), "CVS's own value without a sweep")
    gpu = _gpu(given, choice, notes) or "mi300x"
    form = "present" if present else "sweep"
    return SelectedJob(form, distributed, model, gpu, path, cell, name, _threshold_cells(given, params.value))


def _threshold_cells(given: Mapping[str, Given], base: Mapping[str, Any]) -> dict[str, str]:
    """Return the threshold cell of each run, from the values as the file writes them; `default` without a sweep."""
    combinations = given["sweep.combinations"].value if "sweep.combinations" in given else {}
    cells = {DEFAULT: DEFAULT}
    for name, body in combinations.items() if isinstance(combinations, dict) else ():
        values = [{**base, **body}.get(key, "") for key in _DEFAULTS] if isinstance(body, dict) else ["", "", ""]
        cells[name] = name if _SIZES.fullmatch(name) else "MBS={},GBS={},PRECISION={}".format(*values)
    return cells if len(cells) == 1 else {name: cell for name, cell in cells.items() if name != DEFAULT}


def _cell(path: str, values: Mapping[str, Any]) -> dict[str, Given]:
    """Return model parameters by name. In the present form iterations are among them."""
    names = {key: other_names().get(f"model.{key}", f"model.{key}") for key in values}
    return {name: Given(name, f"{path}.{key}", values[key]) for key, name in names.items()}


def _gpu(given: Mapping[str, Given], choice: Choice, notes: Imported) -> str | None:
    """Return the GPU's profile: the file's, or where that is left open the chosen one."""
    arch = given.get("gpu_arch", Given("gpu_arch", "gpu_arch", None))
    profile, chosen = profile_of(arch.value), profile_of(choice.gpu)
    if arch.is_open and chosen is not None:
        notes.refuse(arch, f"--gpu says {choice.gpu}; CVS itself stops at it")
        return chosen
    if profile is None:
        known = ", ".join(profiles.names("gpu"))
        notes.wrong(arch, f"a GPU of {known}" + (", here or with --gpu" if arch.is_open else ""))
    elif choice.gpu is not None and chosen != profile:
        notes.wrong(Given("gpu", "gpu", choice.gpu), f"{arch.value}, for which the file is, or nothing")
    if arch.path == "gpu_name" and profile not in (None, "mi300x", "mi325x", "mi355x"):
        notes.flag(arch, "CVS itself stops at it: it knows MI300X, MI325X and MI355X")
    elif profile is not None and str(arch.value).lower() != profile:
        notes.derive(arch, f"the GPU profile {profile}")
    return profile


def _is_distributed(given: Mapping[str, Given], notes: Imported) -> bool:
    """Return whether it is of several nodes: by master's address and RDMA devices. CVS leaves it to the suite."""
    address, devices = given.get("config.master_address"), given.get("config.nccl_ib_hca")
    if address is None or address.value in ("", None):
        return devices is not None
    alone = _LOOPBACK.fullmatch(str(address.value)) is not None
    if alone and devices is not None:
        notes.flag(devices, f"a job of one node, since {address.path} is {address.value}: nothing leaves it")
    return not alone


def _run(
    given: Mapping[str, Given], choice: Choice, notes: Imported, present: bool
) -> tuple[str, str, dict[str, Any]] | None:
    """Return the chosen run's name, its path and its combination of parameters."""
    smoke = {name.removeprefix("smoke."): item.value for name, item in given.items() if name.startswith("smoke.")}
    if present and choice.run == SMOKE:
        if smoke.pop("enabled", True) is False:
            notes.flag(given["smoke.enabled"], "CVS itself would not train this cell")
        return SMOKE, SMOKE, smoke
    combinations = given.get("sweep.combinations", Given("sweep.combinations", "sweep.combinations", None))
    known = combinations.value
    if present and known in (None, {}):
        for name in ("sweep.runs",) if given.get("sweep.runs", combinations).value else ():
            notes.wrong(given[name], "no runs: sweep.combinations has none")
        if choice.run not in (None, DEFAULT):
            notes.wrong(Given("run", "run", choice.run), f"{DEFAULT}, {SMOKE} or nothing: the file has no sweep")
        return DEFAULT, "train_params", {}
    if not isinstance(known, dict) or not known or not all(isinstance(item, dict) for item in known.values()):
        notes.wrong(combinations, "an object with an object for each combination")
        return None
    cells = {name: _sized(f"{combinations.path}.{name}", name, item, notes) for name, item in known.items()}
    listed = given.get("sweep.runs", Given("sweep.runs", "sweep.runs", None))
    if listed.value is None:
        notes.wrong(listed, "the names of combinations: CVS asks for it")
    runs = [str(run) for run in listed.value] if isinstance(listed.value, list) else []
    for index, run in enumerate(runs):
        if run not in known:
            notes.wrong(Given("sweep.runs", f"{listed.path}.{index}", run), one_of(run, known))
    for name in known:
        if name not in runs:
            notes.refuse(Given(name, f"{combinations.path}.{name}", known[name]), "sweep.runs does not name it")
    fitting = [run for run in runs if run in known and choice.run in (None, run, known[run].get("name"))]
    if len(fitting) != 1:
        expected = f"exactly one, chosen by run (--run), of sweep.runs: {', '.join(map(str, runs)) or 'none is there'}"
        notes.wrong(Given("run", "run", choice.run), expected)
    name = next(iter([*fitting, *known]))
    return name, f"{combinations.path}.{name}", cells[name]


def _sized(path: str, name: str, body: Mapping[str, Any], notes: Imported) -> dict[str, Any]:
    """Return a combination with the sizes of its name, as the present form writes them."""
    sizes = _SIZES.fullmatch(name)
    if sizes is None:
        if "=" in name:
            notes.wrong(Given(name, path, body), "MBS=..,GBS=..,PRECISION=..")
        return dict(body)
    for key in sizes.groupdict().keys() & body.keys():
        notes.wrong(Given(key, f"{path}.{key}", body[key]), "nothing: the combination's name has it")
    return {**body, **sizes.groupdict()}


@dataclass
class LayerDraft:
    """A layer in the making. `given` and `parsed` are by parameter name; `parsed` holds those of the right type."""

    notes: Imported
    file: Path
    given: dict[str, Given]
    job: SelectedJob | None
    figure_nodes: int | None  # for how many nodes a comment says the figures are
    thresholds: str | None = None  # the threshold file that a person chose
    family: ModelFamily | None = None
    parsed: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)  # smoke.options

    @property
    def chosen(self) -> SelectedJob:
        """The job, for what is read of a file only where it has one."""
        assert self.job is not None
        return self.job

    @property
    def model(self) -> str:
        """The model's name in the file."""
        return str(self.job.model.value) if self.job else ""

    def put(self, path: str, value: Any) -> None:
        """Set a dotted path of the layer; an object is merged into what is there."""
        *above, last = path.split(".")
        at = self.notes.values
        for part in above:
            at = at.setdefault(part, {})
        if isinstance(value, dict) and isinstance(at.get(last), dict):
            for key, item in value.items():
                self.put(f"{path}.{key}", item) if isinstance(item, dict) else at[last].__setitem__(key, item)
        else:
            at[last] = value
