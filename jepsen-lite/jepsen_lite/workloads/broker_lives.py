"""Registrations of brokers, from the log alone: epochs increase, and no record has an epoch that is over.

The epoch of a new incarnation is the offset of the batch that registers it, so it is higher than all before; an incarnation that
registers again keeps its epoch. Every record with a broker's epoch has the one in force.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..checkers.findings import Findings
from ..checkers.fold import Change, changes
from ..verdicts import UNKNOWN, Verdict
from ..workload import Run

NOBODY_EPOCH = -1


class _Registration(NamedTuple):
    incarnation: str
    epoch: int


class BrokerLives:
    """`details`: the number of registrations, and how many of them replaced another incarnation."""

    name = "lives of brokers"

    def check(self, run: Run) -> Verdict:
        if run.log is None or run.log.start:
            return Verdict(checker=self.name, valid=UNKNOWN, reason="the committed log was not kept from its beginning")
        findings = Findings()
        current: dict[int, _Registration] = {}
        highest: dict[int, int] = {}
        registered = replaced = 0
        for change in changes(run.log):
            for entry in change.entries:
                record = entry.record
                if entry.kind == "RegisterBroker":
                    registered += 1
                    replaced += _register(change, entry.offset, record, current, highest, findings)
                elif entry.kind in ("BrokerRegistrationChange", "UnregisterBroker", "ProducerIds"):
                    _check_epoch(entry.kind, entry.offset, record, current, findings)
                    if entry.kind == "UnregisterBroker":
                        current.pop(record["broker_id"], None)
        details = {"registered": registered, "replaced": replaced}
        return findings.verdict(self.name, checked=registered, nothing="no broker ever registered", details=details)


def _register(
    change: Change,
    offset: int,
    record: dict[str, Any],
    current: dict[int, _Registration],
    highest: dict[int, int],
    findings: Findings,
) -> bool:
    """Check a registration; return True if it replaces another incarnation."""
    broker, epoch, incarnation = record["broker_id"], record["broker_epoch"], record["incarnation_id"]
    before = current.get(broker)
    if before is not None and before.incarnation == incarnation:
        if before.epoch != epoch:
            text = f"offset {offset}: broker {broker} registers again with epoch {epoch} instead of {before.epoch}"
            findings.add("epoch", text)
        return False
    if epoch <= highest.get(broker, NOBODY_EPOCH):
        findings.add("epoch", f"offset {offset}: broker {broker} gets epoch {epoch}, after {highest[broker]}")
    if not change.begin <= epoch <= offset:
        findings.add("epoch", f"offset {offset}: broker {broker} gets epoch {epoch}, which is not the offset of its registration")
    highest[broker] = max(epoch, highest.get(broker, NOBODY_EPOCH))
    current[broker] = _Registration(incarnation, epoch)
    return before is not None


def _check_epoch(kind: str, offset: int, record: dict[str, Any], current: dict[int, _Registration], findings: Findings) -> None:
    broker, epoch = record["broker_id"], record["broker_epoch"]
    registration = current.get(broker)
    if registration is None or registration.epoch != epoch:
        now = "not registered" if registration is None else f"registered with {registration.epoch}"
        findings.add("stale epoch", f"offset {offset} has {kind} of broker {broker} with epoch {epoch}, but the broker is {now}")
