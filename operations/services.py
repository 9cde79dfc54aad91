"""Services that a node has and that do not run: the time service, the container engine. Nothing is installed."""

from pyinfra.api import QuoteString, StringCommand, operation
from pyinfra.context import host

from shakedown.facts.services import Services
from shakedown.operations.atomic import Step, remember
from shakedown.operations.commands import Commands, refuse, verify


@operation()
def running(names: list[str]) -> Commands:
    """
    Start the first of some systemd services that the node has, now and at every boot.

    + names: units in order of preference; distributions name the same service differently

    **Example:**

    .. code:: python

        from shakedown.operations import services
        services.running(
            name="Keep the clock",
            names=["chrony.service", "chronyd.service", "systemd-timesyncd.service"],
        )
    """
    known = host.get_fact(Services, names=names)
    if any(known[name]["active"] and known[name]["enabled"] for name in names if name in known):
        host.noop(f"{' or '.join(name for name in names if name in known)} runs")
        return
    if (unit := next((name for name in names if name in known), None)) is None:
        yield refuse(f"the node has none of {', '.join(names)}: install one")
        return
    before = " ".join(state for state in ("active", "enabled") if known[unit][state])
    yield remember(f"service.{unit}", [Step("service", unit, before)])
    yield StringCommand("systemctl enable --now", QuoteString(unit))

    def wrong() -> str | None:
        now = host.get_fact(Services, names=[unit]).get(unit, {})
        return None if now.get("active") and now.get("enabled") else f"{unit} was started and does not run (journalctl)"

    yield verify(wrong)
