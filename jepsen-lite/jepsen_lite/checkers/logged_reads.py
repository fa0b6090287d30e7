"""Reads that may be old, compared with everything that was ever committed.

Clients of the Kafka protocol read from the copy of some broker, without an offset: such a read may be arbitrarily old, but must
not show what never was.
"""

from __future__ import annotations

from typing import Any

from ..history import OK
from ..verdicts import UNKNOWN, Verdict
from ..workload import Run
from .findings import Findings


class LoggedReads:
    """A read shows only topics of the committed log, with their ids and their numbers of partitions. The time of a read is not
    judged.
    """

    name = "logged reads"

    def check(self, run: Run) -> Verdict:
        if run.log is None or run.log.start:
            return Verdict(checker=self.name, valid=UNKNOWN, reason="the committed log was not kept from its beginning")
        names: dict[str, str] = {}
        partitions: dict[str, int] = {}
        for entry in run.log.entries:
            if entry.kind == "Topic":
                names[entry.record["topic_id"]] = entry.record["name"]
            elif entry.kind == "Partition":
                partitions[entry.record["topic_id"]] = partitions.get(entry.record["topic_id"], 0) + 1
        findings, checked = Findings(), 0
        for op in run.history.of("describe", "peek", "list", "glance"):
            if op.outcome != OK or op.result is None:
                continue
            checked += 1
            shown: Any = op.result
            if op.f in ("list", "glance"):
                wrong = [row for row in shown if names.get(row[1]) != row[0]]
            else:
                wrong = [] if (names.get(shown[0]), partitions.get(shown[0])) == (op.key, shown[1]) else [shown]
            if wrong:
                findings.add("never there", f"a read ({op.f} {op.key}) shows {wrong[0]}, which the log never had", [op.index])
        return findings.verdict(self.name, checked=checked, nothing="no read showed a topic")
