#!/usr/bin/python3
"""An OCI runtime for machines whose root lacks CAP_SYS_RESOURCE: runc, asked only for what root has.

dockerd calls it in runc's place. `--privileged` asks for every capability and `--ulimit memlock=-1` for a hard limit
above root's own; both make runc fail there. This takes them out of the configuration of a container and of
`docker exec`, and then becomes runc. It belongs to the lab: on a machine with all capabilities it changes nothing.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

CAP_SYS_RESOURCE = 24


def main(arguments: list[str]) -> None:
    if not has_cap_sys_resource():
        if bundle := option(arguments, "--bundle", "-b"):
            rewrite(Path(bundle, "config.json"), "process")
        if process := option(arguments, "--process", "-p"):
            rewrite(Path(process), None)
    os.execvp("runc", ["runc", *arguments])


def has_cap_sys_resource() -> bool:
    status = Path("/proc/self/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("CapBnd:"))
    return bool(int(mask, 16) >> CAP_SYS_RESOURCE & 1)


def option(arguments: list[str], *names: str) -> str | None:
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument in names:
            return following
        if "=" in argument and argument.split("=", 1)[0] in names:
            return argument.split("=", 1)[1]
    return None


def rewrite(path: Path, key: str | None) -> None:
    document = json.loads(path.read_text())
    reduce(document[key] if key else document)
    path.write_text(json.dumps(document))


def reduce(process: dict[str, Any]) -> None:
    """Take CAP_SYS_RESOURCE, and limits above root's own hard ones, out of an OCI process description."""
    for granted in process.get("capabilities", {}).values():
        if "CAP_SYS_RESOURCE" in granted:
            granted.remove("CAP_SYS_RESOURCE")
    process["rlimits"] = [limit for limit in process.get("rlimits") or [] if allowed(limit)]


def allowed(limit: dict[str, Any]) -> bool:
    """Whether this process may set an OCI rlimit: its hard value is not above the one in force."""
    hard = resource.getrlimit(getattr(resource, limit["type"]))[1]
    return hard == resource.RLIM_INFINITY or limit["hard"] <= hard


if __name__ == "__main__":
    main(sys.argv[1:])
