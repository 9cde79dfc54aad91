"""Nothing in a file is read over: every parameter is known, and its value makes a difference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shakedown.desired.cvs import importing
from shakedown.desired.cvs.document import CvsError, Given, parameters, without_comments
from shakedown.desired.cvs.job import Choice
from shakedown.desired.cvs.tables import families, known_parameters
from shakedown.recipes import recipe as smoke
from tests.at_once import at_once
from tests.cvs_files import DISTRIBUTED, EXAMPLES, FILLED, LATER, changed, copy_of, outcome


def given(file: Path, choice: Choice) -> Iterator[Given]:
    """Every parameter of a file and of its chosen job."""
    document = without_comments(json.loads(file.read_text("utf-8")))
    above = "train_params" if "train_params" in document else "model_params"
    params = document[above]
    yield from parameters(document, known_parameters())
    if "sweep" in document:
        cells = {above: params}
        cells[f"sweep.combinations.{choice.run}"] = document["sweep"]["combinations"][choice.run]
        for path, cell in cells.items():
            yield from parameters(cell, known_parameters(), "model", path)
        return
    for topology, models in params.items():
        for model, gpus in models.items():
            for gpu, cell in gpus.items():
                if (choice.model or model, choice.gpu or gpu) == (model, gpu):
                    yield from parameters(cell, known_parameters(), "model", f"model_params.{topology}.{model}.{gpu}")


EVERY = {each.name for file, choice in EXAMPLES for each in given(file, choice)}


def test_every_known_parameter_has_a_meaning() -> None:
    for name, row in known_parameters().items():
        assert row.to or row.option or row.derived or row.refused or row.only or row.profile or row.reader, name


def test_the_examples_have_every_parameter_that_is_known() -> None:
    assert set(known_parameters()) == EVERY


@at_once("name", sorted(EVERY))
def test_no_parameter_can_be_taken_out_of_the_table(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file, choice, path = next(
        (file, choice, each.path) for file, choice in EXAMPLES for each in given(file, choice) if each.name == name
    )
    fewer = {key: row for key, row in known_parameters().items() if key != name}
    monkeypatch.setattr(importing, "known_parameters", lambda: fewer)
    with pytest.raises(CvsError) as raised:
        importing.import_file(file, choice)
    assert any(problem.path == path or problem.path.startswith(f"{path}.") for problem in raised.value.problems)


# A value that is not the example's, for parameters with which any other text will not do.
OTHER: dict[str, Any] = {
    "config.distributed_training": "False",
    "config.mock_data": "False",
    "config.verify_network_errors": "False",
    "config.nic_type": "cx7",
    "config.dataset_source": {"wiki": "/data"},
    "config.container_config.device_list": ["/dev/kfd"],
    "config.container_config.volume_dict": {"/data": "/data"},
    "container.runtime.args.devices": ["/dev/kfd"],
    "container.runtime.args.volumes": ["/data:/data"],
    "container.runtime.args.env": {"NCCL_ALGO": "Ring"},
    "container.runtime.args.privileged": False,
    "container.runtime.name": "podman",
    "model.result_dict": {"throughput_per_gpu": "1"},
    "smoke.enabled": False,
    "convergence.target_metric": "eval_loss",
    "enforce_thresholds": False,
    "loss_curve.milestone_steps": [1],
    "loss_curve.enforce": False,
    "checkpoint.enforce": True,
    "sweep.runs": ["mbs4-mxfp4"],
}
# Only here are the values of a parameter seen to be used: elsewhere another takes their place.
WHERE = {
    "config.hca_id_pattern": (LATER, Choice(), {}),
    "model.result_dict": (DISTRIBUTED, Choice(model="llama3_1_8b", gpu="mi300x"), FILLED),
}


@at_once("name", sorted(EVERY - {"model_params", "sweep.combinations"}))
def test_every_parameters_value_makes_a_difference(name: str, tmp_path: Path) -> None:
    """In the layer, in what is told, or as an error; those of the two containers are covered by what is in them."""
    found = [(each, choice, {}) for each, choice in EXAMPLES[::-1] if name in {one.name for one in given(each, choice)}]
    file, choice, filled = WHERE.get(name, found[0])
    (path,) = {each.path for each in given(file, choice) if each.name == name and not _covered(each, file, choice)}
    value = OTHER.get(name, "17")
    before = outcome(copy_of(tmp_path, file, filled), choice)
    assert outcome(copy_of(tmp_path, file, changed(filled, {}) | {path: value}), choice) != before


def _covered(each: Given, file: Path, choice: Choice) -> bool:
    """A parameter of the model that the run changes."""
    return any(other.name == each.name and other.path.startswith("sweep.") for other in given(file, choice)) and (
        each.path.startswith(("model_params.", "train_params."))
    )


def test_options_and_recipes_are_those_that_there_are() -> None:
    for name, family in families().items():
        options = smoke.families()[name].options
        assert set(family.options.values()) <= set(options)
        for meaning in family.precision.values():
            for option, value in meaning.items():
                options[option].parse(value)
        for choice in family.recipes:
            assert smoke.recipes()[choice.name].family_name == name
            for option, value in choice.when.items():
                options[option].parse(value)


def test_precisions_mean_what_the_recipes_mean_by_them() -> None:
    for name, family in families().items():
        if family.image:
            continue  # the experiment's file is chosen by the precision's name
        own = {key.lower(): value for key, value in smoke.families()[name].shorthand["precision"].items()}
        assert family.precision == own
