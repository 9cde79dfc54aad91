"""Who may open the files under /dev that a job needs, and which files of which driver these are."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

# As the operations of shakedown/operations/devices.py are called. `patterns` are shell patterns of paths,
# `kernel_names` those of udev; `mode` is the least that there must be. No group: that of the file is right.
ACCESS: Dict[str, Dict[str, Any]] = {
    "kfd": {"patterns": ("/dev/kfd",), "kernel_names": ("kfd",), "mode": "0660", "group": "render"},
    "dri": {"patterns": ("/dev/dri/renderD*",), "kernel_names": ("renderD*",), "mode": "0660", "group": "render"},
    "infiniband": {
        "patterns": ("/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm"),
        "kernel_names": ("uverbs*", "rdma_cm"),
        "mode": "0666",
        "group": None,
    },
}
