"""The Hugging Face token: a file of this machine, or HF_TOKEN as its user has exported it."""

import os

from shakedown.common.secret_file import read_secret

TOKEN = "HF_TOKEN"


def where_from(file: str | None) -> str | None:
    """Where the token comes from, for a person; None: there is none. What is exported wins, and empty is none."""
    if os.environ.get(TOKEN):
        return f"{TOKEN} as it is exported on this machine"
    return "hf_token_file" if file else None


def token(file: str | None) -> str | None:
    """Return the token itself. Raise SecretError where the file cannot be used."""
    return os.environ.get(TOKEN) or (read_secret(file) if file else None)
