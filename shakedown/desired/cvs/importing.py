"""From a file to a site's layer: each parameter by its row of parameters.toml, then what takes more than a row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shakedown.desired.cvs import readers
from shakedown.desired.cvs.document import PLACEHOLDER, Given, nodes_of_figures, parameters, read, without_comments
from shakedown.desired.cvs.draft import Draft
from shakedown.desired.cvs.families import families, family_of
from shakedown.desired.cvs.forms import Choice, Job, choose
from shakedown.desired.cvs.notes import Notes
from shakedown.desired.cvs.result import CvsError, Imported
from shakedown.desired.cvs.table import Parameter, table

ONLY = Choice()  # of a file with one job
_SECTIONS = ("gpu", "nic", "rdma", "system", "images", "smoke")  # in the order people write them


def import_file(path: str | Path, choice: Choice = ONLY) -> Imported:
    """One job of a CVS configuration file as a site's layer.

    `path` lies on the controller ("~" is the home folder of whoever runs this). Raises CvsError with every error of the
    file; a value that is open (<changeme>, or missing) is none: see Imported.
    """
    file = Path(path).expanduser()
    notes = Notes(f"cvs {path}")
    document = read(file, notes.where)
    given = {each.name: each for each in parameters(without_comments(document), table())}
    job = choose(given, choice, notes)
    draft = Draft(notes, file, given, job, nodes_of_figures(document), choice.thresholds)
    if job is not None:
        draft.family = family_of(str(job.model.value))
        given |= {each.name: each for each in job.cell.values()}
        if draft.family is None:
            notes.wrong(job.model, f"a model of the families {', '.join(families())}")
    for each in given.values():
        row = table().get(each.name)
        if row is None:
            notes.wrong(each, "no such parameter")
        else:
            _take(draft, each, row)
    if job is not None:
        _missing(draft, given, job)
    if job is not None and draft.family is not None:
        readers.read_all(draft)
    if notes.problems:
        raise CvsError(sorted(set(notes.problems)))
    ordered = {section: draft.values[section] for section in _SECTIONS if section in draft.values}
    return Imported(notes.where, ordered, notes.open, notes.remarks)


def _take(draft: Draft, given: Given, row: Parameter) -> None:
    """What a row says by itself; the parsed value is kept for the readers."""
    notes = draft.notes
    if given.is_open or given.value in ("", None):
        _open(draft, given, row)
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


def _take_option(draft: Draft, given: Given, role: str, parsed: Any) -> None:
    family = draft.family
    if family is None:
        return
    if role in family.ignored:
        draft.notes.refuse(given, family.ignored[role])
    elif role in family.fixed:
        if parsed != family.fixed[role]:
            draft.notes.wrong(given, f"{family.fixed[role]}: the training script works with nothing else")
    elif role not in family.options:
        draft.notes.wrong(given, f"nothing: the recipes of {draft.model} have no such option")
    else:
        try:
            draft.options[family.options[role]] = family.value(role, parsed)
        except ValueError as error:
            draft.notes.wrong(given, str(error))


def _open(draft: Draft, given: Given, row: Parameter, missing: bool = False) -> None:
    """<changeme>, nothing, or not there at all: derived, or left for a layer above."""
    if row.derived:
        draft.notes.derive(given, row.derived)
        return
    if row.refused or (given.value == "" and not row.required):
        if row.refused:
            draft.notes.refuse(given, row.refused)
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


def _target(draft: Draft, row: Parameter) -> str | None:
    """Where in the layer an open value is to be given."""
    if row.to:
        return row.to
    if row.option is None or draft.family is None:
        return row.open
    option = draft.family.options.get(row.option)
    return f"smoke.options.{option}" if option else None


def _missing(draft: Draft, given: Mapping[str, Given], job: Job) -> None:
    for name, row in table().items():
        if name in given or not job.tags.intersection(row.required):
            continue
        path = f"{job.path}.{name.removeprefix('model.')}" if name.startswith("model.") else name
        _open(draft, Given(name, path, None), row, missing=True)
