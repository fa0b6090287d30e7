"""HiGHS without its output: it occasionally prints a line on standard output, where a plan's JSON goes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

from scipy import optimize

_STDOUT = 1


def milp(*arguments: object, **options: object) -> optimize.OptimizeResult:
    """Call `scipy.optimize.milp`."""
    with silent():
        return optimize.milp(*arguments, **options)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Suppress output of C code, which has a buffer of its own. The buffer is flushed before and after."""
    flush = ctypes.CDLL(None).fflush
    try:
        kept = os.dup(_STDOUT)
    except OSError:  # standard output is closed
        yield
        return
    sys.stdout.flush()
    flush(None)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _STDOUT)
    os.close(nowhere)
    try:
        yield
    finally:
        flush(None)
        os.dup2(kept, _STDOUT)
        os.close(kept)
