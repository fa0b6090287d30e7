"""Faults that end a command of the pipeline with a sentence instead of a traceback: what was wrong, and the next step."""

from __future__ import annotations

EXTRA = frozenset({"pyspark", "py4j", "pyarrow", "pandas", "numpy", "scipy", "plotly", "jinja2"})
"""Import names of what the extra `pipeline` installs and its code cannot do without."""


class Fault(Exception):
    """What a command may raise at its user."""


class WrongUse(Fault):
    """What was asked for cannot be: a table that does not exist, a URI that no worker could read."""


class EnvironmentFault(Fault):
    """This machine, or the cluster that was named, cannot run the pipeline."""


class CorruptInput(Fault):
    """Input that is damaged, where the command was told to stop at damage, or that must not be mixed, as logs of two clusters."""
