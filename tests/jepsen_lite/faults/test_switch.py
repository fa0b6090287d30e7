"""The switch of a run's own network: its treatment of frames on links."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jepsen_lite.faults.networks.addresses import OBSERVER, LinkState, places
from jepsen_lite.faults.networks.switch import HELD_BYTES_MAX, OutgoingFrame, Switch
from jepsen_lite.faults.networks.tcp_reset import checksum, reset_for
from kraftlab.lab.links.shape import LinkShape

A, B, C = 3000, 3001, 0
PLACES = places((A, B, C))
FIN, SYN, RST, ACK = 1, 2, 4, 16


def frame(source: int, target: int, body: bytes = b"", kind: int = 0x0800) -> bytes:
    return PLACES[target].hardware + PLACES[source].hardware + struct.pack("!H", kind) + body


def numbered(source: int, target: int, number: int) -> bytes:
    return frame(source, target, b"%d" % number)


def segment(flags: int, *, sequence: int = 0, acknowledged: int = 0, payload: bytes = b"") -> bytes:
    """Return a TCP segment from A to B."""
    body = struct.pack("!HHIIBBHHH", 40_000, 21_000, sequence, acknowledged, 5 << 4, flags, 0, 0, 0) + payload
    addresses = bytes(map(int, f"{PLACES[A].address}.{PLACES[B].address}".split(".")))
    return frame(A, B, struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, 6, 0) + addresses + body)


@pytest.fixture
def switch() -> Switch:
    return Switch(PLACES, seed=1)


def delivered(switch: Switch, now: float) -> list[bytes]:
    return [sent.frame for sent in switch.due(now)]


def test_frames_go_to_their_target_at_once_and_broadcasts_nowhere(switch: Switch) -> None:
    assert list(switch.receive(A, frame(A, B), 0.0)) == [OutgoingFrame(B, frame(A, B))]
    assert list(switch.receive(OBSERVER, frame(OBSERVER, C), 0.0)) == [OutgoingFrame(C, frame(OBSERVER, C))]
    for_all = b"\xff" * 6 + frame(A, B)[6:]
    assert not list(switch.receive(A, for_all, 0.0))
    assert switch.next_due is None


def test_a_cut_is_of_one_direction_and_delivers_late_what_it_held(switch: Switch) -> None:
    switch.change(LinkState(A, B, "hold"), 0.0, drop=False)
    assert not list(switch.receive(A, numbered(A, B, 1), 1.0)) and not list(switch.receive(A, numbered(A, B, 2), 2.0))
    assert list(switch.receive(B, frame(B, A), 2.0)) == [OutgoingFrame(A, frame(B, A))]
    assert switch.next_due is None
    switch.change(LinkState(A, B), 3.0, drop=False)
    assert switch.next_due == 3.0
    assert delivered(switch, 3.0) == [numbered(A, B, 1), numbered(A, B, 2)]


def test_held_frames_are_lost_on_request_or_above_the_limit(switch: Switch) -> None:
    switch.change(LinkState(A, B, "hold"), 0.0, drop=False)
    switch.receive(A, numbered(A, B, 1), 0.0)
    switch.change(LinkState(A, B), 1.0, drop=True)
    assert switch.next_due is None
    switch.change(LinkState(A, B, "hold"), 2.0, drop=False)
    large = frame(A, B, bytes(HELD_BYTES_MAX // 2))
    for _ in range(3):
        switch.receive(A, large, 2.0)
    switch.change(LinkState(A, B), 3.0, drop=False)
    assert delivered(switch, 3.0) == [large]


def test_a_frame_due_during_a_cut_is_held_like_the_others(switch: Switch) -> None:
    switch.change(LinkState(A, B, shape=LinkShape(delay_ms=100)), 0.0, drop=False)
    assert not list(switch.receive(A, numbered(A, B, 1), 0.0))
    switch.change(LinkState(A, B, "hold"), 0.05, drop=False)
    assert not delivered(switch, 0.1)
    switch.change(LinkState(A, B), 5.0, drop=False)
    assert delivered(switch, 5.0) == [numbered(A, B, 1)]


shapes = st.builds(
    LinkShape,
    delay_ms=st.sampled_from((0, 5, 200)),
    jitter_ms=st.sampled_from((0, 30)),
    loss=st.sampled_from((0, 0.3, 1)),
    duplicate=st.sampled_from((0, 0.4)),
    reorder=st.sampled_from((0, 0.5)),
).filter(lambda shape: not shape.is_plain)


@given(shapes, st.integers(0, 9), st.lists(st.floats(0, 0.1), max_size=30))
def test_a_shaped_link_does_to_its_frames_what_a_proxy_does_to_messages(shape: LinkShape, seed: int, pauses: list[float]) -> None:
    switch, chance = Switch(PLACES, seed), random.Random(f"frames {seed} {A} {B}")
    switch.change(LinkState(A, B, shape=shape), 0.0, drop=False)
    now = not_before = 0.0
    expected: list[tuple[float, int, bytes]] = []
    for number, pause in enumerate(pauses):
        now += pause
        assert not list(switch.receive(A, numbered(A, B, number), now))
        switch.receive(C, numbered(C, B, number), now)
        copies, not_before = shape.deliveries(chance, now, not_before)
        expected += [(due, len(expected) + place, numbered(A, B, number)) for place, due in enumerate(copies)]
    found = []
    while (due := switch.next_due) is not None:
        found += [(due, frame) for frame in delivered(switch, due)]
    assert found == [(due, frame) for due, _, frame in sorted(expected)]


def reset_of(answer: bytes) -> tuple[int, int, int]:
    """Return (sequence, acknowledged, flags) of a reset to A in B's name, after checking that the packet is well-formed."""
    assert answer[:12] == PLACES[A].hardware + PLACES[B].hardware
    packet = answer[14:]
    assert checksum(packet[:20]) == 0
    assert checksum(packet[12:20] + struct.pack("!HH", 6, 20) + packet[20:]) == 0
    sender, receiver, sequence, acknowledged, _, flags = struct.unpack_from("!HHIIBB", packet, 20)
    assert (sender, receiver) == (21_000, 40_000)
    return sequence, acknowledged, flags


def test_a_link_that_refuses_answers_a_segment_with_the_reset_that_its_sender_believes(switch: Switch) -> None:
    switch.change(LinkState(A, B, "reset"), 0.0, drop=False)
    (sent,) = switch.receive(A, segment(SYN, sequence=2**32 - 1), 0.0)
    assert (sent.node, reset_of(sent.frame)) == (A, (0, 0, RST | ACK))
    (sent,) = switch.receive(A, segment(ACK, sequence=5, acknowledged=77, payload=b"data"), 0.0)
    assert reset_of(sent.frame) == (77, 0, RST)
    (sent,) = switch.receive(A, segment(FIN, sequence=5, payload=b"data"), 0.0)
    assert reset_of(sent.frame) == (0, 10, RST | ACK)
    assert not list(switch.receive(A, segment(RST | ACK), 0.0)), "a reset was answered"
    assert not list(switch.receive(A, frame(A, B, b"no address", kind=0x0806), 0.0))
    assert list(switch.receive(B, frame(B, A), 0.0)) == [OutgoingFrame(A, frame(B, A))]


@given(st.binary(min_size=14, max_size=80))
def test_garbage_gets_no_answer_and_no_error(garbage: bytes) -> None:
    answer = reset_for(garbage)
    assert answer is None or len(answer) == 54
