"""What a release has: built twice from a commit with the same digests, checked by twine, with each part's hash. Twice
is long: what the files hold is seen of one build."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from shakedown.desired.models import Agent
from shakedown.operations import agent

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build", ROOT / "contrib" / "release" / "build.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_purge_goes_on_where_a_folder_has_the_name_of_a_file(tmp_path: Path) -> None:
    """dpkg would keep the package half removed."""
    state = tmp_path / "shakedown"
    (state / "verdict").mkdir(parents=True)
    (state / "remedied.json").touch()
    text = script()._SCRIPTS["postrm"].replace("/var/lib/shakedown", str(state)).replace("/run/systemd/system", "/no")
    purged = ["sh", "-c", text, "postrm", "purge"]
    assert subprocess.run(purged, capture_output=True, check=False).returncode == 0
    assert [path.name for path in state.iterdir()] == ["verdict"]
    (state / "verdict").rmdir()
    assert subprocess.run(purged, capture_output=True, check=False).returncode == 0 and not state.exists()


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One build of all files."""
    folder = tmp_path_factory.mktemp("release") / "dist"
    script().build("HEAD", folder)
    return folder


@pytest.mark.long
def test_a_release_is_built_twice_alike_and_has_all_its_files(tmp_path: Path) -> None:
    """`main` builds twice and compares."""
    dist = tmp_path / "dist"
    script().main(dist)
    version = re.search(r'^version = "(.*)"', committed("pyproject.toml"), re.M)[1]  # type: ignore[index]
    assert {path.name for path in dist.iterdir()} == {
        f"shakedown-{version}-py3-none-any.whl",
        f"shakedown-{version}.tar.gz",
        f"shakedown-agent_{version}_amd64.deb",
        "shakedown.cdx.json",
        "SHA256SUMS",
    }
    done = subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=dist, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_file_has_the_time_of_the_commit(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    (sdist,) = dist.glob("*.tar.gz")
    epoch = script().commit_time()
    with tarfile.open(sdist) as archive:
        assert {member.mtime for member in archive.getmembers()} == {epoch}
    with zipfile.ZipFile(wheel) as archive:
        assert len({entry.date_time for entry in archive.infolist()}) == 1


def committed(name: str) -> str:
    return subprocess.run(["git", "show", f"HEAD:{name}"], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_what_differs_between_two_builds_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build = script()
    digests = iter([{"a.whl": "1", "b.deb": "1"}, {"a.whl": "1", "b.deb": "2"}])
    monkeypatch.setattr(build, "build", lambda _commit, _out: next(digests))
    with pytest.raises(SystemExit, match=r"not reproducible: \['b.deb'\]"):
        build.main(tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


def test_the_sbom_has_each_locked_part_with_its_hash(dist: Path) -> None:
    parts: list[dict[str, Any]] = json.loads((dist / "shakedown.cdx.json").read_text("utf-8"))["components"]
    locked = dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", committed("requirements.lock"), re.M))
    assert {part["name"].lower(): part["version"] for part in parts} == locked and len(parts) > 20
    assert [part["name"] for part in parts if not re.search(r"[0-9a-f]{64}", json.dumps(part))] == []


def test_the_deb_has_the_agent_as_a_deploy_would_put_it(dist: Path, tmp_path: Path) -> None:
    (deb,) = dist.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", deb, tmp_path], check=True)
    units = agent.units(Agent().model_dump(mode="json"), "/usr/lib/shakedown-agent/run")
    assert {name: (tmp_path / "usr/lib/systemd/system" / name).read_text() for name in units} == units
    assert (tmp_path / "usr/libexec/shakedown-health").read_text() == agent.HEALTH_TEXT
    assert (tmp_path / "usr/lib/shakedown-agent/shakedown/agent/on_node.py").is_file()
    assert "@" not in units["shakedown-agent.timer"], "every word is filled"


def test_the_workflow_gives_the_right_to_publish_to_one_job_that_runs_no_code_of_ours() -> None:
    text = WORKFLOW.read_text("utf-8")
    document = yaml.safe_load(text)
    assert document["permissions"] == {} and document[True] == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+"]}}
    uses = re.findall(r"uses: (\S+)(?:  # (v\S+))?", text)
    assert len(uses) == 5 and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name) and version for name, version in uses)
    jobs = document["jobs"]
    assert [name for name, job in jobs.items() if "id-token" in job["permissions"]] == ["publish"]
    publish = jobs["publish"]
    assert publish["needs"] == "build" and publish["environment"]["name"] == "pypi" and "uses" not in publish
    assert not [step for step in publish["steps"] if "checkout" in step.get("uses", "")]
    assert publish["steps"][-1]["with"] == {"packages-dir": "packages/", "attestations": True}
    assert "contrib/release/build.py dist" in json.dumps(jobs["build"]["steps"])
