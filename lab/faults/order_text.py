"""Orders as commands: `kraftlab cluster …` with the same effect. Pure."""

from __future__ import annotations

import shlex
from decimal import Decimal

from .orders import Order

OPTIONS = {
    "delay_ms": "--delay",
    "jitter_ms": "--jitter",
    "loss": "--loss",
    "duplicate": "--duplicate",
    "reorder": "--reorder",
    "rate": "--rate",
    "jump_ms": "--jump",
    "number": "--order",
    "for_ms": "--for",
    "one_way": "--one-way",
    "reset": "--reset",
    "drop": "--drop",
}
"""Field → option, in the order of a command."""
_ALWAYS = {"slow": ("delay_ms",), "lossy": ("loss",), "clock": ("rate",), "clock-jump": ("jump_ms",)}
"""Fields that a command has even if they are 0: the command would take another default, or refuses to go without."""


def command_of(order: Order, where: tuple[str, ...] = ()) -> str:
    """Return an order as a command for a shell. `where`: options that name the cluster."""
    words = ["kraftlab", "cluster", "clock" if order.order == "clock-jump" else order.order]
    words += [",".join(names) for names in order.names]
    words += [order.directory] if order.directory else []
    for field, option in OPTIONS.items():
        value, is_needed = getattr(order, field), field in _ALWAYS.get(order.order, ())
        if value is True:
            words.append(option)
        elif is_needed or (value and (field, value) != ("rate", 1.0)):
            words += [option, _time(value) if field.endswith("_ms") else _digits(value)]
    return shlex.join([*words, *where])


def _time(ms: float) -> str:
    return f"{_digits(ms / 1000)}s" if ms and ms % 1000 == 0 else f"{_digits(ms)}ms"


def _digits(value: float) -> str:
    """Return all digits without an exponent."""
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
