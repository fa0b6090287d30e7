"""A broker's membership in the cluster: registration, heartbeats, controlled shutdown (KIP-631).

Theory of operation. A broker registers (the record's offset becomes its epoch), then heartbeats: every 10 ms until it runs, then
at `broker.heartbeat.interval.ms`. It asks to stay fenced until its logs are loaded and it has published an image that contains
its own registration. Heartbeats go to the leader of the metadata quorum; when the leader changes, the next one leaves at once. To
stop, the broker asks for a controlled shutdown. It may go when the controller answers that its leaderships have moved and every
broker has seen that, or when it has waited long enough (`controlled_shutdown.py`).

A registration that was written while the cluster's metadata.version had no directories is repeated, by the same incarnation, once
the version has them; and so it is when a failed directory has come back. A broker whose registration the controller does not know
(unregistered, or replaced) registers again. Failed directories are named in every heartbeat until the registration in the
metadata lacks them; if they cannot be reported in time, the broker stops.
"""

from __future__ import annotations

import enum
import logging
import math
import random
from collections.abc import Callable
from typing import Protocol

import msgspec
import trio

from kraftlab.common.decoding import Decoder
from kraftlab.common.errors import ErrorCode, describe
from kraftlab.common.uuids import Uuid
from kraftlab.config.models import BrokerConfig
from kraftlab.metadata.peer_rpc import (
    Api,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

from .controlled_shutdown import ControlledShutdown
from .controller_channel import NO_ANSWER, Requests

logger = logging.getLogger("kraftlab.broker.lifecycle")

STARTING_INTERVAL_S = 0.01
REGISTRATION_BACKOFF_S = 0.1
HEARTBEAT_BACKOFF_S = 0.05

_encode = msgspec.msgpack.encode
_registration = Decoder(BrokerRegistrationResponse)
_heartbeat = Decoder(BrokerHeartbeatResponse)


class BrokerState(enum.Enum):
    NOT_RUNNING = "not running"
    STARTING = "starting"
    RECOVERY = "recovery"
    RUNNING = "running"
    PENDING_CONTROLLED_SHUTDOWN = "pending controlled shutdown"
    SHUTTING_DOWN = "shutting down"


class BrokerEvent(enum.Enum):
    REGISTERED = "the controller has registered the broker"
    CAUGHT_UP = "the broker knows its own registration"
    UNFENCED = "the broker is ready and unfenced"
    SHUTDOWN_ASKED = "a controlled shutdown is wanted"
    SHUTDOWN_ALLOWED = "the controller allows the shutdown, or the broker waits no longer"


_S, _E = BrokerState, BrokerEvent

BROKER_TABLE: dict[tuple[BrokerState, BrokerEvent], BrokerState] = {
    (_S.NOT_RUNNING, _E.REGISTERED): _S.STARTING,
    (_S.NOT_RUNNING, _E.SHUTDOWN_ASKED): _S.SHUTTING_DOWN,
    (_S.STARTING, _E.CAUGHT_UP): _S.RECOVERY,
    (_S.STARTING, _E.SHUTDOWN_ASKED): _S.PENDING_CONTROLLED_SHUTDOWN,
    (_S.RECOVERY, _E.UNFENCED): _S.RUNNING,
    (_S.RECOVERY, _E.SHUTDOWN_ASKED): _S.PENDING_CONTROLLED_SHUTDOWN,
    (_S.RUNNING, _E.SHUTDOWN_ASKED): _S.PENDING_CONTROLLED_SHUTDOWN,
    (_S.PENDING_CONTROLLED_SHUTDOWN, _E.SHUTDOWN_ALLOWED): _S.SHUTTING_DOWN,
}
"""Events without a row leave the state as it is."""


class RegistrationFailed(Exception):
    """The broker cannot join; the text gives the reason and the next step."""


class Channel(Requests, Protocol):
    """The way to the active controller, with notice of a new one."""

    async def wait_for_change(self, timeout_s: float) -> None: ...


_FINAL = (
    ErrorCode.INVALID_REGISTRATION,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.UNSUPPORTED_VERSION,
)
"""Errors of a registration that a second attempt cannot fix."""

_OF_ACTIVE = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
"""Answers to a heartbeat that only a working active controller gives. The second: it is busy with an earlier change."""


class Lifecycle:
    """Registers and heartbeats. The registration is fixed but for directories and the previous epoch."""

    def __init__(
        self,
        config: BrokerConfig,
        registration: BrokerRegistrationRequest,
        channel: Channel,
        published_offset: Callable[[], int],
        leaderships: Callable[[], int],
    ) -> None:
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self.registered = trio.Event()
        self.running = trio.Event()
        self.stopped = trio.Event()
        self._config = config
        self._registration = registration
        self._channel = channel
        self._published_offset = published_offset
        self._leaderships = leaderships
        self._is_ready = False
        self._must_register_again = False
        self._is_fenced = True
        self._offline: dict[Uuid, float] = {}
        self._cordoned: tuple[Uuid, ...] = ()
        self._changed = trio.Event()
        self._shutdown: ControlledShutdown | None = None

    def ready(self) -> None:
        """Allow the broker to be unfenced: the first image is published and the logs are loaded."""
        self._is_ready = True
        self._wake()

    def directory_failed(self, directory_id: Uuid) -> None:
        """Report a directory as offline with the next heartbeats."""
        self._offline.setdefault(directory_id, trio.current_time())
        remaining = tuple(known for known in self._registration.log_dirs if known != directory_id)
        self._registration = msgspec.structs.replace(self._registration, log_dirs=remaining)
        self._wake()

    def directory_returned(self, directory_id: Uuid) -> None:
        """Register again with a directory that has come back."""
        self._offline.pop(directory_id, None)
        log_dirs = tuple(sorted({*self._registration.log_dirs, directory_id}))
        self._registration = msgspec.structs.replace(self._registration, log_dirs=log_dirs)
        self.register_again()

    @property
    def log_dirs(self) -> frozenset[Uuid]:
        """The directories that the broker registers."""
        return frozenset(self._registration.log_dirs)

    def is_reported(self, directory_id: Uuid) -> bool:
        """Return True if the metadata no longer counts a failed directory as working."""
        return directory_id not in self._offline

    def directories_cordoned(self, directory_ids: tuple[Uuid, ...]) -> None:
        """Report the directories that take no new replicas, at once if they have changed."""
        if directory_ids != self._cordoned:
            self._cordoned = directory_ids
            self._wake()

    def directories_registered(self, log_dirs: tuple[Uuid, ...]) -> None:
        """Stop reporting failed directories that are not in the registration of the metadata."""
        for directory_id in [known for known in self._offline if known not in log_dirs]:
            del self._offline[directory_id]

    def register_again(self) -> None:
        """Repeat the registration as the same incarnation: the metadata can now hold more of it."""
        self._must_register_again = True
        self._wake()

    def begin_shutdown(self) -> None:
        """Ask for a controlled shutdown; `run` returns when it is granted, or when the broker waits no longer."""
        if self._shutdown is None:
            interval_s = self._config.broker_heartbeat_interval_ms / 1000
            self._shutdown = ControlledShutdown(interval_s, self._published_offset, self._leaderships)
        self._on(BrokerEvent.SHUTDOWN_ASKED)
        self._wake()

    async def run(self) -> None:
        """Return once the broker may stop. RegistrationFailed if it cannot join, or must leave."""
        await self._register()
        while not self._may_stop():
            if self._must_register_again:
                await self._register()
            pause_s = await self._beat()
            if not self._may_stop():
                await self._pause(pause_s)
                self._check_deadlines()
        self.stopped.set()

    @property
    def _shutdown_deadline(self) -> float:
        return math.inf if self._shutdown is None else self._shutdown.deadline_s

    def _may_stop(self) -> bool:
        return self.state is BrokerState.SHUTTING_DOWN

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _pause(self, pause_s: float) -> None:
        """Wait until the next heartbeat is due: after a time, at a change to report, or at another leader."""
        changed = self._changed
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = min(trio.current_time() + pause_s, self._shutdown_deadline)
            nursery.start_soon(self._end_at_leader_change, pause_s, nursery.cancel_scope)
            await changed.wait()
            nursery.cancel_scope.cancel()

    async def _end_at_leader_change(self, pause_s: float, scope: trio.CancelScope) -> None:
        await self._channel.wait_for_change(pause_s)
        scope.cancel()

    def _on(self, event: BrokerEvent) -> None:
        after = BROKER_TABLE.get((self.state, event), self.state)
        if after is not self.state:
            logger.info("broker %d: %s -> %s", self._registration.broker_id, self.state.value, after.value)
            self.state = after
        if after is BrokerState.RUNNING:
            self.running.set()

    def _check_deadlines(self) -> None:
        now = trio.current_time()
        if self._shutdown is not None and self._shutdown.is_over():
            self._on(BrokerEvent.SHUTDOWN_ALLOWED)
        overdue = min(self._offline.values(), default=now) + self._config.log_dir_failure_timeout_ms / 1000
        if self._offline and now > overdue:
            raise RegistrationFailed(
                "a failed log directory could not be reported to the controller within "
                f"{self._config.log_dir_failure_timeout_ms} ms; the broker stops, so that its replicas do not count as alive. "
                "Make sure that the controllers run, then start it again"
            )

    # --- registration --------------------------------------------------------------------------------------------------------

    async def _register(self) -> None:
        """Register. Return early on shutdown: an unregistered broker leads nothing."""
        deadline = trio.current_time() + self._config.initial_broker_registration_timeout_ms / 1000
        backoff_s, refusal = REGISTRATION_BACKOFF_S, "no controller answered"
        while not self._may_stop():
            if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
                self._on(BrokerEvent.SHUTDOWN_ALLOWED)
                return
            try:
                body = await self._channel.request(
                    Api.BROKER_REGISTRATION, _encode(self._registration), timeout_ms=self._config.broker_session_timeout_ms // 2
                )
                response = _registration.decode(body)
            except NO_ANSWER as error:
                refusal = str(error)
            else:
                if response.error == ErrorCode.NONE:
                    self._registered(response.broker_epoch)
                    return
                refusal = response.message or f"the controller answered {describe(response.error)}"
                if response.error in _FINAL:
                    raise RegistrationFailed(f"broker {self._registration.broker_id} was refused: {refusal}")
                if response.error == ErrorCode.NOT_CONTROLLER:
                    backoff_s = REGISTRATION_BACKOFF_S
            logger.debug("registration failed: %s", refusal)
            if trio.current_time() >= deadline:
                timeout_ms = self._config.initial_broker_registration_timeout_ms
                raise RegistrationFailed(
                    f"broker {self._registration.broker_id} could not register within {timeout_ms} ms "
                    f"(initial.broker.registration.timeout.ms): {refusal}"
                )
            await self._channel.wait_for_change(backoff_s * random.uniform(0.98, 1.02))
            backoff_s = min(backoff_s * 2, self._config.broker_session_timeout_ms / 1000)

    def _registered(self, broker_epoch: int) -> None:
        logger.info("broker %d is registered with epoch %d", self._registration.broker_id, broker_epoch)
        self.broker_epoch = broker_epoch
        self._must_register_again = False
        self._registration = msgspec.structs.replace(self._registration, previous_broker_epoch=-1)
        self._on(BrokerEvent.REGISTERED)
        self.registered.set()

    # --- heartbeats ----------------------------------------------------------------------------------------------------------

    async def _beat(self) -> float:
        """Send one heartbeat; return the pause until the next one, in seconds."""
        wants_shutdown = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        offline = tuple(sorted(self._offline))
        request = BrokerHeartbeatRequest(
            self._registration.broker_id,
            self.broker_epoch,
            self._published_offset(),
            want_fence=not self._is_ready,
            want_shutdown=wants_shutdown,
            offline_log_dirs=offline,
            cordoned_log_dirs=self._cordoned,
        )
        intervals = 1 if wants_shutdown else 2
        timeout_ms = min(self._config.broker_session_timeout_ms // 2, self._config.broker_heartbeat_interval_ms * intervals)
        try:
            with trio.move_on_at(self._shutdown_deadline):
                body = await self._channel.request(Api.BROKER_HEARTBEAT, _encode(request), timeout_ms=max(timeout_ms, 100))
                return await self._answered(_heartbeat.decode(body))
        except NO_ANSWER as error:
            logger.debug("heartbeat failed: %s", error)
        return HEARTBEAT_BACKOFF_S

    async def _answered(self, response: BrokerHeartbeatResponse) -> float:
        if self._shutdown is not None and response.error in _OF_ACTIVE:
            self._shutdown.controller_works()
        if response.error in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
                self._on(BrokerEvent.SHUTDOWN_ALLOWED)
                return 0.0
            logger.warning("the controller does not know this registration: %s; registering again", response.message)
            await self._register()
            return STARTING_INTERVAL_S
        if response.error != ErrorCode.NONE:
            logger.debug("heartbeat was answered with error %d: %s", response.error, response.message)
            return HEARTBEAT_BACKOFF_S
        if response.is_fenced != self._is_fenced:
            logger.info("broker %d is %s", self._registration.broker_id, "fenced" if response.is_fenced else "unfenced")
        self._is_fenced = response.is_fenced
        if response.is_caught_up:
            self._on(BrokerEvent.CAUGHT_UP)
        if self._is_ready and not response.is_fenced:
            self._on(BrokerEvent.UNFENCED)
        if response.should_shutdown:
            self._on(BrokerEvent.SHUTDOWN_ALLOWED)
        if self.state in (BrokerState.STARTING, BrokerState.RECOVERY):
            return STARTING_INTERVAL_S
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN or response.is_fenced:
            return HEARTBEAT_BACKOFF_S
        return self._config.broker_heartbeat_interval_ms / 1000
