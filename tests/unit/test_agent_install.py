"""What puts the agent on a node and takes it away: root's alone, whole or not at all, without a trace in the end."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shakedown.agent import program
from shakedown.agent.compile import compiled
from shakedown.desired.models import Agent
from shakedown.node.assets import files as script
from shakedown.operations import agent
from tests.sent_scripts import NOBODY, PYTHON, run
from tests.states import desired, healthy
from tests.unit.test_operations_outcome import Node

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the agent is root's")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of root's on the way to which nobody else may write."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def job(place: Path, **changes: Any) -> dict[str, Any]:
    files = {f"{place}/etc/agent.json": ("{}\n", "0600"), f"{place}/etc/agent.timer": ("[Timer]\n", "0644")}
    return {**agent.installation(f"{place}/lib/agent", files), **changes}


def act(place: Path, document: dict[str, Any]) -> tuple[int, str]:
    done = run("files.py", document, place / "locks")
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


def removal(place: Path) -> dict[str, Any]:
    paths = [f"{place}/etc/agent.json", f"{place}/etc/agent.timer", f"{place}/none/verdict"]
    return {"do": "remove", "home": f"{place}/lib/agent", "paths": paths, "folders": [f"{place}/etc", f"{place}/none"]}


def test_what_the_timer_runs_is_behind_no_link_of_another_user(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "python3").symlink_to(PYTHON)
    os.chown(place, NOBODY, NOBODY)
    monkeypatch.setattr(script, "PYTHONS", ())
    monkeypatch.setattr(script, "MORE", ())
    monkeypatch.setattr("sys.executable", f"{place}/python3")
    assert script.python() == os.path.realpath(PYTHON)


def test_it_is_installed_runs_and_goes_without_a_trace(place: Path) -> None:
    (place / "lib/agent" / ("0" * 64)).mkdir(parents=True)
    (place / "lib/agent/somebody-s").mkdir()
    assert job(place)["do"] == "install" and act(place, job(place)) == (0, "")
    digest = program.build().digest
    assert sorted(path.name for path in (place / "lib/agent").iterdir()) == sorted([digest, "somebody-s"])
    assert oct((place / "etc/agent.json").stat().st_mode & 0o777) == "0o600"
    assert all(not path.stat().st_mode & 0o022 for path in (place / "lib/agent" / digest).rglob("*"))
    start = place / "lib/agent" / digest / "run"
    words = [start, "--config", place / "etc/agent.json", "--state", place / "state"]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=60, env={"PATH": "/nowhere", "PYTHONPATH": "/"}
    )
    assert done.returncode == 1 and "another version of shakedown" in done.stdout, done.stderr
    assert (place / "state/verdict").read_text().startswith("unknown ")
    again = act(place, job(place))
    assert again == (0, ""), "it may be installed over itself"
    assert act(place, removal(place)) == (0, "") == act(place, removal(place))
    assert not (place / "etc").exists() and not (place / "lib/agent").exists()


def test_another_program_than_was_meant_is_not_installed(place: Path) -> None:
    code, said = act(place, job(place, digest="a" * 64))
    assert code == 1 and "another digest" in said
    assert list((place / "lib/agent").iterdir()) == [] and not (place / "etc").exists()


@pytest.mark.parametrize("how", ["a folder of theirs", "a folder for everybody", "a link of theirs"])
def test_nothing_is_installed_where_another_user_rules(place: Path, how: str) -> None:
    (place / "elsewhere").mkdir()
    if how == "a link of theirs":
        (place / "lib").symlink_to("elsewhere")
        os.lchown(place / "lib", NOBODY, NOBODY)
        place.chmod(0o1777)
    else:
        (place / "lib").mkdir()
        os.chown(place / "lib", *(NOBODY, NOBODY) if how == "a folder of theirs" else (0, 0))
        (place / "lib").chmod(0o755 if how == "a folder of theirs" else 0o777)
    code, said = act(place, job(place))
    assert code == 1 and str(place) in said
    assert list((place / "elsewhere").iterdir()) == [] and list((place / "lib").iterdir()) == []


def test_no_path_of_the_program_leads_out_of_it(place: Path) -> None:
    from shakedown.transport.bundle import Bundle, files_digest

    files = {"../escaped": b"x"}
    document = job(place, digest=files_digest(files), archive=Bundle(files, "").archive)
    code, said = act(place, document)
    assert code == 1 and "not a path in the program" in said and not list(place.rglob("escaped"))


def test_the_units_say_what_the_desired_state_says() -> None:
    wanted = Agent(every_s=300, delay_s=30, timeout_s=45, memory_bytes=2**27)
    document = compiled("node01", desired(agent=wanted.model_dump()), healthy().account, "d" * 64)
    files = agent.wanted_files(document)
    service, timer = files[agent.SERVICE][0], files[agent.TIMER][0]
    assert "@" not in service + timer, "nothing is left to be filled in"
    for line in (f"ExecStart={agent.HOME}/{'d' * 64}/run", "TimeoutStartSec=45", "MemoryMax=134217728"):
        assert line in service.splitlines()
    assert {"OnUnitActiveSec=300", "RandomizedDelaySec=30"} <= set(timer.splitlines())
    assert "CPUSchedulingPolicy=idle" in service and "CAP_SYS_MODULE" in service and "CAP_SYS_BOOT" in service
    safe = compiled("node01", desired(agent={"remedy": "safe"}), healthy().account, "d" * 64)
    assert "CAP_SYS_MODULE" not in agent.wanted_files(safe)[agent.SERVICE][0]
    assert stat.S_IMODE(int(files[agent.CONFIG][1], 8)) == 0o600


def test_no_secret_is_compiled() -> None:
    smoke = {"recipe": "gpt-small", "environment": {"HF_TOKEN": "hf_very_secret", "NCCL_DEBUG": "INFO"}}
    document = compiled("node01", desired(smoke=smoke), healthy().account, "d" * 64)
    assert "very_secret" not in str(document) and document["desired"]["smoke"]["environment"]["NCCL_DEBUG"] == "INFO"


@pytest.mark.parametrize("lost", ["run", "timer", ""])
def test_an_agent_is_there_only_with_its_program_and_its_timer(lost: str) -> None:
    document = compiled("node01", desired(), healthy().account, program.build().digest)
    run = f"{agent.HOME}/{program.build().digest}/run"
    here = {path: text.splitlines() for path, (text, _) in agent.wanted_files(document).items()}
    here |= {agent.SYSTEMD: [], run: [], agent.ENABLED: []}
    here.pop({"run": run, "timer": agent.ENABLED}.get(lost, ""), None)
    assert bool(Node(here).commands(agent.present, document=document)) is bool(lost)
