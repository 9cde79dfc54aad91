"""The commands over logs and run directories: what they print and how they exit."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from shakedown.cli import COMMANDS, main
from shakedown.cli.completion import summary
from shakedown.gates.model import TOGETHER
from shakedown.logs.kept_logs import LogFile, LogQuota
from shakedown.runs.directory import Evidence, JobRecord, RunDirectory, RunRecord, now
from shakedown.state.findings import Verdict
from tests import forks
from tests.plans import small

LOGS = Path(__file__).parents[1] / "data/logs"


def call(*argv: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(word) for word in argv], input=stdin)


def flat(text: str) -> str:
    """The words, whatever line they stand on."""
    return " ".join(text.split())


def test_parse_prints_one_object_per_iteration_with_exactly_the_documented_fields() -> None:
    lines = [json.loads(line) for line in call("parse", LOGS / "rocm.log").stdout.splitlines()]
    assert len(lines) == 20
    fields = "iteration total_iterations consumed_samples elapsed_ms tflops_per_gpu tokens_per_gpu_per_s tokens_per_s "
    fields += (
        "samples_per_s memory_fraction learning_rate global_batch_size lm_loss loss_scale grad_norm skipped_iterations"
    )
    assert list(lines[0]) == [*fields.split(), "nan_iterations"]


def test_parse_reads_standard_input() -> None:
    result = call("parse", "-", stdin=(LOGS / "primus.log").read_bytes())
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 20


@pytest.mark.parametrize("text", ["", "nothing of the kind\n"])
def test_parse_says_that_it_found_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.log").write_text(text)
    result = call("parse", tmp_path / "a.log")
    assert (result.exit_code, result.stdout) == (0, "")
    assert flat(result.stderr) == f"shakedown: {tmp_path / 'a.log'}: no iteration line in it"


def test_a_log_is_no_run_and_a_folder_of_logs_neither() -> None:
    report, judge = call("report", LOGS / "rocm.log"), call("judge", LOGS)
    assert (report.exit_code, judge.exit_code) == (2, 2)
    assert f"a file and no run; a log is judged with: shakedown judge {LOGS / 'rocm.log'}" in report.stderr
    assert "of logs that lie in it give each" in judge.stderr


@pytest.mark.parametrize(
    ("log", "options", "code"),
    [
        ("rocm.log", [], 0),
        ("rocm.log", ["--iterations", "20"], 0),
        ("rocm.log", ["--iterations", "50"], 1),
        ("rocm.log", ["--expect", "throughput_per_gpu=1"], 0),
        ("rocm.log", ["--expect", "throughput_per_gpu=1e6"], 1),
        ("rocm.log", ["--expect", "elapsed_time_per_iteration=1"], 1),
        ("rocm.log", ["--expect", "elapsed_time_per_iteration=1e9"], 0),
        ("nan_loss.log", [], 1),
        ("out_of_memory.log", [], 1),
        ("rccl_untuned.log", [], 1),
        ("rocm.log", ["--expect", "speed=3"], 2),
        ("rocm.log", ["--expect", "throughput_per_gpu"], 2),
        ("rocm.log", ["--recipe", "no-such"], 2),
        ("rocm.log", ["--recipe", "llama3.1-8b-fp8"], 2),
        ("rocm.log", ["--recipe", "llama3.1-8b-fp8", "--gpu", "mi300x"], 4),  # its sizes are not the recipe's
    ],
)
def test_judge_exits_as_the_gates_say(log: str, options: list[str], code: int) -> None:
    result = call("judge", LOGS / log, *options)
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("log", sorted(path.name for path in LOGS.glob("*.log")))
def test_a_judgement_fits_on_a_screen_in_a_pipe_too(monkeypatch: pytest.MonkeyPatch, log: str) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    result = call("judge", LOGS / log)
    lines = result.stdout.rstrip().splitlines()
    assert max(map(len, lines)) <= 100 and len(lines) <= (25 if result.exit_code else 40), result.stdout
    verdict = Verdict(json.loads(call("judge", LOGS / log, "--format", "json").stdout)["verdict"])
    if result.exit_code:
        assert lines[0].partition(": ")[2].split(":")[0] == verdict and lines[-1].endswith("with --all")
        assert f"{verdict}: gate " in result.stdout
    else:
        assert lines[-1] == verdict == "ok"
    for columns in (None, "80", "10000"):
        monkeypatch.setenv("COLUMNS", columns) if columns else monkeypatch.delenv("COLUMNS", raising=False)
        whole = call("judge", LOGS / log, "--all").stdout
        longest = max(map(len, whole.splitlines()))
        assert longest > 100 if columns == "10000" else longest <= int(columns or 100), "grep reads whole lines"
        assert " ..." not in whole


def test_judge_as_json_names_every_gate() -> None:
    document = json.loads(call("judge", LOGS / "nan_loss.log", "--format", "json").stdout)
    assert document["verdict"] == "fail"
    assert {gate["name"] for gate in document["gates"]} >= {"iterations_complete", "loss_finite", "loss_falling"}
    assert all(gate["evidence"] for gate in document["gates"])


def test_judge_and_report_refuse_a_folder_that_is_no_run(tmp_path: Path) -> None:
    for command in ("judge", "report"):
        result = call(command, tmp_path)
        assert result.exit_code == 2
        assert "run.json" in result.output


def test_an_unreadable_log_is_told_with_its_name(tmp_path: Path) -> None:
    assert call("judge", tmp_path / "missing.log").exit_code == 2
    assert call("parse", tmp_path / "missing.log").exit_code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "no such file"), ("1 / 0", "ZeroDivisionError: division by zero"), ("rack = []", "no hosts")],
)
def test_an_inventory_that_is_not_there_or_raises_is_unusable_input(
    tmp_path: Path, text: str | None, words: str
) -> None:
    inventory = tmp_path / "site.py"
    if text is not None:
        inventory.write_text(text + "\n")
    shakedown = Path(sys.executable).with_name("shakedown")  # a process of its own: gevent patches this one otherwise
    code, _out, err = forks.run([str(shakedown), "drift", str(inventory)], tmp_path, os.environ)
    assert code == 2, err
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["drift", "hall3"], "hall3: no hosts: it is no file; expected an inventory"),
        (["drift", "rcak.py"], "rcak.py: no such file (did you mean rack.py?)"),
        (["plan", "rack"], "it is no file (did you mean rack.py?); expected an inventory"),
        (["isolate", "hall3"], "hall3: no such file, and no such run. "),
        (["ticket", ""], "an empty text names no run: is a variable of the shell not set?"),
        (["drift", ""], "an empty text names no inventory: is a variable of the shell not set?"),
        (["isolate", "ltest"], "no such run (did you mean latest?)"),
        (["report", "20260101T000000-aaaaab"], "no such run (did you mean 20260101T000000-aaaaaa?)"),
        (["ticket", "aaaaaa"], "no such run (did you mean 20260101T000000-aaaaaa?)"),
        (["judge", "rakc.log", "--iterations", "3"], "no such run (did you mean rack.log?)"),
        (["explain", "rakc.log"], "rakc.log: No such file or directory (did you mean rack.log?)"),
        (["trials", "rack.py", "--only", "gem"], "no such trial: gem (did you mean gemm? there are gemm, memory"),
        (
            ["soak", "rack.py", "--only", "cpuu", "--dry"],
            "no such stage: cpuu (did you mean cpu? there are cpu, memory",
        ),
        (["judge", "rack.log", "--gpu", "mi300"], "--gpu mi300: did you mean mi300x? there are mi210, mi250x"),
        (
            ["judge", "rack.log", "--expect", "troughput=3"],
            "did you mean throughput_per_gpu? there are throughput_per_",
        ),
        (["plan", "rack.py", "--data", "gpu=mi300"], "gpu.profile = 'mi300': expected mi300x? one of cpu, mi210"),
        (["plan", "n1", "--format", "jso"], "'jso' is not one of 'text', 'json'. Did you mean json?"),
        (["isolate", "20260101T000000-aaaaaa", "--resume"], "the run has no search"),
        (["isolate", "sent.tar.gz"], "an archive of a run: give the run's directory"),
    ],
)
def test_a_name_that_is_no_inventory_no_run_or_no_search_is_refused_before_a_node_is_asked(
    tmp_path: Path, argv: list[str], words: str
) -> None:
    a_run(tmp_path / "runs", "20260101T000000-aaaaaa")
    (tmp_path / "rack.py").write_text('rack = (["n1"], {"gpu": "cpu"})\n')
    (tmp_path / "rack.log").touch()
    assert call("bundle", tmp_path / "runs/20260101T000000-aaaaaa", "--output", tmp_path / "sent.tar.gz").exit_code == 0
    code, _out, err = forks.run([str(Path(sys.executable).with_name("shakedown")), *argv], tmp_path, os.environ)
    assert (code, words in err, "Traceback" in err) == (2, True, False), err


def refused(folder: Path, text: str, *argv: str) -> str:
    """What a command says of an inventory that it refuses, in a process of its own: gevent patches this one."""
    (folder / "site.py").write_text(text)
    command = [str(Path(sys.executable).with_name("shakedown")), argv[0], "site.py", *argv[1:]]
    code, _out, err = forks.run(command, folder, os.environ)
    assert (code, "Traceback" in err) == (2, False), err
    return err


BATCH = """rack = ([f"n{number}" for number in range(1, 65)], {
    "gpu": "mi300x", "images": {"megatron": "rocm/megatron-lm:v25.5_py310"},
    "smoke": {"recipe": "llama3.1-8b-fp8", "image": "megatron", "options": {"BS": 128}},
})
"""


def test_a_batch_that_does_not_fit_has_one_answer_wherever_a_user_looks_first(tmp_path: Path) -> None:
    answers = {refused(tmp_path, BATCH, *command.split()) for command in ("show n1", "plan", "run", "run --dry")}
    (answer,) = answers
    assert "smoke.options.BS = 128: expected a multiple of" in answer and "such as 1024" in answer
    assert "--limit leaves n1 out" in refused(tmp_path, BATCH, "show", "n1", "--limit", "n[2-3]")


@pytest.mark.parametrize("command", [["drift"], ["run"], ["plan"], ["show", "n1"]])
def test_hosts_of_which_nothing_is_asked_are_refused_beside_all_other_errors(
    tmp_path: Path, command: list[str]
) -> None:
    """A host that was forgotten in the rack's group must not pass on the shipped defaults."""
    said = refused(tmp_path, 'rack = (["n1"], {"gpu": "mi301x"})\nspare = ["n2", "n3"]\n', *command)
    assert "hosts n2, n3: gpu = nothing: expected a desired state" in said
    assert "group rack: gpu.profile = 'mi301x'" in said


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ('{"ssh_usr": "x"}', "group rack: ssh_usr = 'x': expected pyinfra's key 'ssh_user'"),
        ('{"ssh_keyfile": "x"}', "group rack: ssh_keyfile = 'x': expected pyinfra's key 'ssh_key'"),
        ('{"_sodo": True}', "group rack: _sodo = True: expected pyinfra's key '_sudo'"),
        ('{"tunning": {}}', "group rack: tunning = {}: expected the key 'tuning', or site_tunning for one of the site"),
        ('{"GPU": "x"}', "group rack: GPU = 'x': expected the key 'gpu'"),
        ('{"app_version": 3}', "group rack: app_version = 3: expected a known key, or site_app_version"),
        ('{"smoke.iterations": 3}', "group rack: smoke.iterations = 3: expected the section 'smoke'"),
        ('{"become": True}', "group rack: become = True: expected pyinfra's key '_sudo'; 'become' is Ansible's word"),
        (
            '{"ssh_key": "id_no"}',
            "expected a file that exists: there is no id_no (in ",
        ),
        ('{"ssh_port": "2222"}', "group rack: ssh_port = '2222': expected a value of type int"),
        (
            '{"smoke": {"recipe": "gpt-small", "shm_size": 64}}',
            'smoke.shm_size = 64: expected a size with its unit, as "64G"',
        ),
    ],
)
def test_pyinfras_own_keys_are_judged_beside_all_other_errors(tmp_path: Path, data: str, words: str) -> None:
    said = refused(tmp_path, f'rack = (["n1"], {{"gpu": "mi301x", **{data}}})\n', "drift")
    assert words in said
    assert "group rack: gpu.profile = 'mi301x'" in said


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("smoke.iterations=many", "--data: smoke.iterations = 'many': expected"),
        ("tuning.sysctl.vm;swappiness=1", "--data: tuning.sysctl.vm;swappiness = "),
        ("smok.iterations=7", "--data: smok.iterations = 7: expected the key 'smoke'"),
        ("nonsense.value=7", "--data: nonsense.value = 7: expected a known key"),
        ("ssh_prot=22", "--data: ssh_prot = 22: expected pyinfra's key 'ssh_port'"),
        ("gpu", "--data gpu: expected KEY=VALUE"),
    ],
)
def test_what_data_of_the_command_line_cannot_mean_is_refused(tmp_path: Path, option: str, words: str) -> None:
    assert words in refused(tmp_path, 'rack = (["n1"], {"gpu": "cpu"})\n', "drift", "--data", option)


def over_an_inventory(name: str) -> bool:
    command = main.get_command(click.Context(main), name)
    return command is not None and "data" in {parameter.name for parameter in command.params}


@pytest.mark.parametrize("command", [*filter(over_an_inventory, COMMANDS), "pyinfra"])
def test_each_command_over_an_inventory_reads_dotted_keys_of_data(tmp_path: Path, command: str) -> None:
    text = 'rack = (["n1"], {"gpu": "cpu", "smoke": {"recipe": "gpt-small"}})\n'
    data = ("--data", "smoke.iterations=many", "--data", "system.container_engine.install=True")
    words = "the desired state has 1 error:\n  --data: smoke.iterations = 'many': expected a valid integer"
    if command == "pyinfra":
        (tmp_path / "site.py").write_text(text)
        deploy = Path(__file__).resolve().parents[2] / "deploy/megatron.py"
        program = str(Path(sys.executable).with_name("pyinfra"))
        code, _out, err = forks.run([program, "site.py", str(deploy), "-y", *data], tmp_path, os.environ)
        assert (code, words in err) == (2, True), err
    else:
        assert words in refused(tmp_path, text, command, *(["n1"] if command in ("capture", "show") else []), *data)


def test_other_peoples_data_is_let_through(tmp_path: Path) -> None:
    text = 'rack = (["@local"], {"gpu": "cpu", "site_own": 1, "_user": "x", "_sudo": False, "ssh_port": 22})\n'
    (tmp_path / "site.py").write_text(text)
    data = ["--data", "site_own=2", "--data", "smoke.recipe=gpt-small"]
    command = [str(Path(sys.executable).with_name("shakedown")), "show", "site.py", "@local", *data]
    assert forks.run(command, tmp_path, os.environ)[0] == 0


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ('("n1", {"gpu": "cpu"})', "rack, its hosts = 'n1': expected a list of hosts"),
        ('(["n1"], ["gpu"])', "rack, its data = ['gpu']: expected a dictionary"),
        ('("n1", "n2")', "rack = ('n1', 'n2'): expected a list of hosts and a dictionary"),
        ('(["n1"],)', "rack = (['n1'],): expected a list of hosts and a dictionary"),
        ("()", "rack = (): expected a list of hosts and a dictionary"),
        ('({"gpu": "cpu"},)', "rack = ({'gpu': 'cpu'},): expected a list of hosts and a dictionary"),
        ('[["n1"], "n2"]', "rack = ['n1']: expected hosts without lists among them"),
        ('["node[01-03]"]', "rack = 'node[01-03]': expected one name: nodes('node[01-03]')"),
        ('["n1", ("n2", ["x"])]', "rack, n2 = ['x']: expected a dictionary"),
        ('["n1", 5]', "rack = 5: expected the name of a host"),
    ],
)
def test_a_group_that_pyinfra_takes_for_something_else_is_refused(tmp_path: Path, group: str, words: str) -> None:
    wrong = refused(tmp_path, f"rack = {group}\nother = ('x', {{}})\nPORTS = [1, 2]\nDATA = {{'a': 1}}\n", "drift")
    assert f"site.py:1: {words}" in wrong and "other, its hosts = 'x'" in wrong and "PORTS" not in wrong


@pytest.mark.parametrize("group", ['{"n1": {"gpu": "cpu"}}', '"n1"', '{"n1"}', "(name for name in ())"])
def test_a_file_without_a_group_names_what_stands_in_place_of_one(tmp_path: Path, group: str) -> None:
    wrong = refused(tmp_path, f"rack = {group}\n", "drift")
    assert "site.py:1: rack = " in wrong and "expected a list of hosts, as [" in wrong


def test_group_data_of_no_group_is_refused_beside_other_errors(tmp_path: Path) -> None:
    (tmp_path / "group_data").mkdir()
    for name in ("rak", "all", "elsewhere"):
        (tmp_path / f"group_data/{name}.py").write_text('gpu = "mi30"\n')
    (tmp_path / "second.py").write_text('elsewhere = ["n2"]\n')
    wrong = refused(tmp_path, 'rack = (["n1"], {"gpu": "mi3"})\n', "drift")
    assert "group_data/rak.py: the group = rak: expected rack: no inventory beside site.py has a group" in wrong
    assert "gpu.profile = 'mi3'" in wrong and "elsewhere.py" not in wrong


def test_an_inventory_of_ansible_is_refused_with_the_command_that_reads_it(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all:\n  hosts:\n    n1:\n")
    program = str(Path(sys.executable).with_name("shakedown"))
    code, _out, err = forks.run([program, "drift", "hosts.yml"], tmp_path, os.environ)
    assert code == 2 and "shakedown init --from hosts.yml" in err


def test_a_broken_file_of_group_data_is_named(tmp_path: Path) -> None:
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data/rack.py").write_text("import nope_nope\n")
    assert "group_data/rack.py:1: ModuleNotFoundError" in refused(tmp_path, 'rack = ["n1"]\n', "drift")


def test_a_limit_that_leaves_none_names_those_that_there_are(tmp_path: Path) -> None:
    said = refused(tmp_path, 'rack = (["n1", "n2"], {"gpu": "cpu"})\n', "drift", "--limit", "n3")
    assert "--limit n3: no such host (there are n1, n2, and the groups rack, " in said


def test_a_limit_is_read_as_output_writes_hosts(tmp_path: Path) -> None:
    text = 'from shakedown.hosts import nodes\nrack = (nodes("node[01-64].rack7"), {"gpu": "mi30"})\n'
    wrong = refused(tmp_path, text, "drift", "--limit", "node[10-24].*,!node12", "--limit", "node30.rack7")
    assert "gpu.profile = 'mi30'" in wrong, "the hosts were chosen, and their data is wrong"
    wrong = refused(tmp_path, text, "drift", "--limit", "node[63-66],rak,node3?")
    assert "--limit node[65-66]: no such host" in wrong and "--limit rak: no such host; the nearest: rack" in wrong
    assert "--limit node3?: no such host; only * is a wildcard" in wrong


@pytest.mark.parametrize("words", [["run", "--no-smoke"], ["rollback"]])
def test_a_run_asks_on_a_terminal_how_many_nodes_it_may_change(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "rack.py").write_text('rack = (["@local", "n2"], {"gpu": "cpu"})\n')
    terminal, end = pty.openpty()
    program = Path(sys.executable).with_name("shakedown")
    command = [program, *words, "rack.py", "--limit", "@local"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=end, stderr=end, env={**os.environ, "HOME": str(tmp_path)}
    ) as run:
        os.write(terminal, b"n\n")
        assert run.wait(60) == 130
    shown = os.read(terminal, 10_000).decode()
    assert "1 of 2 nodes will be changed. Continue?" in shown and "nothing was changed" in shown
    assert not list(tmp_path.glob("runs/*"))


def test_what_is_written_at_once_is_not_played_dry() -> None:
    result = call("service", "rack.py", "--take-back", "node1", "--dry")
    assert result.exit_code == 2 and "--take-back is written into the ledger at once" in result.stderr


def test_help_teaches_the_exit_codes() -> None:
    text = call("--help").output
    assert "3  drift" in text
    for command in ("show", "plan", "drift", "run", "parse", "judge", "report"):
        assert command in text


def help_of(name: str, width: int) -> str:
    """Help as in a terminal of this width. click's runner has one of its own, whatever $COLUMNS says."""
    return CliRunner().invoke(main, [*name.split(), "--help"], terminal_width=width).output


def test_help_groups_the_commands_and_cuts_nothing_off() -> None:
    for width in (30, 60, 80, 120):
        text = help_of("", width)
        assert "...\n" not in (text + help_of("ledger", width)).replace("[ARGS]...\n", "")
        lines = [line for name in ["", *COMMANDS] for line in help_of(name, width).splitlines()]
        formats = [line for line in lines if re.match(r"  --format \[[a-z|]+\]$", line)]  # one word
        assert width < 80 or [line for line in lines if len(line) > width and line not in formats] == []
    for title, command in (("Prepare", "init"), ("Run", "run"), ("Find out", "drift"), ("Operate", "service")):
        assert f"\n  {command} " in text.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
    assert all(f"\n  {command} " in text for command in COMMANDS)


@pytest.mark.parametrize(
    ("words", "near"), [("drft", "drift"), ("reprot", "report"), ("ledger ad", "add"), ("drift --limt x", "--limit")]
)
def test_a_name_that_is_none_brings_the_nearest(words: str, near: str) -> None:
    result = call(*words.split())
    assert result.exit_code == 2 and "Did you mean" in result.stderr and near in result.stderr
    assert "Did you mean" not in call("frobnicate").stderr


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("history --since banana --limit 0", ["--since", "--limit"]),
        ("history --since 2099-01-01 --format tabel", ["--since': '2099-01-01' lies in the future", "mean table?"]),
        ("isolate @local --rounds 0 --budget -1 --via kube", ["--rounds", "--budget", "--via"]),
        ("soak @local --for 1y --only nosuch --resume nosuch", ["'1y' is no length", "no such stage", "no such run"]),
        ("trials @local --only gem --parallel 0", ["did you mean gemm?", "--parallel"]),
        ("demo --folder /proc/x --nodes 1", ["--folder': nothing can be written in /proc", "--nodes"]),
        ("report --output /proc/x.html", ["--output': nothing can be written in /proc"]),
        ("bundle latest --output /proc/x --key", ["Option '--key' requires an argument"]),
        ("bundle latest --output /proc/x", ["--output': nothing can be written in /proc"]),
        ("demo --fault slo --fault nosuch", ["slo: did you mean slow?; nosuch"]),
        ("soak @local --fresh --resume soak", ["leave one of them out"]),
    ],
)
def test_wrong_values_of_options_are_refused_all_at_once_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, refused: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/soak").mkdir(parents=True)
    for name in ("run.json", "soak.json"):
        (tmp_path / "runs/soak" / name).write_text("{}")
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 2 and "Missing" not in done.output
    assert [word for word in refused if word not in " ".join(done.output.split())] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_value_of_an_option_is_no_option_left_out(command: str) -> None:
    """A script's variable that is not set."""
    found = main.get_command(click.Context(main), command)
    assert found is not None
    options = [option for option in found.params if isinstance(option, click.Option)]
    valued = [option.opts[0] for option in options if not (option.is_flag or option.count)]
    for name in valued if not isinstance(found, click.Group) else ():
        for words in ([name, ""], [f"{name}="]):
            done = CliRunner().invoke(main, [command, *words])
            assert done.exit_code == 2 and f"{name}: an empty text" in done.output, done.output


def test_parse_and_judge_take_the_same_kinds_of_input(tmp_path: Path) -> None:
    content = (LOGS / "rocm.log").read_bytes()
    packed = gzip.compress(content)
    (tmp_path / "log.gz").write_bytes(packed)
    (tmp_path / "log.txt").write_bytes(content.decode().encode("utf-16"))
    for argument, stdin in (("-", content), ("-", packed), (tmp_path / "log.gz", b""), (tmp_path / "log.txt", b"")):
        assert len(call("parse", argument, stdin=stdin).stdout.splitlines()) == 20
        assert call("judge", argument, stdin=stdin).exit_code == 0
    (tmp_path / "log.gz").write_bytes(packed[:-200])
    for command in ("parse", "judge"):
        cut = call(command, tmp_path / "log.gz")
        assert "was cut" in flat(cut.output)
        assert cut.exit_code == 4


@pytest.mark.parametrize("content", [b"\x7fELF" + bytes(range(256)) * 40, b"\xfd7zXZ\x00" + bytes(99), bytes(5000)])
@pytest.mark.parametrize("command", ["parse", "judge"])
def test_what_is_no_log_is_refused_in_words(tmp_path: Path, command: str, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    for arguments, stdin in (([tmp_path / "file"], b""), (["-"], content)):
        result = call(command, *arguments, stdin=stdin)
        assert result.exit_code == 2
        assert isinstance(result.exception, SystemExit), result.exception
        assert result.output.startswith("shakedown: ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--gpu", "mi999"], "mi999: there are"),
        (["-", "-"], "one log only"),
        (["--nodes", "0"], "--nodes"),
        (["--seq-length", "99999999999"], "--seq-length"),
        (["--transport", "tcp"], "--transport"),
    ],
)
def test_judge_refuses_in_words(options: list[str], words: str) -> None:
    result = call("judge", LOGS / "rocm.log", *options)
    assert result.exit_code == 2
    assert words in result.output


def test_two_nodes_that_fell_back_to_tcp_fail_unless_sockets_are_meant(tmp_path: Path) -> None:
    fallback = "h:1:1 [0] NCCL INFO NET/IB : No device found\nh:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0\n"
    (tmp_path / "a.log").write_text(fallback + (LOGS / "rocm.log").read_text())
    (tmp_path / "b.log").write_text(fallback)
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    assert call("judge", *logs).exit_code == 1
    assert call("judge", *logs, "--transport", "sockets").exit_code == 0
    assert call("judge", logs[0]).exit_code == 0


def test_the_same_log_given_twice_counts_once_and_two_that_differ_twice(tmp_path: Path) -> None:
    rocm, copy = LOGS / "rocm.log", tmp_path / "copy.log.gz"
    copy.write_bytes(gzip.compress(rocm.read_bytes()))
    for again in (rocm, copy):
        result = call("judge", rocm, again)
        assert result.exit_code == 0
        assert "judged as a run of one node" in result.stdout
        assert f"is the same as {rocm if again == rocm else rocm.name}: counted once" in flat(result.stdout)
        assert call("judge", rocm, again, "--nodes", "2").exit_code == 4
    copy.write_bytes(gzip.compress(rocm.read_bytes() + b"another line\n"))
    assert "run of 2 nodes" in call("judge", rocm, copy).stdout
    empty = [tmp_path / "a.log", tmp_path / "b.log"]
    for log in empty:
        log.write_text("")
    assert "run of 3 nodes" in call("judge", rocm, *empty).stdout, "two nodes may print nothing"


def test_parse_is_silent_when_its_reader_has_seen_enough() -> None:
    end, closed = os.pipe()
    os.close(end)
    code = "from shakedown.cli import main; main()"
    try:
        ended = subprocess.run(
            [sys.executable, "-c", code, "parse", str(LOGS / "rocm.log")],
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    finally:
        os.close(closed)
    assert (ended.returncode, ended.stderr) == (1, b"")


def a_run(root: Path, run: str, verdict: Verdict = Verdict.OK) -> None:
    directory = RunDirectory.create(run, root)
    log = LogFile("leader.log", directory.logs / "node01/leader.log", LogQuota())
    log.write((LOGS / "rocm.log").read_bytes())
    log.size = log.kept
    kept = log.close().model_copy(update={"path": "logs/node01/leader.log"})
    record = RunRecord(run_id=run, started_at=now(), finished_at=now(), inventory="i[/]", desired_digest="0")
    record.verdict = verdict
    record.jobs = [JobRecord(plan=small(iterations=20), logs={"node01": [kept.path]})]
    directory.save(record, {TOGETHER: Evidence(exit_codes={"node01": 0}, logs={"node01": [kept]})})


@pytest.mark.parametrize("command", ["judge", "report"])
def test_a_run_is_named_by_id_prefix_latest_or_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path))
    assert "there are none" in call(command, "latest").output
    a_run(tmp_path, "20260101T000000-aaaaaa")
    a_run(tmp_path, "20260101T000001-bbbbbb")
    for name in ("latest", "20260101T000000-aaaaaa", "20260101T000001", tmp_path / "latest"):
        result = call(command, name)
        assert result.exit_code == 0, result.output
        assert "ok" in result.output
    for name, words in (("2026", "2 runs"), ("2025", "20260101T000000-aaaaaa"), (tmp_path, "no run.json")):
        result = call(command, name)
        assert (result.exit_code, words in result.output) == (2, True), result.output
    assert call("judge", "latest", "--nodes", "2").exit_code == 2


@pytest.mark.parametrize(
    ("change", "verdict"),
    [({"finished_at": None}, "unknown"), ({"nodes": [{"name": "n", "verdict": "ok", "part": "excluded"}]}, "unknown")],
)
def test_a_run_that_its_record_does_not_call_good_is_not_judged_so(
    tmp_path: Path, change: dict[str, object], verdict: str
) -> None:
    a_run(tmp_path, "a")
    path = tmp_path / "a/run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert json.loads(call("judge", tmp_path / "a", "--format", "json").stdout)["verdict"] == verdict


def test_the_list_of_commands_says_what_each_says_of_itself_and_imports_none() -> None:
    text = subprocess.run(
        [sys.executable, "-c", HELP], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "100"}
    ).stdout
    shown, imported = text.split("--imported--")
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        assert f" {name} {summary(command.help or '')} " in " ".join(shown.split()), name
    assert "shakedown.cli" in imported.split()
    assert not [name for name in imported.split() if name.startswith("shakedown.cli.commands")]


HELP = """
import sys
from shakedown.cli import COMMANDS, main
main(["--help"], standalone_mode=False)
print("--imported--", *(name for name in sys.modules if name.startswith("shakedown.cli")))
"""


# Document 002's FP8 run at d6f8546 ends with Accelerate's own means; madengine's table is its whole output.
ACCELERATE = (
    "pretrain\nLlama-3.1-8B\nFP8\nAvg token per second: 13,240.15\nAvg iter time: 1.8543\nAvg TFLOP/s: 702.31\n"
)
TABLE = "model,performance,metric,status\nm,11342.7,tok_per_s_per_gpu,SUCCESS\nm,601.3,TFLOPS_per_gpu,SUCCESS\n"


@pytest.mark.parametrize(
    ("recipe", "name", "text", "bound", "code"),
    [
        ("pytorch-training", "fp8.log", ACCELERATE, 13000, 0),
        ("pytorch-training", "fp8.log", ACCELERATE, 14000, 1),
        ("pytorch-training", "fp8.log", "pretrain\nno figure\n", 1, 1),
        ("madengine", "perf.csv", TABLE, 11000, 0),
        ("madengine", "perf.csv", TABLE.replace("11342.7", ""), 11000, 1),
        ("madengine", "perf.csv", TABLE.replace("m,", "x", 1), 12000, 1),
    ],
)
def test_the_output_of_a_program_with_a_report_is_judged(
    tmp_path: Path, recipe: str, name: str, text: str, bound: int, code: int
) -> None:
    (tmp_path / name).write_text(text)
    done = call("judge", tmp_path / name, "--recipe", recipe, "--expect", f"tokens_per_gpu={bound}")
    assert done.exit_code == code, done.output
    if bound == 14000:
        assert "wanted at least 14000 tokens/s/GPU: 13240" in done.output


def test_two_nodes_reports_are_no_run(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(TABLE)
    done = call("judge", tmp_path / "a.csv", tmp_path / "b.csv", "--recipe", "madengine")
    assert done.exit_code == 2 and "one log, one report, or both" in done.output
    done = call("judge", tmp_path / "a.csv", "--recipe", "madengine", "--expect", "mem_usage=1")
    assert done.exit_code == 2 and "tokens_per_gpu" in done.output
    assert call("judge", "-", "--recipe", "madengine", stdin=TABLE.encode()).exit_code == 2
