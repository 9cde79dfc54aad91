"""The provider library on the host: what libibverbs would silently do without is found."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shakedown.checks.rdma import provider_driver, provider_library
from shakedown.desired.hca import library_digest, library_of
from shakedown.jobs.plan.container import host_files
from shakedown.state.findings import Finding
from tests.plans import draft
from tests.states import bare, desired, healthy, unreadable, with_

PATH = "/usr/local/lib/libbnxt_re-rdmav34.so"
INBOX = "/usr/lib/x86_64-linux-gnu/libibverbs/libbnxt_re-rdmav34.so"


def library(path: str = PATH, digest: Any = "ab" * 32, target: str | None = None) -> dict[str, Any]:
    abi = int(path.rpartition("rdmav")[2].removesuffix(".so"))
    return {"path": path, "provider": "bnxt_re", "abi": abi, "sha256": digest, "target": target}


def seen(changes: dict[Any, Any], check: Any = provider_library, **provider: Any) -> Finding:
    want = desired(rdma={"family": "thor2", "provider": provider}, nic=None) if provider else desired()
    finding = check(want, with_(healthy(), changes), "node01")
    assert isinstance(finding, Finding)
    return finding


def test_a_healthy_node_shows_the_digest() -> None:
    finding = seen({})
    assert finding.verdict == "ok" and finding.actual == PATH and "ab" * 32 in finding.evidence
    assert seen({}, provider_driver).verdict == "ok"


def test_nothing_is_asked_where_no_rdma_is_wanted() -> None:
    want = desired("cpu", nic=None)
    assert provider_library(want, bare(), "n") is None and provider_driver(want, bare(), "n") is None


@pytest.mark.parametrize(
    ("providers", "says"),
    [
        ([], "no libbnxt_re-rdmav*.so"),
        ([library("/usr/local/lib/libbnxt_re-rdmav59.so")], "ABI 59, but libibverbs loads 34"),
        ([library(digest=unreadable("missing"), target="/opt/gone.so")], f"{PATH} -> /opt/gone.so"),
        ([library(), library(INBOX, "cd" * 32)], "2 different libraries"),
        ([library(INBOX)], f"not at {PATH}"),
    ],
)
def test_what_would_leave_the_job_without_devices_fails(providers: list[Any], says: str) -> None:
    finding = seen({"verbs.providers": providers})
    assert finding.verdict == "fail" and says in finding.evidence
    assert finding.remedy is not None and finding.remedy.operation is None


@pytest.mark.parametrize(
    "providers",
    [
        [library(), library(INBOX)],
        [library(), library(INBOX, target=PATH)],
        [library(), library(INBOX.replace("34", "59"), "cd" * 32)],
    ],
)
def test_a_second_file_that_changes_nothing_is_harmless(providers: list[Any]) -> None:
    found = seen({"verbs.providers": providers})
    stray = [each["path"] for each in providers if each["abi"] != 34]
    assert found.verdict == "ok"
    assert ("never loaded (another ABI): " + "".join(stray) in found.evidence) == bool(stray)


def test_the_wrong_abi_of_libibverbs_itself_is_found() -> None:
    assert seen({"verbs.abi": 59}).verdict == "fail"


def test_a_site_that_names_its_file_gets_it_put_in_place() -> None:
    finding = seen({"verbs.providers": []}, source="files/libbnxt_re.so")
    assert finding.verdict == "drift" and finding.remedy is not None
    assert finding.remedy.operation == "provider.library"
    assert finding.remedy.arguments == {"source": "files/libbnxt_re.so", "path": PATH}


def test_another_build_than_the_sites_is_found() -> None:
    assert seen({}, sha256="cd" * 32).verdict == "fail"
    assert seen({}, sha256="cd" * 32, source="files/libbnxt_re.so").verdict == "drift"
    assert seen({}, sha256="ab" * 32).verdict == "ok"


def test_two_different_libraries_are_never_settled_by_adding_a_third() -> None:
    finding = seen({"verbs.providers": [library(), library(INBOX, "cd" * 32)]}, source="files/libbnxt_re.so")
    assert finding.verdict == "fail" and finding.remedy is not None and finding.remedy.operation is None


def test_a_node_without_libibverbs_fails_and_one_that_cannot_be_read_is_unknown() -> None:
    gone = {"verbs.library": unreadable("missing"), "verbs.abi": unreadable("missing")}
    assert seen(gone).verdict == "fail"
    assert seen({"verbs.abi": unreadable("malformed")}).verdict == "unknown"
    assert seen({"verbs.providers": [library(digest=unreadable("not permitted"))]}).verdict == "unknown"


def test_a_library_elsewhere_is_named_and_offered_and_one_that_is_not_there_is_not() -> None:
    assert seen({"verbs.providers": [library(INBOX.replace("34", "59"))]}).actual == INBOX.replace("34", "59")
    assert seen({"verbs.providers": [library(), library(INBOX.replace("34", "59"))]}).actual == PATH
    elsewhere, none = (seen({"verbs.providers": providers}).remedy for providers in ([library(INBOX)], []))
    assert elsewhere is not None and f"set rdma.provider.host_library to {INBOX}" in elsewhere.text
    assert none is not None and "host_library" not in none.text


def test_a_driver_that_no_file_names_is_drift() -> None:
    finding = seen({"verbs.drivers": {"/etc/libibverbs.d/mlx5.driver": "mlx5"}}, provider_driver)
    assert finding.verdict == "drift" and finding.remedy is not None
    assert finding.remedy.arguments == {"provider": "bnxt_re", "folder": "/etc/libibverbs.d"}


LIBRARIES = [
    library(PATH),
    library(PATH, "cd" * 32),
    library("/usr/local/lib/libbnxt_re-rdmav59.so"),
    library(INBOX),
    {**library("/usr/local/lib/libmlx5-rdmav34.so"), "provider": "mlx5"},
    library(PATH, unreadable("missing")),
]


@given(st.lists(st.sampled_from(LIBRARIES), max_size=4, unique_by=lambda each: each["path"]), st.sampled_from([34, 59]))
def test_the_check_the_plan_and_the_comparison_mean_one_library(providers: list[dict[str, Any]], abi: int) -> None:
    state = with_(healthy(), {"verbs.providers": providers, "verbs.abi": abi})
    wanted = desired()
    finding = provider_library(wanted, state, "n")
    assert isinstance(finding, Finding) and wanted.rdma.provider is not None
    planned = draft(wanted, {"n": state})
    mounts, _ = host_files(planned, "n")
    mounted = [path for path in mounts if path.endswith(".so")]
    digest = library_digest(wanted.rdma.provider, state.verbs)
    own = f"/usr/local/lib/libbnxt_re-rdmav{abi}.so"
    there = [each for each in providers if each["path"] == own and each["provider"] == "bnxt_re" and each["abi"] == abi]
    assert mounted == [each["path"] for each in there]
    assert bool(planned.problems) == (not there)
    assert digest == (there[0]["sha256"] if there and isinstance(there[0]["sha256"], str) else None)
    if finding.verdict == "ok":
        assert mounted == [own] and digest is not None and digest in finding.evidence


def test_an_abi_that_is_not_known_gives_no_library() -> None:
    state = with_(healthy(), {"verbs.abi": unreadable("malformed")})
    provider = desired().rdma.provider
    assert (
        provider is not None
        and library_of(provider, state.verbs) is None
        and library_digest(provider, state.verbs) is None
    )
    planned = draft(desired(), {"n": state})
    host_files(planned, "n")
    assert planned.problems
