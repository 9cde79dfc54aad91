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
from tests.docs.keys import keys_of

SECTIONS = [
    each for each in vars(models).values() if isinstance(each, type) and issubclass(each, models.Section)
]  # in the file's order
KEYS = [(section, name) for section in SECTIONS for name in section.model_fields]


def least(section: type[BaseModel]) -> dict[str, Any]:
    """The values without which a section is refused."""
    fields = section.model_fields.items()
    return {name: keys_of(section)[name].example for name, field in fields if field.is_required()}


def others(section: type[BaseModel], key: str) -> dict[str, Any]:
    """The examples of keys of which a section needs one or the other."""
    pairs = [("finding", "entry"), ("hosts", "parts")] if section is models.Waiver else []
    return {pair[0]: keys_of(section)[pair[0]].example for pair in pairs if key not in pair}


@at_once("key", KEYS)
def test_a_key_is_described_and_takes_its_own_example(key: tuple[type[BaseModel], str]) -> None:
    section, name = key
    described = keys_of(section)[name]
    assert described.text
    if issubclass(models.DesiredState, section):
        return
    assert described.example is not None, "an example that a site may copy"
    section.model_validate({**least(section), **others(section, name), name: described.example})
    assert described.source is None or described.source in documents()


@at_once("section", SECTIONS)
def test_only_keys_are_described(section: type[BaseModel]) -> None:
    whole = issubclass(models.DesiredState, section)
    assert keys_of(section).keys() == (models.DesiredState if whole else section).model_fields.keys()


def test_an_example_that_a_key_does_not_take_would_be_seen() -> None:
    with pytest.raises(ValidationError):
        models.Gpu.model_validate({**least(models.Gpu), "count": "eight"})


def test_the_example_of_what_is_no_secret_looks_like_one() -> None:
    (name,) = keys_of(models.Smoke)["not_secret"].example
    assert is_secret(name)


def test_every_check_names_the_keys_that_ask_for_it() -> None:
    for name, keys in answers().items():
        assert keys, f"{name} answers nothing"
        for key in keys:
            section, _, rest = key.partition(".")
            field = models.DesiredState.model_fields[section]
            assert not rest or rest in getattr(field.annotation, "model_fields", SMOKE), key


SMOKE = models.Smoke.model_fields  # the section may be absent, so its annotation is a union
