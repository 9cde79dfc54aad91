"""What a person is told to do can be done: options, settings and operations that advice names are there."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import click
import pytest
from pydantic import BaseModel

from shakedown.catalogue import Log, advice, entries
from shakedown.cli import COMMANDS, main
from shakedown.common.data import read_toml
from shakedown.desired.models import DesiredState
from shakedown.evidence.diagnosis.signs import proofs
from shakedown.recipes.program import program
from shakedown.report.failure import sentence

PACKAGE = Path(__file__).parents[2] / "shakedown"
# Options of the programs that nodes have, which advice may name: container engines (docs.docker.com/reference), Slurm
# (slurm.schedmd.com/sbatch.html and srun.html), amd-smi and rocm-smi (rocm.docs.amd.com, their command lines), torchrun
# (pytorch.org, "torchrun") and vLLM (docs.vllm.ai, engine arguments), all read by 2026-11-28; and what programs have.
OPTIONS = {
    "--help",
    "--power-cap",
    "--version",
    "--network",
    "--cap-add",
    "--group-add",
    "--ulimit",
    "--pids-limit",
    "--time",
    "--mpi",
    "--mem-fraction-static",  # SGLang's
    "--prefix",  # Open MPI's, with the next four
    "--host",
    "--map-by",
    "--bind-to",
    "--mca",
    "--all",  # ompi_info
    "--force",  # ray stop
    "--nnodes",
    "--max-restarts",
    "--showpids",
    "--showtopo",
    "--showtopoaccess",
    "--pid",
    "--security-opt",
    "--enforce-eager",
    "--ipc",
    "--privileged",
    "--shm-size",
    "--device",
    "--memory",
    "--mem",
    "--ecc",
    "--memory-partition",
    "--compute-partition",
}
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
_SETTING = re.compile(r"(?<![\w./])(smoke|benchmark)\.([a-z_]+(?:\.[a-z_]+)*)")
_OPERATION = re.compile(r"\boperation ([a-z_]+)\.([a-z_]+)")


def texts() -> Iterator[tuple[str, str]]:
    """Every text that is meant for a person: the signatures and advice, and the sentences in checks and gates."""
    logs: tuple[Log, ...] = ("job", "rccl", "kernel")
    for entry in (entry for log in logs for entry in entries(log)):
        yield entry.name, f"{entry.cause}; {entry.remedy}"
    for name in advised():
        yield name, advice(name)
    for folder in ("checks", "gates", "jobs/plan", "recipes"):
        for path in sorted((PACKAGE / folder).glob("*.py")):
            for line, text in sentences(ast.parse(path.read_text())):
                yield f"{path.name}:{line}", text
    for path in sorted(path for room in ("jobs", "logs", "evidence") for path in (PACKAGE / room).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "remedy" and isinstance(node.value, ast.Constant):
                yield f"{path.name}:{node.value.lineno}", str(node.value.value)


def advised() -> list[str]:
    """The names of all advice."""
    return [entry["name"] for entry in read_toml("shakedown.catalogue", "advice.toml")["advice"]]


def sentences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Texts of more than three words that are neither docstrings nor commands."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in docstrings else None
        if isinstance(text, str) and text.count(" ") > 2 and "|" not in text:
            yield getattr(node, "lineno", 0), text


def options() -> set[str]:
    """The options of our own commands and the arguments of the programs that recipes start."""
    found: set[str] = set(OPTIONS)
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        found.update(option for parameter in command.params for option in parameter.opts)
    for entry in resources.files("shakedown.recipes").joinpath("programs").iterdir():
        if entry.name.endswith(".toml"):
            found.update(f"--{argument}" for argument in program(entry.name[:-5]).arguments)
    return found


def has(model: type[BaseModel], path: list[str]) -> bool:
    """Whether a dotted path leads to a field; below a dictionary anything does."""
    field = model.model_fields.get(path[0])
    if field is None:
        return False
    inner: Any = list(getattr(field.annotation, "__args__", [field.annotation]))
    models = [kind for kind in inner if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return len(path) == 1 or not models or any(has(kind, path[1:]) for kind in models)


@pytest.fixture(scope="module")
def found() -> list[tuple[str, str]]:
    return list(texts())


def test_options_that_advice_names_exist(found: list[tuple[str, str]]) -> None:
    known = options()
    named = {(where, option) for where, text in found for option in _OPTION.findall(text)}
    assert {option for _, option in named} >= {"--transport", "--seq-length", "--log-throughput"}, "the search works"
    assert {each for each in named if each[1] not in known} == set()


def test_settings_that_advice_names_exist(found: list[tuple[str, str]]) -> None:
    named = {(where, ".".join(path)) for where, text in found for path in _SETTING.findall(text)}
    assert len(named) > 3, "the search works"
    assert {each for each in named if not has(DesiredState, each[1].split("."))} == set()


def test_operations_that_advice_names_exist(found: list[tuple[str, str]]) -> None:
    named = {(where, *name) for where, text in found for name in _OPERATION.findall(text)}
    assert named, "the search works"
    for where, module, name in named:
        assert callable(getattr(importlib.import_module(f"shakedown.operations.{module}"), name, None)), (
            where,
            module,
            name,
        )


@pytest.mark.parametrize("text", ["--no-such-option", "use --expects"])
def test_an_option_that_does_not_exist_would_be_found(text: str) -> None:
    assert not set(_OPTION.findall(text)) & options()


VERBS = "check|compare|find|give|install|let|look|lower|power-cycle|raise|read|reboot|replace|reseat|run|set|take|use"
_BROKEN = re.compile(
    rf"\b(?:the|a|an) (?:{VERBS}) (?:the|a|an|at|for)\b"  # "power-cycle the reseat the GPU"
    r"|\b(\w+) \1\b|  |[,;:]$| [,;]|^\W",
)


def remedies() -> Iterator[tuple[str, str]]:
    """Every remedy of the catalogue, of the diagnosis, of checks and of gates."""
    logs: tuple[Log, ...] = ("job", "rccl", "kernel")
    yield from ((entry.name, entry.remedy) for log in logs for entry in entries(log))
    yield from ((name, advice(name)) for name in advised())
    yield from ((name, seen.remedy) for name, seen in proofs().items())
    for path in sorted(
        path for room in ("checks", "gates", "trials", "evidence") for path in (PACKAGE / room).rglob("*.py")
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.arg if isinstance(node, ast.keyword) else ""
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
            if name in ("remedy", "text") and isinstance(node, ast.keyword | ast.Assign):
                yield from ((f"{path.name}:{line}", text) for line, text in whole(node.value))


def whole(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Sentences without parts that are filled in."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in parts]
    yield from (
        (node.lineno, node.value) for node in found if isinstance(node.value, str) and node.value.count(" ") > 2
    )


def test_a_remedy_is_a_sentence_of_its_own() -> None:
    known = [(where, text) for where, text in remedies() if text]
    assert len(known) > 450, "the search works"
    assert [(where, text) for where, text in known if _BROKEN.search(text) or text.count("(") != text.count(")")] == []
    assert _BROKEN.search("power-cycle the reseat the GPU") and sentence("reseat the GPU") == "Reseat the GPU."


def test_every_gate_that_may_not_hold_has_a_remedy() -> None:
    """A gate without the keyword could be shown as failed or unknown, with nothing to do about it."""
    for path in (PACKAGE / "gates").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Outcome":
                assert {"remedy", "evidence"} <= {keyword.arg for keyword in node.keywords}, (
                    f"{path.name}:{node.lineno}"
                )
