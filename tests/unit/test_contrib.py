"""The examples of contrib/, each read by the tool that it is for. Slurm itself: tests/lab/test_contrib_slurm.py."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from shakedown.node.agent.run import FOLDER, SHORT
from shakedown.operations.agent import HEALTH
from shakedown.schedulers.kubernetes.nodes import VERIFIED
from tests.json_schema import Draft202012Validator, ValidationError

CONTRIB = Path(__file__).parents[2] / "contrib"
DATA = Path(__file__).parents[1] / "data" / "contrib"


def run(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{environment.pop('path', '')}:/usr/sbin:/usr/bin:/sbin:/bin".lstrip(":")
    return subprocess.run(
        words, env={"PATH": path, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


def test_systemd_takes_the_unit_and_its_timer(tmp_path: Path) -> None:
    for name in ("shakedown-drift.service", "shakedown-drift.timer"):
        text = (CONTRIB / "systemd" / name).read_text("utf-8")
        (tmp_path / name).write_text(text.replace("/usr/local/bin/shakedown", "/bin/true"))  # it has to be there
    done = run("systemd-analyze", "verify", "--man=no", *sorted(tmp_path.iterdir()))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    unit = (tmp_path / "shakedown-drift.service").read_text("utf-8")
    assert FOLDER not in re.findall(r"/var/lib/[\w-]+", unit), "that folder is the agent's, and root's"
    (tmp_path / "shakedown-drift.service").write_text(unit.replace("SuccessExitStatus=", "SuccessExit="))
    assert "Unknown key" in run("systemd-analyze", "verify", "--man=no", *sorted(tmp_path.iterdir())).stderr


def test_cron_takes_the_crontab(tmp_path: Path) -> None:
    example = CONTRIB / "cron" / "crontab"
    assert run("crontab", "-n", example).returncode == 0
    (tmp_path / "bad").write_text(re.sub(r"^17 \*", "71 *", example.read_text("utf-8"), flags=re.M))
    assert run("crontab", "-n", tmp_path / "bad").returncode != 0


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 127])
def test_cron_mails_where_there_is_no_verdict(tmp_path: Path, code: int) -> None:
    """A check prints its verdict each hour, and cron mails whatever is printed."""
    (tmp_path / "shakedown").write_text(f"#!/bin/sh\necho verdict: x >&2\nexit {code}\n")
    (tmp_path / "shakedown").chmod(0o755)
    (line,) = re.findall(r"^17 [* ]+(.*)$", (CONTRIB / "cron" / "crontab").read_text("utf-8"), re.M)
    done = run("sh", "-c", line.replace("/var/lib/shakedown-checks", str(tmp_path)), path=str(tmp_path))
    assert (done.stdout + done.stderr == "") is (code in (0, 1, 3, 4))
    assert (tmp_path / "last.log").read_text() == "verdict: x\n"
    assert run("sh", "-c", line.replace("/var/lib/shakedown-checks", "/nowhere")).stderr


def test_the_unit_s_user_can_write_known_hosts() -> None:
    """ProtectSystem=strict leaves the state directory writable alone: from a home elsewhere no new node was reached."""
    unit = (CONTRIB / "systemd" / "shakedown-drift.service").read_text("utf-8")
    (state,) = re.findall(r"^StateDirectory=(\S+)$", unit, re.M)
    (home,) = re.findall(r"^#\s+useradd --system --create-home --home-dir (\S+) shakedown$", unit, re.M)
    assert "ProtectSystem=strict" in unit and home == f"/var/lib/{state}"


def test_the_commands_of_the_unit_and_of_cron_are_ours() -> None:
    texts = [(CONTRIB / name).read_text("utf-8") for name in ("systemd/shakedown-drift.service", "cron/crontab")]
    commands = {
        re.search(r"shakedown (drift .*?)(?: >last|$)", re.sub(r"^#.*\n", "", text, flags=re.M), re.M)[1]
        for text in texts
    }  # type: ignore[index]
    assert commands == {"drift /etc/shakedown/inventories/rack.py --output rack.prom"}


def test_the_readiness_rule_fits_the_controller_s_schema_and_wants_the_condition_that_we_set() -> None:
    rule = yaml.safe_load((CONTRIB / "kubernetes" / "node-readiness-rule.yaml").read_text("utf-8"))
    crd = json.loads((DATA / "node_readiness_rule.json").read_text("utf-8"))
    assert rule["apiVersion"] == f"{crd['group']}/{crd['version']}" and rule["kind"] == crd["kind"]
    spec = rule["spec"]
    Draft202012Validator(crd["spec"]).validate(spec)
    with pytest.raises(ValidationError):
        Draft202012Validator(crd["spec"]).validate({**spec, "enforcementMode": "always"})
    assert spec["conditions"] == [{"type": VERIFIED, "requiredStatus": "True"}]
    assert spec["enforcementMode"] == "continuous" and spec["dryRun"] is True
    # The rules of its CRD that a JSON schema does not have.
    prefix, _, name = spec["taint"]["key"].partition("/")
    assert prefix == "readiness.k8s.io" and re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", name)
    assert spec["taint"]["effect"] in ("NoSchedule", "PreferNoSchedule")


GO_DURATION = re.compile(r"(\d+)s")


def test_node_problem_detector_would_take_the_plugin() -> None:
    """Keys and conditions of CustomPluginConfig in kubernetes/node-problem-detector, commit 6632ca67, 2026-08-22."""
    config: dict[str, Any] = json.loads((CONTRIB / "kubernetes" / "node-problem-detector.json").read_text("utf-8"))
    whole, about = config["pluginConfig"], config["rules"][0]
    assert set(config) == {"plugin", "pluginConfig", "source", "metricsReporting", "conditions", "rules"}
    known = {"invoke_interval", "timeout", "max_output_length", "concurrency"}
    assert set(whole) == known | {"enable_message_change_based_condition_update"}
    assert set(about) == {"type", "condition", "reason", "path", "args", "timeout"} and config["plugin"] == "custom"
    seconds = {name: int(GO_DURATION.fullmatch(whole[name])[1]) for name in ("invoke_interval", "timeout")}  # type: ignore[index]
    assert 0 < int(GO_DURATION.fullmatch(about["timeout"])[1]) <= seconds["timeout"] < seconds["invoke_interval"]  # type: ignore[index]
    assert about["type"] == "permanent"
    assert [set(entry) for entry in config["conditions"]] == [{"type", "reason", "message"}]
    assert config["conditions"][0]["type"] == about["condition"]
    assert (about["path"], about["args"]) == (HEALTH, ["--fail"]) and whole["max_output_length"] == SHORT


def a_node(tmp_path: Path, code: int, words: str, shown: str = "") -> dict[str, str]:
    """shakedown-health and scontrol as they would answer."""
    health, scontrol, log = tmp_path / "health", tmp_path / "bin" / "scontrol", tmp_path / "log"
    scontrol.parent.mkdir(exist_ok=True)
    log.write_text("")
    health.write_text(f"#!/bin/sh\nprintf '%s\\n' '{words}'\n[ \"$1\" = --fail ] || exit 9\nexit {code}\n")
    scontrol.write_text(
        f"#!/bin/sh\ncase $* in *show*) echo '{shown}'; exit 0;; esac\nprintf '%s\\n' \"$*\" >> {log}\n"
    )
    for script in (health, scontrol):
        script.chmod(0o755)
    return {"SHAKEDOWN_HEALTH": str(health), "SLURMD_NODENAME": "node1", "path": str(scontrol.parent)}


IDLE = "NodeName=node1 Arch=x86_64 State=IDLE ThreadsPerCore=1 Partitions=main"


@pytest.mark.parametrize(
    ("code", "shown", "drains"),
    [
        (0, IDLE, False),
        (2, IDLE, False),
        (127, IDLE, False),
        (1, IDLE, True),
        (1, IDLE.replace("IDLE", "ALLOCATED"), True),
        (1, IDLE.replace("IDLE", "IDLE+DRAIN") + " Reason=disk [root@2026-11-01T00:00:00]", False),
        (1, IDLE.replace("IDLE", "DOWN*") + " Reason=Not responding [slurm@2026-11-01T00:00:00]", False),
        (0, IDLE.replace("IDLE", "IDLE+DRAIN") + " Reason=shakedown: 1 fail: gpu_count [root@x]", False),
    ],
)
def test_the_health_check_drains_on_a_failure_alone_and_touches_no_other_drain(
    tmp_path: Path, code: int, shown: str, drains: bool
) -> None:
    """`shakedown-health --fail` has drift as 0."""
    environment = a_node(tmp_path, code, "shakedown: 2 fail: gpu_count mtu[x=1]", shown)
    done = run("sh", CONTRIB / "slurm" / "healthcheck.sh", **environment)
    assert done.returncode == 0
    order = "update nodename=node1 state=drain reason=shakedown: 2 fail: gpu_count mtu_x_1_"
    assert (tmp_path / "log").read_text().splitlines() == ([order] if drains else [])


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (2, 0), (127, 0)])
def test_the_prolog_keeps_jobs_off_a_failed_node_alone(tmp_path: Path, code: int, expected: int) -> None:
    environment = a_node(tmp_path, code, "shakedown: 1 fail: gpu_count")
    done = run("sh", CONTRIB / "slurm" / "prolog.sh", **environment)
    assert done.returncode == expected and ("gpu_count" in done.stderr) == bool(expected)
    assert (tmp_path / "log").read_text() == "", "it asks no controller"


def test_the_epilog_never_fails() -> None:
    assert run("sh", CONTRIB / "slurm" / "epilog.sh").returncode == 0
