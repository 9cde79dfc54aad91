"""The channels that there are: data (`channels.toml`)."""

from functools import cache
from typing import Annotated, Literal

from pydantic import Field

from shakedown.common.data import read_toml
from shakedown.common.frozen import Frozen

# As a desired state names them: gpu.no_throttling.
THROTTLE = "throttle_"


class Channel(Frozen):
    """One kind of channel. `name` has a `*` where a device's name stands."""

    name: str
    unit: str
    kind: Literal["gauge", "rate", "count"]
    source: str
    scale: float = 1.0
    odd: Literal["high", "low"] | None = None
    least: Annotated[float, Field(ge=0)] = 0.0

    @property
    def odd_unit(self) -> str:
        """Return the unit that is compared between nodes: for throttling its share of the time."""
        return "% of the time" if self.reason is not None else self.unit

    @property
    def reason(self) -> str | None:
        """Return the reason of throttling that the channel counts, if it counts one."""
        last = self.name.rpartition("/")[2]
        return last.removeprefix(THROTTLE).removesuffix("_s") if last.startswith(THROTTLE) else None


@cache
def channels() -> dict[str, Channel]:
    """Return all kinds by their names."""
    entries = read_toml("shakedown.evidence.telemetry", "channels.toml")["channel"]
    found = [Channel.model_validate(entry) for entry in entries]
    return {channel.name: channel for channel in found}


def parts(name: str) -> tuple[str, str]:
    """Split a channel into its kind and its device: ("gpu/*/power_w", "0000:05:00.0"). Without a device: (name, "")."""
    kind, _, rest = name.partition("/")
    device, slash, what = rest.rpartition("/")
    return (f"{kind}/*/{what}", device) if slash else (name, "")
