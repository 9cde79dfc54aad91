"""The deb of the agent on a node of the lab: installed, run, and purged."""

from __future__ import annotations

import importlib.util
import shutil
import time
from pathlib import Path

import pytest

from shakedown.agent.compile import compiled, text
from tests.lab.namespaces import rack
from tests.states import desired, healthy

ROOT = Path(__file__).parents[2]
LOOK = (
    "find /usr/lib/shakedown-agent /usr/libexec/shakedown-health /usr/lib/systemd/system/shakedown-agent.*"
    " /var/lib/shakedown"
)


@pytest.fixture(scope="module")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = importlib.util.spec_from_file_location("build", ROOT / "contrib" / "release" / "build.py")
    assert spec and spec.loader
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    folders = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
    for folder in folders:
        build.deb(ROOT, folder, build.commit_time())
    first, second = (next(folder.glob("*.deb")) for folder in folders)
    assert first.read_bytes() == second.read_bytes()
    return first


def test_the_deb_is_installed_runs_and_leaves_nothing(deb: Path) -> None:
    with rack(1) as lab:
        (node,) = lab.nodes
        shutil.copy(deb, node.root / "root" / "agent.deb")
        node.exec("dpkg -i --force-depends /root/agent.deb 2>&1")
        assert node.exec("/usr/libexec/shakedown-health", check=False).returncode == 2, "no verdict yet"
        document = compiled("node1", desired("cpu", None), healthy().account, "0" * 64)
        node.exec("mkdir -p -m 755 /etc/shakedown")
        node.write("/etc/shakedown/agent.json", text(document))
        node.exec("chmod 600 /etc/shakedown/agent.json")
        before = time.time()
        said = node.exec("/usr/lib/shakedown-agent/run 2>&1", check=False, timeout=120).stdout
        line = node.exec("cat /var/lib/shakedown/verdict", check=False).stdout.split()
        assert line and float(line[1]) >= int(before), said
        health = node.exec("/usr/libexec/shakedown-health", check=False)
        assert health.stdout.startswith("shakedown: "), health
        node.write("/var/lib/shakedown/verdict", f"fail {int(time.time())} 1800 shakedown: 1 fail: gpu_count\n")
        node.write("/root/prolog.sh", (ROOT / "contrib" / "slurm" / "prolog.sh").read_text("utf-8"))
        prolog = node.exec("sh /root/prolog.sh 2>&1", check=False)
        assert (prolog.returncode, prolog.stdout) == (1, "shakedown: 1 fail: gpu_count\n")
        assert "__pycache__" in node.exec(LOOK).stdout, "compiled once, by the node's own Python"
        node.exec("dpkg --purge shakedown-agent 2>&1")
        assert node.exec(f"{LOOK} 2>/dev/null", check=False).stdout == ""
        assert node.exec("cat /etc/shakedown/agent.json").stdout, "the site's own"


def test_the_deb_goes_where_its_files_were_deleted_and_comes_into_no_folder_of_others(deb: Path) -> None:
    with rack(1) as lab:
        (node,) = lab.nodes
        shutil.copy(deb, node.root / "root" / "agent.deb")
        install = "dpkg -i --force-depends /root/agent.deb 2>&1"
        node.exec(install)
        node.exec("rm -r /usr/lib/shakedown-agent && dpkg --purge shakedown-agent 2>&1")
        for wrong in ("chown nobody", "chmod 777"):
            node.exec(f"mkdir /usr/lib/shakedown-agent && {wrong} /usr/lib/shakedown-agent")
            refused = node.exec(install, check=False)
            assert refused.returncode and "/usr/lib/shakedown-agent is not root's alone" in refused.stdout
            node.exec("rm -r /usr/lib/shakedown-agent; dpkg --purge shakedown-agent 2>&1")
        node.exec(install)
        node.exec(install)  # over itself
