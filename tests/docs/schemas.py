"""docs/schemas: JSON schemas of what a run directory holds, from the models that write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from shakedown.jobs.launch import LaunchPlan
from shakedown.logs.iterations import Iteration
from shakedown.logs.mad import Results
from shakedown.runs.archive.tar import Manifest
from shakedown.runs.directory import Evidence, RunRecord
from shakedown.runs.signing.statement import Statement
from shakedown.state.findings import Finding
from shakedown.state.node import NodeState
from tests.docs.markdown import as_json, summary, table
from tests.json_schema import Draft202012Validator

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"
_ITERATIONS = "`iterations.jsonl`, `shakedown parse`"
MODELS: dict[str, tuple[str, type]] = {
    "run.json": ("run.schema.json", RunRecord),
    "evidence.json": ("evidence.schema.json", Evidence),
    _ITERATIONS: ("iteration.schema.json", Iteration),
    "states/NODE.json": ("state.schema.json", NodeState),
    "benchmark/NODE.json": ("benchmark.schema.json", Results),
    "`manifest.json` of an archive": ("manifest.schema.json", Manifest),
    "payload of `statement.sigstore.json`": ("statement.schema.json", Statement),
    "`shakedown plan --format json`": ("plan.schema.json", LaunchPlan),
    "`shakedown drift --format jsonl`": ("finding.schema.json", Finding),
}


def schema(model: type) -> dict[str, Any]:
    """The schema of what is written, not of what may be read."""
    if model is Evidence:  # the file has one for each job
        document = TypeAdapter(dict[str, Evidence]).json_schema(mode="serialization")
        definitions = document.pop("$defs")
        body: dict[str, Any] = {"type": "object", "properties": {"jobs": document}, "required": ["jobs"]}
        return {"title": "Evidence", **body, "additionalProperties": False, "$defs": definitions}
    return TypeAdapter(model).json_schema(mode="serialization")


def text(model: type) -> str:
    """The text of a model's file."""
    return as_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema(model)})


def listed() -> str:
    """Which file has which schema."""
    rows = [(_file(file), f"[{name}](../schemas/{name})", summary(model)) for file, (name, model) in MODELS.items()]
    return table(("what", "schema", "one of it"), rows)


def _file(name: str) -> str:
    return name if "`" in name else f"`{name}`"


def problems_of(run: Path) -> list[str]:
    """What of a run directory is not as the published schemas have it. Every file that has one must be there."""
    texts = [("run.json", "run.json", (run / "run.json").read_text("utf-8"))]
    texts.append(("evidence.json", "evidence.json", (run / "evidence.json").read_text("utf-8")))
    record = json.loads(texts[0][2])
    for kind, folder in (("states/NODE.json", "states"), ("benchmark/NODE.json", "benchmark")):
        asked = folder == "states" or any(job["plan"] and job["plan"]["parser"] != "training" for job in record["jobs"])
        paths = sorted((run / folder).iterdir()) if asked else []
        texts += [(kind, f"{folder}/{path.name}", path.read_text("utf-8")) for path in paths]
    lines = (run / "iterations.jsonl").read_text("utf-8").splitlines() if record["iterations"] else []
    texts += [(_ITERATIONS, f"iterations.jsonl:{number}", line) for number, line in enumerate(lines, 1)]
    return [f"{where}: {why}" for kind, where, text in texts for why in problems(kind, text)]


def problems(kind: str, text: str) -> list[str]:
    """What of a document is not as the published schema of its kind has it."""
    published = json.loads((FOLDER / MODELS[kind][0]).read_text("utf-8"))
    validator = Draft202012Validator(published)
    return [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(json.loads(text))]
