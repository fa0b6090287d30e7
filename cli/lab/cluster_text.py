"""Texts of `kraftlab cluster`: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from kraftlab.client.health import Finding


class Member(msgspec.Struct, frozen=True):
    """A broker or controller. `silent_ms` is the time since the active controller's last contact, None if unknown."""

    node_id: int
    host: str
    port: int
    rack: str | None
    state: str
    endpoint_type: str
    epoch: int | None = None
    silent_ms: int | None = None
    cordoned_log_dirs: tuple[str, ...] = ()
    log_dir_count: int = 0


def endpoint_lines(members: Sequence[Member], is_long: bool) -> list[str]:
    """Return the table of kafka-cluster: columns of fixed width, host and rack as wide as their longest value."""
    host_width = max((len(member.host) for member in members), default=10)
    rack_width = max((len(member.rack) for member in members if member.rack is not None), default=10)
    has_state = any(member.endpoint_type == "broker" for member in members) or not members
    rows = [["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE", "EPOCH", "LAST_CONTACT", "CORDONED"]]
    rows += [_cells(member) for member in members]
    widths = [10, max(host_width, 4), 10, max(rack_width, 4), 13, 15, 10, 15, 10]
    shown = [index for index in range(len(widths)) if (index != 4 or has_state) and (index < 6 or is_long)]
    return [" ".join(f"{row[index]:<{widths[index]}}" for index in shown).rstrip() for row in rows]


def _cells(member: Member) -> list[str]:
    cordoned = f"{len(member.cordoned_log_dirs)} of {member.log_dir_count}" if member.cordoned_log_dirs else "-"
    return [
        str(member.node_id),
        member.host,
        str(member.port),
        member.rack if member.rack is not None else "-",
        member.state,
        member.endpoint_type,
        "-" if member.epoch is None else str(member.epoch),
        "-" if member.silent_ms is None else f"{member.silent_ms} ms ago",
        cordoned,
    ]


def health_lines(findings: Sequence[Finding]) -> list[str]:
    """Return the lines for what is wrong with a cluster, each with its next step, and for what is in progress."""
    faults = [finding for finding in findings if finding.is_fault]
    others = [finding for finding in findings if not finding.is_fault]
    lines = [f"{finding.text}\n  → {finding.next_step}" for finding in faults] or ["Healthy."]
    return lines + [f"{finding.text} ({finding.next_step})" for finding in others]
