"""The Raft state machine of the metadata quorum and the batch format of its log, without I/O.

A shell drives one `RaftNode`, holds messages back in an `Outbox` until they are durable, and gives the node a `LogView` of the
log. Events, effects, messages and batches live in modules of those names.

A name is imported when it is asked for: clients need the types and not the state machine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .effects import Barrier, ElectionState
    from .errors import CorruptBatch, LogTruncationRefused
    from .log_view import LogView
    from .outbox import Outbox
    from .quorum_state import TRANSITIONS, Transition
    from .raft_config import BootState, RaftConfig
    from .raft_node import RaftNode, RaftStatistics, ReplicaStatus
    from .snapshots import SnapshotContext
    from .types import OffsetAndEpoch, Voter, VoterSet

_MODULES = {
    "Barrier": "effects",
    "BootState": "raft_config",
    "CorruptBatch": "errors",
    "ElectionState": "effects",
    "LogTruncationRefused": "errors",
    "LogView": "log_view",
    "OffsetAndEpoch": "types",
    "Outbox": "outbox",
    "RaftConfig": "raft_config",
    "RaftNode": "raft_node",
    "RaftStatistics": "raft_node",
    "ReplicaStatus": "raft_node",
    "SnapshotContext": "snapshots",
    "TRANSITIONS": "quorum_state",
    "Transition": "quorum_state",
    "Voter": "types",
    "VoterSet": "types",
}
__all__ = [
    "TRANSITIONS",
    "Barrier",
    "BootState",
    "CorruptBatch",
    "ElectionState",
    "LogTruncationRefused",
    "LogView",
    "OffsetAndEpoch",
    "Outbox",
    "RaftConfig",
    "RaftNode",
    "RaftStatistics",
    "ReplicaStatus",
    "SnapshotContext",
    "Transition",
    "Voter",
    "VoterSet",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
