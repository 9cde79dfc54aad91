"""python -m tests.docs: write what is generated."""

from __future__ import annotations

import sys

from tests.docs.blocks import ROOT, wanted


def main() -> None:
    """Write every file that is not as it ought to be, and name it."""
    for path, write in wanted().items():
        text = write()
        if not path.is_file() or path.read_text("utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
