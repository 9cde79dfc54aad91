"""A node's capture: the probe's raw readings without names, and a replay. It holds no files, and nothing of it is
unpacked or run; the probe answers in a process with limits, since a stranger may have written it."""

import gzip
import hashlib
import json
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from shakedown.checks.examination import Examination, Reading
from shakedown.checks.waivers import on_node
from shakedown.common import private, secrets
from shakedown.common.frozen import first_problem
from shakedown.common.text import load_sound, printable
from shakedown.desired.models import DesiredState
from shakedown.node import sysctl
from shakedown.node.book import MOST, NOWHERE
from shakedown.runs import CAPTURE
from shakedown.runs.archive.pseudonyms import PUBLIC, Pseudonyms, keys, own_words, versions, with_names_in
from shakedown.runs.archive.redact import Redactor
from shakedown.state.findings import Verdict
from shakedown.state.node import NodeState

LIMIT = MOST + (4 << 20)  # characters of a document
_SECONDS = 90
_PARTS = 500_000  # objects and lists of a document: a node with 8 GPUs has some 10,000
_HOST = re.compile(r"://([A-Za-z][\w.-]*)")
_WORD = re.compile(r"\w+")
_MAC_IN_NAME = re.compile(r"\benx[0-9a-f]{12}\b")
_ALONE = 8  # names of one word that are left alone one by one: each costs a replay, and a node has two or three
_FIRST_PERSON, _NOBODY = 1000, 65534  # numbers of users: below are the system's


class Capture(BaseModel):
    """The document. `clock`: the node's clock minus the controller's, and by how much that may be off, in seconds."""

    capture: Literal[1] = 1
    shakedown: str
    node: str
    at: str
    clock: tuple[float, float]
    desired: DesiredState
    answers: dict[str, Any]


def write(examination: Examination, node: str, answers: Mapping[str, Any], target: Path | None) -> tuple[Path, Path]:
    """Write the capture of a node, and beside it what its pseudonyms stand for. Raises ValueError where the capture
    does not replay to the node's findings; OSError, also where a file is there already."""
    reading, desired = examination.readings[node], on_node(examination.desired[node], node)
    named = _names(node, reading.state, desired, answers)
    document = {
        "shakedown": version("shakedown"),
        "node": node,
        "at": reading.state.system.taken_at if reading.state else "",
        "clock": (reading.clock_offset_s, reading.clock_error_s),
        "desired": desired.model_dump(mode="json"),
        "answers": answers,
    }
    known = secrets.values_of(document["desired"], examination.not_secret())
    kept = versions([reading.state.model_dump(mode="json")] if reading.state else [])
    before = [(finding.name, finding.verdict) for finding in examination.findings[node]]
    problem = ""
    for ambiguous in _ambiguous(named, document):
        names = Pseudonyms(named, kept, ambiguous=ambiguous)
        redacted = Redactor(known, names, own_words([document])).document(document)
        _rename_hosts(redacted, names.of(node), {name: names.of(name) for name in named if named[name] == "host"})
        if not (differs := _differs(redacted, before)):
            break
        problem = problem or differs
    else:
        raise ValueError(f"{problem}; send a run with its findings instead: shakedown bundle latest --pseudonyms")
    text = json.dumps(redacted).encode()
    target = target or Path(f"capture-{hashlib.sha256(text).hexdigest()[:8]}{CAPTURE}")
    beside = target.with_name(f"{target.name}.names.json")
    contents = {target: gzip.compress(text, mtime=0), beside: json.dumps(names.mapping, indent=1).encode()}
    for path, content in contents.items():
        with private.create(path) as file:
            file.write(content)
    return target, beside


def _ambiguous(named: Mapping[str, str], document: Mapping[str, Any]) -> Iterator[set[str]]:
    """Yield ever more names to leave: keys, one-word names, then all. A node may be called `docker` or `off`."""
    own = named.keys() & {*keys(document)}
    words = [name for name, kind in named.items() if kind != "serial" and _WORD.fullmatch(name) and name not in own]
    yield own
    yield from ({*own, word} for word in words[:_ALONE])
    yield {*own, *words}


def _differs(redacted: Any, before: Sequence[tuple[str, Verdict]]) -> str:
    """Return why a redacted document does not replay to the node's findings; nothing where it does."""
    try:
        findings = replay(Capture.model_validate(redacted)).all_findings()
    except ValidationError as error:
        return f"without names and secrets the desired state is invalid: {first_problem(error)}"
    except ValueError as error:
        return str(error)
    other = sorted({name for name, _ in {*before} ^ {(finding.name, finding.verdict) for finding in findings}})
    return f"without names and secrets other findings would come of it: {', '.join(other)}" if other else ""


def _rename_hosts(redacted: Any, node: str, hosts: Mapping[str, str]) -> None:
    """Replace names where a field holds one, also those that are left alone elsewhere."""
    redacted["node"] = node
    for waiver in redacted["desired"]["waivers"].values():
        waiver["hosts"] = [node] if waiver["hosts"] else []
    if cables := redacted["desired"]["rdma"]["cabling"]:
        redacted["desired"]["rdma"]["cabling"] = dict.fromkeys([node], *cables.values())
    for text, answer in redacted["answers"].items():
        if text == "machine" or text.endswith("/hostname"):
            for name, pseudonym in hosts.items():
                answer = _renamed(answer, name, pseudonym)
            redacted["answers"][text] = answer


def _renamed(value: Any, name: str, other: str) -> Any:
    """Return a document in which no text is the name alone."""
    if isinstance(value, dict):
        return {key: _renamed(part, name, other) for key, part in value.items()}
    if isinstance(value, list):
        return [_renamed(part, name, other) for part in value]
    return value.replace(name, other) if isinstance(value, str) and value.strip() == name else value


def load(path: Path) -> Capture:
    """Return the capture in a file. Raises ValueError for what is none, OSError."""
    try:
        with gzip.open(path) as file:
            text = file.read(LIMIT + 1).decode()
        if text.count("{") + text.count("[") > _PARTS:
            raise ValueError(f"more than {_PARTS} parts, which no node's has")
        document = load_sound(text, LIMIT)
        if isinstance(document["desired"]["rdma"].get("cabling"), str):  # a file of this machine
            raise ValueError("its cabling plan is the name of a file")
        return Capture.model_validate(document)
    except ValidationError as error:
        raise ValueError(f"{path}: no capture of this version: {first_problem(error)}") from None
    except (LookupError, TypeError, AttributeError):
        raise ValueError(f"{path}: no capture of this version") from None
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: no capture: {first_problem(error)}") from None


def replay(capture: Capture) -> Examination:
    """Examine the node that a capture is of, as `drift` does with one that is there. Raises ValueError."""
    asked = " ".join(sysctl.question(capture.desired.requested_readings))
    command = [sys.executable, "-I", "-m", "shakedown.node", "--root", NOWHERE, "--replay", "yes", "--ask", asked]
    try:
        done = subprocess.run(
            command, input=json.dumps(capture.answers), capture_output=True, text=True, timeout=_SECONDS, env={}
        )
        if done.returncode:
            last = printable(done.stderr.strip().rpartition("\n")[2], 300)
            raise ValueError(f"the probe cannot read what Shakedown {capture.shakedown} has captured: {last}")
        state = NodeState.model_validate(load_sound(done.stdout, LIMIT))
    except subprocess.TimeoutExpired:
        raise ValueError(f"the probe has not read it within {_SECONDS} s") from None
    except ValidationError as error:
        raise ValueError(f"the probe reads a malformed state: {first_problem(error)}") from None
    examination = Examination({capture.node: capture.desired})
    offset, uncertain = capture.clock
    examination.keep(capture.node, Reading(state, clock_offset_s=offset, clock_error_s=uncertain))
    examination.judge()
    return examination


def _names(node: str, state: NodeState | None, desired: DesiredState, answers: Mapping[str, Any]) -> dict[str, str]:
    """Return what is replaced in a capture. Short names and words of logs are no exception, as they are in a run."""
    files = {
        subject: answer["is"] for subject, answer in answers.items() if subject.startswith("file ") and "is" in answer
    }
    named = [{subject.rpartition("/")[2].replace("-", "_"): text.strip()} for subject, text in files.items()]
    known = state.model_dump(mode="json") if state else {}
    found = with_names_in([*named, known, answers, desired.model_dump(mode="json")], {node: "host"})
    for subject, text in files.items():
        if "/ssh_host_" in subject:
            found |= dict.fromkeys(text.split()[1:2], "serial")
    for kind, path in (("user", "/etc/passwd"), ("group", "/etc/group")):
        rows = [line.split(":") for line in files.get(f"file {path}", "").splitlines()]
        people = [row for row in rows if len(row) > 3 and row[2].isdigit()]
        found |= {row[0]: kind for row in people if _FIRST_PERSON <= int(row[2]) != _NOBODY and row[0] not in found}
        members = [name for row in people for name in row[3].split(",") if kind == "group" and name]
        found |= {name: "user" for name in members if name != "root" and name not in found}
    hosts = _HOST.findall(json.dumps(desired.model_dump(mode="json")))
    found |= dict.fromkeys(set(hosts) - PUBLIC - found.keys(), "host")
    found |= dict.fromkeys(_MAC_IN_NAME.findall(json.dumps([known, answers])), "interface")
    return found
