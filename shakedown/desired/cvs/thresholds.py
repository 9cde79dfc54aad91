"""The threshold file of the newer form, beside the configuration file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from shakedown.desired import profiles
from shakedown.desired.cvs.document import Given, read, without_comments
from shakedown.desired.cvs.draft import Draft
from shakedown.desired.cvs.figures import SCALING, of_thresholds
from shakedown.desired.cvs.result import CvsError

_CELL = re.compile(r"MBS=[^,]+,GBS=[^,]+,PRECISION=[^,]+")


def over(draft: Draft, expect: dict[str, Any]) -> dict[str, Any]:
    """The expected figures with those of the file's cell over them."""
    path = _file(draft)
    if path is None:
        return expect
    try:
        cells = without_comments(read(path, f"cvs {path}"))
    except CvsError as error:
        draft.notes.problems += error.problems
        return expect
    key = _key(draft)
    for name, cell in cells.items():
        if not _CELL.fullmatch(name) or not isinstance(cell, dict):
            draft.notes.wrong(Given(name, f"{path.name}: {name}", cell), "MBS=..,GBS=..,PRECISION=.. and an object")
    if not isinstance(cells.get(key), dict):
        asked = Given(key, f"{path.name}: {key}", None)
        draft.notes.refuse(asked, f"the file has no cell for this run ({', '.join(cells)}): its figures are recorded")
        return expect
    if f"training.{SCALING}" not in cells[key]:
        for each in ("scaling_baseline.tokens_per_sec_total", "scaling_baseline.num_nodes"):
            if each in draft.given:
                draft.notes.refuse(draft.given[each], f"{key} has no {SCALING} to judge")
    found = of_thresholds(f"{path.name}: {key}", cells[key], draft.notes, lambda percent: _tokens(draft, percent))
    for name in expect.keys() & found.keys():
        if expect[name] != found[name]:
            results = draft.given["model.result_dict"]
            given = Given(name, f"{results.path}.{name}", expect[name])
            draft.notes.refuse(given, f"{path.name} says {found[name]:g}, and it is the newer of the two")
            draft.notes.open = [problem for problem in draft.notes.open if problem.path != given.path]
    return expect | found


def _file(draft: Draft) -> Path | None:
    """The chosen or named file, the one with this file's own name, or the only one in the folder."""
    named = draft.given.get("threshold_json", Given("threshold_json", "threshold_json", ""))
    if draft.thresholds:
        return Path(draft.thresholds).expanduser()
    folder, stem = draft.file.parent, draft.file.stem
    if named.value:
        return folder / str(named.value)
    own = [folder / f"{each}_threshold.json" for each in (stem, stem.removesuffix("_config"))]
    beside = sorted(folder.glob("*threshold.json"))
    fitting = [path for path in own if path in beside] or beside
    if not fitting:
        draft.notes.refuse(named, "no threshold file stands beside the file: every figure is recorded")
        return None
    if len(fitting) > 1 and fitting[0] not in own:
        there = ", ".join(each.name for each in fitting)
        how = '--thresholds, or "thresholds" beside "file" in a layer'
        draft.notes.wrong(named, f"the name of a threshold file, here or with {how} (beside this one: {there})")
        return None
    return fitting[0]


def _key(draft: Draft) -> str:
    """The cell's name, from the values as the file writes them."""
    names = {"MBS": "micro_batch_size", "GBS": "global_batch_size", "PRECISION": "precision"}
    values = {short: draft.given.get(f"model.{name}") for short, name in names.items()}
    return ",".join(f"{short}={given.value if given else ''}" for short, given in values.items())


def _tokens(draft: Draft, percent: float) -> float | None:
    """Tokens/s/GPU of this part of the baseline's. None without a baseline.

    The efficiency of N nodes is total / (N / n x baseline of n nodes), so for each GPU N falls out.
    """
    total = draft.parsed.get("scaling_baseline.tokens_per_sec_total", 0.0)
    nodes = draft.parsed.get("scaling_baseline.num_nodes", 1)
    if not total or nodes < 1 or draft.job is None:
        return None
    gpus = int(profiles.load("gpu", draft.job.gpu)["gpu"]["count"])
    return float(percent / 100 * total / (nodes * gpus))
