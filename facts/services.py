"""Systemd services: there, running, started at boot."""

from pyinfra.api import QuoteString, StringCommand

from shakedown.facts.base import Fact


class Services(Fact[dict[str, dict[str, bool]]]):
    """
    Returns which of some systemd services a node has, with whether each is active and enabled.

    + names: units, "chrony.service"

    .. code:: python

        {"chrony.service": {"active": True, "enabled": True}}
    """

    default = dict

    def requires_command(self, names: list[str]) -> str:
        return "systemctl"

    def command(self, names: list[str]) -> StringCommand:
        properties = "--property=Id,LoadState,ActiveState,UnitFileState"
        return StringCommand("systemctl show", properties, *(QuoteString(name) for name in names))

    def process(self, output: list[str]) -> dict[str, dict[str, bool]]:
        services: dict[str, dict[str, bool]] = {}
        unit: dict[str, str] = {}
        for line in [*output, ""]:
            key, equals, value = line.partition("=")
            if equals:
                unit[key] = value
                continue
            if unit.get("LoadState") == "loaded":
                services[unit["Id"]] = {
                    "active": unit.get("ActiveState") == "active",
                    "enabled": unit.get("UnitFileState") in ("enabled", "static", "alias", "indirect", "generated"),
                }
            unit = {}
        return services
