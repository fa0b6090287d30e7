"""Levels of a running process's loggers, as configs of a resource (KIP-412).

A logger is named as Python names it; `root` is the one above all. Levels have the names of Kafka's. A logger without a level of
its own has that of the logger above it. Nothing of it is kept: a process that starts again begins with its levels.
"""

from __future__ import annotations

import logging

ROOT = "root"
LEVELS = {"FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}
_OURS = "kraftlab"


def levels() -> dict[str, str]:
    """Every logger of this program, and the root, with the level in force."""
    names = [name for name in logging.root.manager.loggerDict if name == _OURS or name.startswith(f"{_OURS}.")]
    return {name: _name_of(_logger(name).getEffectiveLevel()) for name in (ROOT, *sorted(names))}


def fault(name: str, level: str | None) -> str | None:
    """Why a logger cannot get that level, None if it can. Level None: its own level is to go."""
    if name not in levels():
        return f"Logger {name} does not exist!"
    if level is not None and level not in LEVELS:
        return (
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. Valid log levels are "
            f"{', '.join(LEVELS)}"
        )
    return None


def set_level(name: str, level: str | None) -> None:
    """Gives a logger a level, or (None) that of the logger above. `fault` has found nothing wrong with it."""
    _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _name_of(number: int) -> str:
    return next((name for name, level in LEVELS.items() if number >= level), "TRACE")
