"""What is wrong in the files of a site: each with file, line, key and remedy, and what stands there twice."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from shakedown.hosts import nodes
from shakedown.runner.pyinfra.written import files, twice, unreadable
from tests import forks

CPU = '{"gpu": "cpu", "tuning": {"numa_balancing": None}}'


def refused(folder: Path, *argv: str) -> str:
    argv = argv or ("shakedown", "show", "rack.py", "n1")
    command = [str(Path(sys.executable).with_name(argv[0])), *argv[1:]]
    code, _out, err = forks.run(command, folder, {**os.environ, "PYINFRA_PROGRESS": "off"})
    assert (code, "Traceback" in err) == (2, False), err
    return err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('a = ["n1",\n"n1"]', ["rack.py:1,2: a = n1 twice"]),
        ('a = [("n1", {}),\n ("n2", {}),\n ("n1", {})]', ["rack.py:1,3: a = n1 twice"]),
        ('a = ([*nodes("n[1-9]"),\n *nodes("n[8-12]")], {})', ["rack.py:1,2: a = n8, n9 twice"]),
        ('from shakedown.hosts import nodes\na = (nodes("n[1-9]") + nodes("n9"), {})', ["rack.py:2,2: a = n9 twice"]),
        ('a = (nodes("n[1-9]",\n "n[8-12]"), {})', ["rack.py:1,2: a = n8, n9 twice"]),
        ('a = ["n1"]\na = ["n2"]', ["rack.py:1,2: a = two values"]),
        ('a = (["n1"], {"gpu": "cpu",\n"gpu": "mi300x"})', ["rack.py:1,2: gpu = 'cpu' and 'mi300x': expected one"]),
        (
            'a = ["n1"], {"password": "x", "password": "y"}',
            ["rack.py:1,1: password = (secret: not shown)"],
        ),
    ],
)
def test_what_stands_twice_is_named_with_both_places(tmp_path: Path, text: str, words: list[str]) -> None:
    file = tmp_path / "rack.py"
    file.write_text(f"{text}\n")
    found = [str(problem).removeprefix(f"{tmp_path}/") for problem in twice(file, groups=True)]
    assert [line[: len(start)] for line, start in zip(found, words, strict=True)] == words


@pytest.mark.parametrize(
    "text",
    [
        'a = ["n1"]\nb = ["n1"]',
        'a = ["n1"]\na = (a, {"gpu": "cpu"})',
        'a = ["n1"]\nb = a\na = ["n2"]',
        'a = ["n1"]\na = (\n  a, {})',
        "site_x = {1: 2, '1': 3}",
        'a = [f"n{number}" for number in (1, 1)]',
        'a = (["n1"], {"images": {"a": "x"}, "smoke": {"image": "x"}})\nb = [{"x": 1}, {"x": 1}]',
        "_flags = ['a', 'a']",
        'path = home + "/" + ".ssh" + "/" + "id"\nrow = "-" * 3 + "-" * 9',
        'a = ["n" + "1", "n" + "2", "n%d" % 3, "n%d" % 4]',
        'def nodes(name, count):\n    return []\na = nodes("x", 2) + nodes("y", 2)',
        'from site_lib import nodes\na = [*nodes("x", 2), *nodes("y", 2)]',
        "_ = seed(1)\n_ = seed(2)",
        "def made():\n    return _n\n_n = 1\na = made()\n_n = 2\nb = made()",
        "_n = 1\ndel _n\n_n = 2",
        "_n = 1\n_n += 1\n_n = 2",
    ],
)
def test_what_is_used_or_stands_elsewhere_is_no_second_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "rack.py").write_text(text)
    assert not list(twice(tmp_path / "rack.py", groups=True))


def test_the_shipped_inventories_have_nothing_twice() -> None:
    for file in (Path(__file__).resolve().parents[2] / "inventories").glob("*.py"):
        assert not [*unreadable(file), *twice(file, groups=True)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'gpu = "cpu"\nsite_x = "caf\xe9"\n', "all.py:2: the text = b'site_x = \"caf\\xe9\"': expected UTF-8"),
        (b'\xef\xbb\xbfgpu = "cpu"\n', "all.py:1: the text = '\\ufeffgpu = \"cpu\"': expected no byte order mark"),
        ('gpu = "cpu"\n'.encode("utf-16"), "all.py:1: the text = b'\\xff\\xfe"),
        (b'gpu = "cpu"\nsite_token = "caf\xe9"\n', "all.py:2: the text = (secret: not shown): expected UTF-8"),
        (b'gpu = "cpu\n', "all.py:1: the text = 'gpu = \"cpu': expected Python: unterminated string"),
        (b'gpu = "cpu"\r\rx = (\r', "all.py:3: the text = 'x = (': expected Python: '(' was never closed"),
        (b'gpu = "cpu"\n\0\n', "all.py:2: the text = '\\x00': expected Python: "),
        (b'gpu = "cpu"\ngpu = "mi300x"\n', "all.py:1,2: gpu = 'cpu' and 'mi300x': expected one"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line_and_the_others(
    tmp_path: Path, content: bytes, words: str
) -> None:
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data/all.py").write_bytes(content)
    (tmp_path / "rack.py").write_text(f'rack = (["n1",\n"n1"], {CPU})\n')
    said = refused(tmp_path)
    assert words in said and ("rack.py:1,2: rack = n1 twice" in said) == (" and " in words)
    assert words in refused(tmp_path, "pyinfra", "rack.py", str(Path(__file__).parents[2] / "deploy/drift.py"), "-y")


def test_another_value_of_group_data_is_refused(tmp_path: Path) -> None:
    """pyinfra takes the file's, and of several files the last one's: that of the nearer folder, as a site means it,
    except where keys of a section would be lost."""
    folders = [tmp_path / "group_data", tmp_path / "sub/group_data"]
    for folder in folders:
        folder.mkdir(parents=True)
    own = '{"gpu": "cpu", "nic": None, "site_x": max(1, 2), "site_token": "a"}'
    (tmp_path / "sub/rack.py").write_text(f'rack = (["n1"], {own})\nother = ["n1"]\n')
    (folders[0] / "rack.py").write_text('nic = None\ngpu = "mi300x"\nsite_token = "b"\nsite_x = min(3, 4)\n')
    (folders[1] / "rack.py").write_text('gpu = "mi300x"\n')
    (folders[0] / "all.py").write_text('site_y = 1\nsite_z = {"a": 1, "b": {"c": 2}}\nsite_t = {"a": (1, 2)}\n')
    (folders[1] / "all.py").write_text('site_y = 2\nsite_z = {"a": 2}\nsite_t = {"a": [1, 2]}\n')
    shown = refused(tmp_path, "shakedown", "show", "sub/rack.py", "n1").splitlines()[1:]
    deploy = str(Path(__file__).parents[2] / "deploy/drift.py")
    assert shown == refused(tmp_path, "pyinfra", "sub/rack.py", deploy, "-y").splitlines()[-len(shown) :]
    lines = [line.strip() for line in shown]
    rest = "expected one value: {} gives the group {} another one, which pyinfra passes over: leave one out"
    assert lines == [
        f"group_data/rack.py:2: gpu = 'mi300x': {rest.format('sub/rack.py', 'rack')}",
        f"group_data/rack.py:3: site_token = (secret: not shown): {rest.format('sub/rack.py', 'rack')}",
        "sub/group_data/all.py:2: site_z = {'a': 2}: expected the whole section: group_data/all.py gives the group all "
        "site_z.b.c, which pyinfra passes over",
    ]


def test_the_nearer_folder_of_group_data_replaces_values_and_sections_that_lose_no_key(tmp_path: Path) -> None:
    for folder, text in {
        "group_data": 'gpu = "mi300x"\ntuning = {"groups": ("a",)}\nsystem = {"clock_synchronised": True}\n',
        "sub/group_data": 'gpu = "cpu"\ntuning = {"groups": ["a"], "thp": "always"}\nsystem = None\n',
    }.items():
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "all.py").write_text(text)
    group = '(["n1"], {"tuning": {"groups": %s}})'
    (tmp_path / "sub/rack.py").write_text(f"a = {group % '(chr(97),)'}\nb = {group % '[chr(97)]'}\n")
    command = [str(Path(sys.executable).with_name("shakedown")), "show", "sub/rack.py", "n1"]
    code, out, err = forks.run(command, tmp_path, os.environ)
    shown = {line.split()[0]: " ".join(line.split()[1:]) for line in out.splitlines()}
    assert code == 0, err
    assert (shown["gpu.profile"], shown["tuning.groups"]) == ('"cpu" group all', '["a"] group b')
    assert shown["tuning.thp"] == '"always" group all' and "system.clock_synchronised" not in shown


def test_group_data_in_another_language_is_refused(tmp_path: Path) -> None:
    (tmp_path / "group_data").mkdir()
    (tmp_path / "rack.py").write_text(f'rack = (["n1"], {CPU})\n')
    for name in ("README.md", "all.yml", "rack.json"):
        (tmp_path / "group_data" / name).write_text("gpu: cpu\n")
    assert [line.strip() for line in refused(tmp_path).splitlines()[1:]] == [
        "group_data/all.yml: the file = all.yml: expected Python: all.py",
        "group_data/rack.json: the file = rack.json: expected Python: rack.py",
    ]
    (tmp_path / "group_data" / "all.py").write_text("read_by_hand = ['group_data/all.yml', 'group_data/rack.json']\n")
    assert "the file" not in refused(tmp_path)


@pytest.mark.parametrize("file", ["rack.py", "group_data/all.py"])
@pytest.mark.parametrize("end", ["raise SystemExit('no hosts today')", "import sys\nsys.exit(0)", "exit(3)"])
def test_a_file_that_ends_the_program_is_named_and_never_a_verdict(tmp_path: Path, file: str, end: str) -> None:
    (tmp_path / "group_data").mkdir()
    (tmp_path / "rack.py").write_text(f'rack = (["n1"], {CPU})\n')
    (tmp_path / file).write_text(f"{end}\n")
    for argv in (("show", "rack.py", "n1"), ("drift", "rack.py")):
        assert f"{file}:{end.count(chr(10)) + 1}: SystemExit: " in refused(tmp_path, "shakedown", *argv)


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ('(["n1 n2"], {})', "one name: nodes('n1,n2') makes several of it"),
        ('(["n[1, 2]"], {})', "one name: nodes('n[1,2]') makes several of it"),
        ('(["[2001:db8::2]"], {})', "'2001:db8::2' alone"),
        ("(None, {})", 'a list of hosts, as ["node01"'),
        ('(["n1"], {"ssh_port": 0})', "a port from 1 to 65535"),
        ('(["n1"], {"ssh_port": 65536})', "a port from 1 to 65535"),
        ('(nodes("n1 n2"), {})', "'n1 n2': expected a comma between hosts"),
    ],
)
def test_what_is_expected_works_when_it_is_written_instead(tmp_path: Path, group: str, expected: str) -> None:
    (tmp_path / "rack.py").write_text(f"from shakedown.hosts import nodes\nrack = {group}\nb = (['n1'], {CPU})\n")
    assert expected in refused(tmp_path)
    if "nodes('" in expected:
        assert nodes(expected.split("'")[1]) == ["n1", "n2"]


def test_a_value_that_its_file_changes_or_that_group_data_is_named_for_is_no_other_one(tmp_path: Path) -> None:
    own = '{"gpu": "cpu", "site_a": "ab", "site_b": [1, 2], "site_c": {"x": 1}, "site_d": 2, "site_e": 1}'
    (tmp_path / "rack.py").write_text(f'rack = (["n1"], {own})\n')
    for folder, text in {
        "group_data": 'site_a = "a"\nsite_a = site_a + "b"\nsite_b = [1]\nsite_b += [2]\nsite_c = {}\n'
        'site_c["x"] = 1\nsite_d = 1\nif site_a:\n    site_d = 2\n',
        "other": "site_e = 2\nsite_f: int = 3\n",
    }.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rack.py").write_text(text)
    command = [str(Path(sys.executable).with_name("shakedown")), "show", "rack.py", "n1"]
    assert forks.run(command, tmp_path, os.environ)[0] == 0
    (tmp_path / "rack.py").write_text(f'rack = (["n1"], {own})\nwrong = ("n2", {CPU})\n')
    deploy = str(Path(__file__).parents[2] / "deploy/drift.py")
    lines = refused(tmp_path, "pyinfra", "rack.py", deploy, "--group-data", "other", "-y")
    assert "wrong" in lines and "site_" not in lines


def test_one_file_in_place_of_a_folder_of_group_data_is_looked_through_too(tmp_path: Path) -> None:
    (tmp_path / "rack.py").write_text(f'rack = (["n1"], {CPU})\n')
    (tmp_path / "more.txt").write_text("no python")
    (tmp_path / "all.py").write_text("site_x = 1\nsite_x = 2\n")
    assert files(str(tmp_path / "rack.py"), [str(tmp_path / "all.py"), str(tmp_path / "more.txt")])[1:] == [
        tmp_path / "all.py"
    ]
    deploy = str(Path(__file__).parents[2] / "deploy/drift.py")
    assert "all.py:1,2: site_x = 1 and 2" in refused(tmp_path, "pyinfra", "rack.py", deploy, "--group-data", "all.py")


@pytest.mark.parametrize("names", ['["Node1", "node1"]', '["node1.rack7", "node1.rack7."]'])
def test_two_spellings_of_one_host_are_refused(tmp_path: Path, names: str) -> None:
    (tmp_path / "rack.py").write_text(f'rack = ({names}, {CPU})\nother = (["n2"], {CPU})\n')
    said = refused(tmp_path, "shakedown", "plan", "rack.py", "--limit", "n2")
    assert f"its names = {names}: expected one spelling".replace('"', "'") in said
    assert said.splitlines()[1].startswith("  rack.py:1, rack.py:1: hosts ")
    assert "its names" in refused(tmp_path, "pyinfra", "rack.py", str(Path(__file__).parents[2] / "deploy/drift.py"))


def test_a_name_that_is_no_inventory_has_one_line(tmp_path: Path) -> None:
    """And none of pyinfra's, which has other words for it."""
    for command in ("run", "drift"):
        lines = refused(tmp_path, "shakedown", command, "nosuch").splitlines()
        assert [line.startswith("shakedown: nosuch: no hosts: it is no file") for line in lines] == [True]


def test_each_error_of_a_key_has_the_line_on_which_it_stands(tmp_path: Path) -> None:
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data/a.py").write_text('site_x = 1\nmemlock = 8\ntuning = {"nofile": "1",\n "Thp": "always"}\n')
    (tmp_path / "rack.py").write_text(
        'a = (["n1"], {"gpu": "mi300x",\n  "nic": "thor3"})\n'
        '_data = dict(gpu="mi300x",\n  become=True)\n'
        'b = (["n1", ("n3",\n   {"reports": 1})], _data)\n'
        'c = (["n3"],\n {"gpu": "mi325x"})\n'
        'd = ["n4"]\n'
    )
    said = refused(tmp_path)
    for line in (
        "group_data/a.py:2: group a: memlock = 8: expected the key tuning.memlock, or site_memlock",
        "group_data/a.py:3: group a: tuning.nofile = '1': expected a valid integer, without quotation marks",
        "group_data/a.py:4: group a: tuning.Thp = 'always': expected no such key (thp?)",
        "rack.py:2: group a: rdma.family = 'thor3': expected",
        "rack.py:4: group b: become = True: expected",
        "rack.py:6: host n3: reports = 1: expected a valid list, as",
        "rack.py:5, rack.py:8: groups b, c of host n3: gpu = 'mi300x' and 'mi325x': expected one value",
        "rack.py:9: host n4: gpu = nothing: expected a desired state",
    ):
        assert f"\n  {line}" in said, said


def test_the_line_that_raised_and_a_group_of_a_wrong_shape_are_named(tmp_path: Path) -> None:
    (tmp_path / "rack.py").write_text('import os\na = (["n1"],\n  {"gpu": os.environ["NOPE"]})\n')
    assert "rack.py:3: KeyError: 'NOPE'" in refused(tmp_path)
    (tmp_path / "rack.py").write_text('\na = ("n1", {})\n')
    assert "rack.py:2: a, its hosts = 'n1': expected a list" in refused(tmp_path)
    (tmp_path / "rack.py").write_text("a = []\n")
    assert 'rack.py: no hosts: name them in a group of it, as rack = (["node01"' in refused(tmp_path)


@pytest.mark.parametrize("name", ["-x", "a/b", "n1..x", ".", "x" * 254, "y" * 64, "n1." + "y" * 64, "a:b", "a@b@c"])
def test_a_name_that_no_host_can_have_is_refused_before_it_is_resolved(tmp_path: Path, name: str) -> None:
    (tmp_path / "rack.py").write_text(f'a = (["n1", {name!r}], {CPU})\n')
    assert "expected a host name: no /, : or @ in it" in refused(tmp_path, "shakedown", "drift", "rack.py")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("root@n9:2222", "('n9', {'ssh_user': 'root', 'ssh_port': 2222})"),
        ("10.0.0.1:22", "('10.0.0.1', {'ssh_port': 22})"),
        ("ops@n9", "('n9', {'ssh_user': 'ops'})"),
        ("[fe80::1]:22", "('fe80::1', {'ssh_port': 22})"),
    ],
)
def test_a_name_with_a_user_or_a_port_is_refused_with_what_to_write(tmp_path: Path, name: str, instead: str) -> None:
    (tmp_path / "rack.py").write_text(f'a = (["n1", {name!r}], {CPU})\n')
    words = f"expected the name alone, and its data beside it: {instead}"
    assert words in refused(tmp_path) and ("@" not in name or words in refused(tmp_path, "shakedown", "plan", name))


def test_names_that_hosts_have_are_taken(tmp_path: Path) -> None:
    names = [
        "node_1",
        "nödé3",
        "n2.",
        "fe80::1%eth0",
        "2001:db8::17",
        "10.0.0.1",
        "@docker/a/b",
        "@docker/A/b",
        "x" * 63 + ".y",
        "n1",
    ]
    (tmp_path / "rack.py").write_text(f"a = ({names!r}, {CPU})\n")
    code, _out, err = forks.run(
        [str(Path(sys.executable).with_name("shakedown")), "show", "rack.py", "n1"], tmp_path, os.environ
    )
    assert code == 0, err


def test_group_data_of_the_working_folder_and_beside_the_inventory_is_read(tmp_path: Path, monkeypatch) -> None:
    for folder in ("group_data", "site/group_data", "more"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "all.py").touch()
    (tmp_path / "site/rack.py").touch()
    monkeypatch.chdir(tmp_path)
    found = [str(file) for file in files("site/rack.py", ["more"])]
    assert found == ["site/rack.py", "group_data/all.py", "site/group_data/all.py", "more/all.py"]
    assert files("n1,n2") == []
