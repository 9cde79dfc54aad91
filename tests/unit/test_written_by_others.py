"""What another user could have written decides nothing: programs beside the system's path, AMD's library, runs and the
ledger in a folder that others write in."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from shakedown.cli import main
from shakedown.common.secret_file import DIGEST_KEY, keyed_digest
from shakedown.isolation.tree import left_out
from shakedown.ledger import LedgerError
from shakedown.ledger.store import open_ledger
from shakedown.node import owners, smi
from shakedown.node.tree import Tree, Unreadable
from shakedown.runs.archive.read import opened_run
from shakedown.runs.directory import RunDirectory, RunRecord, now
from shakedown.runs.isolation import Isolation, Problem, Result, Suspect
from shakedown.trials.workload import programs
from shakedown.trials.workload.soak import Soak
from tests import long_words


def program(folder: Path, name: str = "all_reduce_perf") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (file := folder / name).write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file


@pytest.mark.parametrize("open_to_others", ["", "build", ".", "build/all_reduce_perf", "behind a link"])
def test_no_program_is_run_that_others_could_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_to_others: str
) -> None:
    file = program(tmp_path / "rccl/build")
    monkeypatch.setattr(programs, "PLACES", (str(file.parent),))
    if open_to_others == "behind a link":
        theirs = program(tmp_path / "theirs")
        theirs.parent.chmod(0o777)
        file.unlink()
        file.symlink_to("../../theirs/all_reduce_perf")
    elif open_to_others:
        (tmp_path / "rccl" / open_to_others).chmod(0o777)
    else:
        assert programs.find("all_reduce_perf") == str(file) and programs.find("alltoall_perf") is None
        return
    with pytest.raises(programs.Failed, match=r"all_reduce_perf is not run: others may write there: /"):
        programs.find("all_reduce_perf")
    tool = {"name": "x", "needs_gpu": False, "program": "all_reduce_perf", "package": "x", "command": []}
    assert "is not run: others may write there" in Soak._missing(Soak.__new__(Soak), tool)


def test_no_link_is_followed_for_ever(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=r"others|levels"):
        owners.own_file(str(tmp_path / "a"))


@pytest.mark.parametrize("part", [".", "lib", "lib/libamd_smi.so.26"])
def test_no_library_is_loaded_that_others_could_exchange(tmp_path: Path, part: str) -> None:
    library = program(tmp_path / "rocm/lib", "libamd_smi.so.26")
    with pytest.raises(Unreadable, match=r"invalid ELF|file too short"):
        smi.import_package(Tree(), str(library))
    (tmp_path / "rocm" / part).chmod(0o777)
    with pytest.raises(Unreadable, match=r"is not loaded: others may write there: .*: give it to root"):
        smi.import_package(Tree(), str(library))


SUSPECT = Suspect(kind="node", nodes=("a",), trainings=("1.1",), probability=0.999)
SEARCH = Isolation(
    inventory="rack.py", problem=Problem(nodes=["a", "b"]), result=Result(suspects=[SUSPECT], conclusion="a is bad")
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run that was a search, in a folder of runs."""
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("SHAKEDOWN_LEDGER", raising=False)
    record = RunRecord(
        run_id="20260101T000000-abcdef", inventory="rack.py", desired_digest="", started_at=now(), finished_at=now()
    )
    directory = RunDirectory.create(record.run_id)
    directory.save(record, {})
    directory.write("isolation.json", SEARCH.model_dump_json())
    return directory


def test_a_search_that_others_could_have_written_leaves_no_node_out(run: RunDirectory) -> None:
    assert list(left_out(["a", "b"], "rack.py")) == ["a"]
    run.path.parent.chmod(0o1777)  # several keep their runs there, and none touches another's
    assert list(left_out(["a", "b"], "rack.py")) == ["a"]
    run.path.parent.chmod(0o777)
    with pytest.raises(ValueError, match=r"others may write in .*/runs, and could have put it there: chmod g-w,o-w"):
        left_out(["a", "b"], "rack.py")


def test_a_run_that_others_could_have_put_there_is_not_this_site_s_own(run: RunDirectory) -> None:
    with opened_run(run.path.name) as found:
        assert (found.origin(run.path.name), found.messages) == ("", [])
    run.path.parent.chmod(0o777)
    with opened_run(run.path.name) as found:
        assert found.origin(run.path.name).startswith("folder:")
    done = CliRunner().invoke(main, ["report", run.path.name])
    assert "others could have written it:" in done.output


def test_no_inventory_is_taken_from_a_run_that_others_could_have_written(run: RunDirectory) -> None:
    (run.path / "run.json").chmod(0o666)
    shakedown = Path(sys.executable).with_name("shakedown")  # a process of its own: gevent patches this one otherwise
    done = subprocess.run([shakedown, "isolate", run.path.name, "--dry"], capture_output=True, text=True)
    assert done.returncode == 2 and "others than you could have written it" in done.stderr


@pytest.mark.parametrize("part", ["runs", "runs/ledger.sqlite"])
def test_no_ledger_is_believed_that_every_user_may_write(run: RunDirectory, part: str) -> None:
    book = open_ledger()
    book.add(run)
    (run.path.parents[1] / part).chmod(0o1777 if part == "runs" else 0o666)
    with pytest.raises(LedgerError, match=r"every user may write .*, and so decide what it says"):
        book.knows(run.path.name)
    with pytest.raises(LedgerError, match=r"every user may write"):
        book.add(run)
    assert sqlite3.connect(run.path.parent / "ledger.sqlite").execute("select count(*) from runs").fetchone() == (1,)


@pytest.mark.parametrize("part", ["", "kept", "kept/on/a disk"])
def test_no_ledger_is_believed_in_a_folder_that_every_user_may_write(
    run: RunDirectory, tmp_path: Path, part: str
) -> None:
    """Whoever may write beside a file lays a journal there; who may write above a folder, another folder."""
    (folder := tmp_path / "kept/on/a disk").mkdir(parents=True)
    (run.path.parent / "ledger.sqlite").symlink_to(folder / "ledger.sqlite")
    tmp_path.chmod(0o1777)  # as /tmp: nobody can move a folder of another user there
    open_ledger().add(run)
    (tmp_path / part).chmod(0o1777 if part.count("/") else 0o777)
    with pytest.raises(LedgerError, match=r"every user may write .*, and so decide what it says"):
        open_ledger().knows(run.path.name)
    tmp_path.chmod(0o700)


@pytest.mark.parametrize("wrong", ["a mode of 0644", "a link of others", "a FIFO"])
def test_digests_of_secrets_rest_on_no_key_that_others_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path))
    assert keyed_digest({"TOKEN": "x"}) == keyed_digest({"TOKEN": "x"})
    key = tmp_path / DIGEST_KEY
    if wrong == "a mode of 0644":
        key.chmod(0o644)
    else:
        key.rename(tmp_path / "other")
        os.mkfifo(key) if wrong == "a FIFO" else key.symlink_to("other")
        if wrong == "a link of others":
            (tmp_path / "other").chmod(0o604)
    assert keyed_digest({"TOKEN": "x"}) != keyed_digest({"TOKEN": "x"})


@pytest.mark.parametrize(
    "reading", ["processes.members('run/node/random', None)", "[found['name'] for found in gpu.read_processes(Tree())]"]
)
def test_what_a_process_seems_to_have_been_given_costs_root_little(tmp_path: Path, reading: str) -> None:
    with long_words.process() as pid:
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        program = f"""
import resource
from shakedown.node import gpu
from shakedown.node.launcher import processes
from shakedown.node.tree import Tree
gpu.KFD = {str(tmp_path)!r}
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
print({reading})
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout in ("[]\n", f"['{long_words.NAME}']\n"), done.stderr
