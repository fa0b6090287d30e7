"""Consensus: a replicated log of opaque records. Knows no topic and no broker.

This is the face for those above: run a `RaftDriver` with a `StateMachine`, serve its handlers with a `PeerServer`, and use
`PeerPool` for requests of your own. Names load on first use, so that importing a part of the package does not import all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .core.raft_config import RaftConfig
    from .driver.driver_config import DriverConfig
    from .driver.errors import GenerationOver, NoSnapshot, NotLeader, Overloaded
    from .driver.interpreter import tame_interpreter
    from .driver.quorum_description import QuorumDescription, ReplicaDescription
    from .driver.raft_driver import RaftDriver
    from .driver.transport import (
        DirectHandler,
        ListenError,
        PeerClient,
        PeerError,
        PeerHandler,
        PeerIdentity,
        PeerPool,
        PeerRequest,
        PeerServer,
        PeerTimeout,
        PeerUnreachable,
    )
    from .state_machine import CommittedBatch, FrozenState, StateMachine

_HOMES = {
    "RaftConfig": "core.raft_config",
    "GenerationOver": "driver.errors",
    "NoSnapshot": "driver.errors",
    "NotLeader": "driver.errors",
    "Overloaded": "driver.errors",
    "tame_interpreter": "driver.interpreter",
    "QuorumDescription": "driver.quorum_description",
    "ReplicaDescription": "driver.quorum_description",
    "DriverConfig": "driver.driver_config",
    "RaftDriver": "driver.raft_driver",
    "DirectHandler": "driver.transport",
    "ListenError": "driver.transport",
    "PeerClient": "driver.transport",
    "PeerError": "driver.transport",
    "PeerHandler": "driver.transport",
    "PeerIdentity": "driver.transport",
    "PeerPool": "driver.transport",
    "PeerRequest": "driver.transport",
    "PeerServer": "driver.transport",
    "PeerTimeout": "driver.transport",
    "PeerUnreachable": "driver.transport",
    "CommittedBatch": "state_machine",
    "FrozenState": "state_machine",
    "StateMachine": "state_machine",
}

__all__ = (
    "RaftConfig",
    "GenerationOver",
    "NoSnapshot",
    "NotLeader",
    "Overloaded",
    "tame_interpreter",
    "QuorumDescription",
    "ReplicaDescription",
    "DriverConfig",
    "RaftDriver",
    "DirectHandler",
    "ListenError",
    "PeerClient",
    "PeerError",
    "PeerHandler",
    "PeerIdentity",
    "PeerPool",
    "PeerRequest",
    "PeerServer",
    "PeerTimeout",
    "PeerUnreachable",
    "CommittedBatch",
    "FrozenState",
    "StateMachine",
)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
