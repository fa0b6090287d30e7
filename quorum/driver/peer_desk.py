"""The core's messages to other nodes, and theirs to it.

Theory of operation. Requests and answers of the core arrive here in its order. One whose barrier is not reached waits in the
core's `Outbox` until storage reports that it is. A request that waited so long that its answer would come too late is dropped.
Arriving messages become events: a peer's request under a new correlation, which leads back to the peer, and an answer,
or its absence, under the correlation of the request. Peers of another cluster and of a newer generation are detected here; the
callbacks decide what follows. A generation is believed only in the answer of the controller that was asked.

A request that names another node than its sender is refused (`senders.py`). The core gets the others with the sender's standing:
nodes that this node has dialled as controllers are controllers, and `standing` knows the rest.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial

import msgspec
import trio

from kraftlab.common.decoding import Decoder
from kraftlab.common.endpoint import Endpoint
from kraftlab.common.errors import ErrorCode
from kraftlab.common.signal import Answer
from kraftlab.wire.senders import CONTROLLER, check_sender
from kraftlab.wire.transport import (
    NewerGeneration,
    PeerAnswer,
    PeerError,
    PeerFailure,
    PeerPool,
    PeerRequest,
    PeerUnreachable,
    Responder,
    Traffic,
)

from ..core.effects import ANYBODY, Reply, Send
from ..core.events import Event, RequestAbandoned, RequestFailed, RequestReceived, ResponseReceived
from ..core.messages import (
    API_OF,
    REQUEST_OF,
    RESPONSE_OF,
    EndQuorumEpochRequest,
    LeaderView,
    VoterChangeRequest,
    VoterChangeResponse,
)
from ..core.outbox import Outbox
from ..core.types import Standing
from ..storage.errors import WrongIdentity
from .address_book import AddressBook
from .driver_config import DriverConfig
from .senders import QUORUM_SENDERS

logger = logging.getLogger("kraftlab.quorum")

_encode = msgspec.msgpack.Encoder().encode
_request_decoders = {api: Decoder(request) for api, request in REQUEST_OF.items()}
_response_decoders = {api: Decoder(response) for api, response in RESPONSE_OF.items()}


StandingOf = Callable[[PeerRequest], Standing]


def observers_only(request: PeerRequest) -> Standing:
    """Return OBSERVER: nothing is known of the cluster's nodes."""
    return Standing.OBSERVER


class OwnRequest(Answer[VoterChangeResponse]):
    """A request of this node to its own core, which answers it as it answers peers."""

    def refuse(self, code: ErrorCode, message: str) -> None:
        self.give(VoterChangeResponse(code, LeaderView(0), message))


class PeerDesk:
    """Use `connect` before anything is sent.

    `step` feeds the core an event; `queue` does so when the current effects are applied. `log_limited(level, message,
    values…)` logs lines that could repeat many times per second. `met_generation(generation, who)` and `end(error)` report
    conditions that a node does not survive.
    """

    def __init__(
        self,
        config: DriverConfig,
        step: Callable[[Event], None],
        queue: Callable[[Event], None],
        log_limited: Callable[..., None],
        met_generation: Callable[[int, str], None],
        end: Callable[[Exception], None],
        standing: StandingOf = observers_only,
    ) -> None:
        self._config = config
        self.step = step
        self._queue = queue
        self._log = log_limited
        self._met_generation = met_generation
        self._end = end
        self._standing = standing
        self._outbox = Outbox()
        self._last_correlation = 0
        self._responders: dict[int, Responder | OwnRequest] = {}
        self._held: dict[int, tuple[float, int]] = {}
        """Requests that wait for storage, by correlation: time until which they are of use, and destination."""
        self._goodbyes: set[int] = set()
        self._goodbyes_answered = trio.Event()

    def connect(self, pool: PeerPool, addresses: AddressBook) -> None:
        """Set the connections and addresses of peers."""
        self._pool = pool
        self._addresses = addresses

    def close(self) -> None:
        """Refuse all open requests: the node stops."""
        for responder in self._responders.values():
            responder.refuse(ErrorCode.BROKER_NOT_AVAILABLE, "the node is stopping")
        self._responders.clear()

    @property
    def traffic(self) -> Traffic:
        """Counts of this node's requests to the quorum."""
        return self._pool.traffic

    def round_trips_s(self) -> dict[Endpoint, float]:
        """Return the round trip to each node that this one is connected with."""
        return self._pool.round_trips_s()

    @property
    def held_messages(self) -> int:
        """Number of messages that wait for storage."""
        return len(self._outbox)

    def voters_changed(self, leader: dict[str, Endpoint]) -> None:
        """Close connections to nodes that are no longer needed."""
        self._pool.keep({*self._addresses.members(), *leader.values()})

    async def goodbyes_answered(self) -> None:
        """Wait until every EndQuorumEpoch is answered or has failed."""
        if self._goodbyes:
            await self._goodbyes_answered.wait()

    # --- out -----------------------------------------------------------------------------------------------------------------

    def put(self, message: Send | Reply) -> None:
        """Send a message now or when its barrier is reached."""
        if self._outbox.put(message):
            self._release([message])
        elif isinstance(message, Send):
            self._give_up_late()
            self._held[message.correlation] = (trio.current_time() + message.timeout_ms / 1000, message.destination)

    def _give_up_late(self) -> None:
        """Drop held requests that are out of time. A full disk can hold them for days while the core makes new ones."""
        late = [correlation for correlation, (until, _) in self._held.items() if until < trio.current_time()]
        if late:
            self._outbox.forget(set(late))
        for correlation in late:
            self._queue(RequestFailed(correlation, self._held.pop(correlation)[1]))

    def storage_completed(self, append_id: int) -> None:
        """Release messages: storage operations up to `append_id` are durable."""
        self._release(self._outbox.storage_completed(append_id))

    def election_state_stored(self, version: int) -> None:
        """Release messages: election states up to `version` are durable."""
        self._release(self._outbox.election_state_stored(version))

    def _release(self, messages: list[Send | Reply]) -> None:
        for message in messages:
            if isinstance(message, Reply):
                responder = self._responders.pop(message.correlation, None)
                if isinstance(responder, OwnRequest):
                    assert isinstance(message.response, VoterChangeResponse), f"{message!r} answers no change of voters"
                    responder.give(message.response)
                elif responder is not None:
                    responder.reply(_encode(message.response))
            elif self._held.pop(message.correlation, (math.inf, 0))[0] < trio.current_time():
                self._queue(RequestFailed(message.correlation, message.destination))
            else:
                self._send(message)

    def _send(self, message: Send) -> None:
        endpoint = self._addresses.find(message.destination)
        if endpoint is None:
            self._log(logging.WARNING, "no %s endpoint is known for node %d", self._config.peer_listener, message.destination)
            self._queue(RequestFailed(message.correlation, message.destination))
            return
        api = API_OF[type(message.request)]
        if isinstance(message.request, EndQuorumEpochRequest):
            if not self._goodbyes:
                self._goodbyes_answered = trio.Event()
            self._goodbyes.add(message.correlation)
        on_answer = partial(self.answered, api, message.correlation, message.destination, endpoint)
        self._pool.client(endpoint).send(api, _encode(message.request), timeout_ms=message.timeout_ms, on_answer=on_answer)

    def answered(
        self, api: int, correlation: int, destination: int, endpoint: Endpoint, answer: PeerAnswer | PeerFailure
    ) -> None:
        if self._goodbyes:
            self._goodbyes.discard(correlation)
            if not self._goodbyes:
                self._goodbyes_answered.set()
        if isinstance(answer, PeerAnswer | NewerGeneration) and answer.role not in (None, CONTROLLER):
            answer = PeerUnreachable(f"a {answer.role or 'client'} answers at {endpoint}, not a controller")
        if isinstance(answer, PeerAnswer):
            if destination in (ANYBODY, answer.source.node_id):
                self._addresses.note_member(endpoint, answer.source.node_id)
            try:
                response = _response_decoders[api].decode(answer.body)
            except msgspec.MsgspecError as error:
                self._log(logging.WARNING, "node %d sent an unreadable answer to api %d: %s", answer.source.node_id, api, error)
                self.step(RequestFailed(correlation, destination))
            else:
                self.step(ResponseReceived(correlation, answer.source.node_id, response))
        else:
            logger.debug("api %d to node %d: %s", api, destination, answer)
            if isinstance(answer, NewerGeneration) and destination in (ANYBODY, answer.source):
                self._met_generation(answer.generation, f"the node at {endpoint}")
            elif isinstance(answer, PeerError) and answer.code == ErrorCode.INCONSISTENT_CLUSTER_ID:
                self._note_stranger(endpoint, answer)
            self.step(RequestFailed(correlation, destination, isinstance(answer, PeerUnreachable) and answer.refused))

    def _note_stranger(self, endpoint: Endpoint, refusal: PeerError) -> None:
        """Note that a voter is of another cluster. If most are, this node's configuration is wrong, and it ends (KIP-595)."""
        if not self._addresses.note_stranger(endpoint):
            return
        logger.warning("the node at %s belongs to another cluster: %s", endpoint, refusal)
        strangers = self._addresses.strangers_in_majority()
        if strangers:
            self._end(
                WrongIdentity(
                    f"{self._config.directory} belongs to cluster {self._config.cluster_id}, but the controllers at "
                    f"{', '.join(map(str, strangers))} do not ({refusal}). Correct controller.quorum.voters or "
                    "controller.quorum.bootstrap.servers, or metadata.log.dir, of this node."
                )
            )

    # --- in ------------------------------------------------------------------------------------------------------------------

    def accept(self, request: PeerRequest, responder: Responder) -> None:
        """Pass a peer's request to the core."""
        try:
            message = _request_decoders[request.api].decode(request.body)
            check_sender(QUORUM_SENDERS, request, message)
        except msgspec.MsgspecError as error:
            responder.refuse(ErrorCode.INVALID_REQUEST, f"the body of api {request.api} cannot be read: {error}")
            return
        except PeerError as error:
            responder.refuse(error.code, error.message)
            return
        correlation = self._expect_answer(responder)
        responder.on_abandoned = partial(self._abandoned, correlation)
        self.step(RequestReceived(correlation, request.sender, message, self._standing_of(request)))

    def _standing_of(self, request: PeerRequest) -> Standing:
        sender = request.sender.node_id
        return Standing.CONTROLLER if sender >= 0 and self._addresses.has_met(sender) else self._standing(request)

    def ask_own(self, request: VoterChangeRequest, asked: OwnRequest) -> Callable[[], None]:
        """Pass a request of this node to its own core. Call the returned function to abandon the request."""
        correlation = self._expect_answer(asked)
        self.step(RequestReceived(correlation, self._config.raft.key, request))
        return partial(self._abandoned, correlation)

    def _expect_answer(self, responder: Responder | OwnRequest) -> int:
        self._last_correlation += 1
        self._responders[self._last_correlation] = responder
        return self._last_correlation

    def _abandoned(self, correlation: int) -> None:
        if self._responders.pop(correlation, None) is not None:
            self.step(RequestAbandoned(correlation))
