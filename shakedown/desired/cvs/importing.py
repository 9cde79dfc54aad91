"""From a file, or from a layer that names one, to a site's layer: parameter by parameter, then what takes several."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shakedown.desired.cvs.document import (
    PLACEHOLDER,
    CvsError,
    Given,
    Imported,
    nodes_of_figures,
    parameters,
    read,
    without_comments,
)
from shakedown.desired.cvs.job import SMOKE, Choice, LayerDraft, SelectedJob, choose
from shakedown.desired.cvs.readers import read_all, take_variable
from shakedown.desired.cvs.tables import Parameter, families, family_of, known_parameters
from shakedown.desired.layers import Layer, merge
from shakedown.desired.problems import Problem

ONLY = Choice()  # of a file with one job
_SECTIONS = ("gpu", "nic", "rdma", "system", "images", "smoke")  # in the order people write them


def import_file(path: str | Path, choice: Choice = ONLY) -> Imported:
    """Return a CVS file's job as a site's layer. `path` is the controller's ("~": the user's home). Raises CvsError
    with every error; an open value (<changeme>, missing) is none: see Imported."""
    file = Path(path).expanduser()
    notes = Imported(f"cvs {path}")
    document = read(file, notes.name)
    given = _collect(document, notes)
    job = choose(given, choice, notes)
    draft = LayerDraft(notes, file, given, job, nodes_of_figures(document), choice.thresholds)
    if job is not None:
        image = given.get("container.image", job.model).value
        draft.family = family_of(str(job.model.value), str(image) if job.form != "sections" else "")
        for name in [name for name in given if job.run == SMOKE and name.startswith("smoke.")]:
            del given[name]
        given |= {parameter.name: parameter for parameter in job.cell.values()}
        if draft.family is None:
            known = ", ".join(name for name, family in families().items() if not family.image)
            notes.wrong(job.model, f"a model of the families {known}")
    for parameter in given.values():
        row = known_parameters().get(parameter.name)
        if row is None and parameter.name.startswith("container.env."):
            take_variable(draft, parameter)
        elif row is None:
            notes.wrong(parameter, "no such parameter")
        else:
            _take(draft, parameter, row)
    if job is not None:
        _missing(draft, given, job)
    if job is not None and draft.family is not None:
        read_all(draft)
    if notes.problems:
        raise CvsError(sorted({*notes.problems, *notes.open}), notes.remarks)
    notes.values = {section: notes.values[section] for section in _SECTIONS if section in notes.values}
    return notes


def _collect(document: Mapping[str, Any], notes: Imported) -> dict[str, Given]:
    """Return the file's parameters by name. A second name of the same parameter is an error."""
    found: dict[str, Given] = {}
    for parameter in parameters(without_comments(document), known_parameters()):
        if parameter.name in found:
            notes.wrong(parameter, f"nothing: {found[parameter.name].path} has the same meaning")
        else:
            found[parameter.name] = parameter
    return found


def _take(draft: LayerDraft, given: Given, row: Parameter) -> None:
    """Take over a row that needs no other; the parsed value is kept for the readers."""
    notes = draft.notes
    if given.is_open or given.value in ("", None):
        _open(draft, given, row)
        return
    if draft.family is not None and row.option in draft.family.ignored:
        notes.refuse(given, draft.family.ignored[row.option])
        return
    try:
        parsed = row.parse(given.value)
    except ValueError as error:
        notes.wrong(given, str(error))
        return
    draft.parsed[given.name] = parsed
    if row.refused:
        notes.refuse(given, row.refused)
    elif row.one_node and draft.job is not None and not draft.job.distributed:
        notes.derive(given, row.one_node)
        del draft.parsed[given.name]
    elif row.option:
        _take_option(draft, given, row.option, parsed)
    elif row.to:
        draft.put(row.to, parsed)
    elif row.derived and not row.reader:
        notes.derive(given, f"{row.derived}; the typed value is not taken over")
    elif row.only:
        notes.derive(given, f"it is so here: {row.why}")


def _take_option(draft: LayerDraft, given: Given, role: str, parsed: Any) -> None:
    family = draft.family
    if family is None:
        return
    if role in family.fixed:
        if parsed != family.fixed[role]:
            draft.notes.wrong(given, f"{family.fixed[role]}: the training script works with nothing else")
    elif role not in family.options:
        draft.notes.wrong(given, f"nothing: the recipes of {draft.model} have no such option")
    else:
        try:
            draft.options[family.options[role]] = family.value(role, parsed)
        except ValueError as error:
            draft.notes.wrong(given, str(error))


def _open(draft: LayerDraft, given: Given, row: Parameter, missing: bool = False) -> None:
    """<changeme>, nothing, or not there at all: derived, or left for a layer above."""
    if row.derived:
        draft.notes.derive(given, row.derived)
        return
    if row.refused or (given.value == "" and not row.required):
        if row.refused:
            draft.notes.refuse(given, row.refused)
        return
    if row.option and draft.family is not None and row.option in draft.family.ignored:
        if not missing:
            draft.notes.refuse(given, draft.family.ignored[row.option])
        return
    if row.open == "reader":
        return
    target = _target(draft, row)
    if target is None:
        draft.notes.wrong(given, f"a value in place of {PLACEHOLDER}")
        return
    if target.startswith("smoke.options."):
        draft.options[target.removeprefix("smoke.options.")] = PLACEHOLDER
    else:
        draft.put(target, PLACEHOLDER)
    draft.notes.leave_open(given, target, missing)


def _target(draft: LayerDraft, row: Parameter) -> str | None:
    if row.to:
        return row.to
    if row.option is None or draft.family is None:
        return row.open
    option = draft.family.options.get(row.option)
    return f"smoke.options.{option}" if option else None


def _missing(draft: LayerDraft, given: Mapping[str, Given], job: SelectedJob) -> None:
    for name, row in known_parameters().items():
        if name in given or not job.tags.intersection(row.required):
            continue
        path = f"{job.path}.{name.removeprefix('model.')}" if name.startswith("model.") else name
        _open(draft, Given(name, path, None), row, missing=True)


class _Named(Choice):
    """A choice among the jobs of `file`, which lies on the controller, from the working directory."""

    file: str


def import_named(layers: Sequence[Layer]) -> tuple[Imported | None, list[Problem]]:
    """Import the file that a site's layers name; None where they name none or it cannot be used."""
    chosen = merge(Layer(layer.name, {"cvs": layer.values["cvs"]}) for layer in layers if "cvs" in layer.values)
    if not chosen.values:
        return None, []
    try:
        wanted = _Named.model_validate(chosen.values["cvs"])
    except ValidationError as error:
        where, form = chosen.origin_of("cvs"), 'cvs = {"file": PATH}, with "model", "gpu", "run" and "thresholds"'
        found = [(".".join(("cvs", *map(str, item["loc"]))), repr(item["input"])) for item in error.errors()]
        return None, [Problem(where, *place, f"{form} where the file leaves a choice") for place in found]
    path = Path(wanted.file).expanduser()
    changed = path.stat().st_mtime_ns if path.exists() else 0
    return _import(wanted, changed)


@lru_cache(maxsize=16)
def _import(wanted: _Named, changed: int) -> tuple[Imported | None, list[Problem]]:
    """Read once for all the hosts of a group."""
    try:
        return import_file(wanted.file, wanted), []
    except CvsError as error:
        return None, list(error.problems)
