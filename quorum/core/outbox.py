"""Messages that wait until their claims are durable.

Theory of operation. A message may leave when its `Barrier` is reached: the stored election state has at least that version, and
storage has completed at least that operation. Both counters only rise, so a held message is checked again only when a counter
moves. Messages that are released together keep their order. The outbox dies with the process: a message that was held during a
crash was never sent, as intended.

The shell calls `put` for every Send and Reply. It calls the two completion methods *before* it hands the same completion to the
node.
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
        """Return True if the message may leave now. Otherwise hold it until a completion returns it."""
        after = message.after
        if after.election_version <= self._election_version and after.append_id <= self._append_id:
            return True
        self._held.append(message)
        return False

    def forget(self, correlations: Container[int]) -> None:
        """Drop held Sends with these correlations: their answers would come too late."""
        self._held = [message for message in self._held if isinstance(message, Reply) or message.correlation not in correlations]

    def storage_completed(self, append_id: int) -> list[Message]:
        """Storage operations up to `append_id` are durable; return the messages that may leave now."""
        if append_id > self._append_id:
            self._append_id = append_id
        return self._release()

    def election_state_stored(self, version: int) -> list[Message]:
        """The election state of `version` is durable; return the messages that may leave now."""
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
        """Return the number of held messages."""
        return len(self._held)

    def __repr__(self) -> str:
        return f"outbox(es{self._election_version} a{self._append_id} held={len(self._held)})"
