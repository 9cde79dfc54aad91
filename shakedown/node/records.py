"""Sent to a node as text: records that only root (or this user) can have written. Arguments: the folder."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Dict

from .safe_files import Unsafe, sound

LIMIT = 16 << 20  # bytes; a setting of a node with hundreds of CPUs has a step for each of them
VERDICT = "verdict.json"
VERDICT_LIMIT = 8 << 20  # bytes; a verdict has some 30,000


def records(path: str, ending: str = ".json", limit: int = LIMIT) -> Dict[str, Any]:
    """Return the text of each record by its name; `problem` says why they cannot be used."""
    problem, found = "", {}
    try:
        folder = sound(path)
        found = {name: folder.read_own(name, limit) for name in sorted(folder.names()) if name.endswith(ending)}
    except FileNotFoundError:
        return {"there": False, "problem": "", "files": {}}
    except PermissionError:
        problem = "{} can be read by root only: use _sudo=True".format(path)
    except (Unsafe, OSError) as error:
        problem = str(error)
    files = {name: text.decode("utf-8", "replace") for name, text in found.items() if text is not None}
    return {"there": True, "problem": problem, "files": files}


def show(path: str) -> None:
    print(json.dumps(records(path)))


def show_verdict(path: str) -> None:
    """Print the last verdict of the node's agent, with the node's own clock, which the verdict's time is of."""
    found = records(path, VERDICT, VERDICT_LIMIT)
    none = "{} has no {}".format(path, VERDICT) if found["there"] else "there is no {}".format(path)
    problem = found["problem"] or ("" if VERDICT in found["files"] else none)
    print(json.dumps({"now": time.time(), "problem": problem, "verdict": found["files"].get(VERDICT, "")}))


def working_place(path: str) -> None:
    """Fail with words where another user could redirect what is done in a folder, or have run what is in it. One that
    is not there is reported as `absent`: a second look may find what another user has put there meanwhile."""
    try:
        sound(os.path.normpath(path))
    except FileNotFoundError:
        print("absent")
    except (Unsafe, OSError) as error:
        sys.exit(str(error))
