"""What `RaftDriver.propose` can refuse with."""

from __future__ import annotations


class NotLeader(Exception):
    """This node does not lead the epoch. `leader_id` -1: nobody known leads; `epoch` is the newest this node has seen."""

    def __init__(self, leader_id: int, epoch: int) -> None:
        who = f"node {leader_id} leads" if leader_id >= 0 else "no leader is known"
        super().__init__(f"this node does not lead: {who} in epoch {epoch}; ask the leader")
        self.leader_id = leader_id
        self.epoch = epoch


class Overloaded(Exception):
    """Too much waits to be written or committed; nothing was appended. Try again after some proposals have committed."""
