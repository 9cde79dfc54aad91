"""Secrets on command lines that no name gives away, and options that look like them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from shakedown.common.secrets import MASK, Masker, found_in, masked

SECRET = "S3cret9z"
LINES = (
    f"mysql -p{SECRET} -h db",
    f"/usr/bin/mysqldump -u root -p{SECRET} db > dump",
    f"docker exec db mysql -p{SECRET}",
    f"$(mariadb -p{SECRET})",
    f"mysql -p'{SECRET} and more' db",
    f'mysql -p"x\\" {SECRET}" db',
    f"sshpass -p {SECRET} ssh -p 22 host",
    f"sshpass -p{SECRET} scp a b",
    f"sshpass -p '{SECRET} and more' ssh host",
    f"curl -u user:{SECRET} http://host/",
    f"curl -sSfu user:{SECRET} http://host/",
    f"curl 'http://host/?a=1&b=2' --user='user:{SECRET}'",
    f"docker login -u me -p {SECRET} registry",
    f"podman --log-level debug login -p{SECRET} registry",
    f"skopeo copy --src-creds user:{SECRET} a b",
    f"ipmitool -I lanplus -H bmc -U admin -P {SECRET} power status",
    f"ldapsearch -D cn=x -w {SECRET}",
    f"redis-cli -h host -a {SECRET} ping",
    f"smbclient //host/share -U user%{SECRET}",
    f"wandb login {SECRET}",
    f"aws configure set aws_secret_access_key {SECRET}",
    f"tool --password {SECRET}",
    f"tool --PASSWORD {SECRET}",
    f'["mysql", "-p{SECRET}", "-h", "db"]',
    f"['sshpass', '-p', '{SECRET}', 'ssh']",
    f'["tool","--password","{SECRET}"]',
    f'{{"command": "sh -c \\"mysql -p{SECRET} -e 1\\""}}',
    f"mysql\x00-p{SECRET}\x00-h",
    f"mysql\\u0000-p{SECRET}\\u0000-h",
    f"don't mysql -p{SECRET}, it isn't safe",
)
ORDINARY = (
    "mkdir -p dir",
    "docker run -p 80:80 image",
    "docker run --name mysql -p80:80 image",
    "docker run -e A=1 -p 3306:3306 mysql",
    "docker compose -p project up",
    "docker login -u me --password-stdin",
    "ssh -p 22 host",
    "mysql -p -h db",
    "mysql -p$PASSWORD db",
    "curl -u user http://host/",
    "curl -o out -L http://host/x",
    "redis-cli -p 6379 ping",
    "tool --max-tokens 4096 --tokenizer-type GPT2",
    "tool --use-token --other",
    "tool --api-key $TOKEN --password=*** --db-password ${PASSWORD}",
    '["tokens", "secret", "key"]',
    "cp -p a b; mysql --version",
)


@pytest.mark.parametrize("line", LINES)
def test_a_secret_of_a_command_is_masked(line: str) -> None:
    said, count = Masker().text(f"before {line}\nafter")
    assert count and SECRET not in said and "and more" not in said and MASK in said
    assert said.startswith("before ") and said.endswith("\nafter")
    assert SECRET in "".join(found_in(line)), "it is masked wherever else it stands"


@pytest.mark.parametrize("line", ORDINARY)
def test_an_ordinary_option_stays(line: str) -> None:
    assert Masker().text(line) == (line, 0)
    assert masked({"command": line, "argv": line.split(" ")}) == {"command": line, "argv": line.split(" ")}


def test_a_command_of_a_document_is_masked_as_text_and_as_a_list() -> None:
    document = {
        "text": f"sh -c 'mysql -p{SECRET}'",
        "lists": [
            ["sshpass", "-p", SECRET, "ssh"],
            ["curl", "-u", f"me:{SECRET}"],
            ["x", "--api-key", SECRET],
            ["x", f"--pass={SECRET}"],
        ],
        "elsewhere": f"it is {SECRET}",
        "ordinary": ["docker", "run", "-p", "80:80"],
    }
    kept = masked(document)
    assert SECRET not in json.dumps(kept)
    assert kept["lists"][1] == ["curl", "-u", f"me:{MASK}"] and kept["ordinary"] == document["ordinary"]


@given(some.text("mysql docker-login-pu:'\"\\ \x00;|", max_size=200))
def test_no_text_is_too_strange(text: str) -> None:
    said, count = Masker().text(text)
    assert (said == text) is (count == 0)
