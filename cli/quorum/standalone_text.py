"""Texts of `metadata-quorum force-standalone`: pure functions."""

from __future__ import annotations

import msgspec

from ..tables import utc_text

_ZERO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class VoterView(msgspec.Struct, frozen=True):
    controller_id: int
    directory_id: str


class ForcingView(msgspec.Struct, frozen=True):
    """Data and voters that forcing keeps and gives up. Offsets are exclusive ends, except `log_start_offset`."""

    cluster_id: str
    controller_id: int
    generation: int
    epoch: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_append_ms: int
    given_up: tuple[VoterView, ...]
    was_interrupted: bool
    is_static: bool
    is_voter: bool = True
    """False: the survivor was an observer, and voters committed without it."""


def plan_lines(view: ForcingView) -> list[str]:
    """Return the consequences, which the user should know before."""
    head = f"Controller {view.controller_id} becomes the only voter of cluster {view.cluster_id}, without other voters' records."
    if view.was_interrupted:
        head = f"Forcing controller {view.controller_id} of cluster {view.cluster_id} was interrupted; this finishes it."
    rows = (
        ("Given up:", ", ".join(map(_voter, view.given_up)) or "not known"),
        ("Committed:", f"offsets below {view.high_watermark}, for certain"),
        ("Kept as well:", _kept(view)),
        ("May be lost:", f"records that the others have committed from offset {view.log_end_offset} on"),
        ("LastWritten:", utc_text(view.last_append_ms)),
        ("Generation:", f"{view.generation - 1} -> {view.generation}"),
        ("LeaderEpoch:", str(view.epoch)),
    )
    return [head, "", *(f"{label:<24}{value}" for label, value in rows), *_warnings_of(view), ""]


def _warnings_of(view: ForcingView) -> list[str]:
    if view.is_voter or view.was_interrupted:
        return []
    return [
        "",
        f"Controller {view.controller_id} is not a voter: the voters committed without waiting for it, so it may lack committed "
        "records. Force a surviving voter if there is one.",
    ]


def warning_lines(view: ForcingView) -> list[str]:
    return [
        "Do this only if a majority of the voters is lost for good, and on the survivor whose log goes furthest: the highest",
        "log.epoch, then the highest log.end, of `kraftlab storage info`. A controller that is given up must not come back with",
        "its old data: format it before it starts again.",
        "",
    ]


def done_lines(view: ForcingView) -> list[str]:
    """Return the result and the next steps."""
    lines = [f"Controller {view.controller_id} is the only voter of cluster {view.cluster_id}, in generation {view.generation}."]
    if view.is_static:
        lines.append(
            "The voters live in the log now: replace controller.quorum.voters by controller.quorum.bootstrap.servers in the "
            "server.properties of every node."
        )
    lines.append(
        "Start it. Then, for each of the others: set its metadata.log.dir aside, kraftlab storage format "
        "--no-initial-controllers, start it, kraftlab metadata-quorum add-controller."
    )
    return lines


def _voter(voter: VoterView) -> str:
    known = voter.directory_id != _ZERO_ID
    return f"{voter.controller_id} (directory id {voter.directory_id})" if known else str(voter.controller_id)


def _kept(view: ForcingView) -> str:
    if view.high_watermark >= view.log_end_offset:
        return "nothing"
    first, last = view.high_watermark, view.log_end_offset - 1
    offsets = f"offset {first}, which becomes" if first == last else f"offsets {first} to {last}, which become"
    return f"{offsets} committed, acknowledged or not"
