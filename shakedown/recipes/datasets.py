"""The data sets that are shipped by name: files to download, or a program in an image that prepares the data."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

from shakedown.common.data import read_toml
from shakedown.common.nearest import nearest
from shakedown.common.section import Section
from shakedown.desired.contradictions import undeclared
from shakedown.desired.models import DataFile, Dataset, Image
from shakedown.desired.problems import Problem
from shakedown.recipes.program import gated


class Known(Section):
    """One data set of datasets.toml."""

    description: str
    files: list[str] = []  # URLs
    command: list[str] = []  # prepares the data below /data, in the image
    workdir: str = ""
    variables: dict[str, str] = {}
    cannot: dict[str, str] = {}  # image -> why its program cannot prepare the data


@cache
def known() -> dict[str, Known]:
    """Every data set that is shipped, by name."""
    tables = read_toml("shakedown.recipes", "datasets.toml")
    return {name: Known.model_validate(values) for name, values in tables.items()}


def problems_of(name: str, dataset: Dataset, images: Mapping[str, Image]) -> Iterator[Problem]:
    """Why a data set of the desired state cannot be had."""
    path, shipped = f"datasets.{name}", known().get(name)
    if shipped is None and not dataset.files:
        expected = f"{nearest(name, known(), after='? ')}files, or one of the names {', '.join(known())}"
        yield Problem("datasets", path, "no files", expected)
        return
    if shipped is not None and dataset.files:
        yield Problem("datasets", f"{path}.files", "files", f"none: {name} is shipped; name your own data otherwise")
    there = {file["url"].rpartition("/")[2] for file in files_of(name, dataset)}
    for stranger in sorted(set(dataset.sha256) - there):
        expected = f"one of its files ({', '.join(sorted(there)) or 'it has none'})"
        yield Problem("datasets", f"{path}.sha256.{stranger}", dataset.sha256[stranger], expected)
    prepared = shipped is not None and bool(shipped.command)
    if dataset.tokenizer and not prepared:
        yield Problem("datasets", f"{path}.tokenizer", dataset.tokenizer, "none: it is downloaded, not prepared")
    if shipped is None or not prepared:
        return
    image = images.get(dataset.image or "")
    if image is None:
        yield from undeclared(f"{path}.image", dataset.image, images)
    elif (reason := shipped.cannot.get(image.reference)) is not None:
        yield Problem("datasets", f"{path}.image", image.reference, f"a newer image: {reason}")
    if dataset.tokenizer and gated(dataset.tokenizer):
        expected = "one that Hugging Face gives without a token, as the preparation has none: an open copy, or a folder"
        yield Problem("datasets", f"{path}.tokenizer", dataset.tokenizer, expected)


def variables_of(name: str, dataset: Dataset) -> dict[str, str]:
    """Return the environment of the program that prepares the data."""
    own = {"TOKENIZER_MODEL": dataset.tokenizer} if dataset.tokenizer else {}
    return {**known()[name].variables, **own}


def files_of(name: str, dataset: Dataset) -> list[dict[str, Any]]:
    """Return the files as `operations.dataset.download` takes them."""
    shipped = known().get(name)
    wanted = dataset.files if shipped is None else [DataFile(url=url) for url in shipped.files]
    return [_file(file, dataset.sha256) for file in wanted]


def _file(file: DataFile, given: Mapping[str, str]) -> dict[str, Any]:
    sha256 = file.sha256 or given.get(unquote(urlsplit(file.url).path).rpartition("/")[2])
    values = {"url": file.url, "sha256": sha256, "size": file.size_bytes}
    return {key: value for key, value in values.items() if value is not None}
