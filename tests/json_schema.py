"""jsonschema without the grammars of web addresses, which another package of the tests brings.

They take 6 s of CPU to load, in each process of a parallel run, for a check of addresses that no test asks for.
"""

from __future__ import annotations

import sys

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

from jsonschema import Draft202012Validator, ValidationError  # noqa: E402

__all__ = ["Draft202012Validator", "ValidationError"]
