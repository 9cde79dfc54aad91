"""Virtual environments: what is asked for, installed once."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyinfra.api import OperationValueError, QuoteString, StringCommand, operation
from pyinfra.context import host

from shakedown.facts.files import Digests
from shakedown.facts.venv import RECORD, Environment, imports
from shakedown.operations import atomic
from shakedown.operations.commands import INSTALL_S, Commands, refuse, verify


@operation()
def install(
    path: str,
    steps: list[dict[str, Any]],
    editable: str | None = None,
    modules: list[str] | None = None,
    rocm: bool = False,
    python: str = "python3",
) -> Commands:
    """
    Have a virtual environment with packages in it. What was asked for is recorded in the environment by its digest,
    with the contents of the requirement files; as long as that is the same and the modules can be imported, nothing
    is done. Packages that are no longer asked for stay.

    + path: the environment on the node; absent, or a virtual environment
    + steps: calls of pip in this order: ``packages`` (pip's own words), ``requirements`` (a file on the node),
      ``index_url``
    + editable: a checkout to be installed with `pip install -e`
    + modules: what must be importable when all is done
    + rocm: torch must be one that was built for ROCm
    + python: makes the environment

    The way back is to remove the folder.

    **Example:**

    .. code:: python

        from shakedown.operations import venv
        venv.install(
            name="Megatron-LM and ROCm's torch",
            path="/opt/megatron-venv",
            steps=[
                {"packages": ["torch>=2.6"], "index_url": "https://download.pytorch.org/whl/rocm6.3"},
                {"requirements": "/opt/megatron-lm/requirements.txt"},
            ],
            editable="/opt/megatron-lm",
            modules=["torch", "megatron"],
        )
    """
    needed = modules or []
    files = [step["requirements"] for step in steps if step.get("requirements")]  # on the node

    def look() -> dict[str, Any]:
        return host.get_fact(Environment, path=path, modules=needed, rocm=rocm)

    try:
        program = imports(needed, rocm)
        contents = host.get_fact(Digests, paths=files) if files else {}
        now = look()
    except OperationValueError as error:
        yield refuse(str(error))
        return
    if problem := _problem(path, [file for file in files if file not in contents], now):
        yield refuse(problem)
        return
    wanted = request_digest(steps, contents, editable, python)
    if now.get("digest") == wanted and "import_error" not in now:
        host.noop(f"{path} has what is asked for (digest {wanted[:12]})")
        return

    where, record = QuoteString(path), f"{path}/{RECORD}"
    yield atomic.safe(path)
    if now["kind"] == "absent":
        yield StringCommand(QuoteString(python), "-I -m venv", where)
    yield atomic.remove(record)
    for step in steps:
        yield StringCommand(*_pip(path, step), _timeout=INSTALL_S)
    if editable:
        yield StringCommand(*_pip(path, {}), "--editable", QuoteString(editable), _timeout=INSTALL_S)
    # Proved by import, and only then recorded: an installation that is cut short must not look like a whole one.
    yield StringCommand("cd / &&", QuoteString(f"{path}/bin/python"), "-I -c", QuoteString(program))
    yield atomic.write(record, [wanted])

    def wrong() -> str | None:
        then = look()
        if "import_error" in then:
            return f"{path}: {then['import_error']}"
        return None if then.get("digest") == wanted else f"{path} does not hold what was installed into it"

    yield verify(wrong)


def _problem(path: str, absent: Sequence[str], now: Mapping[str, Any]) -> str | None:
    """Return why nothing can be installed there. `absent`: files of requirements that the node does not have."""
    if absent:
        return f"{path}: no such file of requirements: {', '.join(absent)}"
    if not now or "error" in now:
        return f"{path} could not be read: {now.get('error', 'the node said nothing')}"
    if now["kind"] not in ("absent", "venv"):
        return f"{path} is there and is no virtual environment: move it away, or name another path"
    return None


def request_digest(
    steps: Sequence[Mapping[str, Any]], contents: Mapping[str, str], editable: str | None, python: str
) -> str:
    """Digest the request with SHA-256. An editable checkout counts by its place: its files are used as they are."""
    request = {"steps": list(steps), "contents": dict(contents), "editable": editable, "python": python}
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def _pip(path: str, step: Mapping[str, Any]) -> list[str | QuoteString]:
    words: list[str | QuoteString] = [QuoteString(f"{path}/bin/python")]
    words.append("-I -m pip install --no-input --disable-pip-version-check --progress-bar off")
    if step.get("index_url"):
        words += ["--index-url", QuoteString(step["index_url"])]
    if step.get("requirements"):
        words += ["--requirement", QuoteString(step["requirements"])]
    return words + [QuoteString(package) for package in step.get("packages") or []]
