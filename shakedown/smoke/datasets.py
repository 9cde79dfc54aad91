"""The data sets that are shipped by name: files to download, or a program in an image that prepares the data."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict

from shakedown.desired.models import DataFile, Dataset


class Known(BaseModel):
    """One data set of datasets.toml."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    description: str
    files: list[str] = []  # URLs
    command: list[str] = []  # prepares the data below /data, in the image
    workdir: str = ""
    variables: dict[str, str] = {}


@cache
def known() -> dict[str, Known]:
    """Every data set that is shipped, by name."""
    text = (files("shakedown.smoke") / "datasets.toml").read_text("utf-8")
    return {name: Known.model_validate(values) for name, values in tomllib.loads(text).items()}


def problem_of(name: str, dataset: Dataset, images: Mapping[str, Any]) -> str | None:
    """Why a data set of the desired state cannot be had; None when it can."""
    shipped = known().get(name)
    if shipped is None and not dataset.files:
        return f"datasets.{name}: expected files, or one of the names {', '.join(known())}"
    if shipped is not None and dataset.files:
        return f"datasets.{name}: {name} is shipped; name your own files otherwise"
    strangers = set(dataset.sha256) - {file["url"].rpartition("/")[2] for file in files_of(name, dataset)}
    if strangers:
        return f"datasets.{name}.sha256: no such files: {', '.join(sorted(strangers))}"
    if shipped is not None and shipped.command and dataset.image not in images:
        return f"datasets.{name}.image: expected a name in images ({', '.join(images) or 'none is declared'})"
    return None


def files_of(name: str, dataset: Dataset) -> list[dict[str, Any]]:
    """The files as `operations.dataset.download` takes them."""
    shipped = known().get(name)
    wanted = dataset.files if shipped is None else [DataFile(url=url) for url in shipped.files]
    return [_file(file, dataset.sha256) for file in wanted]


def _file(file: DataFile, given: Mapping[str, str]) -> dict[str, Any]:
    sha256 = file.sha256 or given.get(unquote(urlsplit(file.url).path).rpartition("/")[2])
    values = {"url": file.url, "sha256": sha256, "size": file.size_bytes}
    return {key: value for key, value in values.items() if value is not None}
