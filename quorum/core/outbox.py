"""The one place that holds messages back until what they claim is durable.

Theory of operation. A message may leave when its `Barrier` is reached: the stored election state has at least that version, and
storage has completed at least that operation. Both counters only rise, so a message that may leave now may leave for ever, and a
message that is held needs looking at only when a counter moves. Messages released together keep the order in which they came. The
outbox lives and dies with the process: a held message whose process crashes was never sent, which is the point.

The shell calls `put` for every Send and Reply, and the two completion methods *before* it hands the same completion to the node.
"""

from __future__ import annotations

from collections.abc import Container

from .effects import Reply, Send

Message = Send | Reply


class Outbox:
    """Holds Sends and Replies until their barrier is durable."""

    __slots__ = ("_append_id", "_election_version", "_held")

    def __init__(self) -> None:
        self._election_version = 0
        self._append_id = 0
        self._held: list[Message] = []

    def put(self, message: Message) -> bool:
        """True: the message may leave now. False: it is held, and a later completion returns it."""
        after = message.after
        if after.election_version <= self._election_version and after.append_id <= self._append_id:
            return True
        self._held.append(message)
        return False

    def forget(self, correlations: Container[int]) -> None:
        """Held Sends with these correlations are not sent any more: it is too late for their answers."""
        self._held = [message for message in self._held if isinstance(message, Reply) or message.correlation not in correlations]

    def storage_completed(self, append_id: int) -> list[Message]:
        """Storage operations up to `append_id` are durable: the messages that may leave because of it."""
        if append_id > self._append_id:
            self._append_id = append_id
        return self._release()

    def election_state_stored(self, version: int) -> list[Message]:
        """The election state of `version` is durable: the messages that may leave because of it."""
        self._election_version = max(self._election_version, version)
        return self._release()

    def _release(self) -> list[Message]:
        if not self._held:
            return []
        released: list[Message] = []
        held: list[Message] = []
        for message in self._held:
            after = message.after
            reached = after.election_version <= self._election_version and after.append_id <= self._append_id
            (released if reached else held).append(message)
        self._held = held
        return released

    def __len__(self) -> int:
        """How many messages are held."""
        return len(self._held)

    def __repr__(self) -> str:
        return f"outbox(es{self._election_version} a{self._append_id} held={len(self._held)})"
