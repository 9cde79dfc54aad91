"""Secrets of the controller that stand in files: a token, a password, the key of its digests. One rule for all."""

import hashlib
import hmac
import json
import os
import pwd
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from shakedown.common import private
from shakedown.common.runs_folder import runs_folder

LIMIT = 16 << 10  # bytes; a token of a cloud's registry has some 4 KiB

DIGEST_KEY = "digests.key"
_KEY_BYTES = 32


class SecretError(ValueError):
    """The file holds no secret, or not for its owner alone; says which file and what to do. Never the content."""


def read_owned(name: str | Path, what: str = "no secret of one line") -> bytes:
    """Read the file. Raises SecretError where others could read or replace it, or where it is too long for `what`.

    A link is followed where root or the user has laid it, as secrets that are mounted into containers are links.
    """
    path = Path(name).expanduser()
    try:
        link = path.lstat()
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise SecretError(f"{path} cannot be read: {error.strerror}") from None
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise SecretError(f"{path} is not a file")
    with os.fdopen(fd, "rb") as handle:
        for whose in (link.st_uid, found.st_uid):
            if whose not in (0, os.geteuid()):
                raise SecretError(f"{path} belongs to {_user(whose)}, who could change it: chown {_user(os.geteuid())}")
        if found.st_mode & 0o077:
            raise SecretError(f"{path} can be read by others than its owner: chmod 600 {path}")
        content = handle.read(LIMIT + 1)
    if len(content) > LIMIT:
        raise SecretError(f"{path} has more than {LIMIT} bytes, so it holds {what}")
    return content


def read_secret(name: str | Path) -> str:
    """Read the one line of the file. Raises SecretError as `read_owned`, and where it is not one line."""
    path = Path(name).expanduser()
    try:
        text = read_owned(path).decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise SecretError(f"{path} holds no UTF-8 text") from None
    if not text.strip():
        raise SecretError(f"{path} is empty")
    if "\n" in text or "\r" in text:
        raise SecretError(f"{path} has several lines, where the secret alone should stand")
    if not text.isprintable():
        raise SecretError(f"{path} holds control characters: write the secret as plain text")
    return text


def secret_problem(name: str | Path) -> str | None:
    """Why a file that is there would be refused. One that is not there may be on the machine that runs the deploy."""
    if not os.path.lexists(Path(name).expanduser()):
        return None
    try:
        read_secret(name)
    except SecretError as error:
        return str(error)
    return None


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def keyed_digest(values: Mapping[str, str]) -> str:
    """Return the digest, hex, of the values with their names. The key stands beside the runs and is made where it is
    missing. Without a key each digest is another, so that no two jobs are taken for the same."""
    text = json.dumps(values, sort_keys=True).encode()
    return hmac.new(_key(), text, hashlib.sha256).hexdigest()


def _key() -> bytes:
    path = runs_folder() / DIGEST_KEY
    try:
        with private.create(path) as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
    except OSError:  # it is there, or cannot be made
        pass
    try:
        key = read_owned(path)
    except SecretError:  # who else knows the key could try values until a digest is theirs
        key = b""
    return key if len(key) == _KEY_BYTES else secrets.token_bytes(_KEY_BYTES)
