"""What the field knows, as data: lines of the kernel's log, of jobs and of RCCL, and advice.

The data files stand beside this module: `kernel_*.toml`, `job_*.toml`, `rccl.toml`, `advice.toml`.
docs/reference/catalogue.md says how to add an entry.
"""

from shakedown.catalogue.model import Entry, Log, Part, Role, Severity, advice, entries, entry

__all__ = ["Entry", "Log", "Part", "Role", "Severity", "advice", "entries", "entry"]
