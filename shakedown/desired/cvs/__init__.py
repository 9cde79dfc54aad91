"""Configuration files of ROCm/cvs as layers of a desired state: nothing in them is read over without a word."""

from shakedown.desired.cvs.document import CvsError, Imported, Remark
from shakedown.desired.cvs.importing import import_file, import_named
from shakedown.desired.cvs.job import Choice

__all__ = ["Choice", "CvsError", "Imported", "Remark", "import_file", "import_named"]
