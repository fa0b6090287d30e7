"""Every metadata image that a node reports equals the image that the committed log gives.

Nodes return a digest of their image at an offset, and of the image that their log on disk gives when it is read again. This
checker replays the log once and computes the digest at every offset in question. The digests must agree whether a node got its
image by deltas, from a snapshot or after a crash. After healing, the disk of a node must give everything that the node has in
memory.
"""

from __future__ import annotations

from kraftlab.metadata.image import EMPTY, MetadataImage
from kraftlab.metadata.replay_error import ReplayError
from kraftlab.metadata.snapshot import image_digest

from ..committed_log import CommittedLog, record_of
from ..history import OK, Op
from ..verdicts import UNKNOWN, Verdict
from ..workload import Run
from .findings import Findings
from .replayed_image import applied, batches_of


class ImagesAgree:
    """`functions` are the operations whose result is [offset, digest, offset reread, digest reread], digests in hex. The last two
    are -1 and "" if nothing was reread.
    """

    name = "images agree"

    def __init__(self, *functions: str) -> None:
        self._functions = frozenset(functions)

    def check(self, run: Run) -> Verdict:
        if run.log is None or run.log.start:
            return Verdict(checker=self.name, valid=UNKNOWN, reason="the committed log was not kept from its beginning")
        findings = Findings()
        asked: list[tuple[int, str, Op, str]] = []
        for op in run.history:
            if op.f in self._functions and op.outcome == OK:
                offset, digest, reread_offset, reread_digest = op.result
                asked.append((offset, digest, op, "its image"))
                if reread_digest:
                    asked.append((reread_offset, reread_digest, op, "its log on disk"))
        beyond = [(offset, op) for offset, _, op, _ in asked if offset > run.log.end]
        for offset, op in beyond:
            text = f"node {op.node} has an image at offset {offset}, and the log ends at {run.log.end} (operation {op.index})"
            findings.add("beyond the log", text, [op.index])
        try:
            digests = _digests(run.log, {offset for offset, *_ in asked})
        except ReplayError as error:
            return Verdict(checker=self.name, valid=False, reason=f"the committed log cannot be replayed: {error}")
        for offset, digest, op, what in asked:
            if digests.get(offset, digest) != digest:
                text = f"node {op.node}: {what} at offset {offset} differs from the replayed committed log (operation {op.index})"
                findings.add("another image", text, [op.index])
        for op in _last_rereads(run, self._functions).values():
            offset, _, reread_offset, _ = op.result
            if reread_offset < offset:
                text = f"node {op.node} has an image at offset {offset}, but its log on disk ends at {reread_offset}"
                findings.add("not on disk", f"{text} (operation {op.index})", [op.index])
        nodes = sorted({op.node for _, _, op, _ in asked})
        details = {"offsets": len(digests), "nodes": nodes}
        return findings.verdict(self.name, checked=len(asked), nothing="no node returned its image", details=details)


def _last_rereads(run: Run, functions: frozenset[str]) -> dict[int, Op]:
    """Return the last answer of each node that has reread its log since everything was healed."""
    asked = (op for op in run.history if op.f in functions and op.outcome == OK and op.invoked_ns >= run.healed_ns)
    return {op.node: op for op in asked if op.result[3]}


def _digests(log: CommittedLog, offsets: set[int]) -> dict[int, str]:
    """Return the digest of the image at each of these offsets: after the last batch that ends there or earlier."""
    wanted = sorted((offset for offset in offsets if offset <= log.end), reverse=True)
    found: dict[int, str] = {}
    image: MetadataImage = EMPTY
    for entries in batches_of(log):
        while wanted and wanted[-1] < entries[-1].batch_end:
            found[wanted.pop()] = image_digest(image).hex()
        records = [record for entry in entries if (record := record_of(entry)) is not None]
        if records:
            image = applied(image, entries, records)
    for offset in wanted:
        found[offset] = image_digest(image).hex()
    return found
