"""What plain pyinfra gets wrong by itself, caught around our deploys and nobody else's. On @local, in processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forks

PROJECT = Path(__file__).resolve().parents[2]
DRIFT = PROJECT / "deploy/drift.py"


def pyinfra(folder: Path, *argv: object) -> subprocess.CompletedProcess[str]:
    return started(folder, "pyinfra", *argv)


def started(folder: Path, program: str, *argv: object) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name(program)), *(str(word) for word in argv)]
    environment = {**os.environ, "PYINFRA_PROGRESS": "off", "HOME": str(folder)}
    return subprocess.CompletedProcess(command, *forks.run(command, folder, environment))


def from_nothing(folder: Path, *argv: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """No fork of a process that has loaded most of it."""
    command = [str(Path(sys.executable).with_name("pyinfra")), *(str(word) for word in argv)]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False, cwd=folder)


def inventory(folder: Path, data: str = '{"gpu": "cpu"}') -> Path:
    path = folder / "site.py"
    path.write_text(f'site = (["@local"], {data})\n')
    return path


@pytest.mark.parametrize("options", [[], ["-y"], ["--dry", "-y"]])
def test_no_hosts_is_no_pass(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "empty.py").write_text("site = []\n")
    training = PROJECT / "deploy/megatron.py"
    for argv in (["empty.py", DRIFT], [inventory(tmp_path), DRIFT, "--limit", "nobody"], ["empty.py", training]):
        ran = pyinfra(tmp_path, *argv, *options)
        assert ran.returncode == 1, ran.stderr
        assert "no host was examined" in ran.stderr and "section smoke" not in ran.stderr


@pytest.mark.parametrize(
    ("option", "words", "right"),
    [
        ("--limit", "node[01-02],!x", "Write: --limit node01 --limit node02 --exclude x"),
        ("--limit", "node[10-24]*", "The shakedown command reads them: --limit 'node[10-24]*'"),
        ("--exclude", "node[ab]", "The shakedown command reads them: --limit '!node[ab]'"),
    ],
)
def test_ranges_are_refused_where_pyinfra_reads_characters(tmp_path: Path, option: str, words: str, right: str) -> None:
    ran = pyinfra(tmp_path, inventory(tmp_path), DRIFT, "-y", option, words)
    assert ran.returncode == 2 and right in ran.stderr, ran.stderr


def test_the_right_spelling_has_whole_names(tmp_path: Path) -> None:
    rack = tmp_path / "rack.py"
    rack.write_text(
        'from shakedown.hosts import nodes\nr7 = (nodes("node[01-64].rack7"), {"gpu": "cpu", "ssh_port": 1})\n'
    )
    for words, right in (
        ("node[01-02]", "Write: --limit node01.rack7 --limit node02.rack7\n"),
        ("node[03,07]*,!node03", "Write: --limit node03.rack7 --limit node07.rack7 --exclude node03.rack7\n"),
        ("node[10-24]", "The shakedown command reads them: --limit 'node[10-24]'\n"),
    ):
        ran = pyinfra(tmp_path, rack, DRIFT, "-y", "--limit", words)
        assert ran.returncode == 2 and right in ran.stderr, ran.stderr


def test_errors_of_the_desired_state_come_before_the_first_connection(tmp_path: Path) -> None:
    ran = pyinfra(tmp_path, inventory(tmp_path, '{"gpu": "mi301x", "tuning": {"thp": 1}}'), DRIFT)
    assert ran.returncode == 2, ran.stderr
    assert "gpu.profile" in ran.stderr
    assert "tuning.thp" in ran.stderr
    assert "Connected" not in ran.stderr
    assert "Traceback" not in ran.stderr


def test_group_data_that_pyinfra_does_not_read_is_no_pass(tmp_path: Path) -> None:
    for folder in ("racks/inventories", "racks/group_data"):
        (tmp_path / folder).mkdir(parents=True)
    site = tmp_path / "racks/inventories/rack.py"
    site.write_text('rack = (["@local"], {"gpu": "cpu", "tuning": {"numa_balancing": None}})\n')
    for name in ("inventories/other.py", "group_data/other.py"):
        (tmp_path / "racks" / name).write_text("site_own = 1\n")
    assert pyinfra(tmp_path, site, DRIFT, "-y").returncode == 0
    (tmp_path / "racks/group_data/rack.py").write_text("site_own = 1\n")
    for command in (["pyinfra", site, DRIFT, "-y"], ["shakedown", "drift", site]):
        ran = started(tmp_path, *command)
        assert ran.returncode == 2, ran.stderr
        assert "racks/group_data: rack.py would not be read" in ran.stderr and "Connected" not in ran.stderr
    assert pyinfra(tmp_path, site, DRIFT, "-y", "--group-data", tmp_path / "racks/group_data").returncode == 0
    assert pyinfra(tmp_path / "racks", site, DRIFT, "-y").returncode == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('a = ("n1", {"gpu": "cpu"})', "a, its hosts = 'n1': expected a list of hosts"),
        ('a = (["n1"], ["gpu"])', "a, its data = ['gpu']: expected a dictionary"),
    ],
)
def test_a_group_of_a_wrong_shape_is_unusable_input(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "rack.py").write_text(f"{text}\n")
    ran = pyinfra(tmp_path, "rack.py", DRIFT, "-y")
    assert (ran.returncode, "Traceback" in ran.stderr) == (2, False)
    assert words in ran.stderr and "Connected" not in ran.stderr


def test_connector_data_of_a_wrong_type_is_unusable_input(tmp_path: Path) -> None:
    ran = pyinfra(
        tmp_path, inventory(tmp_path, '{"tuning": {"numa_balancing": None}, "ssh_port": "2222"}'), DRIFT, "-y"
    )
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False)  # @local has no port
    (tmp_path / "rack.py").write_text('rack = (["n1"], {"gpu": "mi301x", "ssh_port": "2222"})\n')
    ran = pyinfra(tmp_path, "rack.py", DRIFT)
    assert ran.returncode == 2, ran.stderr
    assert "group rack: ssh_port = '2222': expected a value of type int" in ran.stderr and "gpu.profile" in ran.stderr


@pytest.mark.parametrize(("deploy", "section"), [("datasets", "datasets"), ("pytorch_training", "benchmark")])
def test_a_deploy_of_which_no_host_asks_anything_is_refused(tmp_path: Path, deploy: str, section: str) -> None:
    ran = pyinfra(tmp_path, inventory(tmp_path), PROJECT / f"deploy/{deploy}.py", "-y")
    assert ran.returncode == 2
    assert f"no host of this run has a section {section}" in ran.stderr and "Connected" not in ran.stdout + ran.stderr


@pytest.mark.parametrize("deploy", ["megatron_source", "stanford_megatron"])
def test_another_documents_recipe_is_refused_before_connecting(tmp_path: Path, deploy: str) -> None:
    site = inventory(tmp_path, '{"gpu": "cpu", "smoke": {"recipe": "gpt-small"}}')
    ran = pyinfra(tmp_path, site, PROJECT / f"deploy/{deploy}.py", "-y")
    assert ran.returncode == 2
    assert f"host @local, for deploy/{deploy}.py: smoke.recipe = 'gpt-small': expected one of" in ran.stderr
    assert "Connected" not in ran.stdout + ran.stderr


@pytest.mark.parametrize("deploy", ["drift", "bringup", "megatron"])
@pytest.mark.parametrize(
    "text", ['n = ["@local"]\n', 'n = (["@local"], {"ssh_user": "root", "smoke": {}, "rack": 7})\n']
)
def test_a_host_of_which_nothing_is_asked_is_refused(tmp_path: Path, deploy: str, text: str) -> None:
    (tmp_path / "site.py").write_text(text)
    ran = pyinfra(tmp_path, "site.py", PROJECT / f"deploy/{deploy}.py", "-y")
    assert ran.returncode == 2, ran.stderr
    assert "host @local: gpu = nothing: expected a desired state in host or group data" in ran.stderr
    assert "Connected" not in ran.stdout + ran.stderr


def test_a_rollback_needs_no_desired_state(tmp_path: Path) -> None:
    (tmp_path / "site.py").write_text('n = ["@local"]\n')
    ran = pyinfra(tmp_path, "site.py", PROJECT / "deploy/rollback.py", "--dry", "-y")
    assert ran.returncode == 0, ran.stderr
    own = started(tmp_path, "shakedown", "rollback", "site.py", "--dry")
    assert own.returncode == 0 and "changed: nothing (dry run)" in own.stderr, own.stderr


def test_that_nothing_will_be_trained_is_told(tmp_path: Path) -> None:
    data = '{"gpu": "cpu", "tuning": {"numa_balancing": None}}'
    for deploy, told in (("megatron", True), ("bringup", False)):
        ran = pyinfra(tmp_path, inventory(tmp_path, data), PROJECT / f"deploy/{deploy}.py", "-y")
        assert ran.returncode == 0
        assert ("nothing will be trained" in ran.stderr) == told


def test_drift_is_told_where_change_detection_is_switched_off(tmp_path: Path) -> None:
    wanted = '{"tuning": {"numa_balancing": None, "sysctl": {"kernel.pid_max": 4242}}}'
    for options in ([], ["--dry"], ["--dry", "-y"]):
        ran = pyinfra(tmp_path, inventory(tmp_path, wanted), DRIFT, *options)
        assert ran.returncode == 3, ran.stderr
        assert "4242" in ran.stderr


@pytest.mark.parametrize(("system", "verdict", "code"), [({}, "ok", 0), ({"disk_free": {"/": "900T"}}, "fail", 1)])
def test_the_exit_code_follows_the_verdict_dry_or_not(
    tmp_path: Path, system: dict[str, object], verdict: str, code: int
) -> None:
    """pyinfra prints no failed host in a dry run, and exits with 0 whatever the verdict is."""
    quiet = {"gpu": "cpu", "tuning": {"numa_balancing": None}, "system": system}
    for options in (["--dry", "-y"], ["--dry"], ["-y"]):
        ran = pyinfra(tmp_path, inventory(tmp_path, repr(quiet)), PROJECT / "deploy/bringup.py", *options)
        assert f"verdict: {verdict}" in ran.stderr
        assert ran.returncode == code, (options, ran.stderr)


UNKNOWN = """
from shakedown.runner import stages
from shakedown.runner.session import session
from shakedown.state.findings import Finding, Verdict

stages.examine()
for found in session().examination.findings.values():
    found.append(Finding(name="x", node="@local", verdict=Verdict.UNKNOWN))
"""


def test_an_unknown_verdict_has_its_own_exit_code(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(UNKNOWN)
    quiet = '{"gpu": "cpu", "tuning": {"numa_balancing": None}}'
    for options in (["--dry", "-y"], ["-y"]):
        ran = pyinfra(tmp_path, inventory(tmp_path, quiet), "own.py", *options)
        assert ("verdict: unknown" in ran.stderr, ran.returncode) == (True, 4), ran.stderr


def test_options_under_which_the_nodes_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    for option in ("--serial", "--no-wait"):
        ran = pyinfra(tmp_path, inventory(tmp_path), DRIFT, option, "-y")
        assert (ran.returncode, option in ran.stderr) == (2, True), ran.stderr


def test_other_peoples_deploys_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import sys\nassert 'shakedown.desired' not in sys.modules\n")
    ran = from_nothing(tmp_path, inventory(tmp_path, '{"gpu": "mi301x"}'), "own.py", "-y", "--serial")
    assert ran.returncode == 0, ran.stderr


def test_packages_of_common_names_elsewhere_do_not_matter(tmp_path: Path) -> None:
    for name in ("facts", "operations", "deploy"):
        (tmp_path / "elsewhere" / name).mkdir(parents=True)
        (tmp_path / "elsewhere" / name / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    data = '{"gpu": "cpu", "tuning": {"numa_balancing": None}}'
    ran = from_nothing(tmp_path, inventory(tmp_path, data), DRIFT, "-y", PYTHONPATH=str(tmp_path / "elsewhere"))
    assert ran.returncode == 0, ran.stderr


def test_a_file_that_is_not_there_is_no_pass(tmp_path: Path) -> None:
    ran = pyinfra(tmp_path, "rakc.py", PROJECT / "deploy/drift.py", "-y")
    assert ran.returncode != 0 and "rakc.py" in ran.stderr
