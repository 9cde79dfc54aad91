"""Regular expressions that are made when they are first used: `re` costs 8 ms of CPU, and most nodes need none."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from typing import Optional

IGNORECASE, MULTILINE = 2, 8  # re.I, re.M


class Pattern:
    """A regular expression."""

    def __init__(self, text: str, flags: int = 0) -> None:
        self.text = text
        self.flags = flags

    def search(self, text: str) -> Optional[re.Match[str]]:
        """As the compiled one does."""
        return self.compiled().search(text)

    def compiled(self) -> re.Pattern[str]:
        """Itself; `re` keeps what it has made."""
        import re

        return re.compile(self.text, self.flags)
