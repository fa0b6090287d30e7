"""Exceptions of `RaftDriver`."""

from __future__ import annotations


class NotLeader(Exception):
    """This node does not lead the epoch. `leader_id` -1: the leader is unknown; `epoch` is the newest this node has seen."""

    def __init__(self, leader_id: int, epoch: int) -> None:
        leader = f"node {leader_id} leads" if leader_id >= 0 else "no leader is known"
        super().__init__(f"this node does not lead: {leader} in epoch {epoch}; ask the leader")
        self.leader_id = leader_id
        self.epoch = epoch


class Overloaded(Exception):
    """Too much waits to be written or committed; nothing was appended. Try again after some proposals have committed."""


class NoSnapshot(Exception):
    """No snapshot was taken; the message says why."""


class GenerationOver(Exception):
    """The quorum was forced since this node last heard of it: its data is history (cluster_generation.py).

    `generation` is the newer one. `is_expendable` if the directory holds nothing that the newer generation could lack: the node
    is an observer and never decided anything.
    """

    def __init__(self, message: str, generation: int, is_expendable: bool) -> None:
        super().__init__(message)
        self.generation = generation
        self.is_expendable = is_expendable
