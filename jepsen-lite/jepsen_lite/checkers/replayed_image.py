"""The committed log, replayed with the product's own invariants of images and records.

Every record outside a transaction is checked as a step, its changes after its batch, and the whole image after brokers or topics
were added or removed, and at the end. A record that cannot be replayed would stop every node. The checker shares its code with
the nodes, so it shows the effect of a log on them, not that they apply it correctly (`images_agree` compares that).
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.invariants import check_changed, check_image, check_step
from kraftlab.metadata.records import AnyRecord, RegisterBroker, RemoveTopic, Topic, UnregisterBroker
from kraftlab.metadata.replay_error import ReplayError

from ..committed_log import CommittedLog, Entry, record_of
from ..verdicts import UNKNOWN, Verdict
from ..workload import Run
from .findings import Findings

SINGLY_MAX = 100
"""Batches with more records are replayed as a whole."""
_COME_AND_GO = (RegisterBroker, UnregisterBroker, Topic, RemoveTopic)


class ReplayedImage:
    """`details`: the number of records checked."""

    name = "replayed image"

    def check(self, run: Run) -> Verdict:
        if run.log is None or run.log.start:
            return Verdict(checker=self.name, valid=UNKNOWN, reason="the committed log was not kept from its beginning")
        findings = Findings()
        image = EMPTY
        for entries in batches_of(run.log):
            try:
                image = _judged(image, entries, findings)
            except ReplayError as error:
                findings.add("cannot be replayed", f"at offset {entries[0].offset}: {error}")
                break
        for broken in check_image(image):
            findings.add("image", f"at the end, {broken}")
        return findings.verdict(self.name, checked=len(run.log.entries), nothing="the committed log is empty")


def batches_of(log: CommittedLog) -> list[list[Entry]]:
    """Return the entries of each batch."""
    batches: list[list[Entry]] = []
    for entry in log.entries:
        if batches and batches[-1][0].batch_end == entry.batch_end:
            batches[-1].append(entry)
        else:
            batches.append([entry])
    return batches


def applied(image: MetadataImage, entries: Sequence[Entry], records: Sequence[AnyRecord]) -> MetadataImage:
    """Return the image after these records, which are the given entries of one batch. ReplayError."""
    last = entries[-1]
    provenance = Provenance(last.batch_end, last.epoch, last.append_time_ms)
    delta = MetadataDelta(image)
    delta.replay_all(records, entries[0].offset)
    return delta.apply(provenance)


def _judged(image: MetadataImage, entries: list[Entry], findings: Findings) -> MetadataImage:
    records = [record for entry in entries if (record := record_of(entry)) is not None]
    if not records:
        return image
    if len(records) > SINGLY_MAX:
        image = applied(image, entries, records)
    else:
        for entry, record in zip(entries, records, strict=True):
            before, image = image, applied(image, [entry], [record])
            if before.transaction is None and image.transaction is None:
                for broken in check_step(before, image, record):
                    findings.add("step", f"at offset {entry.offset}, {broken}")
    if image.transaction is None:
        whole = any(isinstance(record, _COME_AND_GO) for record in records)
        for broken in check_image(image) if whole else check_changed(image, records):
            findings.add("image", f"after offset {entries[-1].batch_end}, {broken}")
    return image
