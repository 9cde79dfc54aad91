"""What Ansible's words are called here."""

from shakedown.common.data import read_toml

_DATA = read_toml("shakedown.runner.pyinfra", "ansible.toml")
NAMES: dict[str, str] = {word: key for key, words in _DATA["keys"].items() for word in words}
WORDS = {word: f"pyinfra's key {key!r}" for word, key in NAMES.items()}
WORDS |= {word: expected for expected, words in _DATA["others"].items() for word in words}
"""Ansible's words -> what is expected in their place."""
