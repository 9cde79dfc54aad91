"""Which deploy files are guarded, and for what: told by what they call."""

from __future__ import annotations

from pathlib import Path

import pytest

from shakedown.runner.pyinfra.deploys import Deploy, own_deploys
from shakedown.runner.pyinfra.site_files import DEPLOYS


def of(folder: Path, text: str) -> list[Deploy]:
    file = folder / "own.py"
    file.write_text(text)
    return own_deploys((str(file),))


def test_the_shipped_ones() -> None:
    shipped = {deploy.name: deploy for deploy in own_deploys(tuple(map(str, DEPLOYS.glob("*.py"))))}
    assert shipped.keys() == {file.stem for file in DEPLOYS.glob("*.py")}
    assert {name for name, each in shipped.items() if each.trains} == {
        "isolate",
        "load",
        "megatron",
        "megatron_source",
        "smoke",
        "stanford_megatron",
    }
    assert {name for name, each in shipped.items() if not each.compares} == {"rollback"}
    sections = {name: each.section for name, each in shipped.items() if each.section}
    assert sections == {"datasets": "datasets", "pytorch_training": "benchmark"}


def test_a_file_is_known_by_what_it_calls_and_not_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "datasets.py"
    file.write_text("from shakedown.runner import stages\nstages.examine()\nstages.tune()\n")
    (deploy,) = own_deploys((str(file),))
    assert deploy.section is None and deploy.compares and not deploy.trains


@pytest.mark.parametrize(
    "text",
    [
        "from shakedown.runner import stages\nstages.smoke()",
        "from shakedown.runner import stages as each\neach.examine()\neach.smoke()",
        "from shakedown.runner.stages import smoke as train\ntrain()",
        "import shakedown.runner.stages\nshakedown.runner.stages.smoke()",
        "import shakedown.runner.stages as stages\nif True:\n    stages.smoke()",
    ],
)
def test_a_users_own_deploy_trains_where_it_calls_the_stage(tmp_path: Path, text: str) -> None:
    assert [deploy.trains for deploy in of(tmp_path, text)] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "stages.smoke()",
        "from pyinfra.operations import server\nserver.shell(commands='true')",
        "from shakedown.operations import tuning\ntuning.numa_balancing()",
        "from .runner import stages\nstages.smoke()",
        "not python",
    ],
)
def test_other_peoples_deploys_are_none(tmp_path: Path, text: str) -> None:
    assert of(tmp_path, text) == []


def test_what_is_no_deploy_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"# \xe4\n")
    assert own_deploys(("server.shell", "uptime", "nowhere.py", str(tmp_path / "latin.py"), "fact")) == []
