"""The runner of recordings itself: paths, tolerances, mapping, comparison, differences. No cluster runs for these."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KafkaError
from kio.serial import entity_reader, entity_writer

from kraftlab.admin.v1 import admin_pb2 as pb
from kraftlab.checking.recorded_cases import paths, sentences, tolerance, trims
from kraftlab.checking.recorded_cases.comparison import Comparison, Placeholders
from kraftlab.checking.recorded_cases.documents import BadRecording, Document, load_folder
from kraftlab.checking.recorded_cases.doors import DOORS
from kraftlab.checking.recorded_cases.judgement import BetterText, Difference, Failure, Judge, Outcome, report
from kraftlab.checking.recorded_cases.kafka_mapping import neutral_entity, read_response, request_frame, to_entity
from kraftlab.checking.recorded_cases.mapping import CannotMap, build_request, neutral_response
from kraftlab.checking.recorded_cases.runner import is_refusal, placements
from kraftlab.checking.recorded_cases.tidying import altered_resources

ID = "EjRWeBI0EjQSNBI0VniavA"
LONG_ID = "12345678-1234-1234-1234-123456789abc"
RESPONSE = ("steps", 0, "response")


def document(*steps: dict[str, Any], volatile: tuple[str, ...] = (), group: str = "a") -> Document:
    return Document("000-example", group, "", steps, volatile=volatile, text=json.dumps(steps))


def mismatches(expected: Any, got: Any, *volatile: str, api: str = "Metadata") -> list[str]:
    """Paths below the response that differ."""
    found = Comparison(api, tolerance.of(volatile), Placeholders()).mismatches(expected, got, RESPONSE)
    return [paths.write(mismatch.path[3:]) for mismatch in found]


# --- paths --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["steps[3].response.topics[0].name", "a", "a[0][1].b"])
def test_a_path_is_read_and_written_the_same(text: str) -> None:
    assert paths.write(paths.parse(text)) == text


@pytest.mark.parametrize(
    ("pattern", "path", "is_match"),
    [
        ("steps[3].to", "steps[3].to", True),
        ("steps[*].to", "steps[12].to", True),
        ("steps[*].to", "steps[1].from", False),
        ("steps[*].response.*", "steps[1].response.topics", True),
        ("steps[*].response.*", "steps[1].response[0]", False),
        ("**.topics", "steps[1].response.topics", True),
        ("**.topics", "topics", True),
        ("**.topics", "steps[1].response.topics[0]", False),
        ("steps[1].**.name", "steps[1].response.topics[0].name", True),
        ("steps[1].**.name", "steps[2].response.topics[0].name", False),
    ],
)
def test_a_pattern_describes_paths(pattern: str, path: str, is_match: bool) -> None:
    assert paths.matches(paths.parse(pattern), paths.parse(path)) == is_match


def test_a_pattern_covers_the_paths_below() -> None:
    assert paths.covers(paths.parse("steps[1].response.topics"), paths.parse("steps[1].response.topics[0].name"))
    assert not paths.covers(paths.parse("steps[1].response.topics"), paths.parse("steps[1].response"))


def test_an_invalid_path_is_named() -> None:
    with pytest.raises(ValueError, match=r"'a\[\]' is not a path"):
        paths.parse("a[]")


# --- mapping ------------------------------------------------------------------------------------------------------------


def test_null_and_empty_lists_stay_different() -> None:
    absent = build_request("ListPartitionReassignments", 0, {"timeout_ms": 5, "topics": None})
    empty = build_request("ListPartitionReassignments", 0, {"timeout_ms": 5, "topics": []})
    assert not absent.HasField("topics") and empty.HasField("topics")  # type: ignore[arg-type]
    assert (absent.header.timeout_ms, absent.header.api_version) == (5, 0)  # type: ignore[attr-defined]


def test_a_cancellation_is_an_absent_list_of_replicas() -> None:
    partitions = [{"partition_index": 0, "replicas": None}, {"partition_index": 1, "replicas": [1, 2]}]
    neutral = {"topics": [{"name": "t", "partitions": partitions}], "allow_replication_factor_change": False}
    request: Any = build_request("AlterPartitionReassignments", 1, neutral)
    first, second = request.topics[0].partitions
    assert not first.HasField("replicas") and list(second.replicas.values) == [1, 2]
    assert request.HasField("allow_replication_factor_change") and not request.allow_replication_factor_change


def test_objects_with_nothing_but_a_name_become_names() -> None:
    request: Any = build_request("DescribeTopicPartitions", 0, {"topics": [{"name": "a"}, {"name": "b"}], "cursor": None})
    assert list(request.topics.names) == ["a", "b"] and not request.HasField("cursor")


def test_ids_lose_their_dashes_and_bytes_are_digits() -> None:
    request: Any = build_request("DeleteTopics", 6, {"topics": [{"topic_id": LONG_ID, "name": None}]})
    assert request.topics[0].topic_id == ID and not request.topics[0].HasField("name")
    upsertion = {"name": "u", "mechanism": 1, "iterations": 4096, "salt": "3031", "salted_password": "ff"}
    changes: Any = build_request("AlterUserScramCredentials", 0, {"deletions": [], "upsertions": [upsertion]})
    assert (changes.upsertions[0].salt, changes.upsertions[0].salted_password) == (b"01", b"\xff")


@pytest.mark.parametrize(
    ("api", "neutral", "complaint"),
    [
        ("NoSuchCall", {}, "there is no call NoSuchCall"),
        ("CreateTopics", {"colour": "red"}, r"CreateTopics has no field colour \(asked with 'red'\)"),
        ("CreateTopics", {"topics": [{"shape": 3}]}, "CreateTopics.topics.0. has no field shape"),
        ("UnregisterBroker", {"broker_id": "three"}, "UnregisterBroker.broker_id='three' does not fit"),
    ],
)
def test_fields_that_our_request_lacks_are_named(api: str, neutral: dict[str, Any], complaint: str) -> None:
    with pytest.raises(CannotMap, match=complaint):
        build_request(api, 0, neutral)


def test_an_unknown_field_that_asks_for_nothing_is_left_out() -> None:
    assert build_request("CreateTopics", 7, {"topics": [], "colour": None}) == pb.CreateTopicsRequest(
        header=pb.RequestHeader(api_version=7)
    )


def test_an_answer_has_its_header_s_error_at_the_top() -> None:
    response = pb.AlterPartitionReassignmentsResponse(header=pb.ResponseHeader(error_code=7, error_message=""))
    answer = neutral_response(response)
    assert (answer["error_code"], answer["error_message"], answer["responses"]) == (7, "", [])
    assert neutral_response(pb.DescribeClientQuotasResponse())["entries"] is None


# --- comparison ---------------------------------------------------------------------------------------------------------


def test_only_what_the_recording_has_is_compared() -> None:
    assert mismatches({"a": 1}, {"a": 1, "b": 2}) == []
    assert mismatches({"a": 1, "b": [1]}, {"a": 2}) == ["a", "b"]


def test_the_name_of_a_code_is_compared_where_the_code_is_right() -> None:
    assert mismatches({"error_code": 3, "error": "UNKNOWN_TOPIC_OR_PARTITION"}, {"error_code": 3}) == []
    assert mismatches({"error_code": 3, "error": "SOMETHING_ELSE"}, {"error_code": 3}) == ["error"]
    assert mismatches({"error_code": 3, "error": "UNKNOWN_TOPIC_OR_PARTITION"}, {"error_code": 0}) == ["error_code"]


def test_null_empty_and_text_are_three_messages() -> None:
    texts = (None, "", "no")
    for expected in texts:
        differing = [got for got in texts if mismatches({"error_message": expected}, {"error_message": got})]
        assert differing == [text for text in texts if text != expected]


def test_a_number_in_the_place_of_a_list_is_its_length() -> None:
    assert mismatches({"brokers": 2, "configs": ["3 configs"]}, {"brokers": [1, 2], "configs": [{}, {}, {}]}) == []
    assert mismatches({"brokers": 2, "configs": ["3 configs"]}, {"brokers": [1], "configs": [{}]}) == ["brokers", "configs"]


def test_one_topic_has_one_id() -> None:
    ids = Placeholders()
    comparison = Comparison("Metadata", tolerance.of(()), ids)
    assert not comparison.mismatches({"topic_id": "{topic_id:t}"}, {"topic_id": ID}, RESPONSE)
    assert comparison.mismatches({"topic_id": "{topic_id:t}"}, {"topic_id": ID[::-1]}, RESPONSE)
    assert not comparison.mismatches({"voter": LONG_ID}, {"voter": ID}, RESPONSE)


def test_placeholders_in_messages_match_our_values() -> None:
    expected = {"error_message": "Local controller {controller} got {request}."}
    assert mismatches(expected, {"error_message": "Local controller 3001 got (a, b)."}) == []
    assert mismatches(expected, {"error_message": "Local controller x got (a, b)."}) == ["error_message"]


def test_one_member_has_one_id_although_ids_are_random() -> None:
    members = Placeholders()
    comparison = Comparison("JoinGroup", tolerance.of(("**.member_id",), (), frozenset({"member_id"})), members)
    assert not comparison.mismatches({"member_id": "{member:1}"}, {"member_id": "consumer-1"}, RESPONSE)
    assert comparison.mismatches({"member_id": "{member:1}"}, {"member_id": "consumer-2"}, RESPONSE)
    assert not comparison.mismatches({"member_id": "{member:2}"}, {"member_id": "consumer-2"}, RESPONSE)
    assert not comparison.mismatches({"member_id": "other"}, {"member_id": "consumer-3"}, RESPONSE)
    assert comparison.mismatches({"member_id": "{member:3}"}, {"member_id": ""}, RESPONSE)


# --- the Kafka protocol -------------------------------------------------------------------------------------------------


def test_a_request_becomes_a_frame_of_its_version() -> None:
    partition = {"index": 0, "records": "00ff"}
    neutral = {"acks": -1, "timeout_ms": 1500, "topic_data": [{"name": "t", "partition_data": [partition]}]}
    frame = request_frame("Produce", 12, neutral, 7)
    assert (int.from_bytes(frame[:4], "big"), struct.unpack_from(">hhi", frame, 4)) == (len(frame) - 4, (0, 12, 7))
    schema: Any = load_request_schema(0, 12)
    _, size = entity_reader(schema.__header_schema__)(frame, 4)
    sent, _ = entity_reader(schema)(frame, 4 + size)
    assert neutral_entity(sent) == {"transactional_id": None, **neutral}


def test_ids_durations_and_dates_of_a_response_are_as_with_grpc() -> None:
    topic = {"name": "t", "topic_id": LONG_ID, "error_code": KafkaError.invalid_request, "error_message": None}
    schema: Any = load_response_schema(20, 6)
    buffer = io.BytesIO()
    entity_writer(schema.__header_schema__)(buffer, schema.__header_schema__(correlation_id=1))
    entity_writer(schema)(buffer, to_entity(schema, {"throttle_time_ms": 1000, "responses": [topic]}, "DeleteTopics"))
    received = read_response("DeleteTopics", 6, buffer.getvalue())
    assert received == {"throttle_time_ms": 1000, "responses": [{**topic, "topic_id": ID, "error_code": 42}]}


@pytest.mark.parametrize(
    ("api", "version", "neutral", "complaint"),
    [
        ("NoSuchCall", 0, {}, "has no call NoSuchCall"),
        ("CreateTopics", 99, {}, "no version 99 of CreateTopics"),
        ("CreateTopics", 7, {"colour": "red"}, r"CreateTopics has no field colour in this version \(asked with 'red'\)"),
        ("CreateTopics", 7, {"timeout_ms": "soon"}, r"CreateTopics.timeout_ms='soon' does not fit"),
    ],
)
def test_a_request_that_the_protocol_cannot_say_is_named(api: str, version: int, neutral: dict[str, Any], complaint: str) -> None:
    with pytest.raises(CannotMap, match=complaint):
        request_frame(api, version, neutral, 1)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ({"error_code": 42}, True),
        ({"error_code": 0, "results": []}, False),
        ({"error_code": 3}, False),
        ({"filter_results": [{"error_code": 42}, {"error_code": 35}]}, True),
        ({"filter_results": [{"error_code": 42}, {"error_code": 0}]}, False),
        ({"filter_results": []}, False),
    ],
)
def test_a_refusal_leaves_no_entry_out(response: dict[str, Any], expected: bool) -> None:
    assert is_refusal(response) == expected


def test_a_door_names_the_scenarios_that_it_cannot_run() -> None:
    plain = {"api": "Metadata", "to": 0, "request": {}, "response": {}}
    kafka, grpc = DOORS["kafka"], DOORS["grpc"]
    assert kafka.skip_reason(document(plain)) is None and grpc.skip_reason(document(plain)) is None
    assert "alice" in (kafka.skip_reason(document({**plain, "as": "alice"})) or "")
    assert grpc.skip_reason(document({**plain, "as": "alice"})) is None
    assert "Kafka" in (grpc.skip_reason(document(plain, group="h")) or "")


def test_the_recorded_coordinator_of_a_group_is_known() -> None:
    found = tolerance.of(('"to": 2 is the coordinator of group s1-t', "steps[1].to", "**.coordinators[].*"))
    assert (found.coordinators, found.not_understood) == ({2: "s1-t"}, [])


# --- tolerances ---------------------------------------------------------------------------------------------------------


def test_a_path_of_the_document_may_differ() -> None:
    topics = {"topics": [{"leader_id": 1, "name": "t"}]}
    other = {"topics": [{"leader_id": 2, "name": "u"}]}
    assert mismatches(topics, other, "steps[0].response.topics[0].leader_id") == ["topics[0].name"]
    assert mismatches(topics, other, "leader_id", "steps[1].response.topics[0].name") == ["topics[0].name"]


@pytest.mark.parametrize(
    "sentence",
    [
        "steps[0].response.topics (order of the elements)",
        "order of steps[0].response.topics",
        "order of response entries where authorized and unauthorized ones are mixed",
        "order of topics in Metadata answers to topics=null",
    ],
)
def test_an_order_may_differ(sentence: str) -> None:
    expected, got = {"topics": [{"name": "a"}, {"name": "b"}]}, {"topics": [{"name": "b"}, {"name": "a"}]}
    assert mismatches(expected, got) != []
    assert mismatches(expected, got, sentence) == []
    assert mismatches(expected, {"topics": [{"name": "b"}, {"name": "c"}]}, sentence) != []


def test_a_random_placement_is_compared_by_numbers() -> None:
    sentence = "replica_nodes, isr_nodes, leader_id of partition 1 (placement is random; the number of replicas is not)"
    expected = {"partitions": [{"partition_index": 1, "leader_id": 0, "replica_nodes": [0, 1], "isr_nodes": [0, 1]}]}
    elsewhere = {"partitions": [{"partition_index": 1, "leader_id": 2, "replica_nodes": [2, 3], "isr_nodes": [3, 2]}]}
    assert mismatches(expected, elsewhere, sentence) == []
    fewer = {"partitions": [{"partition_index": 1, "leader_id": 2, "replica_nodes": [2], "isr_nodes": [2, 3]}]}
    assert mismatches(expected, fewer, sentence) == ["partitions[0].replica_nodes"]


def test_texts_may_differ_but_must_exist() -> None:
    expected = {"error_message": "no"}
    assert mismatches(expected, {"error_message": "never"}, "error_message of Metadata") == []
    assert mismatches(expected, {"error_message": "never"}, "error_message of CreateTopics") == ["error_message"]
    assert mismatches(expected, {"error_message": None}, "error_message of Metadata") == ["error_message"]


def test_a_list_may_be_compared_by_one_field() -> None:
    expected, got = {"current_voters": [{"replica_id": 1, "end": 5}]}, {"current_voters": [{"replica_id": 1, "end": 6}]}
    assert mismatches(expected, got, "current_voters[*] other than replica_id") == []
    assert mismatches(expected, {"current_voters": [{"replica_id": 2}]}, "current_voters[*] other than replica_id") != []


def test_a_sentence_of_no_known_form_counts_by_its_field_names() -> None:
    rules = tolerance.of(("whatever stands in the_field is anybody's guess", "Who knows?", "steps[x.y (order)"))
    assert "the_field" in rules.names and rules.not_understood == ["Who knows?", "steps[x.y (order)"]


def test_a_range_of_steps_is_not_a_path() -> None:
    assert tolerance.of(("order of steps[0-1].response.topics",)).not_understood == ["steps[0-1].response.topics (order)"]


def test_a_document_may_name_unordered_lists_of_a_call() -> None:
    rules = tolerance.of(("DescribeAcls: order of resources, acls",))
    path = ("steps", 0, "response", "resources")
    assert rules.is_unordered(path, "DescribeAcls") and not rules.is_unordered(path, "DescribeConfigs")


def test_volatile_entries_of_all_documents_are_rules_too() -> None:
    rules = tolerance.of((), ("**.port", "DeleteTopics: order of response.responses (shuffled)"), frozenset({"host"}))
    assert {"port", "host"} <= rules.names
    assert rules.is_unordered(paths.parse("steps[0].response.responses"), "DeleteTopics")
    assert not rules.is_unordered(paths.parse("steps[0].response.responses"), "CreateTopics")


# --- trims --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trimmed", "kept"),
    [
        ("response.topics removed", []),
        ("response.topics: only the topics of this scenario", ["own"]),
        ("response.topics[*].parts removed; only the topics of this scenario", ["own"]),
        ("topics of others removed, sorted", ["own"]),
        ("response.topics: only those with kind != 5 (default)", ["other"]),
        ("response.topics: only kind 5", ["own"]),
    ],
)
def test_trims_of_a_recording_apply_to_our_answer(trimmed: str, kept: list[str]) -> None:
    response = {"topics": [{"name": "own", "kind": 5, "parts": []}, {"name": "other", "kind": 1, "parts": []}]}
    result = trims.apply([trimmed], response, lambda name: name == "own")
    assert [topic["name"] for topic in result["topics"]] == kept


def test_sorted_lists_of_a_recording_are_unordered() -> None:
    rules = tolerance.of(())
    trims.add_order(["response.results sorted by log_dir", "voters, observers, nodes sorted by id"], rules)
    for name in ("results", "current_voters", "observers", "nodes"):
        assert rules.is_unordered(("steps", 0, "response", name), "Any")


# --- differences on purpose ---------------------------------------------------------------------------------------------


def test_a_difference_needs_its_path_and_value() -> None:
    step = {"api": "X"}
    judge = Judge("031-example", [Difference("031-*", "steps[2].response.topics[0].name", "because", "ours")], [])
    answer = {"steps": {2: {"response": {"topics": [{"name": "ours"}]}}}}
    assert judge.difference(paths.parse("steps[2].response.topics[0].name"), step, answer) is not None
    assert judge.difference(paths.parse("steps[3].response.topics[0].name"), step, answer) is None
    answer["steps"][2]["response"]["topics"][0]["name"] = "neither"
    assert judge.difference(paths.parse("steps[2].response.topics[0].name"), step, answer) is None
    other = Judge("032-example", [Difference("031-*", "steps[2].response", "because")], [])
    assert other.difference(paths.parse("steps[2].response"), step, answer) is None


def test_a_difference_may_be_about_requests_of_a_kind() -> None:
    row = Difference("*", "steps[*].response", "because", when=lambda step: step["api"] == "X")
    judge = Judge("any", [row], [])
    assert judge.expects(paths.parse("steps[2].response.a"), {"api": "X"})
    assert not judge.expects(paths.parse("steps[2].response.a"), {"api": "Y"})


def test_a_better_text_has_to_be_the_one_that_is_meant() -> None:
    judge = Judge("any", [], [BetterText("X", "no .*", "there is no .*", "says it")])
    found = Comparison("X", tolerance.of(()), Placeholders()).mismatches(
        {"error_message": "no topic"}, {"error_message": "there is no topic"}, RESPONSE
    )
    assert judge.text("X", found[0]) is not None
    assert judge.text("Y", found[0]) is None


def test_the_report_counts_scenarios_and_lists_what_failed() -> None:
    differing = Outcome("b")
    differing.differences["steps[0].response", "because"] = "because"
    failed = Outcome("c", [Failure("c", 1, "steps[1].response.a", 1, 2)])
    found = report([Outcome("a"), differing, failed])
    assert (found["passed"], found["differs_on_purpose"]) == (1, 1)
    assert found["failed"] == [{"scenario": "c", "step": 1, "path": "steps[1].response.a", "expected": 1, "got": 2}]
    assert found["differences"] == [{"scenario": "b", "path": "steps[0].response", "reason": "because"}]


# --- documents and sentences --------------------------------------------------------------------------------------------


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRecording, match="holds no recordings"):
        load_folder(tmp_path, tmp_path)
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(BadRecording, match=r"a\.json is not JSON"):
        load_folder(tmp_path, tmp_path)
    with pytest.raises(BadRecording, match="is not a folder"):
        load_folder(tmp_path / "none", tmp_path)


def test_a_folder_brings_its_own_volatile_fields_or_takes_those_here(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for directory in (here, there):
        directory.mkdir()
    (here / "volatile.json").write_text('{"global_volatile": ["**.port"], "global_volatile_field_names": ["port"]}')
    (there / "1.json").write_text('{"scenario": "1", "steps": [], "precondition": {"stopped_brokers": [4], "moon": "full"}}')
    folder = load_folder(there, here)
    assert folder.volatile == ("**.port",)
    assert (folder.documents[0].stopped_brokers, folder.documents[0].unknown_preconditions) == ((4,), ("moon",))


def test_a_cluster_without_an_authorizer_is_seen_from_the_answers() -> None:
    assert document({"response": {"error": "SECURITY_DISABLED"}}).needs_no_authorizer
    assert not document({"api": "X"}).needs_no_authorizer


def test_steps_place_replicas() -> None:
    named = document(
        {"action": "remember_log_dir", "broker": 1, "dir": 0, "topic": "t", "partitions": [0]},
        {
            "api": "AlterReplicaLogDirs",
            "to": 2,
            "request": {"dirs": [{"path": "/", "topics": [{"name": "u", "partitions": [3]}]}]},
        },
    )
    assert placements(named) == {(1, "t", 0), (2, "u", 3)}


def test_altered_resources_are_reset_after_a_scenario() -> None:
    resources = [{"resource_type": 2, "resource_name": "t"}, {"resource_type": 4, "resource_name": "0"}]
    steps = [
        {"api": "IncrementalAlterConfigs", "request": {"resources": resources, "validate_only": flag}} for flag in (False, True)
    ]
    assert altered_resources(document(*steps)) == {(4, "0")}
    assert altered_resources(document(steps[1])) == set()


@pytest.mark.parametrize(
    "what",
    [
        "no reassignment on topic s001-t",
        "isr of s099-t-0 is [0, 1, 2, 3]",
        "no log of the partition on broker 0",
        "s192-t-0 of broker 0 lies in dir 1, no future replica",
        "6 s later the reassignment of topic s031-t is still listed although nothing holds it back",
        "leader of s1-t-0 is none",
        "broker 4 is fenced",
    ],
)
def test_sentences_of_a_known_form_are_questions(what: str) -> None:
    assert sentences.question(what) is not None


def test_other_sentences_are_not_questions() -> None:
    assert sentences.question("the sun shines") is None
