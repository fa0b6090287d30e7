"""The text of one Python function, written line by line and compiled."""

from __future__ import annotations

from itertools import count


class Source:
    """Lines of a function, and the values that they name."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._values: dict[str, object] = {}
        self._numbers = count()

    def add(self, depth: int, *lines: str) -> None:
        self._lines += ["    " * (depth + 1) + line for line in lines]

    def name(self, prefix: str) -> str:
        """Return a new name."""
        return f"{prefix}_{next(self._numbers)}"

    def keep(self, value: object, prefix: str = "kept") -> str:
        """Return a name for a value, with which the lines can use it."""
        name = self.name(prefix)
        self._values[name] = value
        return name

    def compiled(self, arguments: str) -> object:
        """Return the function."""
        text = "\n".join([f"def function({arguments}):", *self._lines])
        exec(text, self._values)  # the text is made of Kafka's schemas alone
        return self._values["function"]
