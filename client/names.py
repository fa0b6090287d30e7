"""Lists of names that a program gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def partition_in(key: tuple[str, int]) -> tuple[str, int]:
    """Return a topic and the number of a partition. TypeError for anything else, for instance for the name of a topic."""
    if isinstance(key, Sequence) and len(key) == 2 and isinstance(key[0], str) and hasattr(key[1], "__index__"):
        return key
    example = (key, 0) if isinstance(key, str) else ("topic", 0)
    raise TypeError(f"{key!r} is not a partition; pass a tuple of its topic and its number, for instance {example!r}")


def number_in(topic: str, number: int) -> int:
    """Return a number for a topic. TypeError for anything else."""
    if hasattr(number, "__index__"):
        return number
    raise TypeError(f"{number!r} for the topic {topic!r} is not a number; pass an int, for instance {{{topic!r}: 3}}")


def names_in(names: Iterable[str]) -> Iterable[str]:
    """Return the names. TypeError for a single str: each of its characters would be taken for a name."""
    if isinstance(names, str):
        raise TypeError(f"{names!r} is one name, not a list of names; pass [{names!r}]")
    return names
