"""Modules that are loaded when they are used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DEPLOYS = Path(__file__).parents[2] / "deploy"
WORK = """
import sys
from shakedown.runner.pyinfra.lazily import lazily
lazily("invoke")
lazily("no_such_module")
import invoke
assert "invoke.config" not in sys.modules, "not yet"
assert callable(invoke.run) and invoke.UnexpectedExit.__mro__
assert "invoke.config" in sys.modules
import invoke.runners
assert invoke.runners.Local and "no_such_module" not in sys.modules
import paramiko.config
assert paramiko.config.invoke.run is invoke.run
"""

READ = """
import importlib.metadata as metadata
groups, opened = ("console_scripts", "gevent.plugins.monkey.will_patch_all"), []
told = [list(metadata.entry_points(group=group)) for group in groups]
from shakedown.runner.pyinfra.lazily import entry_points_once
entry_points_once()
of = metadata.PathDistribution.read_text
metadata.PathDistribution.read_text = lambda self, name: opened.append(name) or of(self, name)
assert [list(metadata.entry_points(group=group)) for group in groups] == told and told[0]
once = len(opened)
assert once and metadata.entry_points(group="console_scripts", name="shakedown") and len(opened) == once
"""

LOADS = """
import sys
sys.argv[0] = "shakedown"
from shakedown.cli import main
try:
    main()
finally:
    print("loaded:", *sys.modules)
"""


def test_entry_points_are_read_once_and_are_the_same() -> None:
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_module_is_loaded_by_the_first_who_asks_for_something_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [["show", "127.0.0.1,", "127.0.0.1"], ["drift", "127.0.0.1,"]])
def test_who_reads_nodes_loads_nothing_of_runs_and_trainings(command: list[str]) -> None:
    there = [*command, "--data", "gpu=cpu", "--data", "ssh_port=1"]  # where nobody listens
    done = subprocess.run([sys.executable, "-c", LOADS, *there], capture_output=True, text=True)
    *_, last = done.stdout.splitlines()
    loaded = set(last.split())
    assert {"loaded:", "gevent.monkey", "shakedown.desired.resolve"} <= loaded, done.stderr
    needless = {"shakedown.runner.session", "shakedown.report.page", "sqlalchemy", "numpy"}
    if command[0] == "show":  # a check is kept
        needless |= {"shakedown.runs.directory", "shakedown.gates", "shakedown.trials.models"}
        needless |= {"shakedown.state.node", "rich"}
    assert not needless & loaded


def test_a_deploy_that_keeps_nothing_loads_neither_the_ledger_s_database_nor_numpy() -> None:
    stages = "import sys; import shakedown.runner.data, shakedown.runner.stages, shakedown.runner.trials"
    show = "print('loaded:', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", f"{stages}; {show}"], capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert {"loaded:", "shakedown.runner.session"} <= loaded, done.stderr
    assert not {"sqlalchemy", "numpy", "scipy", "matplotlib"} & loaded


@pytest.mark.parametrize("deploy", ["bringup", "drift"])
def test_a_deploy_without_a_job_loads_no_plan_and_no_judgement_of_one(deploy: str) -> None:
    text = (DEPLOYS / f"{deploy}.py").read_text("utf-8")
    imports = "\n".join(line for line in text.splitlines() if line.startswith("from "))
    show = "import sys; print('loaded:', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", f"{imports}\n{show}"], capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert {"loaded:", "shakedown.runner.session"} <= loaded, done.stderr
    of_jobs = (
        "shakedown.runner.training",
        "shakedown.runs.judging",
        "shakedown.gates.judgement",
        "shakedown.jobs.plan",
    )
    assert not loaded.intersection(of_jobs)


BUILT = """
import sys
import shakedown.runner.data, shakedown.runner.stages, shakedown.runner.trials
from pydantic import BaseModel

def below(model):
    for own in model.__subclasses__():
        yield own
        yield from below(own)

models = {own for own in below(BaseModel) if own.__module__.startswith("shakedown.")}
print(len(models), *(f"{own.__module__}.{own.__name__}" for own in models if own.__pydantic_complete__))
"""


def test_a_deploy_builds_no_model_that_it_does_not_use() -> None:
    """Pydantic takes half a millisecond for each. Those that stand as a default in another one are used at once."""
    done = subprocess.run([sys.executable, "-c", BUILT], capture_output=True, text=True)
    count, *built = done.stdout.split()
    assert int(count) > 200, done.stderr
    assert len(built) < 25, built


def test_what_is_sent_to_nodes_is_made_without_reading_the_catalogue() -> None:
    sent = "from shakedown.transport import bundle; import sys; print(len(bundle.build().files), *sys.modules)"
    done = subprocess.run([sys.executable, "-c", sent], capture_output=True, text=True)
    loaded = done.stdout.split()
    assert int(loaded[0]) > 20, done.stderr
    assert not {"shakedown.catalogue.model", "tomllib", "ahocorasick_rs"} & set(loaded)


def test_pyinfra_looks_for_garbage_as_rarely_as_our_own_command(tmp_path: Path) -> None:
    """Looking through what was loaded and stays takes a tenth of a deploy that changes nothing."""
    (tmp_path / "site.py").write_text('site = (["@local"], {"gpu": "cpu", "tuning": {"numa_balancing": None}})\n')
    stages = (
        "import gc\nfrom shakedown.runner import stages\nstages.drifted()\nprint('threshold', gc.get_threshold()[0])\n"
    )
    (tmp_path / "look.py").write_text(stages)
    program = str(Path(sys.executable).with_name("pyinfra"))
    done = subprocess.run([program, "site.py", "look.py", "-y"], cwd=tmp_path, capture_output=True, text=True)
    assert "threshold 50000" in done.stdout, done.stderr
