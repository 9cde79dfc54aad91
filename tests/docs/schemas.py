"""docs/schemas: JSON schemas of what a run directory holds, from the models that write it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, TypeAdapter

from shakedown.findings import Finding
from shakedown.runs import Evidence, RunRecord
from shakedown.smoke.launch import LaunchPlan
from shakedown.smoke.log import Iteration
from shakedown.state import NodeState
from tests.docs.markdown import as_json, summary, table

MODELS: dict[str, tuple[str, type[BaseModel]]] = {
    "run.json": ("run.schema.json", RunRecord),
    "evidence.json": ("evidence.schema.json", Evidence),
    "`iterations.jsonl`, `shakedown parse`": ("iteration.schema.json", Iteration),
    "states/NODE.json": ("state.schema.json", NodeState),
    "`shakedown plan --format json`": ("plan.schema.json", LaunchPlan),
    "`shakedown drift --format jsonl`": ("finding.schema.json", Finding),
}


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of what is written, not of what may be read."""
    if model is Evidence:  # the file has one for each job
        document = TypeAdapter(dict[str, Evidence]).json_schema(mode="serialization")
        definitions = document.pop("$defs")
        body: dict[str, Any] = {"type": "object", "properties": {"jobs": document}, "required": ["jobs"]}
        return {"title": "Evidence", **body, "additionalProperties": False, "$defs": definitions}
    return model.model_json_schema(mode="serialization")


def schemas() -> dict[str, str]:
    """File name -> its text."""
    return {
        name: as_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema(model)})
        for name, model in MODELS.values()
    }


def listed() -> str:
    """Which file has which schema."""
    rows = [(_file(file), f"[{name}](schemas/{name})", summary(model)) for file, (name, model) in MODELS.items()]
    return table(("what", "schema", "one of it"), rows)


def _file(name: str) -> str:
    return name if "`" in name else f"`{name}`"
