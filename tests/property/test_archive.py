"""What leaves the house holds no secret and no name, whatever they are; and no bytes are an archive that does harm."""

from __future__ import annotations

import gzip
import ipaddress
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shakedown.runs.archive.pseudonyms import Pseudonyms
from shakedown.runs.archive.read import opened
from shakedown.runs.archive.redact import Redactor
from shakedown.runs.archive.tar import Refused
from tests.archives import manifest_of, member, packed

# One of digits alone is a number, one behind two dashes an option, and one behind a slash with a letter may be a path.
SECRETS = st.from_regex(r"(?!\d+$|--|/[A-Za-z])[A-Za-z0-9_+/-]{8,40}", fullmatch=True)
FORMS = (
    "HF_TOKEN={}",
    'export API_KEY="{}"',
    '{{"db_password": "{}", "x": 1}}',
    "registry-password: {}",
    "Authorization: Bearer {}",
    "run --hf-token {} --nodes 2",
    "run --api-key={}",
    "https://robot:{}@registry.example.com/v2",
)
HOSTS = st.from_regex(r"[a-z][a-z0-9]{2,8}(-[a-z0-9]{1,6}){0,2}(\.[a-z][a-z0-9]{1,8}){0,2}", fullmatch=True)
BETWEEN = st.sampled_from([" ", ": ", "/", "=", ", ", '"', "[0]", "(", "\n", "@"])


@given(SECRETS, st.sampled_from(FORMS), st.text(max_size=30), BETWEEN)
@example("-0000000", "run --hf-token {} --nodes 2", "", " ")
@example("/0000000", "HF_TOKEN={}", "", " ")
@settings(deadline=None, max_examples=60)
def test_a_secret_that_its_name_gives_away_is_masked(value: str, form: str, before: str, between: str) -> None:
    if "://" in form:
        value = value.replace("/", "-")  # which a URL has as %2F
    line = f"{before}{between}{form.format(value)}\n"
    found = Redactor().text(line)
    if value not in before:
        assert value not in found.removeprefix(before)


@given(SECRETS, st.text(max_size=60), st.text(max_size=60))
@settings(deadline=None, max_examples=40)
def test_a_secret_that_is_known_is_masked_wherever_it_stands(value: str, before: str, after: str) -> None:
    redactor = Redactor([value])
    assert value not in redactor.text(f"{before}{value}{after}").replace("(secret: not shown)", "")
    assert value not in str(redactor.document({before: [f"{after}{value}", 1, None]})).replace(
        "(secret: not shown)", ""
    )


@given(st.lists(HOSTS, min_size=1, max_size=6, unique=True), st.lists(BETWEEN, min_size=2, max_size=8), st.data())
@settings(deadline=None, max_examples=60)
def test_no_name_stays_and_each_has_one_pseudonym(hosts: list[str], between: list[str], data: st.DataObject) -> None:
    names = Pseudonyms(dict.fromkeys(hosts, "host"))
    order = [data.draw(st.sampled_from(hosts)) for _ in between]
    text = "".join(f"{gap}{host}" for gap, host in zip(between, order, strict=True)) + " "
    found = names.text(text)
    expected = "".join(f"{gap}{names.mapping[host]}" for gap, host in zip(between, order, strict=True)) + " "
    assert found == expected and len(set(names.mapping.values())) == len(names.mapping)
    assert names.value(hosts[0]) == names.mapping[hosts[0]]


@given(st.lists(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)), min_size=1, max_size=8, unique=True), BETWEEN)
@settings(deadline=None, max_examples=60)
def test_addresses_stay_addresses_and_none_of_them_stays(addresses: list[ipaddress.IPv4Address], gap: str) -> None:
    names = Pseudonyms({})
    for address in addresses:
        (found,) = names.text(f"at {address} up").removeprefix("at ").removesuffix(" up").splitlines()
        new = ipaddress.ip_address(found)
        assert new.version == address.version
        kept = address.is_loopback or address.is_unspecified or address.is_multicast or str(address).startswith("255.")
        assert (
            kept or new != address or address in ipaddress.ip_network("198.18.0.0/15" if new.version == 4 else "::/0")
        )
        assert names.text(f"{gap}{address} ") == f"{gap}{found} " or gap in ':/=[("@[0]'
    assert len(set(names.mapping.values())) == len(names.mapping)


GOOD = [
    member("one/manifest.json", manifest_of({"run.json": b"{}", "logs/a/leader.log": b"said\n" * 50})),
    member("one/run.json", b"{}"),
    member("one/logs/a/leader.log", b"said\n" * 50),
]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return packed(tmp_path_factory.mktemp("good") / "a.tar.gz", GOOD).read_bytes()


def survive(data: bytes) -> None:
    """Refused in words, or unpacked below its own folder with what was altered named."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.tar.gz"
        path.write_bytes(data)
        try:
            with opened(path) as found:
                run = found.directory.path
                files = [file for file in run.rglob("*") if file.is_file()]
                assert all(file.resolve().is_relative_to(run.resolve()) for file in files)
                assert not any(file.is_symlink() for file in files)
                wanted = {run / each.path for each in found.members}
                assert set(files) <= wanted
        except Refused as refused:
            assert str(refused).startswith(f"{path}: refused: ")
        assert [each.name for each in Path(folder).iterdir()] == ["a.tar.gz"]


ALIKE = st.one_of(
    st.from_regex("[0-9a-fA-F:.-]{3,40}(/[0-9]{1,2})?", fullmatch=True),
    st.lists(st.from_regex("[0-9a-fA-F]{1,4}", fullmatch=True), min_size=3, max_size=20).map(":".join),
    st.from_regex("([0-9a-fA-F]{2}[:-]){5,19}[0-9a-fA-F]{2}", fullmatch=True),
    st.uuids().map(str),
    st.ip_addresses().map(str),
    st.sampled_from(
        [
            "Node-A1",
            "node-a1",
            "grace",
            "Ünit7",
            "a",
            "/home/x",
            "/home/",
            "10:00:01",
            "std::vector",
            "fe80::1",
            "a::b:17",
        ]
    ),
    st.text(" \n\t\u2028ab1.:-/@é\udc80", max_size=6),
)


@given(st.lists(ALIKE, max_size=12), st.sampled_from(["", " ", "\n", ",", "/", "\t"]))
@example(["fe80::1"], "")
@example(["1:22:333:4444:5:6:7:8"], "")
@example(["b0-26-28-cd-4e-5f"], "")
@example(["b026:28ff:fecd:4e5f"], "")
@example(["10.1.22.3", "10.1.2.0/24", "/home/x"], "\n")
@example(["0b12cd34-0000-4000-8000-0123456789bc", "Node-b1.grace"], " ")
def test_pieces_that_are_passed_over_have_nothing_to_replace(parts: list[str], gap: str) -> None:
    known = {"Node-A1": "host", "grace": "user", "Ünit7": "host", "a": "host", "two words": "host"}
    names, others = Pseudonyms(known), Pseudonyms(known)
    text = gap.join(parts)
    each = "\n".join(" ".join(map(others._piece, line.split(" "))) for line in text.split("\n"))
    assert (names._of_pieces(text), names.mapping) == (each, others.mapping)


@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_changed_bytes_are_refused_or_named(good: bytes, data: st.DataObject) -> None:
    raw = bytearray(gzip.decompress(good))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    survive(gzip.compress(bytes(raw)))


@given(st.binary(max_size=600), st.booleans())
@settings(deadline=None, max_examples=30)
def test_any_bytes_are_refused(data: bytes, zipped: bool) -> None:
    survive(gzip.compress(data) if zipped else data)


@given(st.text(max_size=40), st.sampled_from([b"0", b"1", b"2", b"3", b"5", b"7", b"L", b"K", b"x", b"g", b"S"]))
@settings(deadline=None, max_examples=40)
def test_any_name_and_kind_of_member_stays_inside(name: str, kind: bytes) -> None:
    header, _ = member(f"one/{name}"[:90].replace("\0", ""), type=kind)
    with tempfile.TemporaryDirectory() as folder:
        try:
            data = packed(Path(folder) / "a", [GOOD[0], (header, b"")]).read_bytes()
        except (ValueError, UnicodeError):
            return  # not even tarfile can write it
    survive(data)
