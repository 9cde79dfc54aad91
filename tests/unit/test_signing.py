"""A signed run: whoever has the site's public key can tell whether files and verdict hold."""

from __future__ import annotations

import base64
import contextlib
import copy
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

from shakedown.cli import main
from shakedown.common.secret_file import SecretError
from shakedown.node.sign import NAMESPACE
from shakedown.runs.directory import STATEMENT, RunDirectory, RunRecord
from shakedown.runs.signing import envelope, nodes, openssh, statement
from shakedown.runs.signing.envelope import NotSigned
from shakedown.runs.signing.openssh import KnownHosts, fingerprint
from tests import forks, sshd
from tests.archives import a_run, contents
from tests.docs.blocks import DOCS
from tests.signed import NAMES, a_signed_run, keys, payload_of, sign

PAGE = (DOCS / "evidence.md").read_text("utf-8")


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def site(tmp_path: Path) -> tuple[Path, Path]:
    return keys(tmp_path)


@pytest.fixture
def run(tmp_path: Path, site: tuple[Path, Path]) -> RunDirectory:
    return a_signed_run(tmp_path / "runs", site[0])


def rewritten(file: Path, key: Path, **changes: object) -> None:
    """Sign a statement anew with changes, as only a holder of the key can."""
    document = json.loads(payload_of(file))
    document["predicate"] |= changes
    file.write_bytes(envelope.signed(statement.canonical(document), envelope.private_key(key)))


def test_a_signed_run_is_verified_and_judged_again(run: RunDirectory, site: tuple[Path, Path]) -> None:
    done = call("verify", run.path, "--key", site[1])
    assert done.exit_code == 0, done.output
    assert "signature: holds" in done.output and "verdict: ok, judged again from the evidence: ok; holds" in done.output
    assert envelope.hint(envelope.public_key(site[1])) in done.output


def test_a_failed_run_is_verified_as_one_that_failed(tmp_path: Path, site: tuple[Path, Path]) -> None:
    run = a_signed_run(tmp_path / "runs", site[0], "nan_loss.log")
    done = call("verify", run.path, "--key", site[1])
    assert done.exit_code == 1 and "signature: holds" in done.output and "fail; holds" in done.output


@pytest.mark.parametrize("name", ["run.json", "evidence.json", "logs/node02/leader.log", "states/node01.json"])
def test_a_file_that_was_changed_is_named(run: RunDirectory, site: tuple[Path, Path], name: str) -> None:
    file = run.path / name
    file.write_bytes(file.read_bytes().replace(b"0", b"1", 1))
    done = call("verify", run.path, "--key", site[1])
    assert done.exit_code == 1 and f"{name} was altered" in done.output, done.output


def test_the_inventory_of_files_is_closed(run: RunDirectory, site: tuple[Path, Path], tmp_path: Path) -> None:
    def refused(word: str) -> None:
        done = call("verify", run.path, "--key", site[1])
        assert done.exit_code == 1 and word in done.output, done.output

    (run.path / "extra").write_text("x")
    refused("extra is not in the statement")
    (run.path / "extra").unlink()
    (run.path / "logs/folder").mkdir()
    refused("logs/folder/ is not in the statement")
    (run.path / "logs/folder").rmdir()
    (run.path / "link").symlink_to("run.json")
    refused("link is neither a file nor a folder")
    (run.path / "link").unlink()
    os.mkfifo(run.path / "pipe")
    refused("pipe is neither a file nor a folder")
    (run.path / "pipe").unlink()
    shutil.move(run.path / "run.json", tmp_path / "run.json")
    (run.path / "run.json").symlink_to(tmp_path / "run.json")
    refused("run.json is neither a file nor a folder")
    (run.path / "run.json").unlink()
    shutil.move(tmp_path / "run.json", run.path / "run.json")
    (run.path / "states/node01.json").unlink()
    refused("states/node01.json is missing")


def test_a_file_in_place_of_a_folder_is_no_folder(run: RunDirectory, site: tuple[Path, Path]) -> None:
    (run.path / "empty").mkdir()
    rewritten(
        run.path / STATEMENT,
        site[0],
        folders=[*json.loads(payload_of(run.path / STATEMENT))["predicate"]["folders"], "empty"],
    )
    assert call("verify", run.path, "--key", site[1]).exit_code == 0
    (run.path / "empty").rmdir()
    (run.path / "empty").write_text("anything")
    done = call("verify", run.path, "--key", site[1])
    assert done.exit_code == 1 and "empty is not in the statement; empty/ is missing" in done.output, done.output


def test_what_is_verified_is_named(run: RunDirectory, site: tuple[Path, Path]) -> None:
    """An old run under a new name is still the old one."""
    done = call("verify", run.path, "--key", site[1])
    assert f"run: {run.load().run_id} over {run.load().inventory}, begun at " in done.output


def test_a_node_that_a_run_says_good_of_needs_its_signature(run: RunDirectory) -> None:
    record = run.load()
    for node in record.nodes:
        node.part = "unreached"
        (run.path / f"states/{node.name}.json").unlink(missing_ok=True)
    held = nodes.check(run, record, {}, {}, False, lambda _name, _key: "")
    assert set(held.unsigned) == {node.name for node in record.nodes}


def test_a_statement_is_no_json_before_its_signature_holds(run: RunDirectory, site: tuple[Path, Path]) -> None:
    """A stranger's JSON of many parts would cost gigabytes."""
    text = (run.path / STATEMENT).read_bytes()
    for other in (text.replace(b'"tlogEntries": []', b'"tlogEntries": [' + b'{"":0},' * 9 + b"0]"), text + b" ", b"{}"):
        with pytest.raises(NotSigned, match="no Sigstore bundle with a DSSE envelope, or not as Shakedown writes it"):
            envelope.verified(other, envelope.public_key(site[1]))


def test_a_run_without_a_statement_or_with_a_link_for_one_is_not_verified(
    run: RunDirectory, site: tuple[Path, Path], tmp_path: Path
) -> None:
    shutil.move(run.path / STATEMENT, tmp_path / "elsewhere")
    assert "not signed" in (done := call("verify", run.path, "--key", site[1])).output and done.exit_code == 2
    (run.path / STATEMENT).symlink_to(tmp_path / "elsewhere")
    assert call("verify", run.path, "--key", site[1]).exit_code == 2


def test_what_is_listed_ends(tmp_path: Path, site: tuple[Path, Path]) -> None:
    """A run of 512 nodes has thousands of logs."""
    run = a_signed_run(tmp_path / "many", site[0], names=[f"node{number:02d}" for number in range(25)])
    shown = call("verify", run.path, "--key", site[1]).output.splitlines()
    assert sum(line.startswith("not signed by its node: ") for line in shown) == 20 and "and 5 others" in shown


def test_another_key_counts_for_nothing(run: RunDirectory, tmp_path: Path) -> None:
    _, other = keys(tmp_path, "other")
    done = call("verify", run.path, "--key", other)
    assert done.exit_code == 1 and "another key" in done.output


def test_the_key_is_never_taken_from_the_run(run: RunDirectory, site: tuple[Path, Path], tmp_path: Path) -> None:
    """Whoever signs anew with a key of their own, and names it as that of the site."""
    own, _ = keys(tmp_path, "own")
    text = envelope.signed(payload_of(run.path / STATEMENT), envelope.private_key(own)).decode()
    hints = [envelope.hint(envelope.private_key(key).public_key()) for key in (own, site[0])]
    (run.path / STATEMENT).write_text(text.replace(*hints))
    done = call("verify", run.path, "--key", site[1])
    assert done.exit_code == 1 and "not of this key" in done.output


def test_a_verdict_that_the_evidence_contradicts_does_not_hold(tmp_path: Path, site: tuple[Path, Path]) -> None:
    """The holder of the key, too, cannot sign a failed run as passed."""
    run = a_run(tmp_path / "runs", NAMES, "nan_loss.log")
    document = json.loads((run.path / "run.json").read_text())
    document["verdict"] = "ok"
    for gate in document["gates"]:
        gate["verdict"] = "ok"
    run.write("run.json", json.dumps(document))
    sign(run, site[0])
    done = call("verify", run.path, "--key", site[1])
    assert done.exit_code == 1 and "signature: holds" in done.output
    assert "signed as ok, judged fail now" in done.output and "does not hold" in done.output.splitlines()[-1]


@pytest.mark.parametrize(
    "change",
    [{"verdict": "warn"}, {"gates": []}, {"run_id": "x"}, {"desired_sha256": "1"}, {"waivers": ["w"]},
     {"form": "archive"}],
)  # fmt: skip
def test_a_statement_that_says_other_than_the_record_does_not_hold(
    run: RunDirectory, site: tuple[Path, Path], change: dict[str, object]
) -> None:
    rewritten(run.path / STATEMENT, site[0], **change)
    done = call("verify", run.path, "--key", site[1])
    assert done.exit_code == 1 and ("does not hold" in done.output or "not verified" in done.output)


def test_there_is_one_file_for_a_content_and_a_signature(run: RunDirectory, site: tuple[Path, Path]) -> None:
    """A second key of a name, blanks, another base64, and the other form of an ECDSA signature."""
    public, text = envelope.public_key(site[1]), (run.path / STATEMENT).read_bytes()
    payload = envelope.verified(text, public)
    raw = base64.b64decode(json.loads(text)["dsseEnvelope"]["signatures"][0]["sig"])
    r, s = decode_dss_signature(raw)
    other = base64.b64encode(encode_dss_signature(r, envelope._ORDER - s))
    for bad in (
        text + b"\n",
        text.replace(b'"tlogEntries": []', b'"tlogEntries": [], "tlogEntries": []'),
        text.replace(b'"payload": "', b'"payload": "e30=", "payload": "'),
        text.replace(b'"mediaType": ', b'"mediaType":'),
        text.replace(base64.b64encode(raw), other),
        text.replace(b"in-toto+json", b"in-toto+yaml"),
        b"[]", b"{}", b"[" * 100_000, b'{"dsseEnvelope": {"payload": 5, "signatures": []}}', b"", b"\xff",
    ):  # fmt: skip
        with pytest.raises(NotSigned):
            envelope.verified(bad, public)
    assert payload.startswith(b'{"_type":"https://in-toto.io/Statement/v1"')


@pytest.mark.parametrize("payload", [b'{"a":1,"a":1}', b"{}", b"[]", b"no json", b"[" * 100_000])
def test_what_is_signed_and_no_statement_is_refused(run: RunDirectory, site: tuple[Path, Path], payload: bytes) -> None:
    (run.path / STATEMENT).write_bytes(envelope.signed(payload, envelope.private_key(site[0])))
    done = call("verify", run.path, "--key", site[1])
    assert done.exit_code == 1 and "no statement" in done.output


def test_a_statement_with_a_key_twice_is_refused(run: RunDirectory, site: tuple[Path, Path]) -> None:
    payload = payload_of(run.path / STATEMENT).replace(b'"verdict":"ok"}', b'"verdict":"fail","verdict":"ok"}')
    (run.path / STATEMENT).write_bytes(envelope.signed(payload, envelope.private_key(site[0])))
    done = call("verify", run.path, "--key", site[1])
    assert done.exit_code == 1 and "not as Shakedown writes it" in done.output


def test_the_private_key_is_the_owners_alone_and_of_the_right_kind(tmp_path: Path, site: tuple[Path, Path]) -> None:
    wrong = {
        "ed25519": ed25519.Ed25519PrivateKey.generate(),
        "p384": ec.generate_private_key(ec.SECP384R1()),
    }
    for name, key in wrong.items():
        file = tmp_path / name
        file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        file.chmod(0o600)
        with pytest.raises(SecretError, match="not ECDSA on P-256"):
            envelope.private_key(file)
        public = tmp_path / f"{name}.pub"
        public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        with pytest.raises(ValueError, match="not ECDSA on P-256"):
            envelope.public_key(public)
    subprocess.run(
        ["openssl", "ec", "-in", site[0], "-aes256", "-passout", "pass:x", "-out", tmp_path / "enc"], check=True
    )
    (tmp_path / "enc").chmod(0o600)
    with pytest.raises(SecretError, match="encrypted"):
        envelope.private_key(tmp_path / "enc")
    site[0].chmod(0o640)
    with pytest.raises(SecretError, match="chmod 600") as refused:
        envelope.private_key(site[0])
    assert "BEGIN" not in str(refused.value)
    assert call("verify", tmp_path, "--key", site[0]).exit_code == 2, "a private key is no public one"


@pytest.mark.parametrize(("mode", "word"), [(0o777, "others can write in"), (0o755, "others can read its folder")])
def test_the_folder_of_the_private_key_is_the_owners_alone(tmp_path: Path, mode: int, word: str) -> None:
    (tmp_path / "open").mkdir()
    private, _ = keys(tmp_path / "open")
    (tmp_path / "link").symlink_to(private)
    (tmp_path / "open").chmod(mode)
    for name in (private, tmp_path / "link"):
        with pytest.raises(SecretError, match=f"{word}.*chmod 700"):
            envelope.private_key(name)
    (tmp_path / "open").chmod(0o700)
    assert envelope.private_key(tmp_path / "link")


def test_what_is_hashed_has_bounds(
    run: RunDirectory, site: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A sparse file of a tebibyte costs a stranger nothing."""

    def refused(*words: str) -> None:
        done = call("verify", run.path, "--key", site[1])
        assert done.exit_code == 1 and "not verified" in done.output, done.output
        assert all(word in done.output for word in words), done.output

    assert call("bundle", run.path, "--key", site[0], "--output", tmp_path / "sparse.tar.gz").exit_code == 0
    os.truncate(run.path / "logs/node02/leader.log", 1 << 40)
    refused("logs/node02/leader.log: with it the files have more than", "it is not hashed")
    with pytest.raises(NotSigned, match="not hashed"):
        sign(run, site[0])
    monkeypatch.setattr(statement, "MOST_S", -1.0)
    refused("evidence.json: hashing the files took more than")
    monkeypatch.setattr(statement, "MOST_FILES", 3)
    refused("is one of more than 3 files and folders")
    monkeypatch.undo()
    os.truncate(tmp_path / "sparse.tar.gz", 1 << 40)
    done = call("verify", tmp_path / "sparse.tar.gz", "--key", site[1])
    assert done.exit_code == 1 and "sparse.tar.gz: with it the files have more" in done.output, done.output


def test_a_file_that_grows_while_it_is_hashed_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement, "UNPACKED_LIMIT", 1 << 20)
    with pytest.raises(NotSigned, match="/proc/kallsyms: with it the files have more"):
        statement.digest(Path("/proc/kallsyms"))  # a file of 0 bytes that has megabytes


KNOWN = """# the rack's
node01,10.0.0.1 ssh-ed25519 AAAA comment
@cert-authority *.rack,node02 ssh-ed25519 CCCC
@revoked * ssh-ed25519 RRRR
@revoked node01 ssh-rsa BBBB
node01 ssh-rsa BBBB
node01 ssh-ed25519 SECOND
*.rack,!bad.rack ssh-ed25519 WILD
node0? ssh-ed25519 RRRR
|1|broken|hash ssh-ed25519 AAAA
no key
# a comment\x0cnode01 ssh-ed25519 FFFF
# another\u2028node01 ssh-ed25519 UUUU
crlf ssh-ed25519 AAAA\r
x,\x1cnode01 ssh-ed25519 GGGG
"""


def test_lines_of_known_hosts_count_as_ssh_has_them(tmp_path: Path) -> None:
    (tmp_path / "known").write_text(KNOWN)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    own = " ".join((tmp_path / "key.pub").read_text().split()[:2])
    (tmp_path / "hashed").write_text(f"node09 {own}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", tmp_path / "hashed"], check=True, capture_output=True)
    with (tmp_path / "known").open("a") as file:
        file.write((tmp_path / "hashed").read_text())
    known = KnownHosts(tmp_path / "known")

    def problems(*pairs: str) -> list[str]:
        return [known.problem(*pair.split(" ", 1)) for pair in pairs]

    good = ("node01 ssh-ed25519 AAAA", "NODE01 ssh-ed25519 AAAA", "node01 ssh-ed25519 SECOND", f"node09 {own}")
    assert problems(*good, "a.rack ssh-ed25519 WILD", "crlf ssh-ed25519 AAAA") == [""] * 6
    revoked = problems("node01 ssh-rsa BBBB", "node03 ssh-ed25519 RRRR", "elsewhere ssh-ed25519 RRRR")
    assert revoked == ["it is of a key that known_hosts has as revoked"] * 3
    other = problems("node02 ssh-ed25519 CCCC", "bad.rack ssh-ed25519 WILD", "node02 ssh-ed25519 AAAA", f"node01 {own}")
    other += problems("node01 ssh-ed25519 FFFF", "node01 ssh-ed25519 UUUU", "node01 ssh-ed25519 GGGG")
    assert other == ["it is of a key that known_hosts does not have under the node's name"] * 7


@pytest.mark.parametrize("content", [b"", b"@cert-authority * ssh-ed25519 AAAA\n", b"\xff" * 100, None])
def test_a_file_that_is_no_known_hosts_is_refused(
    run: RunDirectory, site: tuple[Path, Path], tmp_path: Path, content: bytes | None
) -> None:
    os.mkfifo(tmp_path / "known") if content is None else (tmp_path / "known").write_bytes(content)
    done = call("verify", run.path, "--key", site[1], "--known-hosts", tmp_path / "known")
    assert done.exit_code == 2 and f"{tmp_path / 'known'}: it is no" in done.output, done.output


def test_an_archive_is_signed_anew_and_names_its_run(
    run: RunDirectory, site: tuple[Path, Path], tmp_path: Path
) -> None:
    archive = tmp_path / "a.shakedown.tar.gz"
    assert call("bundle", run.path, "--key", site[0], "--output", archive).exit_code == 0
    beside = tmp_path / "a.shakedown.tar.gz.sigstore.json"
    assert stat.S_IMODE(beside.stat().st_mode) == 0o600
    done = call("verify", archive, "--key", site[1])
    assert done.exit_code == 0 and f"packed from the signed run {run.path.name}" in done.output, done.output
    assert statement.digest(run.path / STATEMENT) in done.output
    archive.rename(moved := tmp_path / "renamed.tar.gz")
    beside.rename(tmp_path / "renamed.tar.gz.sigstore.json")
    assert call("verify", moved, "--key", site[1]).exit_code == 0, "a name is no content"
    shutil.copy(run.path / STATEMENT, tmp_path / "renamed.tar.gz.sigstore.json")
    done = call("verify", moved, "--key", site[1])
    assert done.exit_code == 1 and "another form" in done.output, "the run's own statement is not the archive's"


def test_a_run_that_was_changed_or_never_signed_is_not_packed_with_a_signature(
    run: RunDirectory, site: tuple[Path, Path], tmp_path: Path
) -> None:
    (run.path / "plan.txt").write_text("another")
    done = call("bundle", run.path, "--key", site[0], "--output", tmp_path / "a.tar.gz")
    assert done.exit_code == 2 and "plan.txt" in done.output and not (tmp_path / "a.tar.gz").exists()
    (run.path / STATEMENT).unlink()
    done = call("bundle", run.path, "--key", site[0], "--output", tmp_path / "a.tar.gz")
    assert done.exit_code == 2 and "not signed" in done.output and not (tmp_path / "a.tar.gz").exists()


def test_a_statement_of_pseudonyms_holds_no_name(tmp_path: Path, site: tuple[Path, Path]) -> None:
    names = ["gpu-a17.rack7.corp.example", "gpu-a18.rack7.corp.example"]
    run = a_run(tmp_path / "runs", names)
    record = run.load()
    record.nodes[0].host_key = "ssh-ed25519 SHA256:" + "abcd" * 10
    run.save(record)
    sign(run, site[0], tmp_path / "site.pub")
    archive = tmp_path / "a.tar.gz"
    done = call("bundle", run.path, "--pseudonyms", "--key", site[0], "--output", archive)
    assert done.exit_code == 0, done.output
    text = payload_of(tmp_path / "a.tar.gz.sigstore.json").decode()
    assert "host-001" in text and call("verify", archive, "--key", site[1]).exit_code == 0
    for word in ("gpu-a17", "corp.example", "abcdabcd", statement.digest(site[1])):
        assert word not in text


def test_the_runs_of_a_folder_are_a_chain(tmp_path: Path, site: tuple[Path, Path]) -> None:
    first = a_signed_run(tmp_path / "runs", site[0])
    later = first.path.with_name("99991231T000000-000000")
    shutil.copytree(first.path, later)
    (later / STATEMENT).unlink()
    document = json.loads((later / "run.json").read_text())
    RunDirectory(later).write("run.json", json.dumps(document | {"run_id": later.name}))
    sign(RunDirectory(later), site[0])
    previous = json.loads(payload_of(later / STATEMENT))["predicate"]["previous"]
    assert previous == {"run_id": first.path.name, "sha256": statement.digest(first.path / STATEMENT)}
    assert first.path.name in call("verify", later, "--key", site[1]).output


def test_securesystemslib_verifies_the_same(run: RunDirectory, site: tuple[Path, Path]) -> None:
    document = json.loads((run.path / STATEMENT).read_text())["dsseEnvelope"]
    hint = envelope.hint(envelope.public_key(site[1]))
    key = SSlibKey(hint, "ecdsa", "ecdsa-sha2-nistp256", {"public": site[1].read_text()})
    assert Envelope.from_dict(copy.deepcopy(document)).verify([key], 1)
    document["payload"] = base64.b64encode(payload_of(run.path / STATEMENT).replace(b"ok", b"no", 1)).decode()
    with pytest.raises(Exception, match="ignature"):
        Envelope.from_dict(document).verify([key], 1)


def commands(mark: str) -> str:
    """The commands that the page shows."""
    (block,) = re.findall(rf"<!-- generated: {mark} -->\n\n```sh\n(.*?)```", PAGE, re.DOTALL)
    assert isinstance(block, str)
    return block


def by_hand(run: Path, key: Path) -> subprocess.CompletedProcess[str]:
    script = "set -euo pipefail\n" + commands("third party")
    return subprocess.run(["bash", "-c", script, "verify", run, key], capture_output=True, text=True, check=False)


def test_openssl_jq_and_sha256sum_verify_it_as_the_page_shows(run: RunDirectory, site: tuple[Path, Path]) -> None:
    done = by_hand(run.path, site[1])
    assert (done.returncode, done.stdout) == (0, "Verified OK\nok\n"), done.stderr
    for change in ("altered", "extra", "removed", "link", "folder"):
        other = run.path.with_name(change)
        shutil.copytree(run.path, other)
        match change:
            case "altered":
                (other / "run.json").write_text("x")
            case "extra":
                (other / "extra").write_text("x")
            case "removed":
                (other / "run.json").unlink()
            case "link":
                (other / "link").symlink_to("run.json")
            case _:
                (other / "empty").mkdir()
        assert by_hand(other, site[1]).returncode != 0, change
    rewritten(run.path / STATEMENT, keys(run.path.parent, "other")[0])
    assert by_hand(run.path, site[1]).returncode != 0


def test_the_keys_of_the_page_are_keys_of_a_site(tmp_path: Path) -> None:
    lines = re.findall(r"^    ((?:umask|openssl) .*)$", PAGE, re.M)
    assert len(lines) == 3
    subprocess.run(["bash", "-ec", "\n".join(lines)], cwd=tmp_path, check=True, capture_output=True)
    key = envelope.private_key(tmp_path / "site.key")
    assert envelope.hint(key.public_key()) == envelope.hint(envelope.public_key(tmp_path / "site.pub"))


def in_a_site(folder: Path, key: Path, *words: str, data: str = "") -> subprocess.CompletedProcess[str]:
    """Call the command in a site with one node, this machine."""
    text = f"nodes = (['@local'], {{'gpu': 'cpu', 'signing': {{'key_file': {str(key)!r}}}, {data}}})\n"
    (folder / "site.py").write_text(text)
    return forks.called("shakedown", *words, cwd=folder)


def test_a_check_that_is_kept_is_signed_when_the_inventory_names_a_key(tmp_path: Path, site: tuple[Path, Path]) -> None:
    done = in_a_site(tmp_path, site[0], "drift", "site.py")
    (run,) = [path for path in (tmp_path / "runs").iterdir() if (path / "run.json").exists()]
    found = in_a_site(tmp_path, site[0], "verify", run.name, "--key", str(site[1]))
    assert "signature: holds" in found.stdout and found.returncode == done.returncode, (done.stderr, found.stderr)
    predicate = json.loads(payload_of(run / STATEMENT))["predicate"]
    assert predicate["inventory_sha256"] == statement.digest(tmp_path / "site.py")
    assert predicate["folders"] == ["logs", "signatures", "states"] and "PRIVATE" not in done.stderr + done.stdout


def test_a_key_that_cannot_be_used_ends_the_command_before_a_node_is_read(
    tmp_path: Path, site: tuple[Path, Path]
) -> None:
    site[0].chmod(0o644)
    done = in_a_site(tmp_path, site[0], "drift", "site.py")
    assert done.returncode == 2 and "signing.key_file" in done.stderr and "chmod 600" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_signed_checks_are_removed_like_others(tmp_path: Path, site: tuple[Path, Path]) -> None:
    for _ in range(2):
        in_a_site(tmp_path, site[0], "drift", "site.py", data="'kept_checks': 1")
    assert len([path for path in (tmp_path / "runs").iterdir() if (path / "run.json").exists()]) == 1


HOST_KEY = Path("/etc/ssh/ssh_host_ed25519_key")
root = pytest.mark.skipif(os.geteuid() != 0 or not HOST_KEY.exists(), reason="reads the host key of this machine")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[sshd.Node]:
    """A node that shows this machine's own host key, and whose stress-ng leaves others most of the cores."""
    (tmp_path / "sshd").mkdir()
    (tmp_path / "bin").mkdir()
    gently = tmp_path / "bin/stress-ng"
    gently.write_text(f'#!/bin/sh\nexec {shutil.which("stress-ng")} --cpu-load 5 "$@"\n')
    gently.chmod(0o755)
    path = f'SetEnv "PATH={gently.parent}:{os.environ["PATH"]}"'
    started, server = sshd.start(tmp_path / "sshd", path, host_key=HOST_KEY)
    yield started
    server.terminate()
    server.wait()


def checked(
    folder: Path, site: tuple[Path, Path], node: sshd.Node, words: str = "drift rack.py", **signing: object
) -> tuple[Path, str]:
    """Check one node over SSH, or load it; return the run's directory, and what the command reported."""
    data = {"gpu": "cpu", "signing": {"key_file": str(site[0]), **signing}, **node.data()}
    (folder / "rack.py").write_text(f"nodes = (['node01'], {data!r})\n")
    done = forks.called("shakedown", *words.split(), cwd=folder, timeout=300)
    assert (folder / "runs").is_dir(), done.stderr
    (run,) = [path.parent for path in (folder / "runs").glob("2*/run.json")]
    return run, done.stdout + done.stderr


@root
def test_a_node_signs_its_reading_with_the_host_key_that_the_controller_knows(
    tmp_path: Path, site: tuple[Path, Path], node: sshd.Node
) -> None:
    run, shown = checked(tmp_path, site, node)
    done = call("verify", run, "--key", site[1])
    assert "readings: 1 of 1 node signed by the node itself" in done.output and "does not hold" not in done.output, (
        shown
    )
    signature = json.loads((run / "signatures/node01.json").read_text())
    assert json.loads(signature["text"])["sha256"] == statement.digest(run / "states/node01.json")
    kind, key, *_ = HOST_KEY.with_suffix(".pub").read_text().split()
    (tmp_path / "known").write_text(f"node01 {kind} {key}\n")
    assert "holds" in call("verify", run, "--key", site[1], "--known-hosts", tmp_path / "known").output.splitlines()[-1]
    (tmp_path / "signers").write_text(f'node01 namespaces="{NAMESPACE}" {kind} {key}\n')
    (tmp_path / "sig").write_text(signature["signature"])
    command = ["ssh-keygen", "-Y", "verify", "-f", "signers", "-I", "node01", "-n", NAMESPACE, "-s", "sig"]
    by = subprocess.run(command, cwd=tmp_path, input=signature["text"], text=True, check=False, capture_output=True)
    assert by.returncode == 0, by.stderr

    archive = tmp_path / "a.tar.gz"
    assert call("bundle", run, "--key", site[0], "--output", archive).exit_code == 0
    assert "readings: 1 of 1 node signed" in (done := call("verify", archive, "--key", site[1])).output, done.output
    hidden = tmp_path / "b.tar.gz"
    assert call("bundle", run, "--key", site[0], "--pseudonyms", "--output", hidden).exit_code == 0
    assert "readings: 0 of 1 node signed" in (done := call("verify", hidden, "--key", site[1])).output, done.output
    assert key.encode() not in b"".join(contents(hidden).values())


@root
@pytest.mark.skipif(shutil.which("stress-ng") is None, reason="loads this machine with it")
def test_a_node_signs_the_digests_of_its_logs(tmp_path: Path, site: tuple[Path, Path], node: sshd.Node) -> None:
    """And who has the controller and its key cannot invent a log, exchange two, or leave a signature out."""
    run, shown = checked(tmp_path, site, node, "soak rack.py --for 10s --only cpu")
    logs = sorted(str(path.relative_to(run)) for path in (run / "soak").rglob("*.*"))
    done = call("verify", run, "--key", site[1])
    assert f"logs: {len(logs)} of {len(logs)} logs signed by the node itself" in done.output, (done.output, shown)
    assert "does not hold" not in done.output and len(logs) > 4
    kind, key, *_ = HOST_KEY.with_suffix(".pub").read_text().split()
    (tmp_path / "known").write_text(f"node01 {kind} {key}\n")
    assert "holds" in call("verify", run, "--key", site[1], "--known-hosts", tmp_path / "known").output.splitlines()[-1]
    file = run / "signatures/node01.json"
    whole = json.loads(file.read_text())
    leaders = [name for name in logs if name.endswith("leader.log")]
    signed = json.loads(whole["logs"][leaders[0]]["text"])
    assert (signed["log"], signed["sha256"]) == (leaders[0], statement.digest(run / leaders[0]))
    assert signed["nonce"] == json.loads((run / "run.json").read_text())["nonce"]

    def verdict(change: dict[str, object], *words: str | Path) -> str:
        directory = RunDirectory(run)
        file.write_text(json.dumps(whole | {"logs": whole["logs"] | change}))
        states = [("node01", directory.load_state("node01"))]
        made = statement.of_run(directory, directory.load(), directory.load_evidence(), states, None)
        directory.write(STATEMENT, envelope.signed(made.payload(), envelope.private_key(site[0])).decode())
        return call("verify", run, "--key", site[1], *words).output

    first, second = (whole["logs"][name] for name in leaders[:2])
    assert f"{leaders[0]}: the node's signature on its log does not hold: the signature is on another log" in verdict(
        {leaders[0]: second, leaders[1]: first}
    )
    assert f"not signed by its node: {leaders[0]}: it has no key" in verdict({leaders[0]: {"reason": "it has no key"}})
    left_out = verdict({leaders[0]: {"reason": "it has none"}}, "--known-hosts", tmp_path / "known")
    assert f"does not hold: {leaders[0]}: it has none" in left_out
    text = json.dumps(signed | {"nonce": signed["nonce"] + "0"}, sort_keys=True)
    command = ["ssh-keygen", "-q", "-Y", "sign", "-n", NAMESPACE, "-f", HOST_KEY]
    again = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    assert "it was signed for another run" in verdict({leaders[0]: first | {"text": text, "signature": again}})
    moved = run / "invented.log"
    shutil.copy(run / leaders[0], moved)
    evidence = json.loads((run / "evidence.json").read_text())
    next(iter(evidence["jobs"].values()))["logs"]["node01"][0]["path"] = "invented.log"
    (run / "evidence.json").write_text(json.dumps(evidence))
    assert "not signed by its node: invented.log: it has no signature" in verdict({})
    (run / leaders[0]).write_text("invented")
    assert f"{leaders[0]}: the node's signature on its log does not hold" in verdict({})


@root
def test_who_has_the_controller_and_its_key_cannot_invent_a_reading(
    tmp_path: Path, site: tuple[Path, Path], node: sshd.Node
) -> None:
    """They sign anew with the site's key, and with a host key of their own; they take a reading of another run."""
    run, _ = checked(tmp_path, site, node)
    kind, key, *_ = HOST_KEY.with_suffix(".pub").read_text().split()
    (tmp_path / "known").write_text(f"node01 {kind} {key}\n")

    def refused(word: str, *words: str | Path) -> None:
        directory = RunDirectory(run)
        record = directory.load()
        made = statement.of_run(directory, record, {}, [("node01", directory.load_state("node01"))], None)
        directory.write(STATEMENT, envelope.signed(made.payload(), envelope.private_key(site[0])).decode())
        done = call("verify", run, "--key", site[1], *words)
        assert done.exit_code == 1 and "signature: holds" in done.output and word in done.output, done.output

    whole = {name: (run / name).read_text() for name in ("run.json", "states/node01.json", "signatures/node01.json")}
    state = json.loads(whole["states/node01.json"])
    state["memory"]["total_bytes"] += 1
    (run / "states/node01.json").write_text(json.dumps(state))
    refused("the signature is on another reading")

    signed = json.loads(whole["signatures/node01.json"])
    text = json.loads(signed["text"]) | {"sha256": statement.digest(run / "states/node01.json")}
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "own"], check=True)
    new = json.dumps(text, sort_keys=True)
    command = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", tmp_path / "own"]
    by = subprocess.run(command, input=new, capture_output=True, text=True, check=True)
    own = " ".join((tmp_path / "own.pub").read_text().split()[:2])
    invented = json.dumps({"text": new, "signature": by.stdout, "host_key": own, "reason": ""})
    (run / "signatures/node01.json").write_text(invented)
    refused("of another key than the run's record has")
    record = json.loads(whole["run.json"])
    record["nodes"][0]["host_key"] = fingerprint(own)
    (run / "run.json").write_text(json.dumps(record))
    refused("of a key that known_hosts does not have", "--known-hosts", tmp_path / "known")
    (run / "signatures/node01.json").write_text(json.dumps({"reason": "it has none"}))
    refused("node01: it has none", "--known-hosts", tmp_path / "known")

    for name, content in whole.items():
        (run / name).write_text(content)
    other = "20990101T000000-abcdef"
    record = json.loads(whole["run.json"]) | {"run_id": other}
    (run / "run.json").write_text(json.dumps(record))
    refused("signed for another run")
    (run / "run.json").write_text(json.dumps(record | {"nonce": record["nonce"].replace(run.name, other)}))
    refused("signed for another run")
    (run / "run.json").write_text(
        json.dumps(json.loads(whole["run.json"]) | {"started_at": "2020-01-01T00:00:00+00:00"})
    )
    refused("far apart")
    later = datetime.now(UTC) + timedelta(hours=2)
    (run / "run.json").write_text(json.dumps(json.loads(whole["run.json"]) | {"started_at": later.isoformat()}))
    refused("far apart")


@pytest.mark.parametrize(
    ("started", "finished", "signed", "holds"),
    [
        ("2026-11-30T08:00:05", "2026-11-30T12:00:00", "2026-11-30T08:00:00", True),
        ("2026-11-30T08:00:05", "2026-11-30T12:00:00", "2026-11-30T11:30:00", True),  # called again, in a later batch
        ("2026-11-30T08:00:05", "2026-11-30T12:00:00", "2026-11-30T12:30:00", False),
        ("2026-11-30T08:00:05", None, "2026-11-30T08:30:00", False),
        ("2020-01-01T00:00:00", "2026-11-30T12:00:00", "2026-11-30T08:00:00", False),
        ("2027-11-30T08:00:05", "2027-11-30T12:00:00", "2026-11-30T08:00:00", False),
        ("2026-11-30T08:00:05", "2026-11-30T12:00:00", "2020-01-01T00:00:00", False),
    ],
)
def test_a_node_signs_while_the_run_lasts(started: str, finished: str | None, signed: str, holds: bool) -> None:
    times = {"started_at": f"{started}+00:00", "finished_at": finished and f"{finished}+00:00"}
    record = RunRecord(run_id="20261130T080000-abcdef", inventory="i", desired_digest="0", **times)
    with contextlib.nullcontext() if holds else pytest.raises(ValueError, match="far apart"):
        nodes._check_time(record, datetime.fromisoformat(f"{signed}+00:00").timestamp())


@root
def test_a_node_that_cannot_sign_says_so_and_fails_only_where_the_site_asks_for_it(
    tmp_path: Path, site: tuple[Path, Path]
) -> None:
    """An sshd whose host key is none of those in /etc/ssh."""
    (tmp_path / "sshd").mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-N", "", "-f", tmp_path / "odd"], check=True)
    node, server = sshd.start(tmp_path / "sshd", host_key=tmp_path / "odd")
    try:
        run, _ = checked(tmp_path, site, node)
        done = call("verify", run, "--key", site[1])
        assert "readings: 0 of 1 node signed by the node itself (node01: it has no host key" in done.output
        assert json.loads((run / "run.json").read_text())["nodes"][0]["part"] == "examined"
        shutil.rmtree(tmp_path / "runs")
        run, shown = checked(tmp_path, site, node, require_readings=True)
        assert json.loads((run / "run.json").read_text())["nodes"][0]["part"] == "unreached"
        assert "its reading is not signed: it has no host key" in shown
    finally:
        server.terminate()
        server.wait()


@pytest.mark.parametrize("kind", [("ed25519",), ("ecdsa", "-b", "256"), ("ecdsa", "-b", "521"), ("rsa", "-b", "3072")])
def test_signatures_of_ssh_keygen_are_verified_as_it_does(tmp_path: Path, kind: tuple[str, ...]) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", *kind, "-N", "", "-f", tmp_path / "key"], check=True)
    command = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", tmp_path / "key"]
    armour = subprocess.run(command, input="text", capture_output=True, text=True, check=True).stdout
    key = " ".join((tmp_path / "key.pub").read_text().split()[:2])
    openssh.check(b"text", armour, key, NAMESPACE)
    lines = armour.splitlines()
    raw = bytearray(base64.b64decode("".join(lines[1:-1])))
    for place in range(len(raw)):  # the name of an algorithm too
        bad = bytearray(raw)
        bad[place] ^= 1
        with pytest.raises(ValueError):
            openssh.check(b"text", "\n".join([lines[0], base64.b64encode(bad).decode(), lines[-1]]), key, NAMESPACE)
    others = [(b"text", armour, key, "file"), (b"text", "", key, NAMESPACE)]
    others += [(b"text", text, key, NAMESPACE) for text in (" " + armour, "\n" + armour, armour + "\n")]
    for words in ((b"other", armour, key, NAMESPACE), (b"text", armour.replace("\n", "\r\n"), key, NAMESPACE), *others):
        with pytest.raises(ValueError):
            openssh.check(*words)
    said = subprocess.run(["ssh-keygen", "-l", "-f", tmp_path / "key.pub"], capture_output=True, text=True, check=True)
    assert fingerprint(key).split()[1] in said.stdout


def test_a_node_that_answers_with_another_nodes_signature_is_not_read(tmp_path: Path) -> None:
    """Its key is not the one that its connection showed; or it signed before, for another nonce."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    key = " ".join((tmp_path / "key.pub").read_text().split()[:2])
    text = json.dumps({"about": "reading", "nonce": "r.1", "sha256": hashlib.sha256(b"{}").hexdigest()})
    command = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", tmp_path / "key"]
    by = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    answer = {"document": "{}", "text": text, "signature": by.stdout, "host_key": key}
    assert nodes.taken(dict(answer), key, "r.1").document
    for change, shown, nonce in (
        ({}, "ssh-ed25519 AAAA", "r.1"), ({}, key, "r.2"), ({"document": "{} "}, key, "r.1"),
        ({"text": text + " "}, key, "r.1"), ({"signature": "x" * 100_000}, key, "r.1"), ({"more": 1}, key, "r.1"),
    ):  # fmt: skip
        with pytest.raises(nodes.WrongSignature):
            nodes.taken(answer | change, shown, nonce)
