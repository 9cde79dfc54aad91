"""What a run's own documents name: nodes, users, parts; and what looks like an address there and is none."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from shakedown.catalogue import Log, entries
from shakedown.common.data import read_toml
from shakedown.node.system import GROUPS
from shakedown.runs.records import RunRecord

_USERS = {"user", "owner", *GROUPS}  # a group's key has its members
_PLACES = {"device", "tags", "digests", "reference", "registry"}  # whose values may begin with the name of a server
_SERVER = re.compile(r"([A-Za-z][\w.-]*)(?=:\d*/)|([A-Za-z][\w-]*(?:\.[\w-]+)+)(?=/)|//([A-Za-z][\w.-]*)(?=/)")
PUBLIC = {"docker.io", "ghcr.io", "quay.io", "nvcr.io", "huggingface.co", "github.com", "repo.radeon.com", "localhost"}
_HOSTS = {"hostname"}
_SERIALS = {"serial", "board_serial", "uuid", "unique_id", "machine_id", "host_key"}
_NAMES = {"name", "node", "verdict", "part", "kind", "stage", "recipe", "metric", "run_id", "missing", "scope", "title"}
_VERSIONS = {"firmware", "version", "driver", "fw", "rocm_version", "gpu_tool", "kernel", "bios"}
_EVERYBODYS = {"root", "nobody", "daemon", ""}


def names(record: RunRecord, states: Iterable[Any]) -> dict[str, str]:
    """Each name with what it is of: "host", "user", "serial" or "domain"."""
    plans = [job.plan for job in record.jobs if job.plan]
    found = dict.fromkeys((node.name for node in record.nodes), "host")
    found |= dict.fromkeys((node.name for plan in plans for node in plan.nodes), "host")
    found |= dict.fromkeys((name for plan in plans for name in plan.missing), "host")
    found |= dict.fromkeys((finding.node for finding in record.findings), "host")
    found |= dict.fromkeys(filter(None, (node.host_key for node in record.nodes)), "serial")
    found = with_names_in(states, found)
    found.pop("fleet", None)  # what all nodes have in common is a finding of none of them
    return found


def with_names_in(documents: Iterable[Any], found: dict[str, str]) -> dict[str, str]:
    """Return the known names, and those that documents have under their keys; of each host its short name, too."""
    found = dict(found)
    for document in documents:
        for key, value in _texts(document):
            if key in _HOSTS:
                found.setdefault(value, "host")
            elif key in _USERS and value not in _EVERYBODYS:
                found.setdefault(value, "user")
            elif key in _SERIALS and len(value) > 3:
                found.setdefault(value, "serial")
            elif key in _PLACES and (server := _SERVER.match(value)) and server[server.lastindex or 0] not in PUBLIC:
                found.setdefault(server[server.lastindex or 0], "host")
    hosts = [name for name, kind in found.items() if kind == "host"]
    for host in hosts:
        first, _, domain = host.partition(".")
        if domain and re.search("[A-Za-z]", domain):
            found.setdefault(first, "host")
            found.setdefault(domain, "domain")
            while domain.count(".") > 1:  # the names above it, which an address of mail has
                domain = domain.partition(".")[2]
                found.setdefault(domain, "domain")
    return found


def own_words(documents: Iterable[Any]) -> set[str]:
    """Return the keys of a run's own documents, and the names in them (of gates, findings, nodes, metrics).

    A log that says "cache key: exit_codes" makes none of them a secret.
    """
    found: set[str] = set()
    for document in documents:
        found.update(keys(document))
        found.update(text for key, text in _texts(document) if key in _NAMES)
    return found


def keys(value: Any) -> Iterator[str]:
    """Yield every key of a document."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict):
        yield from value
    for part in inner:
        yield from keys(part)


def versions(states: Iterable[Any]) -> set[str]:
    """Texts of four numbers that are versions of something."""
    return {value for state in states for key, value in _texts(state) if key in _VERSIONS}


@cache
def words() -> frozenset[str]:
    """Words that are read out of logs: a node that has such a name keeps it where it may mean the other thing."""
    logs: tuple[Log, ...] = ("job", "rccl", "kernel")
    known = [text for log in logs for entry in entries(log) for text in (*entry.text, entry.pattern or "")]
    fields = read_toml("shakedown.logs", "fields.toml")
    text = " ".join([*known, *(value for _, value in _texts(fields))])
    return frozenset(word.lower() for word in re.findall(r"[A-Za-z_]{2,}", text)) | {
        "iteration",
        "rank",
        "node",
        "logs",
    }


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a document with the key that it stands under; below a key of versions, with that."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, key if key in _VERSIONS else str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key)
    elif isinstance(value, str):
        yield key, value
