"""Sent to a node as text: records that nobody but root (or this user) can have written. Arguments: the folder."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict

from .safe_files import Unsafe, sound

LIMIT = 16 << 20  # bytes; a setting of a node with hundreds of CPUs has a step for each of them


def records(path: str) -> Dict[str, Any]:
    """The text of each record by its name; `problem` says why they cannot be used."""
    try:
        folder = sound(path)
        found = {name: folder.read_own(name, LIMIT) for name in sorted(folder.names()) if name.endswith(".json")}
    except FileNotFoundError:
        return {"there": False, "problem": "", "files": {}}
    except PermissionError:
        return {"there": True, "problem": "{} can be read by root only: use _sudo=True".format(path), "files": {}}
    except Unsafe as error:
        return {"there": True, "problem": str(error), "files": {}}
    files = {name: text.decode("utf-8", "replace") for name, text in found.items() if text is not None}
    return {"there": True, "problem": "", "files": files}


def show(path: str) -> None:
    print(json.dumps(records(path)))


def working_place(path: str) -> None:
    """Fail with words where another user could redirect what is done in a folder, or have run what is in it. One that
    is not there is reported as `absent`: whoever looks once more may find what another user has put there meanwhile."""
    try:
        sound(os.path.normpath(path))
    except FileNotFoundError:
        print("absent")
    except (Unsafe, OSError) as error:
        sys.exit(str(error))
