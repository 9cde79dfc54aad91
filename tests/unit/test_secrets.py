"""Which variables hold secrets, and that no form of a document keeps their values."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from pyinfra.api import Config, Inventory, State

from shakedown.checks.examination import Examination
from shakedown.common.secrets import MASK, Masker, found_in, is_secret, masked, values_of
from shakedown.desired.problems import Problem
from shakedown.gates import Gate
from shakedown.jobs.plan import render
from shakedown.runner.session import Session
from shakedown.runner.training import shown
from shakedown.runs.directory import JobRecord
from tests import forks
from tests.plans import rack, small
from tests.states import desired

VALUE = "s3cret-value"


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "DB_PASSWORD",
        "REGISTRY_PASSWD",
        "MY_SECRETS",
        "GITHUBTOKEN",
        "apiKey",
        "dbPassword",
        "SSH_PASSPHRASE",
        "GOOGLE_CREDENTIALS",
        "net.ipv4.tcp_fastopen_key",
        "DB_PASS",
        "SSHPASS",
        "BMCPASS",
        "MYSQL_PWD",
        "GITHUB_PAT",
        "PROXY_AUTHORIZATION",
        "session_cookie",
        "API_KEYS",
        "auth_tokens",
    ],
)
def test_names_that_hold_secrets(name: str) -> None:
    assert is_secret(name)
    assert is_secret(name.upper()) or name != name.upper()
    assert not is_secret(name, {name})


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_DEBUG",
        "TOKENIZER_MODEL",
        "TOKENIZERS_PARALLELISM",
        "MAX_TOKENS",
        "tokens_per_gpu",
        "AUTHOR",
        "KEYS_PER_NODE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "password_env",
        "hf_token_file",
        "SSH_KEY_PATH",
        "SECRETARY",
        "",
        "_",
        "OMP_NUM_THREADS",
        "PWD",
        "BYPASS",
        "SSH_AUTH_SOCK",
        "PATH",
    ],
)
def test_names_that_do_not(name: str) -> None:
    assert not is_secret(name)


def test_the_value_is_nowhere() -> None:
    document = {
        "environment": {"API_KEY": VALUE, "NCCL_DEBUG": "WARN", "URL": f"https://x/?k={VALUE}"},
        "files": {"environment": f"API_KEY={VALUE}\nNCCL_DEBUG=WARN\n"},
        "command": ["sh", "-c", f"echo {VALUE}"],
        "options": {"DB_PASSWORD": 12345678, "USE_TOKEN": True, "EMPTY_TOKEN": "", "NO_TOKEN": None},
        "url": "https://ada:pw@host/x",
    }
    kept = masked(document)
    assert VALUE not in json.dumps(kept)
    assert kept["environment"]["NCCL_DEBUG"] == "WARN"
    assert kept["files"]["environment"] == f"API_KEY={MASK}\nNCCL_DEBUG=WARN\n"
    assert kept["options"] == {"DB_PASSWORD": MASK, "USE_TOKEN": True, "EMPTY_TOKEN": "", "NO_TOKEN": None}
    assert kept["url"] == f"https://{MASK}@host/x"
    assert masked(document, {"API_KEY", "DB_PASSWORD"})["environment"] == document["environment"]


@pytest.mark.parametrize(("value", "elsewhere"), [("12345", "12345"), ("123456", MASK)])
def test_a_value_that_stands_elsewhere_by_chance_stays_there(value: str, elsewhere: str) -> None:
    assert masked({"A_TOKEN": value, "port": value}) == {"A_TOKEN": MASK, "port": elsewhere}
    assert values_of({"A_TOKEN": value}) == ({value} if elsewhere is MASK else set())


def test_a_value_within_another_leaves_nothing_of_either() -> None:
    kept = masked({"A_TOKEN": "abcdef", "B_TOKEN": "abcdefghij", "text": "abcdefghij abcdef"})
    assert kept["text"] == f"{MASK} {MASK}"
    assert masked({"text": "xyzxyz"}, more=["xyzxyz"]) == {"text": MASK}
    assert Masker(["abcdef", "abcdefghij"]).text("abcdefghij abcdef") == (f"{MASK} {MASK}", 2)
    assert masked({"files": "A_TOKEN=abc\nB=1"}) == {"files": f"A_TOKEN={MASK}\nB=1"}, "too short to be looked for"


@pytest.mark.parametrize(
    "line",
    [
        f"A_TOKEN={MASK}, as told",
        f'{{"api_key": "{MASK}"}}',
        f"tool --password {MASK} --token={MASK}",
        f"sshpass -p {MASK} ssh host; mysql -p{MASK}",
        f"Authorization: Bearer {MASK}",
        f"GET https://{MASK}@host/",
        "KeyError: 'lm_loss'",
        "token: ${HF_TOKEN}, HF_TOKEN=null",
    ],
)
def test_what_is_masked_or_no_secret_stays_as_it_is(line: str) -> None:
    assert Masker(["secret"]).text(line) == (line, 0) and list(found_in(line)) == []


@pytest.mark.parametrize("before", ["password=", "tool --password ", "sshpass -p ", "curl -u me:"])
def test_a_password_that_begins_as_a_variable_is_masked(before: str) -> None:
    assert Masker().text(f"{before}$ecret1") == (before + MASK, 1)


def test_a_secret_behind_one_that_is_masked_already_is_masked_too() -> None:
    said, count = Masker().text(f"skopeo copy --src-creds me:{MASK} --dest-creds me:{VALUE} a b")
    assert (said.count(MASK), VALUE in said, count) == (2, False, 1)
    kept = masked({"A_TOKEN": "secret", "B_TOKEN": VALUE, "text": f"secret {VALUE}"})
    assert kept["text"] == f"{MASK} {MASK}", "a value that stands in the mask's own words"


@pytest.mark.parametrize(
    "form",
    [
        "hf_" + "a1" * 12,
        "ghp_" + "A" * 36,
        "github_pat_" + "a_" * 15,
        "glpat-" + "x" * 20,
        "xoxb-1234567890-abc",
        "AKIA" + "ABCD" * 4,
        "sk-proj-" + "a" * 20,
        "dckr_pat_" + "a" * 20,
        "eyJ" + "a" * 10 + ".eyJ" + "b" * 10 + "." + "c" * 10,
    ],
)
def test_what_says_by_its_form_what_it_is_is_masked_without_a_name(form: str) -> None:
    assert Masker().text(f"cannot log in as '{form}' (401)") == (f"cannot log in as '{MASK}' (401)", 1)


def test_of_a_header_the_secret_is_what_follows_its_kind() -> None:
    assert list(found_in("> Authorization: Bearer abcdef123")) == ["abcdef123"], "it may stand elsewhere alone"


@pytest.mark.parametrize("public", [False, True])
def test_plans_are_shown_and_kept_without_secrets(public: bool) -> None:
    smoke = {"environment": {"WANDB_API_KEY": VALUE}, "not_secret": ["WANDB_API_KEY"] if public else []}
    own = desired("cpu", None, smoke={"recipe": "gpt-small", **smoke})
    for plan in (small(2, **smoke), rack("llama3.1-8b-fp8", 2, **smoke)):
        assert VALUE in plan.model_dump_json(), "the job has it"
        kept = shown(plan, Examination({"node01": own}))
        assert (VALUE in kept.model_dump_json()) is (VALUE in render(kept)) is public


def test_a_problem_does_not_repeat_a_secret() -> None:
    assert VALUE not in str(Problem("smoke", "smoke.environment.HF_TOKEN", VALUE, "another"))
    assert VALUE in str(Problem("smoke", "smoke.environment.NCCL_DEBUG", VALUE, "another"))


def test_a_record_keeps_no_secret_that_a_log_or_an_error_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAKEDOWN_RUNS", str(tmp_path))
    state = State()
    state.init(Inventory(([], {})), Config())
    own = desired("cpu", None, smoke={"recipe": "gpt-small", "environment": {"A_TOKEN": VALUE}})
    session = Session(state, Examination({"node01": own}))
    record = session.open_run()
    record.gates = [Gate(name="x", verdict="fail", evidence=f"line 3: {VALUE} is wrong")]
    record.jobs = [JobRecord(error=f"refused: {VALUE}")]
    session.close()
    assert VALUE not in (tmp_path / "latest/run.json").read_text()
    assert MASK in (tmp_path / "latest/run.json").read_text()


@pytest.mark.parametrize("form", ["table", "json"])
def test_show_does_not_show_secrets(tmp_path: Path, form: str) -> None:
    environment = {"A_TOKEN": VALUE, "OTHER": f"x {VALUE}", "NCCL_DEBUG": "WARN"}
    smoke = {"recipe": "gpt-small", "environment": environment}
    (tmp_path / "site.py").write_text(f"site = (['@local'], {{'gpu': 'cpu', 'smoke': {smoke!r}}})\n")
    shakedown = Path(sys.executable).with_name("shakedown")
    command = [str(shakedown), "show", str(tmp_path / "site.py"), "@local", "--format", form]
    code, out, err = forks.run(command, tmp_path, os.environ)
    assert code == 0, err
    assert "WARN" in out
    assert MASK in out
    assert VALUE not in out


@pytest.mark.parametrize("url", ["https://u:p@ss@host/x", "http://u:p@host", "https://t0ken@host/a@b"])
def test_what_stands_before_a_host_is_not_shown_whatever_is_in_it(url: str) -> None:
    said = masked({"url": f"cannot get {url}"})["url"]
    assert "host" in said and not any(part in said for part in ("u:p", "ss@", "t0ken"))


@pytest.mark.parametrize(
    "name",
    [
        *("moe-token-dispatcher-type", "tokenizer_type", "tokenizer-model", "max_tokens", "token_count", "key_size"),
        *("num_query_groups", "secret_file", "password_length", "host_key", "public_key", "primary_key", "cache_key"),
        *("pad_token", "eos_token", "kv_channels", "attention-backend", "cookies_enabled", "TOKENS_PER_GPU"),
    ],
)
def test_words_about_secrets_are_none(name: str) -> None:
    """Two jobs that differ in such an option alone are two jobs."""
    assert not is_secret(name)


@pytest.mark.parametrize("name", ["HF_TOKEN_2", "DB_PASSWORD_RO", "GITHUB_TOKEN_OLD", "clientSecret", "API_KEY_B64"])
def test_what_stands_behind_the_deciding_word_tells_which_one(name: str) -> None:
    assert is_secret(name)


def test_lines_of_a_password_file_are_masked_from_the_first_to_the_last() -> None:
    text = "db.x:5432:a:b:hunter2pw\n*:*:*:me:other9pw\nat 10:32:11 a:5432:b:c:d:e\ndb:5433:a:b:third8pw"
    masked_text = f"db.x:5432:a:b:{MASK}\n*:*:*:me:{MASK}\nat 10:32:11 a:5432:b:c:d:e\ndb:5433:a:b:{MASK}"
    assert Masker().text(text) == (masked_text, 3)
