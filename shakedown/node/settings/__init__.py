"""The host settings that are known, one module each: `thp.py` says everything about `thp`. To add one, add a module
with one class; `shakedown/node/setting.py` says what there is to say about it."""

from __future__ import annotations

import os

from ..setting import SETTINGS, find

FOLDER = os.path.dirname(os.path.abspath(__file__))
MODULES = sorted(name[:-3] for name in os.listdir(FOLDER) if name.endswith(".py") and name != "__init__.py")
for _name in MODULES:
    __import__(__name__ + "." + _name)  # importlib would cost the probe more than the modules do

__all__ = ["MODULES", "SETTINGS", "find"]
