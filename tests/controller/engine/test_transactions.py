"""Changes of more records than a batch holds: every reader sees one change, through any failover."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing

from kraftlab.admin.v1 import admin_pb2
from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.controller.engine import log_writer
from kraftlab.controller.engine.activation import ActivationRefused, activation_records, is_empty
from kraftlab.controller.engine.answer_deadlines import CommitUnknown
from kraftlab.controller.engine.state import Context, ControllerState, Outcome
from kraftlab.controller.topics import topics
from kraftlab.metadata import codec
from kraftlab.metadata.delta import MetadataDelta
from kraftlab.metadata.features import bootstrap_records
from kraftlab.metadata.image import EMPTY, MetadataImage, Provenance
from kraftlab.metadata.records import (
    AbortTransaction,
    AnyRecord,
    BeginTransaction,
    Config,
    EndTransaction,
    FeatureLevel,
    NoOp,
    RemoveTopic,
)
from kraftlab.quorum.core.batch import MAX_RECORDS


def keys(count: int, value: str, *, atomic: bool = True, transaction: str | None = None) -> Any:
    """An operation that writes `count` cluster configs."""

    def generate(state: ControllerState, context: Context) -> Outcome[str]:
        records = [Config(0, 4, "", f"k{index}", value) for index in range(count)]
        return Outcome(records, value, atomic, transaction=transaction)

    return generate


def seen(cluster: Any) -> set[str]:
    """Values that a reader sees."""
    values = cluster.controller.committed.image.configs.get((4, ""), {})
    return {value for key, value in values.items() if key.startswith("k")}


def in_log(cluster: Any, since: int) -> list[list[AnyRecord]]:
    return [codec.decode(batch.body) for batch in cluster.quorum.batches[since:] if batch.body]


@pytest.fixture
async def cluster(small_batches: Any) -> Any:
    return small_batches


def one_batch(cluster: Any) -> Callable[[], None]:
    """Let the log take one more batch and then none, until the returned function is called."""
    propose = cluster.quorum.propose

    def take_one(epoch: int, body: bytes, record_count: int) -> tuple[int, int]:
        offsets: tuple[int, int] = propose(epoch, body, record_count)
        cluster.quorum.overloaded = True
        return offsets

    def take_all() -> None:
        cluster.quorum.propose, cluster.quorum.overloaded = propose, False

    cluster.quorum.propose = take_one
    return take_all


# --- appending ---------------------------------------------------------------------------------------------------------------


async def test_five_records_with_two_per_batch_are_three_batches_and_the_last_offset_is_returned(cluster: Any) -> None:
    batches = len(cluster.quorum.batches)
    answer = cluster.controller.write("set", keys(5, "1", atomic=False))
    assert [len(batch) for batch in in_log(cluster, batches)] == [2, 2, 1]
    assert await cluster.done(answer) == "1"
    assert answer.offset == cluster.quorum.end_offset


async def test_an_exact_multiple_leaves_no_empty_batch(cluster: Any) -> None:
    batches = len(cluster.quorum.batches)
    cluster.controller.write("set", keys(4, "1", atomic=False))
    assert [len(batch) for batch in in_log(cluster, batches)] == [2, 2]


async def test_an_atomic_change_that_does_not_fit_one_batch_is_refused_whole(cluster: Any) -> None:
    batches = len(cluster.quorum.batches)
    answer = cluster.controller.write("set", keys(MAX_RECORDS + 1, "1"))
    assert answer.error.code is ErrorCode.POLICY_VIOLATION
    assert f"{MAX_RECORDS + 1} metadata records" in answer.error.message
    assert len(cluster.quorum.batches) == batches
    assert await cluster.done(cluster.controller.write("set", keys(1, "2"))) == "2", "the leadership is kept"


async def test_an_atomic_change_of_that_name_becomes_a_transaction(cluster: Any) -> None:
    batches = len(cluster.quorum.batches)
    answer = cluster.controller.write("set", keys(5, "1", transaction="five keys"))
    begin, *middle, end = [record for batch in in_log(cluster, batches) for record in batch]
    assert begin == BeginTransaction(0, "five keys")
    assert all(isinstance(record, Config) for record in middle) and len(middle) == 5
    assert end == EndTransaction(0)
    assert await cluster.done(answer) == "1"
    assert seen(cluster) == {"1"}


async def test_a_small_change_needs_no_transaction(cluster: Any) -> None:
    batches = len(cluster.quorum.batches)
    cluster.controller.write("set", keys(2, "1", transaction="two keys"))
    assert [len(batch) for batch in in_log(cluster, batches)] == [2]


async def test_a_metadata_version_without_transactions_refuses_instead(cluster: Any) -> None:
    lower = Outcome([FeatureLevel(0, "metadata.version", 12)], "")
    await cluster.done(cluster.controller.write("downgrade", lambda state, context: lower))
    answer = cluster.controller.write("set", keys(5, "1", transaction="five keys"))
    assert answer.error.code is ErrorCode.POLICY_VIOLATION


async def test_few_but_long_records_are_cut_by_their_size(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "BODY_BYTES_MAX", 100)
    batches = len(cluster.quorum.batches)
    answer = cluster.controller.write("set", keys(3, "x" * 60, atomic=False))
    assert [len(batch) for batch in in_log(cluster, batches)] == [1, 1, 1]
    await cluster.done(answer)
    longer = cluster.controller.write("set", keys(1, "x" * 100, atomic=False))
    assert longer.error.code is ErrorCode.POLICY_VIOLATION
    assert "does not fit one batch" in longer.error.message


@pytest.mark.parametrize("atomic", [True, False])
async def test_a_record_that_cannot_be_replayed_stops_a_large_change_before_anything_is_written(
    cluster: Any, atomic: bool
) -> None:
    def bad(state: ControllerState, context: Context) -> Outcome[str]:
        good: Sequence[AnyRecord] = keys(4, "1")(state, context).records
        return Outcome([*good, RemoveTopic(0, b"x" * 16)], "", atomic, transaction="bad")

    batches = len(cluster.quorum.batches)
    answer = cluster.controller.write("bad", bad)
    assert answer.error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(cluster.quorum.batches) == batches
    assert await cluster.done(cluster.controller.write("set", keys(1, "2"))) == "2"


async def test_more_topics_than_a_batch_holds_are_deleted_at_once(five: Any) -> None:
    names = [f"t{number}" for number in range(5)]
    for name in names:
        await five.create(name, (1,))
    request = admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.DeleteTopicState(name=name) for name in names])
    answer = five.controller.write("delete", lambda state, context: topics.delete(state, request, context))
    await five.commit(2)
    assert len(five.controller.committed.image.topics.by_name) == 5
    response = await five.done(answer)
    assert {result.error_code for result in response.responses} == {0}
    assert len(five.controller.committed.image.topics.by_name) == 0


# --- readers -----------------------------------------------------------------------------------------------------------------


async def test_readers_see_nothing_of_a_transaction_before_all_of_it(cluster: Any) -> None:
    begins_at = cluster.quorum.end_offset
    answer = cluster.controller.write("set", keys(5, "1", transaction="five keys"))
    later = cluster.controller.write("set", keys(1, "2"))
    for _ in range(3):
        await cluster.commit(1)
        assert seen(cluster) == set()
        assert not answer.done
        assert cluster.controller.applied_offset == begins_at, "the last stable offset"
        assert cluster.controller.freeze() is None
    await cluster.commit(1)
    assert answer.value == "1" and not later.done
    assert seen(cluster) == {"1"}
    assert cluster.controller.freeze() is not None
    await cluster.commit()
    assert seen(cluster) == {"1", "2"}


async def test_a_wait_for_an_offset_inside_a_transaction_lasts_until_its_end(cluster: Any) -> None:
    inside = cluster.quorum.end_offset + 2
    cluster.controller.write("set", keys(5, "1", transaction="five keys"))
    async with trio.open_nursery() as nursery:
        reached = trio.Event()

        async def wait() -> None:
            await cluster.controller.wait_applied(inside)
            reached.set()

        nursery.start_soon(wait)
        await cluster.commit(2)
        await trio.testing.wait_all_tasks_blocked()
        assert not reached.is_set()
        await cluster.commit()
        await reached.wait()
    assert seen(cluster) == {"1"}


async def test_a_standby_shows_a_transaction_at_its_end_and_the_same_image(cluster: Any, tools: Any) -> None:
    await cluster.done(cluster.controller.write("set", keys(5, "1", transaction="five keys")))
    standby = tools.Cluster()
    for batch in cluster.quorum.batches[:-1]:
        await standby.controller.apply([batch], batch.end_offset)
    assert seen(standby) == set()
    await standby.controller.apply([cluster.quorum.batches[-1]], cluster.quorum.end_offset)
    assert standby.controller.committed.image == cluster.controller.committed.image


# --- a log that takes only a part --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transaction", ["five keys", None])
async def test_the_rest_of_a_change_is_written_before_anything_else(cluster: Any, transaction: str | None) -> None:
    take_all = one_batch(cluster)
    large = cluster.controller.write("large", keys(5, "1", atomic=transaction is not None, transaction=transaction))
    next_one = cluster.controller.write("set", keys(1, "2"))
    await cluster.pass_time(100)
    assert not large.done and not next_one.done
    take_all()
    await cluster.pass_time(100)
    assert (large.value, next_one.value) == ("1", "2")
    assert cluster.controller.committed.image.config(4, "", "k0") == "2", "in the order in which they were asked"
    assert cluster.controller.committed.image.config(4, "", "k4") == "1"


@pytest.mark.parametrize("transaction", ["five keys", None])
async def test_the_rest_of_a_change_moves_after_a_change_of_voters(cluster: Any, transaction: str | None) -> None:
    take_all = one_batch(cluster)
    large = cluster.controller.write("large", keys(5, "1", atomic=transaction is not None, transaction=transaction))
    cluster.quorum.control_batch()
    take_all()
    await cluster.commit()
    assert cluster.controller.failure is None
    await cluster.commit(len(cluster.quorum.batches) - cluster.quorum.committed_batches - 1)
    assert not large.done, "the last batch is not committed"
    await cluster.commit()
    assert (large.value, large.offset) == ("1", cluster.quorum.end_offset)
    assert cluster.controller.committed.image.config(4, "", "k4") == "1"


async def test_records_of_the_quorum_do_not_count_as_the_rest_of_a_change(cluster: Any) -> None:
    take_all = one_batch(cluster)
    large = cluster.controller.write("large", keys(5, "1", atomic=False))
    for _ in range(4):
        cluster.quorum.control_batch()
    await cluster.commit()
    assert not large.done, "three of its records are not in the log"
    take_all()
    await cluster.pass_time(100)
    assert (large.value, large.offset) == ("1", cluster.quorum.end_offset)


async def test_a_change_that_lost_its_rest_is_not_acknowledged(cluster: Any) -> None:
    one_batch(cluster)
    large = cluster.controller.write("large", keys(5, "1", atomic=False))
    for _ in range(4):
        cluster.quorum.control_batch()
    cluster.quorum.leads = False
    next_one = cluster.controller.write("set", keys(1, "2"))
    await cluster.pass_time(100)
    assert next_one.error.code is ErrorCode.NOT_CONTROLLER
    assert isinstance(large.error, CommitUnknown), "two of its records may be committed"


async def test_after_a_lost_rest_every_change_is_refused_until_the_resignation(cluster: Any) -> None:
    """The newest state is in the middle of a transaction, so no other can begin."""
    one_batch(cluster)
    cluster.controller.write("large", keys(5, "1", transaction="five keys"))
    cluster.quorum.leads = False
    await cluster.pass_time(100)
    await cluster.commit()
    for count in (1, 5):
        refused = cluster.controller.write("set", keys(count, "2", transaction="others"))
        assert refused.error.code is ErrorCode.NOT_CONTROLLER


async def test_no_broker_is_fenced_while_the_rest_of_a_change_waits(five: Any) -> None:
    take_all = one_batch(five)
    large = five.controller.write("large", keys(5, "1", transaction="five keys"))
    started = len(five.quorum.batches)
    await five.pass_time(9_500)
    take_all()
    for _ in range(4):
        await five.pass_time(100)
    assert large.value == "1"
    records = [record for batch in in_log(five, started) for record in batch]
    assert isinstance(records[records.index(EndTransaction(0)) - 1], Config), "nothing came between"


# --- failover ----------------------------------------------------------------------------------------------------------------


async def test_a_failover_in_the_middle_leaves_nothing_of_a_transaction(cluster: Any) -> None:
    await cluster.done(cluster.controller.write("set", keys(1, "0")))
    take_all = one_batch(cluster)
    answer = cluster.controller.write("large", keys(5, "1", transaction="five keys"))
    await cluster.commit()
    await cluster.lose_leadership(survives=True)
    assert answer.error.code is ErrorCode.NOT_CONTROLLER
    assert cluster.controller.committed.image.transaction is not None
    take_all()
    await cluster.lead()
    assert cluster.controller.committed.image.transaction is None
    assert seen(cluster) == {"0"}
    assert in_log(cluster, 0)[-1] == [AbortTransaction(0, "Controller failover")]
    assert await cluster.done(cluster.controller.write("large", keys(5, "2", transaction="again"))) == "2"


async def test_a_refused_rest_fails_the_waiting_answers(cluster: Any) -> None:
    take_all = one_batch(cluster)
    answer = cluster.controller.write("large", keys(5, "1", transaction="five keys"))
    refused = cluster.controller.write("set", keys(1, "2"))
    take_all()
    cluster.quorum.leads = False
    await cluster.pass_time(100)
    assert refused.error.code is ErrorCode.NOT_CONTROLLER
    await cluster.lose_leadership(survives=True)
    assert answer.error.code is ErrorCode.NOT_CONTROLLER


# --- activation --------------------------------------------------------------------------------------------------------------


def image(*records: AnyRecord) -> MetadataImage:
    delta = MetadataDelta(EMPTY)
    delta.replay_all(records, 0)
    return delta.apply(Provenance(len(records), 1))


ABORT = AbortTransaction(0, "Controller failover")
LEVEL_12, LEVEL_14 = FeatureLevel(0, "metadata.version", 12), FeatureLevel(0, "metadata.version", 14)
SOME_KEY = Config(0, 4, "", "k", "v")


@pytest.mark.parametrize(
    ("log", "written"),
    [
        pytest.param([], bootstrap_records(), id="empty log"),
        pytest.param([NoOp(0)], bootstrap_records(), id="a log that says nothing"),
        pytest.param([BeginTransaction(0), LEVEL_14], [ABORT, *bootstrap_records()], id="partial bootstrap"),
        pytest.param([LEVEL_12], [], id="non-empty log of an old version"),
        pytest.param([LEVEL_14], [], id="non-empty log"),
        pytest.param([SOME_KEY], [], id="no metadata.version: the oldest there is, and no bootstrap"),
        pytest.param([LEVEL_14, BeginTransaction(0), SOME_KEY], [ABORT], id="partial transaction"),
    ],
)
def test_what_an_activation_writes(log: list[AnyRecord], written: list[AnyRecord]) -> None:
    assert activation_records(image(*log)) == written


def test_a_transaction_that_its_version_does_not_know_stops_the_activation() -> None:
    with pytest.raises(
        ActivationRefused, match=r"open since offset 1, but metadata.version 12 has no transactions \(13 is needed\)"
    ):
        activation_records(image(LEVEL_12, BeginTransaction(0)))


def test_only_a_log_without_any_content_is_empty() -> None:
    assert is_empty(EMPTY) and is_empty(image(NoOp(0), BeginTransaction(0), SOME_KEY))
    assert not is_empty(image(SOME_KEY))


async def test_a_controller_that_cannot_be_activated_ends(cluster: Any) -> None:
    await cluster.done(cluster.controller.write("downgrade", lambda state, context: Outcome([LEVEL_12], "")))
    cluster.controller.write("begin", lambda state, context: Outcome([BeginTransaction(0)], ""))
    await cluster.commit()
    await cluster.lose_leadership(survives=True)
    await cluster.lead()
    assert isinstance(cluster.controller.failure, ActivationRefused)
    with pytest.raises(ApiError):
        await cluster.done(cluster.controller.write("set", keys(1, "1")))
