"""A public schema does not change without its version: docs/schemas/versions.toml has a digest for each version."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from shakedown.runs.directory import SCHEMA_VERSION as RUN
from shakedown.state.node import SCHEMA_VERSION as STATE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "schemas"
PINS = FOLDER / "versions.toml"
Versions = dict[str, dict[str, str]]


def versions() -> Versions:
    return tomllib.loads(PINS.read_text("utf-8"))


def digest(text: str) -> str:
    """Of what a schema says: descriptions are words, and the order of keys says nothing."""

    def without_words(part: object) -> object:
        if isinstance(part, dict):
            return {
                key: without_words(value)
                for key, value in part.items()
                if not (key in ("description", "title") and isinstance(value, str))
            }
        return [without_words(value) for value in part] if isinstance(part, list) else part

    return hashlib.sha256(json.dumps(without_words(json.loads(text)), sort_keys=True).encode()).hexdigest()


def problem(name: str, text: str, pins: dict[str, str]) -> str:
    """Why a schema may not be as it is; empty: it may."""
    newest = max(pins, key=lambda version: tuple(map(int, version.split("."))), default="0.0")
    if pins.get(newest) == digest(text):
        return ""
    major, minor = newest.split(".")
    return (
        f"{name} is not the schema of its version {newest}. In docs/schemas/versions.toml, add to [{name}]: "
        f'"{major}.{int(minor) + 1}" = "{digest(text)}" where old readers understand it, '
        f'else "{int(major) + 1}.0", with schema_version in the model.'
    )


def lost(old: Versions, new: Versions) -> list[str]:
    """The entries of a release that are no longer what they were."""
    return [f"{name} {key}" for name, pins in old.items() for key in pins if new.get(name, {}).get(key) != pins[key]]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: str(path.name))
def test_no_public_schema_changes_without_its_version(path: Path) -> None:
    name = path.name.removesuffix(".schema.json")
    assert not (why := problem(name, path.read_text("utf-8"), versions().get(name, {}))), why


def test_every_pin_is_of_a_schema_and_the_documents_carry_its_major_version() -> None:
    pins = versions()
    assert set(pins) == {path.name.removesuffix(".schema.json") for path in FOLDER.glob("*.json")}
    assert all(re.fullmatch(r"\d+\.\d+", version) for found in pins.values() for version in found)
    newest = {name: max(int(version.split(".")[0]) for version in found) for name, found in pins.items()}
    assert (newest["run"], newest["state"]) == (RUN, STATE)


def test_no_version_of_a_release_is_pinned_anew() -> None:
    tags = subprocess.run(["git", "tag", "--list", "v*"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for tag in tags.split():
        old = subprocess.run(
            ["git", "show", f"{tag}:{PINS.relative_to(ROOT)}"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if old.returncode == 0:  # a release from before this file
            assert lost(tomllib.loads(old.stdout), versions()) == []


def test_a_change_is_seen_and_words_are_none() -> None:
    text = (FOLDER / "finding.schema.json").read_text("utf-8")
    pins = {"1.0": "0" * 64, "1.10": digest(text), "1.9": "1" * 64}
    assert problem("finding", text, pins) == ""
    document = json.loads(text)
    assert problem("finding", json.dumps({**document, "description": "other words"}), pins) == ""
    more = {**document, "properties": {**document["properties"], "description": {"type": "string"}}}
    assert '"1.11" = ' in problem("finding", json.dumps(more), pins), "a field with that name is none of the words"
    assert problem("finding", text, {}) and lost({"a": {"1.0": "x"}}, {"a": {"1.0": "y"}}) == ["a 1.0"]
