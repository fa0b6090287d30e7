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


def test_phrases_with_a_ceiling_of_their_own_are_counted_apart() -> None:
    text = "Read the newest that fits. It is not known\nany more, and what was given up\nis carried out."
    found = {name: list(CHECK["phrases_in_text"](text, phrase)) for name, (phrase, _) in CHECK["COUNTED"].items()}
    assert sorted(lines for lines in found.values() if lines) == [[1], [2], [2], [3]]
    assert list(CHECK["phrases_in_text"](text)) == []


def test_classes_with_a_participle_as_their_name_are_found() -> None:
    source = "class Joined: ...\nclass JoinAnswer: ...\nclass _Waiting: ...\nclass Finding: ...\nclass Taken: ..."
    assert list(CHECK["class_names"](source)) == [1, 3, 5]
