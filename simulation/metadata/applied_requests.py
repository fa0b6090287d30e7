"""The effects of requests with ids in the committed log (M10): no request raises a counter twice. See named_requests.py."""

from __future__ import annotations

from collections.abc import Callable

from kraftlab.metadata.image import MetadataImage
from kraftlab.metadata.records import RESOURCE_BROKER

from ..consensus.invariants import Violation

CLIENTS = 3


def count_key(client: int) -> str:
    """Return the config key of a client's counter."""
    return f"count.{client}"


def counted(image: MetadataImage, client: int) -> tuple[int, int]:
    """Return (counter, sequence of the request that raised it last)."""
    value = image.config(RESOURCE_BROKER, "", count_key(client))
    if value is None:
        return 0, 0
    count, sequence = value.split()
    return int(count), int(sequence)


def raise_violation(text: str) -> None:
    """Raise Violation."""
    raise Violation(text)


class AppliedRequests:
    """The effects of named requests in the committed log: (client, sequence) → the counter that the request set."""

    def __init__(self, violated: Callable[[str], None] = raise_violation) -> None:
        self._violated = violated
        self.counts: dict[tuple[int, int], int] = {}
        self._last = dict.fromkeys(range(CLIENTS), (0, 0))

    def extend(self, image: MetadataImage) -> None:
        """Judge the image after another batch."""
        for client in range(CLIENTS):
            now = counted(image, client)
            if now == self._last[client]:
                continue
            count, sequence = self._last[client] = now
            if (client, sequence) in self.counts:
                self._violated(f"M10 request {sequence} of client {client} is applied twice at {image.provenance}")
            self.counts[client, sequence] = count
