"""Deliberate bugs, to see that the simulator finds them. Each replaces one attribute of the code under test while it is planted.

A checker that has never failed proves nothing; these show that it can. The bugs are the field's classics: a vote that a crash
forgets, an acknowledgement ahead of the disk, a record of an older epoch committed by counting, a tail that is not cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from ..core import leadership, majority
from ..core.effects import ElectionState, Reply, Send
from ..core.fetching import Fetching
from ..core.leader import Leader
from ..core.leadership import Leadership
from ..core.messages import FetchOutcome, FetchRequest, FetchResponse, Records, VoteResponse
from ..core.outbox import Outbox
from ..core.prospective import Prospective
from ..core.quorum_state import QuorumState
from ..core.read_index import ReadIndex, WaitingRead
from ..core.types import ReplicaKey
from ..core.unattached import Unattached
from ..storage.election_store import ElectionStateStore
from ..storage.metadata_log import MetadataLog, Taken
from .simulated_file_system import SimulatedFile


class Mutant(NamedTuple):
    """`owner.attribute` becomes what `make` gives for the original."""

    name: str
    about: str
    owner: object
    attribute: str
    make: Callable[[Any], Any]


def _vote_before_store(put: Callable[[Outbox, Send | Reply], bool]) -> Callable[[Outbox, Send | Reply], bool]:
    def mutated(self: Outbox, message: Send | Reply) -> bool:
        is_vote = isinstance(message, Reply) and isinstance(message.response, VoteResponse)
        return True if is_vote else put(self, message)

    return mutated


def _fetch_before_flush(put: Callable[[Outbox, Send | Reply], bool]) -> Callable[[Outbox, Send | Reply], bool]:
    def mutated(self: Outbox, message: Send | Reply) -> bool:
        is_fetch = isinstance(message, Send) and isinstance(message.request, FetchRequest)
        return True if is_fetch else put(self, message)

    return mutated


def _older_epochs_by_counting(_original: object) -> Callable[[int, int, Sequence[int]], int]:
    def mutated(current: int, epoch_start_offset: int, end_offsets: Sequence[int]) -> int:
        reached = majority.majority_offset(end_offsets)
        is_enough = reached > epoch_start_offset or reached == epoch_start_offset > 0
        return reached if is_enough and reached > current else current

    return mutated


def _unsynced_counts(advance: Callable[..., None]) -> Callable[..., None]:
    def mutated(self: Leadership, leader: Leader, *arguments: int) -> None:
        flushes = self._log.flushes
        durable_end_offset = flushes.durable_end_offset
        flushes.durable_end_offset = self._log.view.end_offset
        advance(self, leader, *arguments)
        flushes.durable_end_offset = durable_end_offset

    return mutated


def _no_divergence(_original: object) -> Callable[[object, FetchRequest], FetchOutcome | None]:
    def mutated(self: object, request: FetchRequest) -> FetchOutcome | None:
        return None

    return mutated


def _cut_forgotten(_original: object) -> Callable[[MetadataLog, int, int], None]:
    def mutated(self: MetadataLog, position: int, offset: int) -> None:
        self.durable_end_offset = min(self.durable_end_offset, offset)

    return mutated


def _pre_votes_count(
    campaign: Callable[[QuorumState, int, str], None],
) -> Callable[[QuorumState, int, str], None]:
    def mutated(self: QuorumState, now_ms: int, reason: str) -> None:
        old = self.state
        campaign(self, now_ms, reason)
        if isinstance(old, Prospective):
            for voter_id in old.tally.granting_voters():
                self.state.tally.grant(voter_id)  # type: ignore[union-attr]

    return mutated


def _vote_forgotten(
    load: Callable[[ElectionStateStore], ElectionState | None],
) -> Callable[[ElectionStateStore], ElectionState | None]:
    def mutated(self: ElectionStateStore) -> ElectionState | None:
        state = load(self)
        return ElectionState(state.epoch, state.leader_id, None) if state is not None else None

    return mutated


def _any_log_is_good_enough(grants: Callable[..., bool]) -> Callable[..., bool]:
    def mutated(self: Unattached, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        return grants(self, candidate, True, pre_vote)

    return mutated


def _own_end_is_committed(take: Callable[[Fetching, FetchResponse], bool]) -> Callable[[Fetching, FetchResponse], bool]:
    def mutated(self: Fetching, response: FetchResponse) -> bool:
        taken = take(self, response)
        if taken and isinstance(response.outcome, Records):
            self._log.commit(self._log.view.end_offset)
        return taken

    return mutated


def _no_fsync(_original: object) -> Callable[[SimulatedFile], None]:
    def mutated(self: SimulatedFile) -> None:
        return

    return mutated


def _epoch_led_again(_original: object) -> Callable[..., tuple[object, str]]:
    def mutated(self: QuorumState, log: Any, now_ms: int) -> tuple[object, str]:
        stored = self.election
        if stored.leader_id == self.config.node_id and self.membership.is_voter:
            return self._candidate(stored.epoch, now_ms), "boot: led this epoch before"
        return self._unattached(max(stored.epoch, log.last_epoch), now_ms, voted_key=stored.voted_key), "boot"

    return mutated


def _half_flush(finish: Callable[[MetadataLog, Taken], None]) -> Callable[[MetadataLog, Taken], None]:
    def mutated(self: MetadataLog, taken: Taken) -> None:
        cut_only = taken._replace(data=b"", batches=[], end_offset=taken.cut_offset)
        finish(self, cut_only if taken.cut_position is not None else taken)

    return mutated


def _arrival_is_an_echo(hear: Callable[..., bool]) -> Callable[[Leadership, Leader, FetchRequest], bool]:
    def mutated(self: Leadership, leader: Leader, request: FetchRequest) -> bool:
        return hear(self, leader, msgspec.structs.replace(request, read_round=leader.read_index.round))

    return mutated


def _read_before_own_commit(confirm: Callable[..., None]) -> Callable[[Leadership, Leader], None]:
    def mutated(self: Leadership, leader: Leader) -> None:
        known = leader.high_watermark
        leader.high_watermark = max(known, self._log.high_watermark)
        confirm(self, leader)
        leader.high_watermark = known

    return mutated


def _round_shared_too_long(_original: object) -> Callable[[ReadIndex, int, int], None]:
    def mutated(self: ReadIndex, token: int, high_watermark: int) -> None:
        if not self.waiting:
            self.round += 1
        self.waiting.append(WaitingRead(self.round, token, high_watermark))

    return mutated


MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant("vote-before-store", "a granted vote leaves before it is stored", Outbox, "put", _vote_before_store),
        Mutant("fetch-before-flush", "a fetch acknowledges what is not flushed", Outbox, "put", _fetch_before_flush),
        Mutant(
            "older-epochs-by-counting",
            "the high watermark may stop at the epoch's start (KAFKA-12619)",
            leadership,
            "next_high_watermark",
            _older_epochs_by_counting,
        ),
        Mutant(
            "unsynced-counts", "the leader counts its own unsynced log", Leadership, "advance_high_watermark", _unsynced_counts
        ),
        Mutant("no-divergence", "the leader does not compare logs", Leadership, "_mismatch", _no_divergence),
        Mutant("cut-forgotten", "a truncation never reaches the disk", MetadataLog, "_cut", _cut_forgotten),
        Mutant("pre-votes-count", "pre-votes are counted as votes", QuorumState, "campaign", _pre_votes_count),
        Mutant("vote-forgotten", "a restart forgets the vote", ElectionStateStore, "load", _vote_forgotten),
        Mutant("any-log-is-good-enough", "votes ignore the candidate's log", Unattached, "grants", _any_log_is_good_enough),
        Mutant("own-end-is-committed", "a follower commits all it has", Fetching, "_take", _own_end_is_committed),
        Mutant(
            "epoch-led-again", "a restarted leader leads its epoch again (KAFKA-10527)", QuorumState, "_boot", _epoch_led_again
        ),
        Mutant("no-fsync", "fdatasync does nothing", SimulatedFile, "fdatasync", _no_fsync),
        Mutant("arrival-is-an-echo", "any fetch confirms a linearizable read", Leadership, "_hear_echo", _arrival_is_an_echo),
        Mutant(
            "read-before-own-commit",
            "a new leader answers a linearizable read before it has committed in its epoch",
            Leadership,
            "_confirm_reads",
            _read_before_own_commit,
        ),
        Mutant(
            "round-shared-too-long",
            "a read joins a round that was named before it was asked",
            ReadIndex,
            "ask",
            _round_shared_too_long,
        ),
        Mutant("half-flush", "a flush that cuts forgets to append", MetadataLog, "finish_flush", _half_flush),
    )
}


@contextmanager
def planted(mutant: Mutant | None) -> Iterator[None]:
    """The bug is in the code inside the block, and gone after it."""
    if mutant is None:
        yield
        return
    original = vars(mutant.owner)[mutant.attribute]
    setattr(mutant.owner, mutant.attribute, mutant.make(original))
    try:
        yield
    finally:
        setattr(mutant.owner, mutant.attribute, original)
