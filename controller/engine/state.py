"""What the controller's managers work on: the state, what they are told besides, and what they give back.

Theory of operation. `ControllerState` is the immutable metadata image with its derived index, at one offset. A manager's
operation is a pure function `(state, request, context) -> Outcome`: it reads, decides, and returns records with a
response; it changes nothing. `ControllerState.replay` is the only thing that makes a new state, from records, on the
active controller and on standbys alike. Because states are immutable, the state before any batch in flight is a
reference, and undoing is picking it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.errors import ApiError, ErrorCode
from kraftlab.metadata.features import MIN_INSYNC_REPLICAS, bootstrap_records
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.index import EMPTY_INDEX, MetadataIndex
from kraftlab.metadata.peer_rpc import ForwardingBroker
from kraftlab.metadata.records import AnyRecord
from kraftlab.metadata.uuids import Uuid, is_reserved, to_text
from kraftlab.quorum.core.batch import MAX_RECORDS

from ..configs.mutation_quota import UNLIMITED, MutationCharge

R = TypeVar("R", covariant=True)

PEER = "PEER"
GRPC = "GRPC"
CONTROLLER = "CONTROLLER"


class Settings(msgspec.Struct, frozen=True):
    """The configuration a controller decides by. `static` is its own server.properties, key → value."""

    cluster_id: str
    node_id: int
    session_timeout_ms: int = 9000
    heartbeat_interval_ms: int = 2000
    max_idle_interval_ms: int = 500
    num_partitions: int = 1
    default_replication_factor: int = 1
    static: dict[str, str] = msgspec.field(default_factory=dict)
    balance_interval_ms: int = 300_000
    """How often leaderships are moved to preferred replicas; 0: never."""
    unclean_election_interval_ms: int = 300_000
    first_levels: dict[str, int] | None = None
    """The features that a new cluster begins with; None: the newest."""

    def first_records(self) -> list[AnyRecord]:
        """What a new cluster begins with."""
        return bootstrap_records(self.first_levels, self.static.get(MIN_INSYNC_REPLICAS, "1"))


class QuorumFacts(NamedTuple):
    """What the quorum says of itself: the ids of its voters, and where they stand (0: in files, 1: in the log)."""

    voters: tuple[int, ...]
    kraft_version: int


def unknown_quorum() -> QuorumFacts:
    """Of a controller that has no quorum: it is its own."""
    return QuorumFacts((), 1)


class Context(NamedTuple):
    """What an operation may know besides the state. `next_offset` is the offset its first record will get.

    `mutations` is the client's account for partitions that are created or deleted: `mutations.take(count)` once per topic.
    `broker` is the one that was asked, if one was and the call is about configs. `quorum` tells what the quorum is now.
    """

    now_ms: int
    random: random.Random
    settings: Settings
    next_offset: int
    mutations: MutationCharge = UNLIMITED
    broker: ForwardingBroker | None = None
    quorum: Callable[[], QuorumFacts] = unknown_quorum


class Outcome(NamedTuple, Generic[R]):
    """What an operation decided. `atomic`: the records must share one batch; else they may be cut into several, in order.
    `transaction`: what to call the metadata transaction (KIP-868) that makes an atomic change of more records than a batch
    holds one for its readers; None: such a change is refused with POLICY_VIOLATION.

    `appended` is called with the end offset once the records are in the log (or with the highest pending one if there are
    none), for what the active controller keeps outside the log.

    `reflects`: the end offset that the answer is told to reflect, if it is another one than where the log stands.
    """

    records: Sequence[AnyRecord]
    response: R
    atomic: bool = True
    appended: Callable[[int], None] | None = None
    transaction: str | None = None
    reflects: int | None = None


class ControllerState(msgspec.Struct, frozen=True):
    """The metadata at one offset, with the index derived from it."""

    image: MetadataImage
    index: MetadataIndex

    def replay(self, records: Sequence[AnyRecord], base_offset: int, provenance: Provenance) -> ControllerState:
        """The state after these records, the first of which has `base_offset`. Bad records raise: the caller's node must
        end.
        """
        delta = MetadataDelta(self.image)
        delta.replay_all(records, base_offset)
        image = delta.apply(provenance)
        if image.topics is self.image.topics and image.cluster is self.image.cluster:
            return ControllerState(image, self.index)
        return ControllerState(image, self.index.apply(delta, image))

    def at(self, provenance: Provenance) -> ControllerState:
        """The same state, known to stand at another place of the log."""
        return ControllerState(msgspec.structs.replace(self.image, provenance=provenance), self.index)


EMPTY_STATE = ControllerState(EMPTY, EMPTY_INDEX)


class HasError(Protocol):
    """A response, or an entry of one, that can say what went wrong."""

    error_code: int
    error_message: str


def set_error(target: HasError, error: ApiError) -> None:
    """Writes code and text; an empty text stays absent (Kafka's null)."""
    target.error_code = error.code
    if error.message:
        target.error_message = error.message


def check_record_count(records: Sequence[AnyRecord]) -> None:
    """ApiError POLICY_VIOLATION if one request makes more records than one batch holds."""
    if len(records) > MAX_RECORDS:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"The request makes {len(records)} metadata records, more than the {MAX_RECORDS} that fit one atomic batch; "
            "nothing was changed. Split it.",
        )


def fresh_uuid(source: random.Random, taken: Mapping[Uuid, object]) -> Uuid:
    """A random id that is neither reserved nor taken, and whose text can be a command's argument."""
    while True:
        value = source.randbytes(16)
        if not is_reserved(value) and value not in taken and not to_text(value).startswith("-"):
            return value
