"""PyTorch's store over the meeting: torch's own listens on every address, and asks nobody who he is."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch.distributed import Store  # type: ignore[attr-defined]

from .meeting import Meeting, MeetingError

_PAUSE_S = 0.02
_BYTES = "b:"  # in front of what was set; a number that was added to stands as it is


class MeetingStore(Store):
    """What process groups ask of a store, under a prefix."""

    def __init__(self, meeting: Meeting, prefix: str, seconds: float) -> None:
        super().__init__()
        self._meeting, self._prefix, self._seconds = meeting, prefix, seconds

    def clone(self) -> MeetingStore:
        """Another one of the same."""
        return MeetingStore(self._meeting, self._prefix, self._seconds)

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}"

    def set(self, key: str, value: bytes | str) -> None:
        """Bytes under a key."""
        raw = value.encode() if isinstance(value, str) else bytes(value)
        self._meeting.ask("set", self._key(key), _BYTES + base64.b64encode(raw).decode())

    def get(self, key: str) -> bytes:
        """What stands there, as soon as it does. Raises MeetingError when nothing comes."""
        found = self._meeting.wait(self._key(key), self._seconds)
        if found is None:
            raise MeetingError(f"nothing under {key} within {self._seconds:g} s")
        return base64.b64decode(found[len(_BYTES) :]) if found.startswith(_BYTES) else found.encode()

    def add(self, key: str, amount: int) -> int:
        """Add to a number, and tell what it is now."""
        return int(self._meeting.ask("add", self._key(key), int(amount)))

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all are there."""
        return all(self._meeting.ask("get", self._key(key)) is not None for key in keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Until all are there. Raises MeetingError when they are not in time."""
        seconds = self._seconds if timeout is None else timeout.total_seconds()
        until = time.monotonic() + seconds
        while not self.check(keys):
            if time.monotonic() > until:
                raise MeetingError(f"nothing under {', '.join(keys)} within {seconds:g} s")
            time.sleep(_PAUSE_S)

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        """Set where the old value is the expected one; two at once do not happen between two nodes."""
        raw = [each.encode() if isinstance(each, str) else bytes(each) for each in (expected, desired)]
        found = self.get(key) if self.check([key]) else b""
        if found == raw[0] or (not found and not raw[0]):
            self.set(key, raw[1])
            return raw[1]
        return found or raw[0]

    def delete_key(self, key: str) -> bool:
        """Whether it was there."""
        return bool(self._meeting.ask("delete", self._key(key)))

    def num_keys(self) -> int:
        """Of all that meet."""
        return int(self._meeting.ask("count", ""))

    def has_extended_api(self) -> bool:
        """Not: no append, no lists."""
        return False

    def set_timeout(self, timeout: timedelta) -> None:
        """For `get` and `wait`."""
        self._seconds = timeout.total_seconds()
