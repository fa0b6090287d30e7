"""Rules of recovery to compare: kraftlab's own, and two that know less."""

from __future__ import annotations

from kraftlab.quorum.storage import LogCorrupt
from kraftlab.quorum.storage.metadata_store import Rule, own_rule
from kraftlab.quorum.storage.recovery import Findings


def truncate(found: Findings) -> Findings:
    """Take any damage for a torn tail: cut the log at the first bad batch."""
    return found._replace(repair_until=0, damage="")


def stop(found: Findings) -> Findings:
    """Do not start on a log with a bad batch. LogCorrupt."""
    if found.walk.reason:
        raise LogCorrupt(f"the log ends at offset {found.walk.batches.end_offset}: {found.walk.reason}")
    return found


RULES: dict[str, Rule] = {"repair": own_rule, "truncate": truncate, "stop": stop}
