"""Sign a text as this node, with sshd's host key: `ssh-keygen -Y sign`, as ssh-keygen(1) and PROTOCOL.sshsig have it.
The namespace keeps such a signature from counting for a login. The key is of the kind that the controller's
connection was shown. Only root can read a host key."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from typing import Any

from .tree import Part, Tree, attempt_or

NAMESPACE = "reading@shakedown"
ASKED = "sign:"  # a word of the question: "sign:NONCE:KIND"
MARK = "shakedown_signature"
_SECONDS = 5
_FOLDER = "/etc/ssh"


def wanted(requested: Any) -> list[str]:
    """Return nonce and kind of key of a question that asks for a signature; empty: none does."""
    return next((word.split(":", 2)[1:] for word in requested if word.startswith(ASKED)), [])


def line(tree: Tree, nonce: str, kind: str, document: Part, text: str) -> str:
    """Return the line that goes before a document: the signed text over it, or why there is none."""
    signed = {key: document["system"][key] for key in ("boot_id", "epoch_s", "hostname")}
    signed.update(about="reading", nonce=nonce, program=document["probe"]["version"])
    return json.dumps({MARK: made(tree, kind, sha256=hashlib.sha256(text.encode()).hexdigest(), **signed)})


def log_digest(question: str, length: int, sha256: str) -> dict[str, str]:
    """Return the signature on the digest of a log's first bytes. `question`: "NONCE:KIND:LOG"; LOG is its name in the
    controller's run directory, so that no log can stand for another."""
    nonce, kind, name = question.split(":", 2)
    clock, hostname = int(time.time()), os.uname().nodename
    signed = {"about": "log", "bytes": length, "epoch_s": clock, "hostname": hostname, "log": name, "nonce": nonce}
    return made(Tree(), kind, sha256=sha256, **signed)


def made(tree: Tree, kind: str, **signed: Any) -> dict[str, str]:
    """Return the text that is signed with its signature and the public key, or the reason why there is none."""
    text = json.dumps(signed, sort_keys=True)
    try:
        path, public = _key(tree, kind)
        command = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", path]
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=_SECONDS)
    except (OSError, subprocess.SubprocessError, LookupError) as error:
        return {"reason": str(error)[:300]}
    if done.returncode:
        return {"reason": "ssh-keygen: " + done.stderr.decode("utf-8", "replace").strip()[-300:]}
    return {"text": text, "signature": done.stdout.decode("ascii", "replace"), "host_key": public}


def _key(tree: Tree, kind: str) -> tuple[str, str]:
    """Return the file of the host key of this kind, and the public key in it. Raises LookupError."""
    files = [_FOLDER + "/ssh_host_{}_key".format(name) for name in ("ed25519", "ecdsa", "rsa")]
    for words in (text.split() for text in attempt_or([], tree.lines, _FOLDER + "/sshd_config")):
        if len(words) == 2 and words[0].lower() == "hostkey":
            files.append(words[1])
    for file in files:
        public = attempt_or("", tree.text, file + ".pub").split()[:2]
        if public[:1] == [kind]:
            return file, " ".join(public)
    raise LookupError("it has no host key of the kind {} in {}".format(kind, _FOLDER))
