"""NUMA auto-balancing."""

from pyinfra.api.exceptions import FactProcessError

from shakedown.facts.base import Fact
from shakedown.node.settings import SETTINGS


class NumaBalancing(Fact[int | None]):
    """
    Returns the running value of ``kernel.numa_balancing``; ``None`` where the kernel was built without it.

    .. code:: python

        if host.get_fact(NumaBalancing):
            tuning.numa_balancing(enabled=False)
    """

    def command(self) -> str:
        # Not sysctl(8): a non-login SSH shell has no /sbin in its PATH.
        (path,) = SETTINGS["numa_balancing"].files("")
        return f"cat {path} 2>/dev/null || echo missing"

    def process(self, output: list[str]) -> int | None:
        value = output[-1].strip()
        if value == "missing":
            return None
        if not value.isdigit():
            raise FactProcessError(f"/proc/sys/kernel/numa_balancing reads {value!r}")
        return int(value)
