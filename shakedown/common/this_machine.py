"""The machine that runs the controller."""

from pathlib import Path


def boot_id_here() -> str:
    """Return the boot id of the machine that runs this, which its containers have, too."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
