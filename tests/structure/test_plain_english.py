"""The language check finds what it is there to find, and nothing else."""

from __future__ import annotations

import runpy
from pathlib import Path

CHECK = runpy.run_path(str(Path(__file__).with_name("plain_english.py")))

SOURCE = '''"""What a module holds."""

LIMIT = 3
"""How many fit."""


class Reader:
    """Reads anew; whoever waits is told."""

    anew: int

    def read(self) -> None:
        """Read one batch."""
        raise ValueError(f"{self} is no batch")  # there is no batch
'''


def test_openings_of_modules_attributes_classes_and_functions_are_found() -> None:
    assert list(CHECK["openings"](SOURCE)) == [1, 4]


def test_phrases_are_found_in_docstrings_and_messages_and_not_in_names() -> None:
    assert list(CHECK["phrases"](SOURCE)) == [8, 8, 8, 14]
