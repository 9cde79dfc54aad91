"""The names that drivers, libraries and distributions use, by subject: known.json has them with their sources."""

from __future__ import annotations

import json
import os
from typing import Any, Dict

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "known.json"), encoding="utf-8") as _file:
    KNOWN: Dict[str, Dict[str, Any]] = json.load(_file)
