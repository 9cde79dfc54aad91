"""The container engine, from the distribution's own packages."""

from importlib import import_module
from typing import Any

from pyinfra.api import FactBase, StringCommand, operation
from pyinfra.context import host
from pyinfra.facts.deb import DebPackages
from pyinfra.facts.rpm import RpmPackages

from shakedown.facts.settings import Tools, Transaction
from shakedown.operations import services
from shakedown.operations.atomic import Step, remember
from shakedown.operations.commands import INSTALL_S, Commands, refuse, verify

_PROGRAMS = {"docker": "dockerd", "podman": "podman"}  # by which an engine is known, wherever it came from
_SERVICES: dict[str, list[str]] = {"docker": ["docker.service"], "podman": []}  # podman has no daemon
# apt ends rather than remove what stands in the way, such as Docker's own packages; dnf never removes any.
_MANAGERS: dict[str, tuple[type[FactBase[Any]], dict[str, Any]]] = {
    "apt": (DebPackages, {"update": True, "cache_time": 3600, "extra_install_args": "--no-remove"}),
    "dnf": (RpmPackages, {}),
}


@operation()
def installed(engine: str, package: str, manager: str) -> Commands:
    """
    Install a container engine with the node's package manager, and start its service, now and at every boot. An
    engine that is there from another source stays, and is started.

    + engine: docker or podman
    + package: its package
    + manager: apt or dnf

    The way back removes the package, and the packages of the same transaction (by the manager's own history) unless
    another one needs them. Where there is no history it removes the package alone. Images stay.

    **Example:**

    .. code:: python

        from shakedown.operations import engine
        engine.installed(name="A container engine", engine="docker", package="docker.io", manager="apt")
    """
    program = _PROGRAMS[engine]
    units = _SERVICES[engine]
    if host.get_fact(Tools, names=[program]):
        if units:
            yield from services.running._inner(names=units)
        else:
            host.noop(f"{program} is there")
        return
    packages, options = _MANAGERS[manager]
    before = set(host.get_fact(packages))
    if package in before:
        yield refuse(f"{package} is installed and {program} is missing: repair the package")
        return
    yield remember(f"package.{package}", [Step("package", package, f"{manager} {package}")])
    # Loaded where it is needed: pyinfra's apt takes 60 ms.
    for command in import_module(f"pyinfra.operations.{manager}").packages._inner(packages=[package], **options):
        yield StringCommand(command, _timeout=INSTALL_S)
    # What another person installs at the same moment is new, too, and is in no transaction of ours.
    of_ours = {package, *host.get_fact(Transaction, package=package, manager=manager)}
    came = sorted({package, *host.get_fact(packages)} & of_ours - before)
    yield remember(f"package.{package}", [Step("package", package, " ".join([manager, *came]))], once=False)
    yield verify(lambda: None if host.get_fact(Tools, names=[program]) else f"{package} brought no {program}")
    if units:
        yield from services.running._inner(names=units)
