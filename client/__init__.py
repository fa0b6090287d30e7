"""The typed Python client: `AdminClient` for the admin API, `DataClient` for whole record batches."""

from __future__ import annotations

from .admin import AdminClient, raise_first_error
from .data import DataClient
from .errors import ClusterUnreachable
from .stream import CallStream

__all__ = ["AdminClient", "CallStream", "ClusterUnreachable", "DataClient", "raise_first_error"]
