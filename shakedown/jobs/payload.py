"""What travels to a node with a job: launcher, sampler, the plan's files, the job's description, a token."""

import base64
import json
import os
import zlib
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from shakedown.common.secret_file import read_secret
from shakedown.jobs.launch import LaunchPlan, NodePlan
from shakedown.node.launcher.sampling import FOLDER as SAMPLER_FOLDER
from shakedown.node.launcher.standstill import FOLDER as HANG
from shakedown.transport.program import command

TOKEN = "HF_TOKEN"


def where_from(file: str | None) -> str | None:
    """Where the token comes from, for a person; None: there is none. What is exported wins, and empty is none."""
    if os.environ.get(TOKEN):
        return f"{TOKEN} as it is exported on this machine"
    return "hf_token_file" if file else None


def token(file: str | None) -> str | None:
    """Return the token itself. Raise SecretError where the file cannot be used."""
    return os.environ.get(TOKEN) or (read_secret(file) if file else None)


# Of shakedown/node, in the order of their imports.
_SOURCES = (
    *("node.__init__", "node.owners", "node.safe_files", "node.tree", "node.sign"),
    *("node.launcher.__init__", "node.launcher.processes", "node.launcher.folder", "node.launcher.lock"),
    *("node.launcher.control", "node.launcher.needs"),
    *("node.launcher.sampling", "node.launcher.standstill", "node.launcher.watchdog", "node.launcher.commands"),
)
_ENTRY = "import sys\nfrom node.launcher.commands import main\nmain(sys.argv[1:])\n"
_SAMPLER_ENTRY = "import sys\nfrom shakedown.node.telemetry.sampler import main\nmain(sys.argv[1:])\n"
# What the sampler takes along of the probe.
_SAMPLER_MODULES = ("__init__", "children", "gpu", "kernel_log", "known", "pci", "rdma", "rocm", "smi", "tree", "udev")

# Takes the launcher from the first line of standard input and the job from the second: the package has to run before
# it has a folder to lie in, and secrets must not stand in argv.
_BOOTSTRAP = """
import json, sys, types
sources = json.loads(sys.stdin.readline())
for name, text in sources:
    package, _, last = name.rpartition(".")
    full = package if last == "__init__" else name
    module = sys.modules[full] = types.ModuleType(full)
    module.__package__, module.__path__ = package, []
    above, _, last = full.rpartition(".")
    if above:
        setattr(sys.modules[above], last, module)
    exec(compile(text, full, "exec"), module.__dict__)
request = json.loads(sys.stdin.readline())
print(json.dumps(sys.modules["node.launcher.commands"].begin(request)))
"""


def _compressed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content)).decode()


def _tree(folder: Traversable, path: str) -> dict[str, str]:
    files: dict[str, str] = {}
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            files |= _tree(entry, f"{path}/{entry.name}")
        elif entry.is_file():
            files[f"{path}/{entry.name}"] = _compressed(entry.read_bytes())
    return files


def _package(dotted: str) -> Traversable:
    top, *rest = dotted.split(".")
    return resources.files(top).joinpath(*rest)


def _folders(node: NodePlan) -> list[str]:
    """Return the folders of the run folder that the job writes into.

    They are made beforehand: the user can remove what a container's root writes into them, but not a folder that the
    container has made.
    """
    logs = [log.removeprefix("{run_dir}/").rpartition("/")[0] for log in node.logs if log.startswith("{run_dir}/")]
    caches = [f"{upload_folder(dotted)}/__pycache__" for dotted in node.upload]
    return sorted({folder for folder in [*logs, *caches, HANG] if folder})


def upload_folder(dotted: str) -> str:
    """Return where a folder of the package lands below the run folder: "shakedown.jobs.workload" is `workload`."""
    return dotted.rpartition(".")[2]


def bootstrap(request: dict[str, Any]) -> tuple[list[str], str]:
    """Return the command of a launcher that has no folder on the node, or none that is known here, and its input.

    The command imports nothing of the folder in which the connection happens to begin, of the user's site or of the
    user's variables.
    """
    lines = [json.dumps(launcher_sources()), json.dumps(request)]
    return ["sh", "-c", command(_BOOTSTRAP)], "\n".join(lines) + "\n"


def description(plan: LaunchPlan, node: NodePlan, secrets: dict[str, str], times: dict[str, float]) -> dict[str, Any]:
    """Describe the node's part of the job for the launcher. `times`: the lease and the grace, in seconds."""
    files = {name: _compressed(text.encode()) for name, text in node.files.items()}
    for dotted in node.upload:
        files |= _tree(_package(dotted), upload_folder(dotted))
    sampler = None
    if plan.telemetry_s is not None:
        sampler = {"interval": plan.telemetry_s, "interface": node.interface}
    return {
        "run_id": plan.run_id,
        "mark": f"{plan.run_id}/{node.name}",
        "command": node.command,
        # A container's variables stand in a file of the plan; the engine's client gets the secrets alone.
        "environment": {} if plan.runtime == "container" else node.environment,
        "secrets": {name: secrets[name] for name in node.secrets},
        "files": files,
        "folders": _folders(node),
        "needs": [need.model_dump() for need in node.needs],
        "setup": node.setup,
        "cleanup": node.cleanup,
        **times,
        "sampler": sampler,
    }


def sampler_files() -> dict[str, str]:
    """Return the sampler as files of the run folder; no container can write there."""
    node = resources.files("shakedown.node")
    modules = {f"{name}.py": node.joinpath(f"{name}.py") for name in _SAMPLER_MODULES}
    modules["known.json"] = node.joinpath("known.json")
    modules |= {
        f"telemetry/{entry.name}": entry for entry in node.joinpath("telemetry").iterdir() if entry.name.endswith(".py")
    }
    texts = {f"shakedown/node/{path}": file.read_text("utf-8") for path, file in modules.items()}
    texts |= {"__main__.py": _SAMPLER_ENTRY, "shakedown/__init__.py": ""}
    return {f"{SAMPLER_FOLDER}/{path}": _compressed(text.encode()) for path, text in texts.items()}


def launcher_files() -> dict[str, str]:
    """Return the launcher as files of the run folder."""
    files = {f".launcher/{name.replace('.', '/')}.py": _compressed(text.encode()) for name, text in launcher_sources()}
    return {**files, ".launcher/__main__.py": _compressed(_ENTRY.encode())}


def launcher_sources() -> list[tuple[str, str]]:
    """Return the launcher's modules, and what it shares with the probe, with their texts in the order of imports."""
    package = resources.files("shakedown")
    return [(name, package.joinpath(f"{name.replace('.', '/')}.py").read_text("utf-8")) for name in _SOURCES]
