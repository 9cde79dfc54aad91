"""Every key of the desired state says what it is for, and shows a value that it takes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from shakedown.checks import answers
from shakedown.common.secrets import is_secret
from shakedown.desired import models
from shakedown.recipes.documents import documents
from tests.at_once import at_once

SECTIONS = [
    each for each in vars(models).values() if isinstance(each, type) and issubclass(each, models.Section)
]  # in the file's order
KEYS = [(section, name) for section in SECTIONS for name in section.model_fields]


def least(section: type[BaseModel]) -> dict[str, Any]:
    """The values without which a section is refused."""
    fields = section.model_fields.items()
    return {name: field.examples[0] for name, field in fields if field.is_required() and field.examples}


def others(section: type[BaseModel], key: str) -> dict[str, Any]:
    """The examples of keys of which a section needs one or the other."""
    pairs = [("finding", "entry"), ("hosts", "parts")] if section is models.Waiver else []
    return {pair[0]: section.model_fields[pair[0]].examples[0] for pair in pairs if key not in pair}  # type: ignore[index]


@at_once("key", KEYS)
def test_a_key_is_described_and_takes_its_own_example(key: tuple[type[BaseModel], str]) -> None:
    section, name = key
    field = section.model_fields[name]
    assert field.description
    if issubclass(models.DesiredState, section):
        return
    assert field.examples, "an example that a site may copy"
    section.model_validate({**least(section), **others(section, name), name: field.examples[0]})
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "source" in extra:
        assert extra["source"] in documents()


def test_an_example_that_a_key_does_not_take_would_be_seen() -> None:
    with pytest.raises(ValidationError):
        models.Gpu.model_validate({**least(models.Gpu), "count": "eight"})


def test_the_example_of_what_is_no_secret_looks_like_one() -> None:
    (name,) = models.Smoke.model_fields["not_secret"].examples[0]  # type: ignore[index]
    assert is_secret(name)


def test_every_check_names_the_keys_that_ask_for_it() -> None:
    for name, keys in answers().items():
        assert keys, f"{name} answers nothing"
        for key in keys:
            section, _, rest = key.partition(".")
            field = models.DesiredState.model_fields[section]
            assert not rest or rest in getattr(field.annotation, "model_fields", SMOKE), key


SMOKE = models.Smoke.model_fields  # the section may be absent, so its annotation is a union
