"""Faults that end a command of the pipeline with a sentence instead of a traceback: the problem, and the next step."""

from __future__ import annotations

from collections.abc import Mapping

EXTRA = frozenset({"pyspark", "py4j", "pyarrow", "deltalake", "pandas", "numpy", "scipy", "jinja2"})
"""Import names of the packages that the extra `pipeline` installs and that its code needs."""


class Fault(Exception):
    """A fault that a command can raise at its user."""


class WrongUse(Fault):
    """A request that cannot be met: a table that does not exist, a URI that workers could not read."""


class EnvironmentFault(Fault):
    """A machine, or a cluster that the user named, that cannot run the pipeline."""


class CorruptInput(Fault):
    """Damaged input, if the command must stop at damage, or input that must not be mixed, as logs of two clusters."""


def fault_of_worker(error: Exception, faults: Mapping[type[Exception], type[Fault]]) -> Exception:
    """Return the fault for an exception of a worker process, whose text alone Spark passes on, or the error itself."""
    text = str(error)
    for kind, fault in faults.items():
        marker = f"{kind.__module__}.{kind.__name__}: "
        if marker in text:
            return fault(text.rpartition(marker)[2].splitlines()[0])
    return error
