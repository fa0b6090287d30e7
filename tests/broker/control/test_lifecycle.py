"""A broker registers, heartbeats, follows the active controller, and leaves in good order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from kraftlab.broker.control.lifecycle import BrokerState, Lifecycle, RegistrationFailed
from kraftlab.common.errors import ErrorCode
from kraftlab.common.uuids import random_uuid
from kraftlab.metadata.peer_rpc import (
    Api,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from kraftlab.simulation.crash_images.world import broker_config
from kraftlab.wire.transport import PeerUnreachable


class Controller:
    """Answers registrations and heartbeats, and remembers when they came."""

    def __init__(self) -> None:
        self.registrations: list[BrokerRegistrationRequest] = []
        self.heartbeats: list[tuple[float, BrokerHeartbeatRequest]] = []
        self.registration: Callable[[], BrokerRegistrationResponse] = lambda: BrokerRegistrationResponse(0, None, 17)
        self.heartbeat: Callable[[BrokerHeartbeatRequest], BrokerHeartbeatResponse] = answer
        self.reachable = True
        self.changed = trio.Event()

    async def request(self, api: int, body: bytes, *, timeout_ms: int) -> bytes:
        await trio.sleep(0.001)
        if not self.reachable:
            raise PeerUnreachable("no controller is known to lead")
        if api == Api.BROKER_REGISTRATION:
            self.registrations.append(msgspec.msgpack.decode(body, type=BrokerRegistrationRequest))
            return msgspec.msgpack.encode(self.registration())
        request = msgspec.msgpack.decode(body, type=BrokerHeartbeatRequest)
        self.heartbeats.append((trio.current_time(), request))
        return msgspec.msgpack.encode(self.heartbeat(request))

    async def wait_for_change(self, timeout_s: float) -> None:
        changed = self.changed
        with trio.move_on_after(timeout_s):
            await changed.wait()

    def leader_changed(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


def answer(request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    """As a controller that has nothing against the broker."""
    return BrokerHeartbeatResponse(0, None, True, request.want_fence or request.want_shutdown, request.want_shutdown)


@dataclass
class Figures:
    """Figures of the rest of the broker that its membership needs."""

    published_offset: Callable[[], int] = lambda: 20
    leaderships: int = 0


def lifecycle_for(controller: Controller, broker: Figures = Figures(), **settings: str) -> Lifecycle:
    registration = BrokerRegistrationRequest(4, "cluster", random_uuid(), (), (), None, (random_uuid(), random_uuid()), 11)
    config = broker_config(4, (Path("/logs"),), **settings)
    return Lifecycle(config, registration, controller, broker.published_offset, lambda: broker.leaderships)


async def running(controller: Controller, nursery: trio.Nursery, broker: Figures = Figures(), **settings: str) -> Lifecycle:
    lifecycle = lifecycle_for(controller, broker, **settings)
    nursery.start_soon(lifecycle.run)
    lifecycle.ready()
    await lifecycle.running.wait()
    return lifecycle


async def test_it_asks_every_ten_ms_to_stay_fenced_until_it_is_ready(autojump_clock: Any, nursery: trio.Nursery) -> None:
    controller = Controller()
    lifecycle = lifecycle_for(controller)
    nursery.start_soon(lifecycle.run)
    await trio.sleep(1)
    assert lifecycle.state is BrokerState.RECOVERY
    assert 80 <= len(controller.heartbeats) <= 100
    assert all(request.want_fence for _, request in controller.heartbeats)
    lifecycle.ready()
    await lifecycle.running.wait()
    assert not controller.heartbeats[-1][1].want_fence
    seen = len(controller.heartbeats)
    await trio.sleep(11)
    assert len(controller.heartbeats) - seen == 5, "one each two seconds"


async def test_only_the_first_registration_has_the_epoch_before_a_clean_shutdown(
    autojump_clock: Any, nursery: trio.Nursery
) -> None:
    controller = Controller()
    lifecycle = await running(controller, nursery)
    assert lifecycle.broker_epoch == 17
    controller.registration = lambda: BrokerRegistrationResponse(0, None, 99)
    controller.heartbeat = lambda request: (
        answer(request) if request.broker_epoch == 99 else BrokerHeartbeatResponse(ErrorCode.STALE_BROKER_EPOCH)
    )
    await trio.sleep(5)
    assert lifecycle.broker_epoch == 99
    assert [request.previous_broker_epoch for request in controller.registrations] == [11, -1]


async def test_a_directory_that_failed_is_not_registered_again(autojump_clock: Any, nursery: trio.Nursery) -> None:
    controller = Controller()
    lifecycle = await running(controller, nursery)
    [*_, failed] = directories = controller.registrations[0].log_dirs
    lifecycle.directory_failed(failed)
    lifecycle.directories_registered(tuple(known for known in directories if known != failed))
    controller.registration = lambda: BrokerRegistrationResponse(0, None, 99)
    controller.heartbeat = lambda request: (
        answer(request) if request.broker_epoch == 99 else BrokerHeartbeatResponse(ErrorCode.STALE_BROKER_EPOCH)
    )
    await trio.sleep(5)
    assert lifecycle.broker_epoch == 99
    assert failed in directories
    assert failed not in controller.registrations[-1].log_dirs


async def test_a_broker_that_cannot_register_again_stops_on_request(autojump_clock: Any, nursery: trio.Nursery) -> None:
    controller = Controller()
    lifecycle = await running(controller, nursery)
    controller.registration = lambda: BrokerRegistrationResponse(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "another one runs")
    controller.heartbeat = lambda request: BrokerHeartbeatResponse(ErrorCode.STALE_BROKER_EPOCH)
    await trio.sleep(5)
    lifecycle.begin_shutdown()
    with trio.fail_after(10):
        await lifecycle.stopped.wait()


@pytest.mark.parametrize(
    "refused",
    [
        BrokerRegistrationResponse(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "another incarnation is running"),
        BrokerRegistrationResponse(777, None),
    ],
)
async def test_registration_is_tried_again_with_growing_pauses(
    autojump_clock: Any, nursery: trio.Nursery, refused: BrokerRegistrationResponse
) -> None:
    controller = Controller()
    controller.registration = lambda: refused if trio.current_time() - begun < 20 else BrokerRegistrationResponse(0, None, 5)
    begun = trio.current_time()
    lifecycle = lifecycle_for(controller)
    nursery.start_soon(lifecycle.run)
    await lifecycle.registered.wait()
    assert 7 <= len(controller.registrations) <= 10


async def test_it_gives_up_after_the_registration_timeout_and_says_why(autojump_clock: Any) -> None:
    controller = Controller()
    controller.reachable = False
    with pytest.raises(RegistrationFailed, match=r"within 60000 ms \(initial.broker.*\): no controller is known to lead"):
        await lifecycle_for(controller).run()


async def test_the_file_says_how_long_a_broker_tries_to_register(autojump_clock: Any) -> None:
    controller = Controller()
    controller.reachable = False
    begun = trio.current_time()
    with pytest.raises(RegistrationFailed, match="within 5000 ms"):
        await lifecycle_for(controller, initial_broker_registration_timeout_ms="5000").run()
    assert trio.current_time() - begun >= 5


async def test_the_file_says_how_often_a_broker_sends_a_heartbeat(autojump_clock: Any, nursery: trio.Nursery) -> None:
    controller = Controller()
    await running(controller, nursery, broker_heartbeat_interval_ms="500")
    seen = len(controller.heartbeats)
    await trio.sleep(11)
    assert 20 <= len(controller.heartbeats) - seen <= 22


async def test_a_broker_that_cannot_report_a_failed_directory_in_time_stops(autojump_clock: Any) -> None:
    controller = Controller()
    lifecycle = lifecycle_for(controller, log_dir_failure_timeout_ms="3000")
    with pytest.raises(BaseExceptionGroup) as raised:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lifecycle.run)
            lifecycle.ready()
            await lifecycle.running.wait()
            controller.reachable = False
            failed_at = trio.current_time()
            lifecycle.directory_failed(controller.registrations[0].log_dirs[0])
    assert raised.group_contains(RegistrationFailed, match="within 3000 ms")
    assert 3 <= trio.current_time() - failed_at <= 6


async def test_a_permanent_refusal_ends_the_broker_at_once(autojump_clock: Any) -> None:
    controller = Controller()
    controller.registration = lambda: BrokerRegistrationResponse(ErrorCode.INVALID_REGISTRATION, "no listener named GRPC")
    with pytest.raises(RegistrationFailed, match="broker 4 was refused: no listener named GRPC"):
        await lifecycle_for(controller).run()
    assert len(controller.registrations) == 1


async def test_a_new_leader_gets_a_heartbeat_at_once(autojump_clock: Any, nursery: trio.Nursery) -> None:
    controller = Controller()
    await running(controller, nursery)
    await trio.sleep(0.5)
    seen = len(controller.heartbeats)
    controller.leader_changed()
    await trio.sleep(0.05)
    assert len(controller.heartbeats) == seen + 1


async def test_a_controlled_shutdown_waits_for_the_controllers_leave(autojump_clock: Any, nursery: trio.Nursery) -> None:
    controller = Controller()
    lifecycle = await running(controller, nursery)
    allowed = trio.current_time() + 3
    controller.heartbeat = lambda request: BrokerHeartbeatResponse(0, None, True, True, trio.current_time() >= allowed)
    lifecycle.begin_shutdown()
    await lifecycle.stopped.wait()
    assert allowed <= trio.current_time() < allowed + 0.2
    assert controller.heartbeats[-1][1].want_shutdown


def not_yet(request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    """As a controller that still moves leaderships."""
    return BrokerHeartbeatResponse(0, None, True, False, False)


async def seconds_to_stop(lifecycle: Lifecycle) -> float:
    begun = trio.current_time()
    lifecycle.begin_shutdown()
    await lifecycle.stopped.wait()
    return trio.current_time() - begun


async def test_a_controlled_shutdown_without_a_controller_ends_after_five_seconds(
    autojump_clock: Any, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    controller = Controller()
    lifecycle = await running(controller, nursery, broker=Figures(leaderships=3))
    controller.reachable = False
    assert await seconds_to_stop(lifecycle) == pytest.approx(5, abs=0.1)
    assert caplog.messages == [
        "stops without the controller's leave while it leads 3 partitions: no controller has answered for 5 s"
    ]


async def test_standbys_that_answer_do_not_prolong_a_controlled_shutdown(autojump_clock: Any, nursery: trio.Nursery) -> None:
    controller = Controller()
    lifecycle = await running(controller, nursery)
    controller.heartbeat = lambda request: BrokerHeartbeatResponse(ErrorCode.NOT_CONTROLLER)
    assert await seconds_to_stop(lifecycle) == pytest.approx(5, abs=0.1)


async def test_a_controlled_shutdown_waits_five_minutes_for_a_controller_that_answers(
    autojump_clock: Any, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    controller = Controller()
    lifecycle = await running(controller, nursery)
    controller.heartbeat = not_yet
    assert await seconds_to_stop(lifecycle) == pytest.approx(300, abs=0.1)
    assert "stops without the controller's leave while it leads 0 partitions: 300 s are over" in caplog.text


async def test_a_controlled_shutdown_waits_for_a_controller_that_is_busy(autojump_clock: Any, nursery: trio.Nursery) -> None:
    """It computes an earlier change, and heartbeats wait in its queue until their timeout passes."""
    controller = Controller()
    lifecycle = await running(controller, nursery)
    free = trio.current_time() + 60
    controller.heartbeat = lambda request: (
        answer(request) if trio.current_time() >= free else BrokerHeartbeatResponse(ErrorCode.REQUEST_TIMED_OUT)
    )
    assert await seconds_to_stop(lifecycle) == pytest.approx(60, abs=0.1)


async def test_a_controlled_shutdown_goes_on_while_the_metadata_grows(autojump_clock: Any, nursery: trio.Nursery) -> None:
    """The controller writes the moves in many batches, and answers the heartbeat that asked for them after the last one."""
    controller, begun = Controller(), trio.current_time()
    moved = Figures(lambda: int(min(trio.current_time() - begun, 60)))
    lifecycle = await running(controller, nursery, broker=moved)
    controller.reachable = False
    assert await seconds_to_stop(lifecycle) == pytest.approx(65, abs=1.1)


async def test_long_heartbeat_intervals_give_a_busy_controller_time_to_answer(autojump_clock: Any, nursery: trio.Nursery) -> None:
    controller = Controller()
    intervals = {"broker_heartbeat_interval_ms": "10000", "broker_session_timeout_ms": "30000"}
    lifecycle = await running(controller, nursery, **intervals)
    controller.reachable = False
    assert await seconds_to_stop(lifecycle) == pytest.approx(20, abs=0.1)


async def test_a_broker_says_what_its_controlled_shutdown_waits_for(
    autojump_clock: Any, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kraftlab.broker.lifecycle")
    controller, broker = Controller(), Figures(leaderships=300_000)
    lifecycle = await running(controller, nursery, broker=broker)
    moved, allowed = trio.current_time() + 15, trio.current_time() + 25

    def heartbeat(request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        if trio.current_time() >= moved:
            broker.leaderships = 0
        return answer(request) if trio.current_time() >= allowed else not_yet(request)

    controller.heartbeat = heartbeat
    caplog.clear()
    await seconds_to_stop(lifecycle)
    to_move = "the leadership of 300000 partitions has to move to other brokers"
    told = "this broker leads no partition, and the other brokers have to learn that"
    assert [line for line in caplog.messages if "controlled shutdown: " in line or "for its controlled" in line] == [
        f"asks the controller for a controlled shutdown: {to_move}",
        f"still waits for its controlled shutdown, for 10 s: {to_move}",
        f"still waits for its controlled shutdown, for 20 s: {told}",
    ]


async def test_a_failed_directory_is_named_until_the_registration_lacks_it(autojump_clock: Any, nursery: trio.Nursery) -> None:
    controller = Controller()
    lifecycle = await running(controller, nursery)
    dead, alive = random_uuid(), random_uuid()
    lifecycle.directory_failed(dead)
    await trio.sleep(0.1)
    assert controller.heartbeats[-1][1].offline_log_dirs == (dead,)
    lifecycle.directories_registered((alive, dead))
    await trio.sleep(3)
    assert controller.heartbeats[-1][1].offline_log_dirs == (dead,)
    lifecycle.directories_registered((alive,))
    await trio.sleep(3)
    assert not controller.heartbeats[-1][1].offline_log_dirs


async def test_a_failed_directory_that_cannot_be_reported_ends_the_broker(autojump_clock: Any) -> None:
    controller = Controller()
    lifecycle = lifecycle_for(controller)
    lifecycle.ready()
    lifecycle.directory_failed(random_uuid())

    async def cut_off() -> None:
        await lifecycle.running.wait()
        controller.reachable = False

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut_off)
        with pytest.raises(RegistrationFailed, match="could not be reported to the controller within 30000 ms"):
            await lifecycle.run()


async def test_cordoned_directories_are_reported_at_once_when_they_change(autojump_clock: Any, nursery: trio.Nursery) -> None:
    controller = Controller()
    lifecycle = await running(controller, nursery)
    await trio.sleep(5)
    assert controller.heartbeats[-1][1].cordoned_log_dirs == ()
    cordoned = controller.registrations[0].log_dirs[:1]
    changed_at = trio.current_time()
    lifecycle.directories_cordoned(cordoned)
    await trio.sleep(0.1)
    at, request = controller.heartbeats[-1]
    assert request.cordoned_log_dirs == cordoned and at - changed_at < 0.1
    seen = len(controller.heartbeats)
    lifecycle.directories_cordoned(cordoned)
    await trio.sleep(0.1)
    assert len(controller.heartbeats) == seen, "nothing new"


async def test_a_registration_is_repeated_by_the_same_incarnation_when_the_metadata_can_hold_more(
    autojump_clock: Any, nursery: trio.Nursery
) -> None:
    controller = Controller()
    lifecycle = await running(controller, nursery)
    lifecycle.register_again()
    await trio.sleep(1)
    first, second = controller.registrations
    assert (first.incarnation_id, first.log_dirs) == (second.incarnation_id, second.log_dirs)
    await trio.sleep(20)
    assert len(controller.registrations) == 2
    assert lifecycle.state is BrokerState.RUNNING


async def test_a_directory_that_comes_back_is_registered_again_and_not_reported_any_more(
    autojump_clock: Any, nursery: trio.Nursery
) -> None:
    controller = Controller()
    lifecycle = await running(controller, nursery)
    [alive, failed] = directories = controller.registrations[0].log_dirs
    lifecycle.directory_failed(failed)
    assert not lifecycle.is_reported(failed)
    lifecycle.directories_registered((alive,))
    assert lifecycle.is_reported(failed)
    lifecycle.directory_returned(failed)
    await trio.sleep(5)
    assert [request.log_dirs for request in controller.registrations[1:]] == [tuple(sorted(directories))]
    assert lifecycle.log_dirs == {*directories}
    assert not controller.heartbeats[-1][1].offline_log_dirs
