"""What Ansible's words are called here, and what it takes for the name of a host."""

import re
from contextlib import suppress
from ipaddress import IPv6Address
from typing import Any

from shakedown.common.data import read_toml

_DATA = read_toml("shakedown.runner.pyinfra", "ansible.toml")
NAMES: dict[str, str] = {word: key for key, words in _DATA["keys"].items() for word in words}
WORDS = {word: f"pyinfra's key {key!r}" for word, key in NAMES.items()}
WORDS |= {word: expected for expected, words in _DATA["others"].items() for word in words}
"""Ansible's words -> what is expected in their place."""

_ADDRESS = re.compile(r"(?:([^@\[\]]+)@)?(?:\[([^\[\]]+)\]|((?:[^:@\[\]]|\[[^\]]*\])+))(?::(\d+))?")


def is_ipv6(text: str) -> bool:
    """Tell whether a text is an address, which has colons of its own."""
    with suppress(ValueError):
        return bool(IPv6Address(text))
    return False


def named(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name (maybe with ranges) in user@host:port, as "[fe80::1]:22", and the rest by Ansible's words."""
    found = None if is_ipv6(text) else _ADDRESS.fullmatch(text)
    if not found or (found[2] and not is_ipv6(found[2])):
        return text, {}
    user = {"ansible_user": found[1]} if found[1] else {}
    return found[2] or found[3], user | ({"ansible_port": int(found[4])} if found[4] else {})
