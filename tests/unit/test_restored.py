"""What a rollback says that it restores, and a dry run that cannot read everything."""

from __future__ import annotations

import os
from pathlib import Path

from tests import forks

ROOT = Path(__file__).resolve().parents[2]

RESTORED = """
from gevent import monkey
monkey.patch_all()
from shakedown.operations.atomic import Step
from shakedown.operations.rollback import restored
settings = {
    "numa_balancing": [Step("file", "/proc/sys/kernel/numa_balancing", "1")],
    "boot.cpu_governor": [Step("file", f"/sys/cpu{n}", "powersave") for n in range(128)],
    "groups": [Step("member", "render", "ada"), Step("group", "render")],
    "services": [Step("service", "irqbalance.service", "")],
    "package.docker.io": [Step("package", "docker.io", "apt docker.io runc")],
    "conf": [Step("created", f"/etc/{n}") for n in range(9)],
    "x\x1b[2J": [Step("kept", "/etc/a", "/var/lib/a")],
}
now = {"/proc/sys/kernel/numa_balancing": "0", **{f"/sys/cpu{n}": "performance" for n in range(128)}}
print("\\n".join(restored(settings, now)))
"""


def program(folder: Path, text: str) -> list[str]:
    script = folder / "program.py"
    script.write_text(text)
    code, out, err = forks.run([str(script)], ROOT, {**os.environ, "HOME": str(folder)})
    assert code == 0, err
    return out.splitlines()


def test_each_setting_is_told_with_what_stood_there_and_what_comes_back(tmp_path: Path) -> None:
    assert program(tmp_path, RESTORED) == [
        "numa_balancing: 0 -> 1",
        "boot.cpu_governor: performance -> powersave (128 files)",
        "groups: ada leaves render, render removed",
        "services: irqbalance.service -> inactive",
        "package.docker.io: docker.io, runc removed",
        "conf: /etc/0 removed, /etc/1 removed, /etc/2 removed, /etc/3 removed and 5 more",
        "x: /etc/a as it was",
    ]


DRY = """
from shakedown.runner import engine
from types import SimpleNamespace
from pyinfra.api import FactBase, operation
from pyinfra.context import ctx_host, host
from shakedown.state.findings import Finding, Remedy
from shakedown.runner import stages
from shakedown.runner.progress import HostRun
from shakedown.runner.pyinfra.invocation import invocation

class Lost(FactBase):
    def command(self):
        return "echo it cannot be read >&2; exit 3"
    def process(self, output):
        return list(output)

@operation()
def change():
    host.get_fact(Lost)
    yield "true"

invocation.dry = True
state = engine.load("@local")
with engine.connected(state):
    finding = Finding(name="thp", node="@local", verdict="drift", remedy=Remedy(text="set it", operation="x.y"))
    run = HostRun()
    noted = SimpleNamespace(run_of=lambda _name: run, declared=set())
    for local in state.inventory:
        with ctx_host.use(local):
            stages._declare(noted, change, finding, "set it", {})
    print(len(state.active_hosts), run.declared)
"""


def test_a_dry_run_goes_on_where_a_fact_cannot_be_read(tmp_path: Path) -> None:
    assert program(tmp_path, DRY)[-1] == "1 ['thp']"


KEPT = """
from gevent import monkey
monkey.patch_all()
import re
from shakedown.common.text import file_name
from shakedown.operations.provider import KEPT
from shakedown.operations.rollback import SHAPES
for path in ("/usr/lib64/libibverbs/libx-rdmav34.so", "/a b/\u00e9"):
    print(bool(re.fullmatch(SHAPES["kept"], f"{path}={KEPT}/{file_name(path.strip('/'))}")))
print([bool(re.fullmatch(SHAPES["kept"], f"/etc/a={KEPT}{end}")) for end in ("x/a", "/../a")])
"""


def test_a_rollback_takes_what_the_provider_library_keeps_and_nothing_beside_it(tmp_path: Path) -> None:
    """The folder stands in restored.toml too."""
    assert program(tmp_path, KEPT) == ["True", "True", "[False, False]"]
