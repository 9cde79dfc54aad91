"""A redirect does not lead from outside to addresses that outsiders do not reach."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from shakedown.node import inward

HOSTS = {
    "data.example": ["93.184.215.14"],
    "cdn.example": ["2606:2800:21f:cb07:6820:80da:af6b:8b2c", "93.184.215.15"],
    "mixed.example": ["93.184.215.16", "10.0.0.7"],
    "mirror.site": ["10.1.2.3"],
    "store.site": ["192.168.7.9"],
    "here.example": ["127.0.0.1"],
    "mapped.example": ["::ffff:10.0.0.1"],
    "cloud.example": ["169.254.169.254"],
    "nat64.example": ["64:ff9b::a00:1"],
    "nat64-here.example": ["64:ff9b::7f00:1"],
    "nat64-cloud.example": ["64:ff9b::a9fe:a9fe"],
    "6to4.example": ["2002:0a00:0001::"],
    "teredo.example": ["2001:0:5db8:d822:0:0:f5ff:fffe"],
    "compatible.example": ["::10.0.0.1"],
    "translated.example": ["::ffff:0:10.0.0.1"],
    "site-local.example": ["fec0::1"],
    "shared.example": ["100.64.0.7"],
    "aws.example": ["fd00:ec2::254"],
    "alibaba.example": ["100.100.100.200"],
    "azure.example": ["168.63.129.16"],
}


CREDENTIALS = {"cloud", "aws", "alibaba", "azure", "here"}


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolved(host: str, *_arguments: Any, **_options: Any) -> list[Any]:
        if host.replace(".", "").isdigit() or ":" in host:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0))]
        if host not in HOSTS:
            raise socket.gaierror(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in HOSTS[host]]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("data.example", "cdn.example"),
        ("data.example", "data.example"),
        ("mirror.site", "store.site"),
        ("mirror.site", "cdn.example"),
        ("mirror.site", "shared.example"),
        ("here.example", "127.0.0.1"),
        ("data.example", "unknown.example"),
    ],
)
def test_what_leads_outwards_or_within_a_site_is_followed(here: str, there: str) -> None:
    assert inward.refusal(f"https://{here}/a", f"https://{there}/b") is None


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("data.example", "mirror.site"),
        ("data.example", "10.0.0.1"),
        ("data.example", "[::1]"),
        ("data.example", "mixed.example"),
        ("data.example", "mapped.example"),
        ("data.example", "here.example"),
        ("mirror.site", "here.example"),
        ("mirror.site", "cloud.example"),
        ("here.example", "169.254.169.254"),
        *(("data.example", host) for host in HOSTS if not host.startswith(("data.", "cdn."))),
        *(("mirror.site", host) for host in HOSTS if host.split(".")[0].split("-")[-1] in CREDENTIALS),
        ("unknown.example", "mirror.site"),
    ],
)
def test_what_leads_inwards_is_not(here: str, there: str) -> None:
    assert "address" in (why := inward.refusal(f"http://{here}/a", f"http://{there}/b") or "") or "itself" in why
