"""Single keys of a terminal, without waiting for Enter."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def single_keys() -> Iterator[None]:
    """Deliver each key at once, and show none; the terminal is as before at the end. Nothing where there is no terminal."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def key_within(seconds: float) -> str:
    """Return the next key, "" if none comes in time or there is no terminal."""
    if not sys.stdin.isatty():
        time.sleep(max(0.0, seconds))
        return ""
    ready, _, _ = select.select([sys.stdin], [], [], max(0.0, seconds))
    return os.read(sys.stdin.fileno(), 64).decode(errors="replace")[:1] if ready else ""
