"""The typed Python client: `AdminClient` for the admin API, `DataClient` for whole record batches.

`DataClient` is loaded on its first use: it needs the run-time of peer frames, which most commands do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .admin import AdminClient
from .entries import EntriesFailed, answer_of, raise_first_error
from .errors import ClusterUnreachable, OutcomeUnknown
from .moves import MoveOptions
from .partitions import DeletedRecords, NewPartitions
from .security import ClientSecurity
from .stream import CallStream

if TYPE_CHECKING:
    from .data import DataClient

__all__ = [
    "AdminClient",
    "CallStream",
    "ClientSecurity",
    "ClusterUnreachable",
    "DataClient",
    "DeletedRecords",
    "EntriesFailed",
    "MoveOptions",
    "NewPartitions",
    "OutcomeUnknown",
    "answer_of",
    "raise_first_error",
]


def __getattr__(name: str) -> object:
    if name == "DataClient":
        from .data import DataClient

        return DataClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
