"""Decisions of what travels to a node, in this process: old versions, folders of others, signatures, amdsmi's forms."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import shakedown.facts.node as facts
from shakedown.node import data, install, owners, sign, smi
from shakedown.node.tree import Tree, Unreadable

DIGEST = "0123456789abcdef" * 4
DAY = install.FORGOTTEN_AFTER_S


def test_other_versions_are_forgotten_after_a_day_and_nothing_else_is(tmp_path: Path) -> None:
    current = f"{DIGEST}-cpython-312"
    ages = {
        current: 9 * DAY,
        f"{DIGEST}-cpython-38": DAY + 60,
        f"{DIGEST}-cpython-39": DAY - 60,
        ".new-a1b2": DAY + 60,
        ".new-c3d4": 0,
        f"{DIGEST[1:]}-cpython-38": 9 * DAY,
        "notes": 9 * DAY,
        f"{DIGEST}-cpython-38.kept": 9 * DAY,
    }
    for name, age in ages.items():
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    install.forget_old(str(tmp_path), str(tmp_path / current))
    assert ages.keys() - {path.name for path in tmp_path.iterdir()} == {f"{DIGEST}-cpython-38", ".new-a1b2"}


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A folder of data as Shakedown leaves it."""
    folder = tmp_path / "set"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner/a.bin").write_bytes(b"12345")
    (folder / data.MARK).write_text(json.dumps({"files": {"inner/a.bin": 5}}))
    (folder / data.MARK).chmod(0o600)
    folder.chmod(0o755)
    return folder


def test_data_is_prepared_where_its_files_are_those_of_its_mark(prepared: Path) -> None:
    assert data.prepared(str(prepared)) == "prepared"
    (prepared / "inner/a.bin").write_bytes(b"123456")
    assert data.prepared(str(prepared)).startswith("has changed since it was prepared")
    for text in ("{", "[]", "{}", "null"):
        (prepared / data.MARK).write_text(text)
        assert data.prepared(str(prepared)).startswith("has a mark that cannot be read")
    (prepared / data.MARK).unlink()
    assert data.prepared(str(prepared)).startswith("exists, and Shakedown did not prepare it")


def test_a_mark_counts_only_where_no_other_user_could_have_made_it(prepared: Path) -> None:
    (prepared / data.MARK).chmod(0o666)
    assert "so another user could have written it" in data.prepared(str(prepared))
    (prepared / data.MARK).chmod(0o600)
    prepared.chmod(0o777)
    assert data.prepared(str(prepared)).startswith("has a mark that another user could have written")


def test_a_folder_that_is_empty_or_not_there_is_absent(tmp_path: Path) -> None:
    assert data.prepared(str(tmp_path / "set")) == data.prepared(str(tmp_path)) == "absent"
    assert "is not an absolute path" in data.prepared("set")


@pytest.mark.parametrize(
    ("modes", "refused"),
    [
        ({"": 0o755, "a": 0o700, "a/b": 0o700}, None),
        ({"": 0o755, "a": 0o700, "a/b": 0o777}, "a/b"),
        ({"": 0o755, "a": 0o700, "a/b": 0o1777}, "a/b"),  # the folder itself, sticky or not
        ({"": 0o755, "a": 0o777, "a/b": 0o700}, "a"),
        ({"": 0o755, "a": 0o1777, "a/b": 0o700}, None),
        ({"": 0o777, "a": 0o700, "a/b": 0o700}, ""),
    ],
)
def test_a_place_is_where_no_other_user_can_put_anything(
    tmp_path: Path, modes: dict[str, int], refused: str | None
) -> None:
    folder = tmp_path / "place"
    (folder / "a/b").mkdir(parents=True)
    for name, mode in modes.items():
        (folder / name).chmod(mode)
    if refused is None:
        assert owners.place(f"{folder}/a/./b") == str(folder / "a/b")
        return
    with pytest.raises(PermissionError) as problem:
        owners.place(str(folder / "a/b"))
    assert problem.value.filename == str(folder / refused)


@pytest.mark.parametrize(
    ("uid", "gid", "mode", "is_closed"),
    [
        (0, 0, 0o755, True),
        (0, 0, 0o775, True),
        (0, owners.STAFF, 0o775, True),
        (0, 6, 0o775, False),  # of the group disk
        (0, 6, 0o755, True),
        (0, 0, 0o757, False),
        (65534, 65534, 0o700, os.geteuid() == 65534),
    ],
)
def test_a_folder_is_closed_to_other_users_by_its_owner_group_and_mode(
    uid: int, gid: int, mode: int, is_closed: bool
) -> None:
    info: Any = SimpleNamespace(st_uid=uid, st_gid=gid, st_mode=stat.S_IFDIR | mode)
    assert owners.closed(info) == is_closed


def test_a_text_without_a_signature_has_the_end_of_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "".join(f"{number:05d}." for number in range(100))
    done = SimpleNamespace(returncode=1, stderr=f"{words}\n".encode(), stdout=b"")
    monkeypatch.setattr(sign, "_key", lambda _tree, _kind: ("/etc/ssh/key", "ssh-ed25519 AAAA"))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert sign.made(Tree(), "text", "ssh-ed25519") == {"reason": f"ssh-keygen: {words[-300:]}"}
    done.returncode, done.stdout = 0, b"-----BEGIN SSH SIGNATURE-----"
    assert sign.made(Tree(), "text", "ssh-ed25519") == {
        "text": "text", "signature": "-----BEGIN SSH SIGNATURE-----", "host_key": "ssh-ed25519 AAAA",
    }  # fmt: skip

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(f"{words} and no more")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert sign.made(Tree(), "text", "ssh-ed25519") == {"reason": words[:300]}


@pytest.mark.parametrize(
    ("info", "watts"),
    [
        ({"current_socket_power": 750, "socket_power": 1, "average_socket_power": 2}, 750.0),
        ({"current_socket_power": "N/A", "socket_power": 0, "average_socket_power": 140}, 140.0),
        ({"current_socket_power": -1, "average_socket_power": 0.5}, 0.5),
        ({"current_socket_power": "N/A", "average_socket_power": 0}, None),
        ({}, None),
    ],
)
def test_the_power_of_a_gpu_is_the_first_figure_that_it_has(info: dict[str, Any], watts: float | None) -> None:
    library = SimpleNamespace(amdsmi_get_power_info=lambda _handle: info)
    if watts is not None:
        assert smi._power(library, 0) == watts
        return
    with pytest.raises(Unreadable, match="no socket power"):
        smi._power(library, 0)


@pytest.mark.parametrize("named", ["", "data", "deploy", "configuration"])
def test_a_host_that_names_no_argument_has_those_of_the_configuration(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Configured:
        """A run's state, of which pyinfra's arguments are asked."""

    read: list[Any] = []

    def pop(state: Any, host: Any, _arguments: Any) -> tuple[dict[str, Any], list[str]]:
        read.append(host)
        return {"_sudo": True, "name": "x"}, []

    data_of = {"gpu": "mi300x", **({"_sudo": True} if named == "data" else {})}
    hosts: list[Any] = [
        SimpleNamespace(
            data=SimpleNamespace(dict=lambda: data_of),
            current_deploy_kwargs={"_sudo": True} if named == "deploy" else None,
            state=state,
        )
        for state in [Configured()] * 2
    ]
    monkeypatch.setattr(facts, "pop_global_arguments", pop)
    monkeypatch.setattr(facts, "ctx_config", SimpleNamespace(isset=lambda: named == "configuration"))
    assert [facts.connector_arguments(host) for host in hosts] == [{"_sudo": True}] * 2
    assert read == (hosts if named else hosts[:1])


def test_the_arguments_of_a_fact_are_those_that_its_caller_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "_GET_FACT", ("_get_fact", __name__))

    def _get_fact(executor_kwargs: dict[str, Any]) -> dict[str, Any]:
        return (lambda: facts._connector_arguments())()

    assert _get_fact({"_sudo": True, "name": "x"}) == {"_sudo": True}
    assert facts._connector_arguments() == {}
