"""Images of nodes are compared with the image replayed from scratch, part by part: only the changed parts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from kraftlab.metadata import codec
from kraftlab.metadata.image import EMPTY, MetadataImage, TopicsImage
from kraftlab.metadata.records import FeatureLevel
from kraftlab.metadata.requests import AnsweredRequest, RequestingClient, RequestsImage
from kraftlab.quorum.state_machine import CommittedBatch
from kraftlab.simulation.consensus.invariants import Violation
from kraftlab.simulation.metadata.replayed_log import ReplayedLog, is_equal


def test_an_image_that_differs_from_the_one_replayed_from_scratch_is_noticed():
    log = ReplayedLog()
    log.extend(CommittedBatch(0, 1, 1, 0, b""))
    body, _ = codec.encode([FeatureLevel(0, "metadata.version", 30)])
    log.extend(CommittedBatch(1, 2, 1, 0, body))
    log.compare(0, 1, EMPTY)
    log.compare(0, 2, log.state.image)
    with pytest.raises(Violation, match="M2"):
        log.compare(0, 2, EMPTY)


ANSWERS = st.dictionaries(st.sampled_from([b"a" * 16, b"b" * 16, b"c" * 16]), st.integers(0, 2))
NAMES = st.dictionaries(st.sampled_from("xyz"), st.integers(0, 1))


def _image(answers: dict[bytes, int], names: dict[str, int], since: MetadataImage = EMPTY) -> MetadataImage:
    """Return an image that shares equal entries with an older one."""
    clients = {
        client: RequestingClient((AnsweredRequest(sequence, bytes([sequence]), 0, 0, b""),))
        for client, sequence in answers.items()
    }
    old, old_names = since.requests.clients, since.topics.by_name
    ids = {name: bytes([number] * 16) for name, number in names.items()}
    return MetadataImage(
        requests=RequestsImage(Map({client: old[client] if old.get(client) == new else new for client, new in clients.items()})),
        topics=since.topics if dict(old_names) == ids else TopicsImage(by_name=Map(ids)),
        next_producer_id=sum(names.values()),
    )


@settings(max_examples=300, deadline=None)
@given(ANSWERS, NAMES, ANSWERS, NAMES, ANSWERS, NAMES, st.booleans())
def test_the_answer_is_that_of_comparing_all_of_them(
    answers: dict[bytes, int],
    names: dict[str, int],
    later_answers: dict[bytes, int],
    later_names: dict[str, int],
    other_answers: dict[bytes, int],
    other_names: dict[str, int],
    are_told_the_same: bool,
):
    known = _image(answers, names), _image(answers, names)
    if are_told_the_same:
        other_answers, other_names = later_answers, later_names
    one, other = _image(later_answers, later_names, known[0]), _image(other_answers, other_names, known[1])
    assert is_equal(one, other, known) == is_equal(one, other) == (one == other)
