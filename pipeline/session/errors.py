"""What keeps Spark from starting here."""

from __future__ import annotations

from ..errors import EnvironmentFault


class NoJava(EnvironmentFault):
    """No Java that can run Spark was found; the text lists what was looked at."""
