"""Sizes as people read them. Documents for programs have numbers of bytes."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(size: float | None) -> str:
    """Return a size with a unit: 1536 is 1.5 KiB; "?" for an unknown or negative size."""
    if size is None or size < 0:
        return "?"
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"
