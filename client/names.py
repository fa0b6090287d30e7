"""Lists of names that a program gives."""

from __future__ import annotations

from collections.abc import Iterable


def names_in(names: Iterable[str]) -> Iterable[str]:
    """Return the names. TypeError for a single str: each of its characters would be taken for a name."""
    if isinstance(names, str):
        raise TypeError(f"{names!r} is one name, not a list of names; pass [{names!r}]")
    return names
