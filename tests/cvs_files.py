"""CVS configuration files for tests: those of its documentation, two of the later forms, and changed copies of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shakedown.desired.cvs.document import CvsError, Imported
from shakedown.desired.cvs.importing import import_file
from shakedown.desired.cvs.job import Choice
from shakedown.desired.layers import HostLayers, Layer
from shakedown.desired.models import DesiredState
from shakedown.jobs.launch import LaunchPlan
from shakedown.jobs.plan import make_plan
from shakedown.runner.features import resolve
from shakedown.state.node import NodeState
from tests.plans import DIGEST, RUN_ID
from tests.states import healthy, image, with_

_DATA = Path(__file__).parent / "data"
SINGLE = _DATA / "documents" / "mi3xx_megatron_llama_single.json"
SINGLE_MI35X = _DATA / "documents" / "mi35x_megatron_llama_single.json"
DISTRIBUTED = _DATA / "documents" / "mi3xx_megatron_llama_distributed.json"
LATER = _DATA / "cvs" / "sections_later.json"
SWEEP = _DATA / "cvs" / "sweep_distributed.json"
PRESENT = _DATA / "cvs" / "present.json"

ONE = Choice(model="llama3_1_8b", gpu="mi300x")
DOCUMENTS = {SINGLE: ("mi300x", "mi325"), SINGLE_MI35X: ("mi350", "mi355"), DISTRIBUTED: ("mi300x", "mi325")}
MODELS = ("llama3_1_8b", "llama3_1_70b")
AS_THEY_STAND = [
    (file, Choice(model=model, gpu=gpu)) for file, gpus in DOCUMENTS.items() for model in MODELS for gpu in gpus
]
EXAMPLES = [
    *AS_THEY_STAND,
    (LATER, Choice()),
    (SWEEP, Choice(run="mbs2-fp8")),
    (SWEEP, Choice(run="mbs4-bf16")),
    (PRESENT, Choice(run="MBS=4,GBS=128,PRECISION=FP8")),
]

CELL = "model_params.multi_node.llama3_1_8b.mi300x"
FILLED = {  # what nobody but a person knows of the distributed file
    "config.training_iterations": "30",
    "config.nic_type": "thor2",
    f"{CELL}.result_dict.throughput_per_gpu": "610.0",
    f"{CELL}.result_dict.tokens_per_gpu": "12000.0",
}
DELETED = object()
DRIVERS = {"/lib/libibverbs.d/bnxt_re.driver": "bnxt_re"}  # the folder that the distributed file mounts


def changed(document: Mapping[str, Any], changes: Mapping[str | tuple[str, ...], Any]) -> dict[str, Any]:
    """A copy with these dotted paths changed; a tuple where a key has dots itself."""
    result = copy.deepcopy(dict(document))
    for path, value in changes.items():
        *above, last = path.split(".") if isinstance(path, str) else path
        at = result
        for part in above:
            at = at.setdefault(part, {})
        if value is DELETED:
            del at[last]
        else:
            at[last] = value
    return result


def copy_of(folder: Path, file: Path, changes: Mapping[Any, Any], thresholds: Mapping[Any, Any] | None = None) -> Path:
    """A changed copy of a file in a folder, with its threshold file beside it."""
    path = folder / file.name
    path.write_text(json.dumps(changed(json.loads(file.read_text("utf-8")), changes)), "utf-8")
    beside = file.with_name(f"{file.stem}_threshold.json")
    if beside.exists():
        cells = changed(json.loads(beside.read_text("utf-8")), thresholds or {})
        (folder / beside.name).write_text(json.dumps(cells), "utf-8")
    return path


def outcome(path: Path, choice: Choice) -> tuple[Any, ...]:
    """All that an import says of a file: its layer, what is open, the remarks; or its errors. Without its path."""
    try:
        found = import_file(path, choice)
    except CvsError as error:
        return (*((each.path, each.value, each.expected) for each in error.problems), *map(str, error.remarks))
    opened = [(each.path, each.value) for each in found.open]
    return json.dumps(found.values, sort_keys=True), opened, [str(remark) for remark in found.remarks]


def errors(path: Path, choice: Choice = ONE) -> dict[str, str]:
    """The errors of a file that cannot be imported, by their paths in it."""
    try:
        import_file(path, choice)
    except CvsError as error:
        return {problem.path: f"{problem.value}: expected {problem.expected}" for problem in error.problems}
    raise AssertionError(f"{path} was imported")


def imported_nodes(
    file: Path, choice: Choice, nodes: int, **site: Any
) -> tuple[dict[str, DesiredState], dict[str, NodeState]]:
    """Desired states of an imported file, with a site's own over it, and healthy nodes that have its image."""
    return _nodes(import_file(file, choice), nodes, site)


def _nodes(
    imported: Imported, nodes: int, site: Mapping[str, Any]
) -> tuple[dict[str, DesiredState], dict[str, NodeState]]:
    names = [f"node{number + 1:02d}" for number in range(nodes)]
    layers = [Layer(imported.name, imported.values), Layer("site", site)]
    states = resolve([HostLayers(name, layers, user="root") for name in names]).states
    reference = states[names[0]].images["megatron"].reference
    machines = {
        name: with_(healthy(number + 1), {"containers.images": [image(reference, DIGEST)], "verbs.drivers": DRIVERS})
        for number, name in enumerate(names)
    }
    return states, machines


def planned(imported: Imported, nodes: int, **site: Any) -> LaunchPlan:
    """The plan of an imported layer, as one job over all nodes."""
    states, machines = _nodes(imported, nodes, site)
    return make_plan(states, machines, RUN_ID)
