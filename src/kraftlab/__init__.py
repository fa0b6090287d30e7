"""kraftlab: a KIP-500-style metadata quorum, its brokers and its tools.

    from kraftlab import AdminClient

The rooms of the house stand at the top of the repository; this package links to them. Each name is loaded when it is asked for,
so that `import kraftlab` costs nothing. docs/reference/python.md describes them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from kraftlab.common.version import VERSION

if TYPE_CHECKING:
    from kraftlab.client import (
        AdminClient,
        ClientSecurity,
        ClusterUnreachable,
        EntriesFailed,
        MoveOptions,
        NewPartitions,
        OutcomeUnknown,
        answer_of,
    )
    from kraftlab.common.errors import ApiError, ErrorCode
    from kraftlab.config.resources import ConfigOperation, ResourceType
    from kraftlab.lab import ClusterError, LocalCluster

__version__ = VERSION
_HOMES = {
    "kraftlab.client": (
        "AdminClient",
        "ClientSecurity",
        "ClusterUnreachable",
        "EntriesFailed",
        "MoveOptions",
        "NewPartitions",
        "OutcomeUnknown",
        "answer_of",
    ),
    "kraftlab.common.errors": ("ApiError", "ErrorCode"),
    "kraftlab.config.resources": ("ConfigOperation", "ResourceType"),
    "kraftlab.lab": ("ClusterError", "LocalCluster"),
}
__all__ = [
    "AdminClient",
    "ApiError",
    "ClientSecurity",
    "ClusterError",
    "ClusterUnreachable",
    "ConfigOperation",
    "EntriesFailed",
    "ErrorCode",
    "LocalCluster",
    "MoveOptions",
    "NewPartitions",
    "OutcomeUnknown",
    "ResourceType",
    "__version__",
    "answer_of",
]

if not TYPE_CHECKING:  # a type checker then refuses names that are not there

    def __getattr__(name):
        for home, names in _HOMES.items():
            if name in names:
                return getattr(importlib.import_module(home), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
