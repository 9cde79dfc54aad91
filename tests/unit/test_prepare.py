"""Data that a program in an image prepares: by one node at a time, whole or not at all, with a mark that proves it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shakedown.facts.dataset import Prepared
from shakedown.transport.program import command
from tests.sent_scripts import NOBODY, NODE, PYTHON, argv, text_of

WHOLE = "echo MMIDIDX > $DATA/a.idx; echo x > $DATA/a.bin"

# Stands in for docker: runs the program on this machine, in the folder that would be mounted, until it is removed.
ENGINE = """#!/bin/sh
echo "$*" >> {log}
case $1 in
rm) kill $(cat "{log}.$3\\$") 2>/dev/null; rm -f "{log}.$3\\$" ;;
ps) ls {log}.${{6#name=^}} 2>/dev/null; true ;;
run)
    for word; do case $word in
        shakedown-*) name=$word ;;
        *:/data) DATA=${{word%:/data}}; export DATA ;;
    esac; script=$word; done
    sh -c "$script" & echo $! > "{log}.$name\\$"; wait $!; code=$?; rm -f "{log}.$name\\$"; exit $code ;;
esac
"""


@dataclass
class Bench:
    """A place with an engine, and nodes that share it."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "shared/wiki"

    @property
    def log(self) -> list[str]:
        path = self.root / "log"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def runs(self) -> int:
        return sum(line.startswith("run ") for line in self.log)

    def start(
        self,
        script: str = WHOLE,
        name: str = "n1",
        timeout_s: float = 30,
        stdout: Any = subprocess.PIPE,
        installed: bool = True,
        **more: object,
    ) -> subprocess.Popen[str]:
        engine = self.root / "docker"
        engine.write_text(ENGINE.format(log=self.root / "log"))
        engine.chmod(0o755)
        job = {
            "folder": str(self.data),
            "image": "r/x:1",
            "command": ["sh", "-c", script],
            "workdir": "/",
            "variables": {"DATASET": "wiki"},
            "engine": str(engine) if installed else "no-engine",
            "label": "io.shakedown.run",
            "run_id": "r1",
            "timeout_s": timeout_s,
        }
        words = argv("prepare.py", self.root / name, **{"BEAT_S": 0.2, "EVERY_S": 0.2, **more})
        boot = self.root / f"{name}.boot"
        boot.write_text(name)
        words[-1] = words[-1].replace("/proc/sys/kernel/random/boot_id", str(boot))
        words[-1] = words[-1].replace("socket.gethostname()", repr(name))
        child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE, text=True)
        assert child.stdin
        child.stdin.write(json.dumps(job))
        child.stdin.close()
        child.stdin = None
        return child

    def prepare(self, *arguments: Any, **more: Any) -> tuple[int, str, str]:
        child = self.start(*arguments, **more)
        out, error = child.communicate(timeout=60)
        assert "Traceback" not in error, error
        return child.returncode, out, error

    def fact(self) -> str:
        text = f"{text_of(NODE / 'data.py', self.root / 'n1')}\nimport sys; print(json.dumps(prepared(sys.argv[1])))"
        done = subprocess.run(["sh", "-c", command(text, str(self.data))], capture_output=True, text=True, timeout=30)
        return Prepared().process(done.stdout.splitlines())

    def left(self) -> list[str]:
        return sorted(path.name for path in self.data.parent.glob("*"))


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(Path(tempfile.mkdtemp()))
    made.root.chmod(0o755)
    yield made
    shutil.rmtree(made.root)


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_data_gets_its_name_and_its_mark_when_it_is_whole(bench: Bench) -> None:
    assert bench.fact() == "absent"
    code, _, error = bench.prepare()
    assert code == 0, error
    assert bench.fact() == "prepared" and bench.left() == ["wiki"]
    assert "--label io.shakedown.run=r1" in bench.log[0] and "--name shakedown-r1-" in bench.log[0]
    mark = json.loads((bench.data / ".shakedown-prepared").read_text())
    assert mark["files"] == {"a.bin": 2, "a.idx": 8} and mark["run"] == "r1"
    assert bench.prepare()[0] == 0 and bench.runs == 1


BAD = {
    "a page": ("echo '<html>' > $DATA/a.idx; echo x > $DATA/a.bin", "left no Megatron index"),
    "no data": ("echo MMIDIDX > $DATA/a.idx", "left no Megatron index"),
    "one of two": (f"{WHOLE}; echo MMIDIDX > $DATA/b.idx; : > $DATA/b.bin", "(b.idx)"),
    "nothing": ("true", "left no Megatron index"),
    "an end with an error": (f"{WHOLE}; printf 'no \\033[2Jroom\\n'; exit 3", "exit code 3: no"),
}


def test_an_engine_that_is_missing_is_named(bench: Bench) -> None:
    code, _, error = bench.prepare(installed=False)
    assert code == 1 and "no-engine is not installed" in error, error


@pytest.mark.parametrize("what", sorted(BAD))
def test_what_is_not_whole_gets_no_name(bench: Bench, what: str) -> None:
    script, words = BAD[what]
    code, out, error = bench.prepare(script)
    assert code == 1 and words in error and "\x1b" not in out + error
    assert bench.left() == [] and bench.fact() == "absent"
    assert bench.prepare()[0] == 0


def test_two_nodes_at_once_prepare_once(bench: Bench) -> None:
    nodes = [bench.start(f"sleep 1; {WHOLE}", f"n{number}") for number in range(4)]
    told = [child.communicate(timeout=60) for child in nodes]
    assert [child.returncode for child in nodes] == [0] * 4, told
    assert bench.runs == 1 and bench.fact() == "prepared" and bench.left() == ["wiki"]
    assert sum("prepared by another node meanwhile" in out for out, _ in told) == 3


def test_a_node_at_work_is_not_taken_for_a_dead_one(bench: Bench) -> None:
    slow = bench.start(f"sleep 5; {WHOLE}", LEASE_S=2.0)
    wait_for(lambda: bench.runs)
    code, out, error = bench.prepare(WHOLE, "n2", LEASE_S=2.0)
    slow.communicate(timeout=60)
    assert (code, slow.returncode, bench.runs) == (0, 0, 1), (out, error)


def test_a_dead_node_is_taken_over_and_what_it_left_is_told(bench: Bench) -> None:
    dead = bench.start(f"echo half > $DATA/a.idx; exec sleep 30; {WHOLE}")
    wait_for(lambda: any(".part-n1" in name for name in bench.left()) and list(bench.root.glob("log.*")))
    dead.kill()
    dead.communicate()
    code, out, error = bench.prepare(WHOLE, "n2", LEASE_S=2.0)
    assert code == 0, error
    assert (
        "root (uid 0) on n1 has not renewed its lock" in out and "a run that did not end has left .wiki.part-n1" in out
    )
    assert bench.fact() == "prepared" and bench.left() == ["wiki"]
    for path in bench.root.glob("log.*"):
        os.kill(int(path.read_text()), signal.SIGTERM)


def test_a_node_that_was_only_asleep_spoils_nothing_when_it_wakes_up(bench: Bench) -> None:
    asleep = bench.start(f"sleep 2; echo late > $DATA/a.idx; {WHOLE}; echo late >> $DATA/a.bin")
    wait_for(lambda: bench.runs and list(bench.root.glob("log.*")))
    asleep.send_signal(signal.SIGSTOP)
    code, out, error = bench.prepare(WHOLE, "n2", LEASE_S=1.0)
    assert code == 0, (out, error)
    asleep.send_signal(signal.SIGCONT)
    _, error = asleep.communicate(timeout=60)
    assert asleep.returncode == 1 and error
    assert (bench.data / "a.bin").read_text() == "x\n" and bench.fact() == "prepared"
    assert bench.left() == ["wiki"]


def test_a_program_that_does_not_end_is_stopped_with_its_container(bench: Bench) -> None:
    code, out, error = bench.prepare("sleep 60", timeout_s=1.5)
    shown = re.findall(r"preparing for (\d+) s", out)
    assert shown and max(map(int, shown)) < 30
    assert code == 1 and 1 <= int(re.findall(r"stopped after (\d+) s: raise timeout_s", error)[0]) < 30
    assert any(line.startswith("rm --force shakedown-r1-") for line in bench.log)
    assert not list(bench.root.glob("log.*")) and bench.left() == []


def test_a_controller_that_is_gone_ends_it(bench: Bench) -> None:
    reader, writer = os.pipe()
    child = bench.start("sleep 60", stdout=writer)
    os.close(writer)
    wait_for(lambda: bench.runs)
    os.close(reader)
    child.wait(timeout=20)
    assert any(line.startswith("rm --force shakedown-r1-") for line in bench.log)
    assert not list(bench.root.glob("log.*")) and bench.left() == []


def test_a_container_that_cannot_be_removed_is_told(bench: Bench) -> None:
    bench.root.joinpath("log").touch()
    (bench.root / "stuck").touch()
    child = bench.start(f"{WHOLE}; touch {bench.root}/log.stays")
    text = (bench.root / "docker").read_text()
    (bench.root / "docker").write_text(text.replace("ps) ls", "ps) echo 0123abcd; ls"))
    _, error = child.communicate(timeout=60)
    assert child.returncode == 1 and "could not be removed: 0123abcd" in error
    assert bench.left() == []


only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be attacked by another user")


@only_root
@pytest.mark.parametrize("how", ["another's", "0777", "0775", "a link above"])
def test_nothing_is_prepared_where_another_user_could_lay_a_link(bench: Bench, how: str) -> None:
    shared = bench.data.parent
    shared.mkdir()
    if how == "another's":
        os.chown(shared, NOBODY, NOBODY)
    elif how == "a link above":
        (bench.root / "elsewhere").mkdir()
        shared.rmdir()
        shared.symlink_to("elsewhere")
        os.lchown(shared, NOBODY, NOBODY)
    else:
        os.chown(shared, 0, NOBODY)
        shared.chmod(int(how, 8))
    code, _, error = bench.prepare()
    assert (code == 1 and "name another folder" in error) or "name the folder itself" in error
    assert bench.runs == 0


@only_root
@pytest.mark.parametrize("planted", [None, "wiki", ".wiki.shakedown-lock"])
def test_on_a_scratch_that_is_everybody_s_only_what_is_ours_counts(bench: Bench, planted: str | None) -> None:
    shared = bench.data.parent
    shared.mkdir()
    shared.chmod(0o1777)
    if planted:
        (shared / planted).mkdir()
        os.chown(shared / planted, NOBODY, NOBODY)
    code, _, error = bench.prepare()
    held = planted == ".wiki.shakedown-lock"
    assert (code, bench.fact()) == ((1, "absent") if held else (0, "prepared")), error
    assert bench.runs == (not held) and bench.left() == [planted if held else "wiki"]
    assert held or bench.data.stat().st_uid == 0


@only_root
def test_root_does_not_wait_for_the_lock_of_another_user(bench: Bench) -> None:
    shared = bench.data.parent
    shared.mkdir()
    shared.chmod(0o1777)
    lock = shared / ".wiki.shakedown-lock"
    lock.write_text('{"token": "x", "node": "n2", "place": "elsewhere", "beats": 1}'.ljust(400))
    os.chown(lock, NOBODY, NOBODY)
    code, out, error = bench.prepare(timeout_s=10)
    assert (code, bench.fact()) == (0, "prepared"), error
    assert "nobody (uid 65534) on n2 held it" in out and bench.left() == ["wiki"]


@only_root
def test_what_another_user_left_on_a_scratch_costs_nothing(bench: Bench) -> None:
    shared = bench.data.parent
    shared.mkdir()
    shared.chmod(0o1777)
    deep = shared / ".wiki.part-n9-0"
    deep.mkdir()
    os.chown(deep, NOBODY, NOBODY)
    program = "import os\nfor _ in range(2000): os.mkdir('d'); os.chdir('d')"
    subprocess.run([PYTHON, "-c", program], cwd=deep, user=NOBODY, group=NOBODY, extra_groups=[], check=True)
    code, _, error = bench.prepare()
    assert (code, bench.fact()) == (0, "prepared"), error
    assert deep.is_dir()
    subprocess.run(["rm", "-rf", deep], check=True)


def test_a_lock_that_became_something_else_is_lost(bench: Bench) -> None:
    lock = "$DATA/../.wiki.shakedown-lock"
    begun = time.monotonic()
    code, _, error = bench.prepare(f"rm {lock}; ln -s elsewhere {lock}; sleep 45; {WHOLE}", timeout_s=45)
    assert code == 1 and bench.fact() == "absent" and "remove it" in error, error
    assert time.monotonic() - begun < 30


FORGED: dict[str, Callable[[Path], Any]] = {
    "the mark of another": lambda data: os.chown(data / ".shakedown-prepared", NOBODY, NOBODY),
    "an open mark": lambda data: (data / ".shakedown-prepared").chmod(0o666),
    "a folder of another": lambda data: os.chown(data, NOBODY, NOBODY),
    "an open folder": lambda data: data.chmod(0o777),
    "an empty mark": lambda data: (data / ".shakedown-prepared").write_text(""),
    "a deep mark": lambda data: (data / ".shakedown-prepared").write_text("[" * 200_000),
    "a mark of no kind": lambda data: (data / ".shakedown-prepared").write_text("[]"),
    "a mark that is a FIFO": lambda data: _fifo(data / ".shakedown-prepared"),
    "no mark": lambda data: (data / ".shakedown-prepared").unlink(),
    "a file less": lambda data: (data / "a.bin").unlink(),
    "a file more": lambda data: (data / "b.idx").touch(),
    "a file cut short": lambda data: os.truncate(data / "a.idx", 3),
}


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@only_root
@pytest.mark.parametrize("how", sorted(FORGED))
def test_a_mark_that_proves_nothing_is_told(bench: Bench, how: str) -> None:
    assert bench.prepare()[0] == 0
    FORGED[how](bench.data)
    assert bench.fact() not in ("prepared", "absent")
    before = sorted(path.name for path in bench.data.iterdir())
    code, _, error = bench.prepare()
    assert code == 1 and error and bench.runs == 1
    assert sorted(path.name for path in bench.data.iterdir()) == before, "nobody's data is touched"


@only_root
def test_a_program_that_gives_its_folder_away_is_still_marked(bench: Bench) -> None:
    assert bench.prepare(f"{WHOLE}; chown {NOBODY} $DATA; chmod 777 $DATA")[0] == 0
    assert bench.fact() == "prepared"


def test_a_flood_of_words_is_not_passed_on(bench: Bench) -> None:
    flood = f"{sys.executable} -c 'print((\"x\" * 100 + chr(10)) * 10000)'"
    code, out, _ = bench.prepare(f"{flood}; sleep 0.5; {WHOLE}", LINES=1000, EVERY_S=60.0)
    assert code == 0 and 100_000 < len(out) < 150_000 and "preparing for" not in out
