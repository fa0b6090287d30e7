"""Levels of a running process's loggers, as configs of a resource (KIP-412).

A logger has its Python name; `root` is the root logger. Levels have Kafka's names. A logger without a level of its own has
that of its parent. Levels are not stored: a restarted process has its initial levels.
"""

from __future__ import annotations

import logging

ROOT = "root"
LEVELS = {"FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}
_OURS = "kraftlab"


def levels() -> dict[str, str]:
    """Every logger of this program, and the root, with its effective level."""
    names = [name for name in logging.root.manager.loggerDict if name == _OURS or name.startswith(f"{_OURS}.")]
    return {name: _name_of(_logger(name).getEffectiveLevel()) for name in (ROOT, *sorted(names))}


def fault(name: str, level: str | None) -> str | None:
    """Reason why a logger cannot get that level, None if it can. Level None removes the logger's own level."""
    if name not in levels():
        return f"Logger {name} does not exist!"
    if level is not None and level not in LEVELS:
        return (
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. Valid log levels are "
            f"{', '.join(sorted(LEVELS))}"
        )
    return None


def set_level(name: str, level: str | None) -> None:
    """Set a logger's level, or (None) inherit the parent's. `fault` has returned None for it."""
    _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _name_of(number: int) -> str:
    return next((name for name, level in LEVELS.items() if number >= level), "TRACE")
