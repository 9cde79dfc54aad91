"""Configuration files of ROCm/cvs as layers of a desired state: nothing in them is read over without a word."""

from shakedown.desired.cvs.forms import Choice
from shakedown.desired.cvs.importing import import_file
from shakedown.desired.cvs.result import CvsError, Imported, Remark
from shakedown.desired.cvs.site import named

__all__ = ["Choice", "CvsError", "Imported", "Remark", "import_file", "named"]
