"""An inventory of Ansible as one of pyinfra: what Ansible gives a host is what the host has."""

from __future__ import annotations

import ast
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shakedown.cli.commands.init import init
from shakedown.runner.pyinfra.from_ansible import translate
from tests import forks

YAML = """
all:
  vars: {ansible_user: ops, become: "yes", ntp: 10.0.0.1}
  hosts:
    head: {ansible_host: 10.0.0.9}
  children:
    rack-7:
      hosts:
        node[01:08]:
        node09: {ansible_port: 2222, note: a b}
      vars: {ansible_user: root}
    gpu:
      children: {rack-7: }
      vars: {ansible_user: nobody, tier: "{{ x }}", key: !vault abc}
"""
INI = """
head ansible_host=10.0.0.9   # the login node
[rack-7]
node[01:08]
node09:2222 note="a b"
[rack-7:vars]
ansible_user = root
[gpu:children]
rack-7
[gpu:vars]
ansible_user=nobody
tier={{ x }}
key={{ hidden }}
[all:vars]
ansible_user=ops
become=yes
ntp=10.0.0.1
"""


def made(source: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str], list[str]]:
    """Return the data of each host and the hosts of each group, as pyinfra has them, and what was left out."""
    text, left_out = translate(source)
    target = source.with_name(f"{source.stem}_{source.suffix[1:]}.py")
    target.write_text(text)
    read = json.loads(forks.python(MAKES, target).stdout)
    return read["hosts"], read["groups"], left_out


MAKES = """
import json, sys
from pyinfra_cli.inventory import make_inventory
from pyinfra.api import State
from pyinfra.context import ctx_state
from shakedown.hosts import folded
from shakedown.runner.inventory import contradictions, layers_of

with ctx_state.use(State()):
    inventory = make_inventory(sys.argv[1])
assert contradictions([layers_of(host) for host in inventory]) == []
groups = {name: folded(host.name for host in hosts) for name, hosts in inventory.groups.items() if hosts}
print(json.dumps({"hosts": {host.name: host.data.dict() for host in inventory}, "groups": groups}))
"""


@pytest.mark.parametrize(("name", "text"), [("a.yml", YAML), ("a.ini", INI)])
def test_hosts_groups_and_values_are_those_of_ansible(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars/node02.yml").write_text("ansible_ssh_private_key_file: /root/key\n")
    hosts, groups, left_out = made(tmp_path / name)
    common = {"ssh_user": "root", "_sudo": True, "site_ntp": "10.0.0.1"}
    assert hosts["node01"] == common, "the inner group decides"
    assert hosts["node02"] == {**common, "ssh_key": "/root/key"}
    assert hosts["node09"] == {**common, "ssh_port": 2222, "site_note": "a b"}
    assert hosts["head"] == {**common, "ssh_user": "ops", "ssh_hostname": "10.0.0.9"}
    assert groups["rack_7"] == groups["gpu"] == "node[01-09]" and len(hosts) == 10
    assert left_out == [f"group gpu: {word}: a template, or encrypted" for word in ("tier", "key")]


@pytest.mark.parametrize("name", ["a.yml", "a.ini"])
def test_a_name_is_read_as_an_address_with_user_and_port(tmp_path: Path, name: str) -> None:
    written = [
        "root@n9:2222",
        "2001:db8::17",
        "[2001:db8::18]:23",
        "fe80::1%eth0",
        "n[1:2].x:24",
        "m[a:b]",
        "[fe80::2]",
    ]
    text = "all:\n hosts:\n" + "".join(f'  "{host}":\n' for host in written) if name == "a.yml" else "\n".join(written)
    (tmp_path / name).write_text(f"{text}\n")
    hosts, _groups, left_out = made(tmp_path / name)
    assert hosts == {
        "n9": {"ssh_user": "root", "ssh_port": 2222},
        "2001:db8::17": {},
        "2001:db8::18": {"ssh_port": 23},
        "fe80::1%eth0": {},
        "n1.x": {"ssh_port": 24},
        "n2.x": {"ssh_port": 24},
        "ma": {},
        "mb": {},
        "fe80::2": {},
    }
    assert left_out == []


def test_the_way_to_a_host_is_never_left_out_without_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.ini").write_text("n1 ansible_ssh_common_args='-J bastion'\n")
    assert "as ProxyJump, that pyinfra's key 'ssh_config_file' names" in translate(tmp_path / "a.ini")[1][0]


@pytest.mark.parametrize("text", ["- hosts: all\n", "a: [\n", "all:\n", "all: {hosts: 5}\n", "x\n"])
def test_what_is_no_inventory_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "play.yml").write_text(text)
    with pytest.raises(ValueError, match=r"play\.yml: "):
        translate(tmp_path / "play.yml")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.ini")
    with pytest.raises(ValueError, match=r"a\.ini: it is no file"):
        translate(tmp_path / "a.ini")


def test_what_a_shell_pipes_in_is_read() -> None:
    """init --from <(ansible-inventory --list --yaml)"""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as pipe:
        pipe.write("[rack]\nn1\n")
    with os.fdopen(reader):
        assert "n1" in str(translate(Path(f"/dev/fd/{reader}")))


def test_a_name_that_python_does_not_take_is_changed(tmp_path: Path) -> None:
    (tmp_path / "a.ini").write_text("[7]\nn1\n[import]\nn2\n[nodes]\nn3\n[a-b]\nn4\n[a_b]\nn[a:c]\n[_x]\nn6\n")
    groups = made(tmp_path / "a.ini")[1]
    assert {"g7", "import_", "nodes_", "a_b", "a_b_", "g_x"} <= groups.keys() and groups["a_b_"] == "na,nb,nc"


LEVELS = 26
HOSTILE = {
    "aliases.yml": "all:\n  hosts: {n1: }\n  vars:\n    a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"    a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)),
    "itself.yml": "all: &all\n  hosts: {n1: }\n  children: {x: *all}\n",
    "deep.yml": f"all: {{hosts: {{n1: }}, vars: {{a: {'[' * 1500}{']' * 1500}}}}}\n",
    "range.yml": "all: {hosts: {'n[1:900000000]': }}\n",
    "ranges.ini": "n[1:9999]m[1:9999]\n",
    "circle.ini": "n1\n[a:children]\nb\n[b:children]\na\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_small_file_that_stands_for_a_huge_one_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(HOSTILE[name])
    with pytest.raises(ValueError, match=r"more than|expected groups|within each other"):
        translate(tmp_path / name)


def test_the_hosts_that_a_file_names_are_counted_while_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "same.ini").write_text("".join(f"n[1:199999] x={n}\n" for n in range(5)))
    with pytest.raises(ValueError, match="are named"):
        translate(tmp_path / "same.ini")


@pytest.mark.parametrize("end", ["", ".0"])
def test_a_number_longer_than_any_is_text_and_costs_no_more(tmp_path: Path, end: str) -> None:
    (tmp_path / "n.yml").write_text(f"all: {{hosts: {{n1: {{x: 1{':00' * 3_000}{end}, y: 1:30}}}}}}\n")
    values = made(tmp_path / "n.yml")[0]["n1"]
    assert len(values["site_x"]) > 3_000 and values["site_y"] == 90


def test_groups_that_have_each_other_on_many_ways_are_read_once_each(tmp_path: Path) -> None:
    pairs = [f"[a{n}:children]\na{n + 1}\nb{n + 1}\n[b{n}:children]\na{n + 1}\nb{n + 1}\n" for n in range(LEVELS)]
    (tmp_path / "a.ini").write_text(f"{''.join(pairs)}[a{LEVELS}]\nn1\n[b{LEVELS}]\nn2\n")
    assert translate(tmp_path / "a.ini")[0].count("nodes('n[1-2]')") == 2 * LEVELS


def test_no_text_of_the_file_is_run_by_the_inventory(tmp_path: Path) -> None:
    source = tmp_path / 'x"""+str(open("ran", "w"))+""".yml'
    source.write_text("all: {hosts: {n1: }, vars: {at: 2026-01-02, limit: .nan, name: \"'+open('ran')+'\"}}\n")
    tree = ast.parse(translate(source)[0])
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert [ast.unparse(name) for name in called] == ["nodes"] and isinstance(tree.body[0].value, ast.Constant)  # type: ignore[attr-defined]
    assert made(source)[0]["n1"]["site_limit"] == "nan"


def test_a_value_nested_without_end_stays_text(tmp_path: Path) -> None:
    (tmp_path / "a.ini").write_text(f"[g]\nn1 a={'(' * 5000} b={'-' * 5000}1\n")
    assert f"'site_a': '{'(' * 5000}'" in translate(tmp_path / "a.ini")[0]


def test_the_inventory_is_for_those_who_may_read_the_file(tmp_path: Path) -> None:
    program = str(Path(sys.executable).with_name("shakedown"))
    for mode in (0o600, 0o644):
        source = tmp_path / f"a b{mode:o}.yml"
        source.write_text('all: {hosts: {n1: {ansible_password: x, "ansible_\\e[2Jz": 1}}}\n')
        source.chmod(mode)
        code, out, err = forks.run([program, "init", "--from", source.name], tmp_path, os.environ)
        assert (code, (tmp_path / f"a b{mode:o}.py").stat().st_mode & 0o777) == (0, mode)
        assert f"shakedown drift 'a b{mode:o}.py'" in out and "\x1b" not in err and "left out: host n1" in err
    code, _, err = forks.run([program, "init", "/proc/rack", "--from", source.name], tmp_path, os.environ)
    assert code == 2 and "/proc/rack: No such file or directory" in err


@pytest.mark.parametrize(
    ("name", "text", "left_out"),
    [
        ("a.ini", "[r]\nn1\n[all:children]\nr\nnosuch\n", ["group nosuch: no host is in it"]),
        ("a.ini", "[r]\nn1\n[s:vars]\nx=1\n", ["group s: no host is in it"]),
        ("a.ini", "[r]\nn1\n[r:var]\nx=1\n", ["group r: var: Ansible has hosts, children and vars there"]),
        ("a.yml", "r: {hosts: {n1: }, var: {x: 1}}", ["group r: var: Ansible has hosts, children and vars there"]),
        ("a.yml", "r: {hosts: {n1: }, children: {s: }}", ["group s: no host is in it"]),
        ("a.ini", "n1\n", []),
    ],
)
def test_no_group_and_no_part_of_one_is_dropped_in_silence(
    tmp_path: Path, name: str, text: str, left_out: list[str]
) -> None:
    (tmp_path / name).write_text(text)
    hosts, _groups, shown = made(tmp_path / name)
    assert (list(hosts), shown) == (["n1"], left_out)


def test_what_ansible_inventory_lists_has_the_values_of_its_hosts(tmp_path: Path) -> None:
    listed = {
        "_meta": {"hostvars": {"n1": {"ansible_host": "10.0.0.1"}}},
        "all": {"children": ["ungrouped", "rack"]},
        "rack": {"hosts": ["n1", "n2"]},
    }
    (tmp_path / "a.json").write_text(json.dumps(listed))
    hosts, groups, left_out = made(tmp_path / "a.json")
    assert hosts == {"n1": {"ssh_hostname": "10.0.0.1"}, "n2": {}}
    assert (groups["rack"], left_out) == ("n[1-2]", [])


def test_a_program_is_refused_with_how_to_run_it(tmp_path: Path) -> None:
    (tmp_path / "hosts.sh").write_text("#!/bin/sh\necho {}\n")
    with pytest.raises(ValueError, match=r"hosts\.sh: a program: run it, as init --from <\(ansible-inventory -i "):
        translate(tmp_path / "hosts.sh")


@pytest.mark.parametrize(
    ("filename", "folder", "shown"),
    [("out/a.py", "out", "out/a.py"), (None, "out", "out"), (None, None, "."), ("a.py", None, "a.py")],
)
def test_what_could_not_be_written_is_named(
    tmp_path: Path, monkeypatch, filename: str | None, folder: str | None, shown: str
) -> None:
    """The file where the kernel names it (not on a full disk), else the folder."""

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device", filename)

    monkeypatch.setattr("shakedown.cli.commands.init.lay_out", full)
    (tmp_path / "a.ini").write_text("n1\n")
    result = CliRunner().invoke(init, ["--from", str(tmp_path / "a.ini"), *([folder] if folder else [])])
    assert (result.exit_code, result.stderr) == (2, f"shakedown: {shown}: No space left on device\n")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hosts", "[gpu]\nn1\n"),
        ("hosts.ini", "[gpu]\nn[01:64] ansible_user=root\n"),
        ("hosts.yml", "all: {hosts: {n1: }}\n"),
        ("site.yaml", "gpu:\n  hosts:\n    n[01:02]:\n"),
    ],
)
def test_an_inventory_of_ansible_is_answered_with_the_command_for_it(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    program = str(Path(sys.executable).with_name("shakedown"))
    code, _, errors = forks.run([program, "show", name, "n1"], tmp_path, dict(os.environ), 60)
    expected = (
        f"shakedown: {name}: expected an inventory of pyinfra, in Python: Ansible's becomes one by: shakedown init"
    )
    assert code == 2 and errors.startswith(f"{expected} --from {name} (")
