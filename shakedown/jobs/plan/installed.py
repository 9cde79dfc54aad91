"""Is everything there that the job imports? installed.py MODULE [MODULE...], in the job's own python (3.8 and newer).

Nothing is imported but the parents of dotted names: a quick answer, where importing torch takes seconds.
"""

import importlib.util
import sys


def installed(name: str) -> bool:
    """Can the module be found?"""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # a parent of a dotted name is missing
        return False


if __name__ == "__main__":
    missing = [name for name in sys.argv[1:] if not installed(name)]
    if missing:
        remedy = "pip install 'shakedown[train]' there, or name another venv in smoke.venv"
        sys.exit("not installed in %s (%s): %s" % (sys.prefix, remedy, ", ".join(missing)))  # noqa: UP031
