"""Time of day, for deadlines that outlive the process and for records' timestamps."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)
