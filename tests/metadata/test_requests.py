"""Answers to requests: a client's last answers are kept, and the image follows from the records alone."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.metadata import requests
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.invariants import check_requests
from kraftlab.metadata.records import BeginTransaction, Config, EndTransaction, ForgottenRequests, RequestOutcome
from kraftlab.metadata.replay_error import ReplayError
from kraftlab.metadata.requests import KEPT_MS, packed, unpacked
from kraftlab.metadata.snapshot import ImageSnapshot, image_from

CLIENTS = [bytes([number]) * 16 for number in range(1, 7)]


def outcome(client: int, sequence: int, now_ms: int = 0, answer: bytes = b"yes") -> RequestOutcome:
    return RequestOutcome(0, CLIENTS[client], sequence, bytes(16), now_ms, answer)


def replay(records, image: MetadataImage = EMPTY, base_offset: int = 0) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay_all(records, base_offset)
    return delta.apply(Provenance(base_offset + len(records), 1, 0))


class Kept(NamedTuple):
    """An answer in the twin."""

    client: int
    sequence: int
    written_ms: int
    size: int


class Twin:
    """Every answer in one list. Each rule searches the whole list."""

    def __init__(self, clients_max: int, bytes_max: int) -> None:
        self.clients_max, self.bytes_max = clients_max, bytes_max
        self.log: list[Kept] = []
        self.kept: list[Kept] = []

    def can_tell(self, client: int, sequence: int) -> bool:
        """Return True if that request was certainly not answered."""
        remembered = self.remembered()
        seen = [one.sequence for one in self.log if one.client == client] if client in remembered else []
        own = sorted(one.sequence for one in self.kept if one.client == client)
        gone = set(seen) - set(own)
        return sequence not in seen and sequence > max(gone, default=-1) and (len(own) < 5 or sequence > own[0])

    def remembered(self) -> list[int]:
        """The most recent clients, by their last answer."""
        return list(dict.fromkeys(one.client for one in reversed(self.log)))[: self.clients_max]

    def add(self, new: Kept) -> None:
        self.log.append(new)
        self.kept.append(new)
        own = sorted(one.sequence for one in self.kept if one.client == new.client)
        self.kept = [one for one in self.kept if one.client != new.client or one.sequence in own[-5:]]
        for client in reversed(self.remembered_all()):
            last_ms = max((one.written_ms for one in self.kept if one.client == client), default=0)
            is_full = sum(one.size for one in self.kept) > self.bytes_max
            if client != new.client and (new.written_ms - last_ms >= KEPT_MS or is_full):
                self.kept = [one for one in self.kept if one.client != client]
        remembered = self.remembered()
        self.kept = [one for one in self.kept if one.client in remembered]
        self.log = [one for one in self.log if one.client in remembered]

    def remembered_all(self) -> list[int]:
        return list(dict.fromkeys(one.client for one in reversed(self.log)))


STEPS = st.lists(
    st.tuples(
        st.integers(0, len(CLIENTS) - 1),
        st.integers(0, 14),
        st.sampled_from((0, 0, 1, 1_000, KEPT_MS // 2, KEPT_MS - 1, KEPT_MS)),
        st.integers(0, 40),
    ),
    max_size=60,
)


@given(steps=STEPS, clients_max=st.sampled_from((2, 4, 100)), bytes_max=st.sampled_from((60, 200, 10**6)))
@settings(max_examples=150, deadline=None)
def test_any_order_of_sequences_and_retries_agrees_with_a_list_of_everything(steps, clients_max, bytes_max):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(requests, "CLIENTS_MAX", clients_max)
        patched.setattr(requests, "KEPT_BYTES_MAX", bytes_max)
        twin, image, now_ms, written = Twin(clients_max, bytes_max), EMPTY, 0, []
        for client, sequence, pause_ms, size in steps:
            now_ms += pause_ms
            record = outcome(client, sequence, now_ms, b"a" * size)
            if not twin.can_tell(client, sequence):
                with pytest.raises(ReplayError, match="answered already"):
                    replay([record], image, len(written))
                continue
            twin.add(Kept(client, sequence, now_ms, size))
            image = replay([record], image, len(written))
            written.append(record)
            found = image.requests
            kept = {(one.client, one.sequence, one.written_ms) for one in twin.kept}
            assert kept == {
                (CLIENTS.index(client_id), answered.sequence, answered.written_ms)
                for client_id, entry in found.in_order()
                for answered in entry.answered
            }
            assert [CLIENTS.index(client_id) for client_id, _ in found.in_order()] == twin.remembered()[::-1]
            assert check_requests(found) == ()
        assert replay(written).requests == image.requests, "portions make a difference"
        assert image_from(body for body, _ in ImageSnapshot(image).batches()).requests == image.requests


def test_an_answer_reflects_the_end_of_its_batch_or_transaction():
    image = replay([Config(0, 4, "", "a", "b"), outcome(0, 1)], base_offset=10)
    in_transaction = replay([BeginTransaction(0), outcome(0, 2), EndTransaction(0)], image, base_offset=12)
    client = in_transaction.requests.get(CLIENTS[0])
    assert client is not None
    assert [answered.end_offset for answered in client.answered] == [12, 15]


def test_forgotten_answers_stay_forgotten_in_a_snapshot():
    image = replay([outcome(0, sequence) for sequence in range(1, 8)])
    loaded = image_from(body for body, _ in ImageSnapshot(image).batches())
    client = loaded.requests.get(CLIENTS[0])
    assert client is not None
    assert [sequence for sequence in range(1, 9) if client.is_too_old(sequence)] == [1, 2]
    assert [sequence for sequence in range(1, 9) if client.get(sequence)] == [3, 4, 5, 6, 7]


def test_a_late_first_sending_is_let_in_until_five_newer_ones_are_answered():
    image = replay([outcome(0, sequence) for sequence in (2, 3, 4, 5)])
    assert replay([outcome(0, 1)], image).requests.get(CLIENTS[0]).get(1)  # type: ignore[union-attr]
    full = replay([outcome(0, 6)], image).requests.get(CLIENTS[0])
    assert full is not None
    assert full.is_too_old(1)


def test_an_answer_is_over_after_ten_minutes():
    image = replay([outcome(0, 1, now_ms=1_000)])
    answered = image.requests.get(CLIENTS[0]).get(1)  # type: ignore[union-attr]
    assert answered is not None
    assert not answered.is_over(600_999)
    assert answered.is_over(601_000)


def test_times_in_the_log_do_not_go_back():
    image = replay([outcome(0, 1, now_ms=5_000), outcome(1, 1, now_ms=6_000)])
    assert image.requests.next_time_ms(4_000) == 6_000
    assert image.requests.next_time_ms(7_000) == 7_000
    assert EMPTY.requests.next_time_ms(3) == 3


def test_the_mark_of_a_client_that_is_known_is_refused():
    image = replay([outcome(0, 1)])
    with pytest.raises(ReplayError, match="is known already"):
        replay([ForgottenRequests(0, CLIENTS[0], 7)], image)


@given(st.binary(max_size=2_000))
def test_answers_are_stored_as_they_are(answer):
    assert unpacked(packed(answer)) == answer


def test_long_answers_are_stored_compressed():
    assert len(packed(b"same" * 10_000)) < 1_000
