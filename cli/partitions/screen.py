"""Lines that are shown again and again: rewritten in place on a terminal, printed when they change elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TextIO

REST_LINES = 2
"""Lines of the terminal that stay free for the cursor and for the number of lines left out."""


class Screen:
    """One block of lines at the end of a stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown: list[str] = []

    def show(self, lines: Sequence[str]) -> None:
        """Replace the block. On a terminal at most its height is shown, the last line always."""
        if not self._stream.isatty():
            if [*lines] != self._shown:
                self._stream.write("\n".join([*([""] if self._shown else []), *lines, ""]))
        else:
            lines = self._fitting(lines)
            back = f"\x1b[{len(self._shown)}F\x1b[J" if self._shown else ""
            self._stream.write(back + "".join(f"{line}\n" for line in lines))
        self._stream.flush()
        self._shown = [*lines]

    @staticmethod
    def _fitting(lines: Sequence[str]) -> list[str]:
        columns, rows = shutil.get_terminal_size()
        shown = [line[:columns] for line in lines]
        room = max(rows - REST_LINES, REST_LINES + 1)
        if len(shown) <= room:
            return shown
        return [*shown[: room - 2], f"… and {len(shown) - room + 1} more", shown[-1]]
