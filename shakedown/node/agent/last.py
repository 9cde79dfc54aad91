"""Sent to a node as text: the last verdict of its agent, if only root can have written it. Argument: the folder."""

from __future__ import annotations

import json
import time

from ..safe_files import Unsafe, sound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

LIMIT = 8 << 20  # bytes; a verdict has some 30,000


def last(path: str) -> Dict[str, Any]:
    """The file's text; `problem` says why there is none. With the node's own clock, which the verdict's time is of."""
    try:
        content = sound(path).read_own("verdict.json", LIMIT)
        problem = "" if content is not None else "{} has no verdict.json".format(path)
    except FileNotFoundError:
        content, problem = None, "there is no {}".format(path)
    except PermissionError:
        content, problem = None, "{} can be read by root only: use _sudo=True".format(path)
    except (Unsafe, OSError) as error:
        content, problem = None, str(error)
    return {"now": time.time(), "problem": problem, "verdict": (content or b"").decode("utf-8", "replace")}


def show(path: str) -> None:
    print(json.dumps(last(path)))
