"""Input and output of the controller's managers: the state, the context of an operation, and its outcome.

Theory of operation. `ControllerState` is the immutable metadata image with its derived index, at one offset. A manager's
operation is a pure function `(state, request, context) -> Outcome`. It reads, decides, and returns records with a response; it
changes nothing. Only `ControllerState.replay` makes a new state, from records, on the active controller and on standbys alike.
States are immutable, so the state before any batch in flight is a reference, and to undo a batch is to pick that reference.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.uuids import Uuid, is_reserved, to_text
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.features import MIN_INSYNC_REPLICAS, bootstrap_records
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.index import EMPTY_INDEX, MetadataIndex
from kraftlab.metadata.peer_rpc import ForwardingBroker
from kraftlab.metadata.records import AnyRecord, UserScramCredential
from kraftlab.quorum.core.batch import MAX_RECORDS

from ..configs.mutation_quota import UNLIMITED, MutationCharge

R = TypeVar("R", covariant=True)

PEER = "PEER"
GRPC = "GRPC"
CONTROLLER = "CONTROLLER"


class Settings(msgspec.Struct, frozen=True):
    """Configuration of a controller. `static`: its own server.properties, key → value."""

    cluster_id: str
    node_id: int
    session_timeout_ms: int = 9000
    heartbeat_interval_ms: int = 2000
    max_idle_interval_ms: int = 500
    num_partitions: int = 1
    default_replication_factor: int = 1
    static: dict[str, str] = msgspec.field(default_factory=dict)
    balance_interval_ms: int = 300_000
    """Time between two moves of leaderships to preferred replicas; 0: never."""
    unclean_election_interval_ms: int = 300_000
    first_levels: dict[str, int] | None = None
    """Feature levels of a new cluster; None: the newest."""
    first_credentials: tuple[UserScramCredential, ...] = ()
    batch_records_max: int = MAX_RECORDS
    """Largest number of records in a batch. Only simulations set it, so that small changes take several batches."""

    def first_records(self) -> list[AnyRecord]:
        """Bootstrap records of a new cluster."""
        levels = bootstrap_records(self.first_levels, self.static.get(MIN_INSYNC_REPLICAS, "1"))
        return [*levels, *self.first_credentials]


class QuorumFacts(NamedTuple):
    """Ids of the quorum's voters. `kraft_version`: 0 if the voters are in files, 1 if they are in the log."""

    voters: tuple[int, ...]
    kraft_version: int


def unknown_quorum() -> QuorumFacts:
    """Facts of a controller without a quorum: it is alone."""
    return QuorumFacts((), 1)


class Context(NamedTuple):
    """Input of an operation besides the state."""

    now_ms: int
    random: random.Random
    settings: Settings
    next_offset: int
    """Offset of the operation's first record."""
    mutations: MutationCharge = UNLIMITED
    """The client's quota for created and deleted partitions: call `mutations.take(count)` once per topic."""
    broker: ForwardingBroker | None = None
    """The broker that forwarded the call, if the call is about configs."""
    quorum: Callable[[], QuorumFacts] = unknown_quorum
    """Returns the current facts of the quorum."""


class Outcome(NamedTuple, Generic[R]):
    """Decision of an operation."""

    records: Sequence[AnyRecord]
    response: R
    atomic: bool = True
    """The records must share one batch. Otherwise they may be cut into several, in order."""
    appended: Callable[[int], None] | None = None
    """Called with the end offset once the records are in the log, for state that the active controller keeps outside the log.
    Without records it gets the end offset of the last batch in flight.
    """
    transaction: str | None = None
    """Name of the metadata transaction (KIP-868) for an atomic change of several batches. None refuses such a change."""
    reflects: int | None = None
    """End offset that the answer names, if it is not the end of the log."""


class ControllerState(msgspec.Struct, frozen=True):
    """The metadata at one offset, with the index derived from it."""

    image: MetadataImage
    index: MetadataIndex

    def replay(self, records: Sequence[AnyRecord], base_offset: int, provenance: Provenance) -> ControllerState:
        """Return the state after these records, the first of which has `base_offset`. Bad records raise; the caller's node
        must stop.
        """
        delta = MetadataDelta(self.image)
        delta.replay_all(records, base_offset)
        image = delta.apply(provenance)
        if image.topics is self.image.topics and image.cluster is self.image.cluster:
            return ControllerState(image, self.index)
        return ControllerState(image, self.index.apply(delta, image))

    def at(self, provenance: Provenance) -> ControllerState:
        """The same state at another position of the log."""
        return ControllerState(msgspec.structs.replace(self.image, provenance=provenance), self.index)


EMPTY_STATE = ControllerState(EMPTY, EMPTY_INDEX)


def check_record_count(records: Sequence[AnyRecord]) -> None:
    """ApiError POLICY_VIOLATION if a request makes more records than a batch holds."""
    if len(records) > MAX_RECORDS:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"The request makes {len(records)} metadata records, more than the {MAX_RECORDS} that fit one atomic batch; "
            "nothing was changed. Split it.",
        )


def fresh_uuid(source: random.Random, taken: Mapping[Uuid, object]) -> Uuid:
    """Return a random id that is not reserved and not taken, and whose text can be a command's argument."""
    while True:
        value = source.randbytes(16)
        if not is_reserved(value) and value not in taken and not to_text(value).startswith("-"):
            return value
