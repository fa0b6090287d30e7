"""Any interleaving of requests, retries and pauses: first attempts, repetitions and refusals agree with a dictionary."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.controller.engine import exactly_once
from kraftlab.controller.engine.exactly_once import RequestIdentity
from kraftlab.controller.engine.state import EMPTY_STATE, ControllerState, Outcome
from kraftlab.metadata.image import Provenance
from kraftlab.metadata.requests import KEPT_MS

REFUSED, OTHER = "refused", "other"
Told = int | str


class Controller:
    """Numbers the requests that it carries out."""

    def __init__(self) -> None:
        self.state: ControllerState = EMPTY_STATE
        self.carried_out = 0

    def ask(self, client: int, sequence: int, digest: int, now_ms: int) -> Told:
        identity = RequestIdentity(bytes([client]) * 16, sequence, bytes([digest]) * 16)
        try:
            answered = exactly_once.find(self.state.image.requests, identity, now_ms)
        except ApiError as error:
            return REFUSED if error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER else OTHER
        if answered is not None:
            repeated: Outcome[Any] = exactly_once.repeated(answered, pb.AllocateProducerIdsResponse())
            assert not repeated.records
            assert repeated.reflects == repeated.response.producer_id_start
            return int(repeated.response.producer_id_start)
        self.carried_out += 1
        outcome = Outcome((), pb.AllocateProducerIdsResponse(producer_id_start=self.carried_out))
        records = exactly_once.recorded("api", identity, outcome, self.state, now_ms).records
        base_offset = self.state.image.provenance.offset
        self.state = self.state.replay(records, base_offset, Provenance(base_offset + len(records), 1, now_ms))
        return self.carried_out


class Twin:
    """Remembers everything: client → sequence → (number, time, digest), and the mark below which a client is unknown."""

    def __init__(self) -> None:
        self.answers: dict[int, dict[int, tuple[int, int, int]]] = {}
        self.barrier: dict[int, int] = {}
        self.carried_out = 0

    def ask(self, client: int, sequence: int, digest: int, now_ms: int) -> Told:
        own = self.answers.setdefault(client, {})
        barrier = self.barrier.get(client, -1)
        last_five = sorted(one for one in own if one > barrier)[-5:]
        if sequence in own:
            number, at_ms, before = own[sequence]
            if sequence not in last_five or now_ms - at_ms >= KEPT_MS:
                return REFUSED
            return number if digest == before else OTHER
        dropped = max((one for one in own if one not in last_five), default=-1)
        if sequence <= dropped or (len(last_five) == 5 and sequence < last_five[0]):
            return REFUSED
        self.carried_out += 1
        own[sequence] = (self.carried_out, now_ms, digest)
        for other, answers in self.answers.items():
            if other != client and answers and now_ms - max(at_ms for _, at_ms, _ in answers.values()) >= KEPT_MS:
                self.barrier[other] = max(answers)
        return self.carried_out


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.integers(0, 9),
            st.sampled_from((1, 1, 1, 2)),
            st.sampled_from((0, 0, 0, 1_000, KEPT_MS // 3, KEPT_MS - 1, KEPT_MS)),
        ),
        max_size=60,
    )
)
@settings(max_examples=200, deadline=None)
def test_every_interleaving_agrees_with_a_dictionary(steps: list[tuple[int, int, int, int]]) -> None:
    controller, twin, now_ms = Controller(), Twin(), 0
    for client, sequence, digest, pause_ms in steps:
        now_ms += pause_ms
        asked = (client, sequence, digest, now_ms)
        assert controller.ask(*asked) == twin.ask(*asked), asked
    assert controller.carried_out == twin.carried_out
