"""Causes in groups of exceptions."""

from __future__ import annotations


def only_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one exception in nested groups of one, so that a fatal error shows as itself."""
    cause: BaseException = group
    while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
        cause = cause.exceptions[0]
    return cause


def first_cause(error: BaseException) -> BaseException:
    """Return the first of several simultaneous errors, as when a disk fails under two threads at once."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
