"""`shakedown.facts.node.NodeState` through pyinfra itself: @local and a real sshd on loopback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter
from pyinfra.api.exceptions import FactProcessError

from shakedown.facts.node import NodeState, parse, signed
from shakedown.node.launch import home
from shakedown.state import node as contract
from shakedown.transport import bundle
from tests import forks
from tests.sshd import SSHD, Node, start

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Node]]:
    """A sound node, and one whose every answer is something else."""
    assert SSHD, "these tests need sshd: make system"
    sound, first = start(tmp_path_factory.mktemp("sound"))
    rubbish, second = start(tmp_path_factory.mktemp("rubbish"), "ForceCommand echo 'Welcome to rack 7'")
    yield {"sound": sound, "rubbish": rubbish}
    for server in (first, second):
        server.terminate()
        server.wait(10)


def pyinfra(inventory: Path | str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("pyinfra")), str(inventory), *arguments]
    return subprocess.CompletedProcess(command, *forks.run(command, ROOT, os.environ))


def inventory(folder: Path, nodes: dict[str, Node]) -> Path:
    path = folder / "inventory.py"
    path.write_text(f"hosts = {[(name, node.data()) for name, node in nodes.items()]!r}\n")
    return path


def read(run: subprocess.CompletedProcess[str], host: str) -> contract.NodeState:
    document = json.loads(run.stdout)
    (data,) = (entry for entry in _dictionaries(document) if "schema_version" in entry)
    return contract.NodeState.model_validate_json(json.dumps(data), strict=True)


def _dictionaries(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for entry in value.values():
            yield from _dictionaries(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _dictionaries(entry)


def test_one_exec_per_host_in_the_steady_state(tmp_path: Path, nodes: dict[str, Node]) -> None:
    """A fresh node takes a second command, which brings the probe; after that it is one, and no file transfer."""
    where = inventory(tmp_path, {"sound": nodes["sound"]})
    cache = Path(home()) / ".cache/shakedown"  # of the account that logs in
    for path in cache.glob(f"{bundle.build().digest}-*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = nodes["sound"].sessions()
    first = pyinfra(where, "--json", "fact", "shakedown.facts.node.NodeState")
    assert first.returncode == 0, first.stderr
    after_first = nodes["sound"].sessions()
    second = pyinfra(where, "--json", "fact", "shakedown.facts.node.NodeState")
    assert (after_first - before, nodes["sound"].sessions() - after_first) == (2, 1)
    for run in (first, second):
        assert read(run, "sound").probe.version == bundle.build().digest


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else without a password")
def test_the_caller_s_arguments_hold_for_the_delivery_too(tmp_path: Path, nodes: dict[str, Node]) -> None:
    """`_su_user` given to get_fact alone: the bundle goes where that user can run it, and nowhere else.

    pyinfra does not tell a fact its arguments (see facts/node.py, _connector_arguments): this fails when that changes.
    """
    deploy = tmp_path / "deploy.py"
    deploy.write_text(
        "from pyinfra import host\n"
        "from shakedown.facts.node import NodeState\n"
        "state = host.get_fact(NodeState, _su_user='nobody', _su_shell='sh')\n"
        f"open({str(tmp_path / 'uid')!r}, 'w').write(str(state['probe']['uid']))\n"
    )
    run = pyinfra(inventory(tmp_path, {"sound": nodes["sound"]}), "-y", str(deploy))
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "uid").read_text() == "65534"


def test_a_node_that_answers_rubbish_fails_alone(tmp_path: Path, nodes: dict[str, Node]) -> None:
    """Anything but a FactProcessError would end the run for all hosts."""
    run = pyinfra(inventory(tmp_path, nodes), "--json", "fact", "shakedown.facts.node.NodeState")
    assert "Traceback" not in run.stderr
    assert "Welcome to rack 7" in run.stderr
    assert read(run, "sound").probe.version == bundle.build().digest


def test_local() -> None:
    run = pyinfra("@local", "--json", "fact", "shakedown.facts.node.NodeState")
    assert run.returncode == 0, run.stderr
    assert read(run, "@local").system.kernel == os.uname().release


@pytest.mark.parametrize("subject", ["kfd", "numa", "verbs", "rdma"])
def test_one_subject_of_a_node_is_a_fact_too(subject: str) -> None:
    run = pyinfra("@local", "--json", "fact", "shakedown.facts.node.Subject", f"subject={subject}")
    assert run.returncode == 0, run.stderr
    ((found,),) = (hosts.values() for hosts in json.loads(run.stdout).values())
    field = contract.NodeState.model_fields[subject]
    assert TypeAdapter(Annotated[field.annotation, field]).validate_json(json.dumps(found)) is not None


def test_an_unknown_subject_is_refused() -> None:
    run = pyinfra("@local", "--json", "fact", "shakedown.facts.node.Subject", "subject=moon")
    assert ": null" in run.stdout and "no subject of a node state: 'moon'; there are account, " in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "printed no document"),
        (["bash: warning: setlocale"], "setlocale"),
        (['{"schema_version": 1, "sys'], "cut short"),
        (['{"shakedown_bundle": "exit 124"}'], "did not end in time"),
        (["Traceback", "MemoryError", '{"shakedown_bundle": "exit 1"}'], "ended with exit 1: MemoryError"),
        ([json.dumps({"shakedown_bundle": bundle.NO_PYTHON})], "no python3"),
        (['{"shakedown_bundle": "missing"}'], "no connection"),
    ],
)
def test_what_goes_wrong_is_said_in_words(lines: list[str], message: str) -> None:
    with pytest.raises(FactProcessError, match=message):
        NodeState().process(lines)


def test_a_shell_that_greets_is_no_obstacle() -> None:
    assert parse(["Welcome to rack 7", '{"schema_version": 1}']) == {"schema_version": 1}


@pytest.mark.parametrize(
    ("signature", "kept"),
    [
        (['{"shakedown_signature": {"text": "t", "host_key": "k"}}'], {"text": "t", "host_key": "k"}),
        (['{"shakedown_signature": {"text": '], {"reason": "its answer has no signature"}),
        (['{"shakedown_signature": "t"}'], {"reason": "its answer has no signature"}),
        ([], {"reason": "its answer has no signature"}),
    ],
)
def test_a_reading_is_kept_with_the_signature_before_it(signature: list[str], kept: dict[str, str]) -> None:
    document = '{"schema_version": 1}'
    assert signed(["Welcome to rack 7", *signature, document]) == {"document": document, **kept}


@pytest.mark.parametrize(("error", "words"), [("bash: no python3", "no python3"), ("", "Disk quota exceeded")])
def test_a_probe_that_could_not_be_sent_says_what_the_node_says(error: str, words: str) -> None:
    fact = NodeState()
    output = SimpleNamespace(stderr=error, stdout="Disk quota exceeded", stdout_lines=[])
    fact.host = SimpleNamespace(run_shell_command=lambda *_, **__: (False, output))  # type: ignore[assignment]
    fact.requested = ()
    with pytest.raises(FactProcessError, match=words):
        fact._install({})
