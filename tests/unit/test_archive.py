"""A run as one file: the same verdict, no secrets, no names where that is asked for, and nothing hostile unpacked."""

from __future__ import annotations

import gzip
import hashlib
import ipaddress
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import CliRunner, Result

from shakedown.cli import main
from shakedown.desired.models import TOGETHER
from shakedown.gates import read_log
from shakedown.logs.kept_logs import RUN_LIMIT, KeptLog
from shakedown.runs import copies
from shakedown.runs import directory as runs
from shakedown.runs.archive import read
from shakedown.runs.archive.make import DOCUMENTS, FOLDERS, TEXTS, make
from shakedown.runs.archive.pseudonyms import Pseudonyms
from shakedown.runs.archive.read import opened
from shakedown.runs.archive.redact import Redactor
from shakedown.runs.archive.tar import Refused, is_archive, safe_path
from shakedown.runs.diagnosis import ranks_left
from shakedown.runs.directory import RunDirectory
from shakedown.trials import soak
from tests.archives import a_run, contents, manifest_of, member, packed

TOKEN = "hf_" + "Ab1" * 9
SPEAKING = f"""
NODE: export HF_TOKEN={TOKEN}
{{"wandb_api_key": "wandb-4711-0815"}} and later wandb-4711-0815 alone
pip install --index-url https://ada:pass4711@pypi.example.com/simple
[NODE] bound to 10.20.30.40:29500 via 02:42:ac:11:00:07, peer fd12:3456::17, home /home/grace/site
""".encode()
NAMES = ["gpu-a17.rack7.corp.example", "gpu-a18.rack7.corp.example"]


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return a_run(tmp_path / "runs", NAMES, more=SPEAKING)


def gates(document: str) -> list[tuple[str, str]]:
    return [(gate["name"], gate["verdict"]) for gate in json.loads(document)["gates"]]


@pytest.mark.parametrize("options", [[], ["--pseudonyms"]], ids=["names", "pseudonyms"])
@pytest.mark.parametrize("log", ["rocm.log", "nan_loss.log"])
def test_an_archive_is_judged_as_the_run_is(tmp_path: Path, options: list[str], log: str) -> None:
    directory = a_run(tmp_path / "runs", NAMES, log, SPEAKING)
    archive = tmp_path / "sent.tar.gz"
    made = call("bundle", directory.path, "--output", archive, *options)
    assert made.exit_code == 0, made.output
    of_run, of_archive = (call("judge", where, "--format", "json") for where in (directory.path, archive))
    assert of_run.exit_code == of_archive.exit_code == (0 if log == "rocm.log" else 1), of_archive.output
    assert gates(of_run.output) == gates(of_archive.output)
    printed = next(line for line in made.output.splitlines() if line.startswith("manifest: sha256 "))
    digest = printed.removeprefix("manifest: sha256 ")
    top = directory.path.name
    assert digest == hashlib.sha256(contents(archive)[f"{top}/manifest.json"]).hexdigest()
    assert digest in of_archive.output
    shown = call("report", archive)
    assert shown.exit_code == of_run.exit_code and top in shown.output
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600


def test_no_secret_is_in_it(run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_REGISTRY_PASSWORD", "of-this-controller")
    with (run.logs / NAMES[0] / "leader.log").open("ab") as file:
        file.write(b"login with of-this-controller\n")
    made = make(run, tmp_path / "out.tar.gz")
    text = b"".join(contents(made.path).values())
    for value in (TOKEN, "wandb-4711-0815", "pass4711", "of-this-controller"):
        assert value.encode() not in text
    assert b"ada:" not in text and made.manifest.masked >= 5
    assert NAMES[0].encode() in text, "names stay where nobody asked"


def test_a_log_makes_no_word_of_the_documents_a_secret(run: RunDirectory, tmp_path: Path) -> None:
    """A line such as "cache key: exit_codes" made a bundle impossible."""
    words = ["exit_codes", "verdict", "findings", "evidence", "iterations_complete", "trained", "run_id", *NAMES]
    with (run.logs / NAMES[0] / "leader.log").open("ab") as file:
        file.writelines(f"cache key: {word}\nauth token={word}\n".encode() for word in words)
    assert call("bundle", run.path, "--output", tmp_path / "out.tar.gz").exit_code == 0
    assert call("judge", tmp_path / "out.tar.gz").exit_code == call("judge", run.path).exit_code


def test_a_refusal_names_the_lines_that_were_masked(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_PASSWORD", "E+00 | loss scale: 1.0")
    done = call("bundle", run.path, "--output", tmp_path / "out.tar.gz")
    assert done.exit_code == 2 and "Nothing was written" in done.output, done.output
    assert re.search(rf"logs/{NAMES[0]}/leader.log line \d+, ", done.output) and not (tmp_path / "out.tar.gz").exists()


@pytest.mark.parametrize("value", ["iteration", "consumed samples", "2026-09-24 09:43", "lm loss: number"])
def test_what_a_log_calls_a_secret_masks_no_words_that_logs_are_read_by(
    run: RunDirectory, tmp_path: Path, value: str
) -> None:
    with (run.logs / NAMES[0] / "leader.log").open("ab") as file:
        file.write(f'password: "{value}"\n'.encode())
    done = call("bundle", run.path, "--output", tmp_path / "out.tar.gz")
    assert done.exit_code == 0, done.output
    assert f'password: "{value}"'.encode() not in b"".join(contents(tmp_path / "out.tar.gz").values())


UNBOUNDED = ["a.", "a-", "a@", "1:", "ab:", "0.", "k=", "key ", "key:", "://", "--a ", "\\\\", "-----BEGIN ", "fe80::"]


def test_the_work_for_a_line_grows_with_its_length_alone() -> None:
    """A line of 16 KB took 90 s; these are of 64 KB. The limit is far above what a busy machine takes."""
    code = (
        "import sys\n"
        "from shakedown.runs.archive.pseudonyms import Pseudonyms\n"
        "from shakedown.runs.archive.redact import Redactor\n"
        "names = Pseudonyms({'gpu-a17.rack7.corp.example': 'host', 'grace': 'user'})\n"
        "for piece in sys.argv[1:]:\n"
        "    Redactor(['of-this-controller'], names).text(piece * (64_000 // len(piece)) + '\\n')\n"
    )
    subprocess.run([sys.executable, "-c", code, *UNBOUNDED], check=True, timeout=240)


def test_no_name_or_address_is_in_it_and_what_they_were_stays_at_home(run: RunDirectory, tmp_path: Path) -> None:
    archive = tmp_path / "out.tar.gz"
    assert call("bundle", run.path, "--output", archive, "--pseudonyms").exit_code == 0
    found = contents(archive)
    text = b"".join([*found.values(), *(name.encode() for name in found)])
    for name in ("gpu-a17", "gpu-a18", "corp.example", "10.20.30.40", "02:42:ac:11:00:07", "fd12:3456::17", "grace"):
        assert name.encode() not in text, name
    home = tmp_path / "out.tar.gz.names.json"
    mapping = json.loads(home.read_text())
    assert stat.S_IMODE(home.stat().st_mode) == 0o600
    top = run.path.name
    for name in NAMES:
        alias = mapping[name]
        assert f"[{alias}] bound to {mapping['10.20.30.40']}:29500".encode() in found[f"{top}/logs/{alias}/leader.log"]
        assert alias in found[f"{top}/run.json"].decode() and f"{top}/states/{alias}.json" in found
    assert len(set(mapping.values())) == len(mapping)


def test_the_same_run_gives_the_same_archive(run: RunDirectory, tmp_path: Path) -> None:
    one, two = (make(run, tmp_path / name, pseudonyms=True) for name in ("one.tar.gz", "two.tar.gz"))
    assert one.path.read_bytes() == two.path.read_bytes() and one.digest == two.digest


def test_nothing_is_overwritten(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "out.tar.gz").write_text("mine")
    refused = call("bundle", run.path, "--output", tmp_path / "out.tar.gz")
    assert refused.exit_code == 2 and "it is there already" in refused.output
    assert (tmp_path / "out.tar.gz").read_text() == "mine"


@pytest.mark.parametrize("text", ['{"rank": 0, "flight": {}}', '{"rank": 0, "flight"'], ids=["whole", "cut"])
def test_what_ranks_left_of_a_standstill_is_as_good_as_in_the_run(run: RunDirectory, tmp_path: Path, text: str) -> None:
    evidence = run.load_evidence()
    its = evidence["together"].logs[NAMES[0]]
    path = str(Path(its[0].path).with_name("flight-7.json"))
    run.write(path, text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    its.append(KeptLog(name="hang/flight-7.json", path=path, size=len(text), kept=len(text), sha256=digest))
    run.save(run.load(), evidence)
    assert call("bundle", run.path, "--output", tmp_path / "sent.tar.gz").exit_code == 0
    with opened(tmp_path / "sent.tar.gz") as archive:
        directory = archive.directory
        packed = directory.load_evidence()
        problems: list[str] = []
        ranks = ranks_left(packed["together"], directory, problems)
    assert len(ranks) == (text[-1] == "}") and not any("was changed" in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("spoil", "said", "packed"),
    [
        (Path.unlink, "it is not there: the run was never judged", 0),
        (lambda path: path.write_text("{"), "take it from", 2),
    ],
    ids=["missing", "cut"],
)
def test_a_run_without_its_evidence_says_what_that_means(
    run: RunDirectory, tmp_path: Path, spoil: Callable[[Path], object], said: str, packed: int
) -> None:
    spoil(run.path / "evidence.json")
    judged = call("judge", run.path)
    assert judged.exit_code == 2 and said in judged.output and "Errno" not in judged.output
    assert said in call("report", run.path).output, "what is shown is not judged again"
    bundled = call("bundle", run.path, "--output", tmp_path / "sent.tar.gz")
    assert bundled.exit_code == packed and said in bundled.output
    assert packed or "verdict: unknown" in bundled.output


def test_names_that_are_words_or_very_short_do_not_change_what_a_log_says(tmp_path: Path) -> None:
    directory = a_run(tmp_path / "runs", ["loss", "b"])
    made = make(directory, tmp_path / "out.tar.gz", pseudonyms=True)
    assert set(made.spared) >= {"loss", "b"}
    assert made.manifest.verdict == directory.load().verdict
    found = contents(made.path)
    assert f"{directory.path.name}/logs/{made.names['loss']}/leader.log" in found
    assert b"lm loss" in found[f"{directory.path.name}/logs/{made.names['b']}/leader.log"]


def test_a_node_whose_name_is_no_file_name(tmp_path: Path) -> None:
    directory = a_run(tmp_path / "runs", ["rack 7/node", "10.1.2.3"])
    made = make(directory, tmp_path / "out.tar.gz", pseudonyms=True)
    names = "".join(contents(made.path))
    assert "rack" not in names and "10.1.2.3" not in names
    assert call("judge", made.path).exit_code == call("judge", directory.path).exit_code == 0


def rewritten(archive: Path, change: dict[str, bytes | None], forge: bool = False) -> Path:
    """The archive with other contents; with `forge` the manifest is made to fit."""
    found = contents(archive)
    top = next(iter(found)).partition("/")[0]
    inner = {name.partition("/")[2]: data for name, data in found.items()}
    manifest = json.loads(inner.pop("manifest.json"))
    for name, data in change.items():
        if data is None:
            del inner[name]
        else:
            inner[name] = data
    if forge:
        for entry in manifest["members"]:
            entry["sha256"] = hashlib.sha256(inner[entry["path"]]).hexdigest()
    text = json.dumps(manifest).encode()
    members = [member(f"{top}/manifest.json", text)] + [member(f"{top}/{name}", data) for name, data in inner.items()]
    return packed(archive.with_name("changed.tar.gz"), members)


def test_a_file_that_was_altered_is_named_and_nothing_passes(run: RunDirectory, tmp_path: Path) -> None:
    archive = make(run, tmp_path / "out.tar.gz").path
    name = f"logs/{NAMES[1]}/leader.log"
    log = contents(archive)[f"{run.path.name}/{name}"]
    judged = call("judge", rewritten(archive, {name: log.replace(b"lm loss: 1", b"lm loss: 0", 1)}))
    assert judged.exit_code == 4 and f"{name} was altered" in judged.output
    record = contents(archive)[f"{run.path.name}/run.json"]
    judged = call("judge", rewritten(archive, {"run.json": record.replace(b'"thp"', b'"ths"')}))
    assert judged.exit_code == 4 and "run.json was altered" in judged.output
    gone = rewritten(archive, {f"states/{NAMES[0]}.json": None})
    assert f"states/{NAMES[0]}.json is missing" in call("judge", gone).output
    assert call("report", gone).exit_code == 4


def test_a_forged_manifest_shows_by_its_digest_and_the_log_by_its_own(run: RunDirectory, tmp_path: Path) -> None:
    made = make(run, tmp_path / "out.tar.gz")
    name = f"logs/{NAMES[1]}/leader.log"
    log = contents(made.path)[f"{run.path.name}/{name}"]
    forged = rewritten(made.path, {name: log.replace(b"lm loss: 1", b"lm loss: 0", 1)}, forge=True)
    judged = call("judge", forged)
    assert made.digest not in judged.output
    assert judged.exit_code == 4 and f"{name} was changed since" in judged.output


def test_a_log_that_was_changed_before_it_was_packed_stays_one(run: RunDirectory, tmp_path: Path) -> None:
    log = run.logs / NAMES[1] / "leader.log"
    log.write_bytes(log.read_bytes().replace(b"lm loss: 1", b"lm loss: 0", 1))
    made = make(run, tmp_path / "out.tar.gz")
    assert made.manifest.verdict == "unknown"
    assert "was changed since" in call("judge", made.path).output


def test_the_longest_and_the_deepest_path_is_valid_and_no_longer_one() -> None:
    for path in ("/".join(("a" * 80, "b" * 80, "c" * 78)), "a/b/c/d/e/f/g", "a" * 100):
        assert safe_path(path) == path
        with pytest.raises(ValueError, match="not a valid path"):
            safe_path(f"{path}/x" if len(path) < 80 else f"{path}x")


ONE = {"run.json": b"{}"}
GOOD = member("one/manifest.json", manifest_of(ONE))


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([GOOD, member("one/../../run.json", b"{}")], "is not a valid path of a member"),
        ([GOOD, member("/one/run.json", b"{}")], "is not a valid path of a member"),
        ([GOOD, member("two/run.json", b"{}")], "not below one"),
        ([GOOD, member("one/a/b/c/d/e/f/g/h", b"{}")], "is not a valid path of a member"),
        ([GOOD, member("one/run.json\x1b[2J", b"{}")], "is not a valid path of a member"),
        ([GOOD, member("one/-rf", b"{}")], "is not a valid path of a member"),
        ([GOOD, member("one/run.json", type=tarfile.SYMTYPE, linkname="/etc/passwd")], "is a link"),
        ([GOOD, member("one/run.json", type=tarfile.LNKTYPE, linkname="one/manifest.json")], "is a hard link"),
        ([GOOD, member("one/run.json", type=tarfile.CHRTYPE, devmajor=1, devminor=3)], "is a device"),
        ([GOOD, member("one/run.json", type=tarfile.FIFOTYPE)], "is a FIFO"),
        ([GOOD, member("one/run.json", type=tarfile.DIRTYPE)], "is a folder"),
        ([GOOD, member("one/run.json", type=tarfile.XHDTYPE)], "no plain file"),
        ([GOOD, member("one/run.json", b"{}", linkname="elsewhere")], "names a link"),
        ([GOOD, member("one/run.json", b"{}"), member("one/run.json", b"{}")], "stands in it twice"),
        ([GOOD, member("one/other", b"{}")], "not in its manifest"),
        ([GOOD, member("one/run.json", b"{} ")], "3 bytes, and 2 by the manifest"),
        ([member("one/run.json", b"{}"), GOOD], "first member is not manifest.json"),
        ([member("one/manifest.json", b"[" * 100_000)], "its manifest is none"),
        ([member("one/manifest.json", b'{"schema_version": 2}')], "its manifest is none"),
        ([member("one/manifest.json", manifest_of({"a": b"", "A": b""}))], "stands in its manifest twice"),
        ([member("one/manifest.json", manifest_of({"a": b"", "a/b": b""}))], "would lie below it"),
        ([member("one/manifest.json", manifest_of({"../a": b""}))], "its manifest is none"),
        ([member("one/manifest.json", manifest_of(ONE, run_id="../one"))], "its manifest is none"),
        ([], "its first member is not"),
    ],
)  # fmt: skip
def test_a_hostile_archive_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: list[tuple[tarfile.TarInfo, bytes]], why: str
) -> None:
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(unpacked))
    archive = packed(tmp_path / "bad.tar.gz", members)
    with pytest.raises(Refused, match="refused: ") as refused, opened(archive):
        pass
    assert why in str(refused.value) and "\x1b" not in str(refused.value)
    assert list(unpacked.iterdir()) == [] and sorted(path.name for path in tmp_path.iterdir()) == [
        "bad.tar.gz",
        "unpacked",
    ]


def test_what_would_unpack_to_too_much_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read.UNPACKED_LIMIT > RUN_LIMIT, "what is kept of a run can be packed and read"
    zeros = {"logs/a": b"\0" * (4 << 20)}
    archive = packed(
        tmp_path / "bomb.tar.gz",
        [member("one/manifest.json", manifest_of(zeros)), member("one/logs/a", zeros["logs/a"])],
    )
    monkeypatch.setattr(read, "SLACK", 1 << 20)
    refused = call("judge", archive)
    assert refused.exit_code == 2 and "no run packs so well" in refused.output
    monkeypatch.setattr(read, "RATIO", 10**6)
    monkeypatch.setattr(read, "UNPACKED_LIMIT", 1 << 20)
    with pytest.raises(Refused, match="where at most"), opened(archive):
        pass
    many = json.loads(manifest_of({}))
    many["members"] = [{"path": f"logs/{number}", "size": 0, "sha256": "0" * 64} for number in range(100_001)]
    archive = packed(tmp_path / "many.tar.gz", [member("one/manifest.json", json.dumps(many).encode())])
    with pytest.raises(Refused, match="its manifest is none"), opened(archive):
        pass


@pytest.mark.parametrize("tail", [b"x" * 512, b"\0" * (64 << 20)], ids=["something", "zeros"])
def test_nothing_may_follow_the_end(tmp_path: Path, tail: bytes) -> None:
    archive = packed(tmp_path / "bad.tar.gz", [GOOD, member("one/run.json", b"{}")], tail)
    with pytest.raises(Refused, match="behind its end"), opened(archive):
        pass
    archive.write_bytes(packed(tmp_path / "a.tar.gz", [GOOD, member("one/run.json", b"{}")]).read_bytes() + b"more")
    with pytest.raises(Refused, match="behind its end"), opened(archive):
        pass


def test_an_archive_that_was_cut_is_refused(run: RunDirectory, tmp_path: Path) -> None:
    archive = make(run, tmp_path / "out.tar.gz").path
    data = archive.read_bytes()
    for length in (len(data) // 2, len(data) - 1, len(data) - 9):
        archive.write_bytes(data[:length])
        refused = call("judge", archive)
        assert refused.exit_code == 2 and "it was cut" in refused.output


def test_a_log_that_is_packed_is_still_a_log(tmp_path: Path) -> None:
    log = tmp_path / "train.log.gz"
    log.write_bytes(gzip.compress((Path(__file__).parents[1] / "data/logs/rocm.log").read_bytes()))
    assert not is_archive(log)
    assert call("judge", log).exit_code == 0


def test_every_file_of_a_run_is_packed() -> None:
    named = re.findall(r"runs/<id>/([\w.]+)", str(runs.__doc__))
    assert len(named) > 8
    assert set(named) <= {*FOLDERS, *DOCUMENTS, *TEXTS, soak.KIND}


@pytest.mark.parametrize("folder", [f"{soak.KIND}/cpu-1", "a_later_kind_of_job"])
def test_the_logs_that_the_evidence_names_are_packed_wherever_they_lie(tmp_path: Path, folder: str) -> None:
    """A burn-in could not be packed: without its logs it was judged otherwise. Nothing outside the run is packed."""
    run = a_run(tmp_path / "runs", NAMES)
    (run.path.parent / "outside").mkdir()
    (run.path.parent / "outside/leader.log").write_text("of another run")
    (run.path / folder).parent.mkdir(exist_ok=True)
    (run.path / "logs").rename(run.path / folder)
    for name in ("run.json", "evidence.json"):
        file = run.path / name
        file.write_text(file.read_text().replace('"logs/', f'"{folder}/'))
    evidence = json.loads((run.path / "evidence.json").read_text())
    stray = {"name": "x", "path": "../outside/leader.log", "size": 1, "kept": 1, "sha256": "0" * 64}
    next(iter(evidence["jobs"].values()))["logs"]["other"] = [stray]
    (run.path / "evidence.json").write_text(json.dumps(evidence))
    archive = tmp_path / "sent.tar.gz"
    assert (made := call("bundle", run.path, "--output", archive)).exit_code == 0, made.output
    packed_names = {name.split("/", 1)[1] for name in contents(archive)}
    assert {f"{folder}/{name}/leader.log" for name in NAMES} <= packed_names
    assert not [name for name in packed_names if "outside" in name]
    of_run, of_archive = (call("judge", where, "--format", "json") for where in (run.path, archive))
    assert gates(of_run.output) == gates(of_archive.output)


def test_folders_without_end_are_refused(run: RunDirectory, tmp_path: Path) -> None:
    handle = os.open(run.path / "logs", os.O_RDONLY)
    for _ in range(1100):  # a path of so many parts is too long for one call
        os.mkdir("d", dir_fd=handle)
        below = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(handle)
    done = call("bundle", run.path, "--output", tmp_path / "deep.tar.gz")
    subprocess.run(["rm", "-rf", run.path], check=True)
    assert done.exit_code == 2 and "folders deep" in done.output and not (tmp_path / "deep.tar.gz").exists()


def test_an_archive_is_compared_as_its_run_is(run: RunDirectory, tmp_path: Path) -> None:
    archive = tmp_path / "sent.tar.gz"
    assert call("bundle", run.path, "--output", archive).exit_code == 0
    result = call("compare", archive, run.path)
    assert (result.exit_code, "packed by shakedown" in result.stderr) == (0, True), result.output
    assert "nothing differs" in result.stdout


def test_no_folder_is_made_for_an_archive(run: RunDirectory, tmp_path: Path) -> None:
    made = call("bundle", run.path, "--output", tmp_path / "gone" / "sent.tar.gz")
    assert (made.exit_code, "there is no folder" in made.output, (tmp_path / "gone").exists()) == (2, True, False)


def test_a_private_key_is_masked_wherever_a_portion_of_a_log_ends() -> None:
    lines = b"".join(b"MIIEsecret%054d\n" % number for number in range(25))
    key = b"-----BEGIN RSA PRIVATE KEY-----\n" + lines + b"-----END RSA PRIVATE KEY-----\n"
    for before in ((1 << 20) - 800, (1 << 20) - 20):
        kept: list[bytes] = []
        Redactor().copy(BytesIO(b"x" * (before - 1) + b"\n" + key + b"after\n"), kept.append)
        assert b"MIIE" not in b"".join(kept) and b"".join(kept).endswith(b"\nafter\n")


def test_a_secret_of_json_in_json_is_masked_and_the_line_stays_json() -> None:
    line = json.dumps({"kind": "failure", "text": json.dumps({"api_key": "abcdef123456", "model": "x"})})
    text = Redactor().text(line)
    assert "abcdef" not in text and json.loads(json.loads(text)["text"])["model"] == "x"


def test_a_network_stays_one() -> None:
    names = Pseudonyms({})
    made = names.text("10.20.30.0/24 via 10.20.30.1, on 10.20.30.7/24; 10.0.0.0/8, 10.20.31.0/24, 0.0.0.0/0")
    assert "10." not in made.replace("0.0.0.0/0", "")
    first, wide, second = (ipaddress.ip_network(word) for word in re.findall(r"240[^ ,]*/\d+|24\d[^ ,]*/\d+", made))
    assert (first.prefixlen, wide.prefixlen, first != second) == (24, 8, True)
    assert names.text("10.20.30.0/24") == str(first)


def test_a_log_is_read_once_and_a_copy_of_it_held_against_what_was_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path / "runs", NAMES)
    kept = [entry for logs in run.load_evidence()[TOGETHER].logs.values() for entry in logs]
    reader = Mock(side_effect=read_log)
    monkeypatch.setattr(copies, "read_log", reader)
    make(run, tmp_path / "a.tar.gz")
    assert reader.call_count == len({entry.sha256 for entry in kept}) > 1
    (run.path / kept[-1].path).with_name("other.log").write_bytes((run.path / kept[-1].path).read_bytes())
    for change in (b"more", b""):
        copy = kept[-1].model_copy(update={"path": kept[-1].path.replace("leader.log", "other.log")})
        with copies.read_once():
            first = copies.read_kept(run.path, kept[-1])
            assert first.iterations
            assert copies.read_kept(run.path, copy) == first
            content = (run.path / kept[-1].path).read_bytes()
            (run.path / copy.path).write_bytes(content[: len(content) // 2] + change)
            altered = copies.read_kept(run.path, copy)
            assert "was changed since" in altered.incomplete
            assert len(altered.iterations) < len(first.iterations), "the iterations are those of what is not there"
            lacks = copies.read_kept(run.path, kept[-1].model_copy(update={"incomplete": "it was cut"}))
            assert lacks.incomplete == "it was cut"
            (run.path / copy.path).write_bytes(content)
    with copies.read_once():  # what was changed is not remembered as what was fetched
        (run.path / copy.path).write_bytes(b"")
        copies.read_kept(run.path, copy)
        assert copies.read_kept(run.path, kept[-1]) == first
