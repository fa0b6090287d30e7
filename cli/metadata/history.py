"""Command lines about the history of a partition, a topic, a broker or the quorum, and the changes as lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kraftlab.node.subject_changes import Subject, SubjectChange

from ..output import WrongUse
from ..tables import utc_text


def parse_subject(words: Sequence[str]) -> Subject:
    """Return the subject of a command line. WrongUse."""
    match tuple(" ".join(words).split()):
        case ("quorum",):
            return Subject("quorum")
        case ("broker", broker) if re.fullmatch(r"[0-9]{1,9}", broker):
            return Subject("broker", str(int(broker)))
        case (name,) if name and name != "broker":
            return Subject("topic", name)
    raise WrongUse(f"Error: no history of {' '.join(words)!r}: expected TOPIC-PARTITION, TOPIC, broker ID, or quorum")


def history_lines(changes: Iterable[SubjectChange]) -> Iterator[str]:
    """Yield a line for each change, and below it its plan, initiator and reason."""
    for found in changes:
        yield f"{utc_text(found.append_time_ms)}  offset {found.offset}  epoch {found.epoch}  {found.change}"
        why = [f"move {found.move_id}"] if found.move_id else []
        why += [f"plan {found.plan_id}"] if found.plan_id else []
        why += [f"by {found.initiator}"] if found.initiator else []
        if why or found.reason:
            yield f"    {': '.join(part for part in (', '.join(why), found.reason) if part)}"
