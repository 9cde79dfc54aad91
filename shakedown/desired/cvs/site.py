"""A desired state that names a CVS file: `cvs = {"file": PATH, "model": MODEL, "gpu": GPU}` in a site's layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from shakedown.desired.cvs.forms import Choice
from shakedown.desired.cvs.importing import import_file
from shakedown.desired.cvs.result import CvsError, Imported
from shakedown.desired.layers import Layer, merge
from shakedown.desired.problems import Problem


class _Named(BaseModel):
    """`file`: on the controller, from the working directory. The rest chooses among the file's jobs."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    file: str
    model: str | None = None
    gpu: str | None = None
    run: str | None = None
    thresholds: str | None = None


def named(layers: Sequence[Layer]) -> tuple[Imported | None, list[Problem]]:
    """The file that a site's layers name, imported; None where they name none or it cannot be used."""
    chosen = merge(Layer(layer.name, {"cvs": layer.values["cvs"]}) for layer in layers if "cvs" in layer.values)
    if not chosen.values:
        return None, []
    try:
        wanted = _Named.model_validate(chosen.values["cvs"])
    except ValidationError as error:
        return None, [
            Problem(
                chosen.origin_of("cvs"),
                ".".join(("cvs", *map(str, item["loc"]))),
                repr(item["input"]),
                'cvs = {"file": PATH}, with "model", "gpu", "run" and "thresholds" where the file leaves a choice',
            )
            for item in error.errors()
        ]
    path = Path(wanted.file).expanduser()
    changed = path.stat().st_mtime_ns if path.exists() else 0
    return _import(wanted, changed)


@lru_cache(maxsize=16)
def _import(wanted: _Named, changed: int) -> tuple[Imported | None, list[Problem]]:
    """Read once for all the hosts of a group."""
    try:
        return import_file(wanted.file, Choice(wanted.model, wanted.gpu, wanted.run, wanted.thresholds)), []
    except CvsError as error:
        return None, list(error.problems)
