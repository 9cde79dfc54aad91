"""A node's files where an operation has fetched them: what the settings of shakedown/node read there."""

from collections.abc import Mapping

from shakedown.node.tree import Tree, Unreadable


class Fetched(Tree):
    """A node's files and PCI registers, by facts: what an operation compares with."""

    def __init__(self, files: Mapping[str, list[str] | None], words: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__("/nowhere")
        self.files, self.words = files, words

    def lines(self, path: str) -> list[str]:
        """Return the lines of a file. Raise Unreadable."""
        if path not in self.files:
            raise Unreadable("missing", path)
        lines = self.files[path]
        if lines is None:
            raise Unreadable("not permitted", path)
        return lines

    def text(self, path: str) -> str:
        """Return the text of a file. Raise Unreadable."""
        return "\n".join(self.lines(path)).strip()

    def names(self, path: str, in_order: bool = True) -> list[str]:
        """Return the names in a folder."""
        below = path.rstrip("/") + "/"
        return sorted({path[len(below) :].partition("/")[0] for path in self.files if path.startswith(below)})

    def exists(self, path: str) -> bool:
        return path in self.files

    def registers(self, register: str) -> dict[str, int]:
        """Return the register of every PCI function that has it, from setpci."""
        return {bdf: int(word, 16) for bdf, word in self.words[register].items()}
