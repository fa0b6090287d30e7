"""Faults that end a command of the pipeline with a sentence instead of a traceback: what was wrong, and the next step."""

from __future__ import annotations

from collections.abc import Mapping

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


def fault_of_worker(error: Exception, faults: Mapping[type[Exception], type[Fault]]) -> Exception:
    """The fault for an exception of a worker process, of which Spark passes on the text alone; the error itself for any other."""
    text = str(error)
    for kind, fault in faults.items():
        marker = f"{kind.__module__}.{kind.__name__}: "
        if marker in text:
            return fault(text.rpartition(marker)[2].splitlines()[0])
    return error
