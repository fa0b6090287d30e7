"""The committed log, compared batch by batch between the nodes that apply it."""

from __future__ import annotations

from kraftlab.quorum.core.batch import Batch, decode_all


class CommittedTail:
    """The committed log. A batch must be the same on every node that applies it; `violations` are sentences."""

    def __init__(self) -> None:
        self._crcs: dict[int, int] = {}
        """The crc of each batch by its base offset."""
        self.batches: list[Batch] = []
        self.end = 0
        self.violations: list[str] = []

    def add(self, node: int, data: bytes) -> None:
        """Add batches that a node applies. There are no gaps: a node skips only batches that another node has applied."""
        for batch in decode_all(data):
            header = batch.header
            if self._crcs.setdefault(header.base_offset, header.crc) != header.crc:
                self.violations.append(f"node {node} has committed {header!r}, and another node another batch at that offset")
            elif header.base_offset == self.end:
                self.batches.append(batch)
                self.end = header.end_offset
            elif header.end_offset > self.end:
                self.violations.append(f"node {node} has committed {header!r}, which does not follow offset {self.end}")
