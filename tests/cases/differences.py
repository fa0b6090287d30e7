"""The table of intended differences from the recordings of Apache Kafka 4.3.

Some rows name a scenario, a field and our value. Others hold in all scenarios: they compute our different answer from the steps
of the scenario (`checking/recorded_cases/moves.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kraftlab.checking.recorded_cases.judgement import ANYTHING, BetterText, Difference
from kraftlab.checking.recorded_cases.moves import (
    History,
    Key,
    Place,
    Step,
    histories,
    history_at,
    named_twice,
    waits_for_dropped,
)

DIRECTION = "going back is what was asked; a move that cannot end needs a person"
IN_SYNC = "all of the target is in sync, so the move ends; what Kafka keeps listed never would"
DISJOINT = "adding and removing replicas are told against the original ones, so they stay disjoint and nothing is in neither"
ORIGINAL = "a cancel gives back the original replicas in their order, however often the target was replaced"
LAST = "the last target wins, not the one before"
TWICE = "an answer NONE must mean that the target was taken: a partition named twice is refused, others proceed"
TARGET_SIZE = "the replication factor of a topic that is being reassigned is that of the target, not of target and rest together"
CLIENT_FAULT = "the client is at fault, not the server: the code says so and the message names the value"
COLLISION = "names that differ by '.' and '_' only collide for good, in one request as in two"
NOT_A_REPLICA = "who is no replica any more cannot lead"
NO_EFFECT = "a setting that nothing acts on is refused by name, instead of being accepted and ignored"
SERVED = "only what is served is offered: a client uses what it sees"
SAYS_WHY = "a batch that is refused says why, where Kafka has the code alone"
WHOLE_BATCHES = "the part of a batch that exceeds the limit is not sent: a consumer throws it away"
OF_A_FOLLOWER = "a follower learns the high watermark with its next fetch: a consumer there may see more or less"
ANY_DIR = "the way to stop a move without knowing where the replica is (KIP-113)"

_PARTITION = "response.topics[0].partitions[0]"


def _rows(scenario: str, reason: str, fields: dict[str, Any]) -> tuple[Difference, ...]:
    return tuple(Difference(scenario, path, reason, ours) for path, ours in fields.items())


Fits = Callable[[Place, Any], bool]


def _of_moves(reason: str, fields: dict[str, Fits], *, is_met: Callable[[History], bool]) -> tuple[Difference, ...]:
    """Return rows for fields of partitions in all scenarios, where earlier steps determine our different answer."""

    def fits_of(fits: Fits) -> Fits:
        def check(place: Place, got: Any) -> bool:
            history = history_at(place)
            return history is not None and is_met(history) and fits(place, got)

        return check

    return tuple(
        Difference("*", f"steps[*].response.topics[*].partitions[*].{name}", reason, fits=fits_of(fits))
        for name, fits in fields.items()
    )


def _known(place: Place) -> History:
    history = history_at(place)
    assert history is not None
    return history


def _adds_against_origin(place: Place, got: Any) -> bool:
    history = _known(place)
    return any(got == sorted({*history.target} - {*origin}) for origin in history.origins)


def _removes_the_rest(place: Place, got: Any) -> bool:
    history = _known(place)
    return got == sorted(got) and {*got} <= history.everybody - {*history.target}


def _begins_with_target(place: Place, got: Any) -> bool:
    """Return whether the value has a move's replicas: the target in its order, then the leaving replicas; at rest, a possible
    origin.
    """
    history = _known(place)
    target = list(history.target)
    is_under_way = got[: len(target)] == target and {*got[len(target) :]} <= history.everybody - {*target}
    return is_under_way or tuple(got) in history.origins


def _is_original(place: Place, got: Any) -> bool:
    """Return whether the value has the replicas after a cancel, in any order of the recording's answers."""
    history = _known(place)
    return not history.targets and tuple(got) in history.origins


def _is_among_them(place: Place, got: Any) -> bool:
    members = got if isinstance(got, list) else [got]
    return {*members} <= {*_known(place).everybody, -1}


def _is_replicas_own(place: Place, got: Any) -> bool:
    """Return whether the value is the recorded one without former replicas."""
    return {*got} <= {*(place.recorded() or ())} & {*_known(place).target}


def _ended(steps: Sequence[Step]) -> set[Key]:
    """Return partitions that Kafka may still list, and we do not."""
    return {key for key, history in histories(steps).items() if history.has_dropped or history.was_named_twice}


def _lists_fewer_topics(place: Place, got: Any) -> bool:
    """Return whether a recorded listing has more moves, which have ended here or never began."""
    topics = {topic for topic, _ in _ended(place.steps[: place.at])}
    listed, ours = ({topic.get("name") for topic in answer or ()} for answer in (place.recorded(), got))
    return place.step.get("api") == "ListPartitionReassignments" and ours < listed and listed - ours <= topics


def _lists_fewer_partitions(place: Place, got: Any) -> bool:
    topic = Place(place.steps, place.path[:-1]).recorded()
    if place.step.get("api") != "ListPartitionReassignments" or not isinstance(topic, dict):
        return False
    name = topic.get("name")
    listed, ours = ({(name, entry.get("partition_index")) for entry in answer} for answer in (topic["partitions"], got))
    return ours < listed and listed - ours <= _ended(place.steps[: place.at])


def _has_ended(place: Place, got: Any) -> bool:
    """Return whether a cancel is of a move that ended when its target dropped a broker."""
    history = history_at(place)
    return history is not None and history.has_dropped and place.step.get("api") == "AlterPartitionReassignments" and got == 85


WHOLE_MOVE: dict[str, Fits] = {
    "adding_replicas": _adds_against_origin,
    "removing_replicas": _removes_the_rest,
    "replicas": _begins_with_target,
    "replica_nodes": _begins_with_target,
    "isr_nodes": _is_among_them,
    "offline_replicas": _is_among_them,
    "leader_id": _is_among_them,
}


def _is_replaced(history: History) -> bool:
    return len(history.targets) > 1


def _names_a_partition_twice(step: Step) -> bool:
    return bool(named_twice(step))


def _assigns_new_partitions(step: Step) -> bool:
    return step.get("api") == "CreatePartitions" and any(topic.get("assignments") for topic in step["request"]["topics"])


def _colliding(steps: Sequence[Step]) -> set[str]:
    """Return the names in a request whose collision form an earlier name of the request has."""
    found: set[str] = set()
    for step in steps:
        if step.get("api") == "CreateTopics":
            names = [topic["name"] for topic in step["request"].get("topics") or ()]
            forms = [name.replace(".", "_") for name in names]
            found.update(name for at, name in enumerate(names) if forms[at] in forms[:at] and name not in names[:at])
    return found


def _is_about_colliding(place: Place, got: Any) -> bool:
    entry = Place(place.steps, place.path[:5]).recorded()
    return isinstance(entry, dict) and entry.get("name") in _colliding(place.steps[: place.at + 1])


def _is_refused_as_colliding(place: Place, got: Any) -> bool:
    return got == (17 if place.step.get("api") == "CreateTopics" else 3) and _is_about_colliding(place, got)


def _is_new_while_moving(place: Place, got: Any) -> bool:
    """Return whether a partition that was added during a reassignment has as many replicas as the target."""
    entry = Place(place.steps, place.path[:7]).recorded()
    topic = Place(place.steps, place.path[:5]).recorded()
    if not isinstance(entry, dict) or not isinstance(topic, dict):
        return False
    found = histories(place.steps[: place.at])
    moving = [history for (name, _), history in found.items() if name == topic.get("name") and history.targets]
    is_new = (topic.get("name"), entry.get("partition_index")) not in found
    sizes = {len(history.target) for history in moving}
    return is_new and bool(moving) and (not isinstance(got, list) or len(got) in sizes)


def _is_of_a_moving_topic(place: Place, got: Any) -> bool:
    entry = Place(place.steps, place.path[:5]).recorded()
    found = histories(place.steps[: place.at])
    return isinstance(entry, dict) and any(name == entry.get("name") and known.targets for (name, _), known in found.items())


def _has_unknown_operation(step: Step) -> bool:
    return step.get("api") == "IncrementalAlterConfigs" and any(
        config["config_operation"] not in range(4) for resource in step["request"]["resources"] for config in resource["configs"]
    )


def _grants_any_or_match(step: Step) -> bool:
    """Return whether a rule has a filter's value: ANY (1) of a type or operation, MATCH (2) or ANY (1) of a pattern."""
    return step.get("api") == "CreateAcls" and any(
        1 in (rule["resource_type"], rule["operation"], rule["permission_type"]) or rule["resource_pattern_type"] in (1, 2)
        for rule in step["request"]["creations"]
    )


def _moves_to_any_dir(step: Step) -> bool:
    return step.get("api") == "AlterReplicaLogDirs" and any(place["path"] == "any" for place in step["request"]["dirs"])


def _has_entry_without_topic(step: Step) -> bool:
    zero = "00000000-0000-0000-0000-000000000000"
    return step.get("api") == "Metadata" and any(
        topic.get("name") is None and topic.get("topic_id", zero) == zero for topic in step["request"].get("topics") or ()
    )


def _offers_less(place: Place, got: Any) -> bool:
    """Return whether the value lists some of the recorded requests or features, with the recorded versions."""
    recorded = place.recorded()
    if place.step.get("api") != "ApiVersions" or not isinstance(got, list) or not got:
        return False
    return len(got) < recorded if isinstance(recorded, int) else all(entry in recorded for entry in got)


def _says_why(place: Place, got: Any) -> bool:
    return place.step.get("api") == "Produce" and place.recorded() is None and isinstance(got, str)


def _names_the_codec(place: Place, got: Any) -> bool:
    """Return whether a batch with an unknown codec is UNSUPPORTED_COMPRESSION_TYPE instead of UNKNOWN_SERVER_ERROR."""
    return place.step.get("api") == "Produce" and (place.recorded(), got) == (-1, 76)


def _leaves_out_a_part(place: Place, got: Any) -> bool:
    """Return whether the value has all whole batches of the recorded one, and not the part of a batch behind them."""
    recorded = place.recorded()
    if place.step.get("api") != "Fetch" or not got or not recorded.startswith(got):
        return False
    records = bytes.fromhex(recorded)
    return _end_of_batches(records) == len(got) // 2 < len(records)


def _end_of_batches(records: bytes) -> int:
    """Return the size of the whole batches at the beginning of these bytes."""
    at = 0
    while len(records) - at >= 12:
        size_bytes = 12 + int.from_bytes(records[at + 8 : at + 12], "big")
        if size_bytes > len(records) - at:
            break
        at += size_bytes
    return at


def _is_read_at_a_follower(place: Place) -> bool:
    """Return whether the answer is about a partition whose leader is another broker, by the assignment of the scenario."""
    topic, partition = (Place(place.steps, place.path[:length]).recorded() for length in (5, 7))
    if place.step.get("api") != "Fetch" or not isinstance(topic, dict) or not isinstance(partition, dict):
        return False
    assignments = [step["assignment"] for step in place.steps if step.get("topic") == topic.get("topic") and "assignment" in step]
    replicas = assignments[0].get(str(partition["partition_index"]), ()) if assignments else ()
    return place.step["to"] in replicas[1:]


def _has_other_records(place: Place, got: Any) -> bool:
    recorded = place.recorded()
    return _is_read_at_a_follower(place) and (recorded.startswith(got or "") or (got or "").startswith(recorded))


def _has_another_end(place: Place, got: Any) -> bool:
    return _is_read_at_a_follower(place) and isinstance(got, int) and got >= 0


def _in_requests(when: Callable[[Step], bool], reason: str, **fields: Any) -> tuple[Difference, ...]:
    """Return rows for a field in the entries of answers to requests of a kind, in all scenarios, with our value."""
    return tuple(Difference("*", f"steps[*].response.**.{field}", reason, ours, when) for field, ours in fields.items())


DIFFERENCES: tuple[Difference, ...] = (
    *_rows("030-replace-running-disjoint", DISJOINT, {f"steps[8].{_PARTITION}.adding_replicas": [2, 4]}),
    *_rows(
        "031-replace-running-by-original",
        DIRECTION,
        {
            f"steps[7].{_PARTITION}.replica_nodes": [0, 1, 2],
            "steps[8].response.topics": [],
            "steps[10].action": ANYTHING,
            f"steps[11].{_PARTITION}.replica_nodes": [0, 1, 2],
            f"steps[11].{_PARTITION}.isr_nodes": [0, 1, 2],
            "steps[12].response.topics": [],
            "steps[13].response.responses[0].partitions[0].error_code": 85,
        },
    ),
    *_rows(
        "036-replace-running-by-merged-set",
        LAST,
        {
            f"steps[8].{_PARTITION}.removing_replicas": [],
            f"steps[11].{_PARTITION}.leader_id": 0,
            f"steps[11].{_PARTITION}.replica_nodes": [0, 1, 2, 3],
            f"steps[11].{_PARTITION}.isr_nodes": [0, 1, 2, 3],
        },
    ),
    *_rows(
        "057-same-partition-twice-cancel",
        TWICE,
        {f"steps[3].{_PARTITION}.replica_nodes": [0, 1, 2], f"steps[3].{_PARTITION}.isr_nodes": [0, 1, 2]},
    ),
    *_rows(
        "090-partitions-added-while-running-auto",
        TARGET_SIZE,
        {
            "steps[5].response.topics[0].partitions[1].replica_nodes": ANYTHING,
            "steps[5].response.topics[0].partitions[1].isr_nodes": ANYTHING,
        },
    ),
    *_rows(
        "099-drop-adding-that-is-down",
        IN_SYNC,
        {
            f"steps[6].{_PARTITION}.replica_nodes": [0, 3],
            f"steps[6].{_PARTITION}.isr_nodes": [0, 3],
            f"steps[6].{_PARTITION}.offline_replicas": [],
            "steps[7].response.topics": [],
        },
    ),
    *_rows("102-cancel-when-only-adding-in-isr", DISJOINT, {f"steps[14].{_PARTITION}.adding_replicas": []}),
    *_rows(
        "102-cancel-when-only-adding-in-isr",
        IN_SYNC,
        {
            f"steps[16].{_PARTITION}.replica_nodes": [2],
            f"steps[16].{_PARTITION}.offline_replicas": [],
            "steps[17].response.topics": [],
            "steps[19].action": ANYTHING,
            f"steps[20].{_PARTITION}.replica_nodes": [2],
            f"steps[20].{_PARTITION}.isr_nodes": [2],
            f"steps[20].{_PARTITION}.offline_replicas": [],
            "steps[21].response.topics": [],
            "steps[22].response.responses[0].partitions[0].error_code": 85,
            f"steps[23].{_PARTITION}.leader_id": 2,
            f"steps[23].{_PARTITION}.replica_nodes": [2],
            f"steps[23].{_PARTITION}.isr_nodes": [2],
        },
    ),
    *_rows(
        "105-removing-broker-dies-cancel",
        ORIGINAL,
        {f"steps[6].{_PARTITION}.replica_nodes": [4, 1, 2], f"steps[10].{_PARTITION}.replica_nodes": [4, 1, 2]},
    ),
    *_rows(
        "235-broker-config-read-only",
        NO_EFFECT,
        {
            f"steps[{step}].response.responses[0].{field}": ours
            for step in (4, 6, 14, 15)
            for field, ours in (("error_code", 40), ("error_message", ANYTHING))
        },
    ),
    *_rows("246-describe-static", NO_EFFECT, {"steps[0].response.results[0].configs[7]": ANYTHING}),
    *_rows("318-replace-disjoint-then-cancel", DISJOINT, {f"steps[8].{_PARTITION}.adding_replicas": [2, 4]}),
    *_rows("318-replace-disjoint-then-cancel", ORIGINAL, {f"steps[10].{_PARTITION}.replica_nodes": [0, 1]}),
    *_rows("319-replace-thrice-then-cancel", ORIGINAL, {f"steps[13].{_PARTITION}.replica_nodes": [0, 1]}),
    *_rows(
        "321-replace-by-original-then-forward",
        DIRECTION,
        {f"steps[7].{_PARTITION}.replica_nodes": [0, 1, 2], "steps[8].response.topics": []},
    ),
    *_rows("322-replace-dropping-one-then-forward", DISJOINT, {f"steps[8].{_PARTITION}.adding_replicas": [3]}),
    # Requests of a kind, in all scenarios.
    *_in_requests(_names_a_partition_twice, TWICE, error_code=42, error_message=ANYTHING),
    *_in_requests(_has_unknown_operation, CLIENT_FAULT, error_code=42, error_message=ANYTHING),
    *_in_requests(_grants_any_or_match, CLIENT_FAULT, error_code=42, error_message=ANYTHING),
    *_in_requests(_has_entry_without_topic, CLIENT_FAULT, error_code=42),
    *_in_requests(_moves_to_any_dir, ANY_DIR, error_code=0),
    *(
        Difference("*", f"steps[*].response.{name}", SERVED, fits=_offers_less)
        for name in ("api_keys", "supported_features", "finalized_features")
    ),
    Difference("*", "steps[*].response.responses[*].partition_responses[*].error_message", SAYS_WHY, fits=_says_why),
    Difference("*", "steps[*].response.responses[*].partition_responses[*].error_code", CLIENT_FAULT, fits=_names_the_codec),
    Difference("*", "steps[*].response.responses[*].partitions[*].records", WHOLE_BATCHES, fits=_leaves_out_a_part),
    Difference("*", "steps[*].response.responses[*].partitions[*].records", OF_A_FOLLOWER, fits=_has_other_records),
    Difference("*", "steps[*].response.responses[*].partitions[*].last_stable_offset", OF_A_FOLLOWER, fits=_has_another_end),
    # Answers that follow from earlier steps, in all scenarios.
    *_of_moves(DISJOINT, {"adding_replicas": _adds_against_origin, "removing_replicas": _removes_the_rest}, is_met=_is_replaced),
    *_of_moves(IN_SYNC, WHOLE_MOVE, is_met=lambda history: history.has_dropped),
    *_of_moves(LAST, WHOLE_MOVE, is_met=lambda history: history.has_merged),
    Difference("*", "steps[*].response.topics", IN_SYNC, fits=_lists_fewer_topics),
    Difference("*", "steps[*].response.topics[*].partitions", IN_SYNC, fits=_lists_fewer_partitions),
    Difference("*", "steps[*].response.responses[*].partitions[*].error_code", IN_SYNC, fits=_has_ended),
    Difference("*", "steps[*].action", IN_SYNC, fits=lambda place, got: waits_for_dropped(place)),
    *_of_moves(ORIGINAL, {"replica_nodes": _is_original}, is_met=lambda history: history.was_cancelled),
    *_of_moves(TWICE, WHOLE_MOVE, is_met=lambda history: history.was_named_twice),
    *_of_moves(NOT_A_REPLICA, {"eligible_leader_replicas": _is_replicas_own}, is_met=lambda history: True),
    *(
        Difference("*", f"steps[*].response.topics[*].partitions[*].{name}", TARGET_SIZE, fits=_is_new_while_moving)
        for name in ("replica_nodes", "isr_nodes", "leader_id")
    ),
    *(
        Difference("*", f"steps[*].response.results[*].{name}", TARGET_SIZE, ours, _assigns_new_partitions, _is_of_a_moving_topic)
        for name, ours in (("error_code", 39), ("error_message", ANYTHING))
    ),
    *(
        Difference("*", f"steps[*].response.topics[*].{name}", COLLISION, fits=_is_about_colliding)
        for name in ("topic_id", "error_message", "num_partitions", "replication_factor", "configs", "partitions")
    ),
    Difference("*", "steps[*].response.topics[*].error_code", COLLISION, fits=_is_refused_as_colliding),
)

BETTER_TEXTS: tuple[BetterText, ...] = (
    BetterText(
        "Produce",
        r"Invalid magic found in record: -?\d+",
        r"corrupt record batch at position \d+: Invalid magic found in record: -?\d+",
        "says where the batch is",
    ),
    BetterText(
        "Produce",
        r"(Compacted topic cannot accept message without key) in topic partition .*",
        r"Compacted topic cannot accept message without key",
        "the answer names the partition already",
    ),
    BetterText(
        "Produce",
        r"One or more records have been rejected due to \d+ record errors in total, .*",
        r"\d+ records: .*",
        "the names of Kafka's classes help nobody, and each record has its own text",
    ),
    BetterText(
        "DeleteTopics",
        r"This server does not host this topic(-partition| ID)\.",
        r"There is no topic (named|with id) .*",
        "names the topic that there is not",
    ),
    BetterText(
        "CreateTopics",
        r"Excessively large number of partitions per request\.",
        r"Excessively large number of partitions per request: \d+ is more than 10000\. .*",
        "says how many are too many, and what to do",
    ),
    BetterText(
        "RemoveRaftVoter",
        r"Cannot remove voter ReplicaKey\(.*",
        r"node -?\d+ with directory id \S+ is not a voter: .*",
        "names the voter without the server's classes, and says where to look",
    ),
    BetterText(
        "IncrementalAlterConfigs",
        r"Invalid value org\.apache\.kafka\.common\.config\.ConfigException: (Dynamic thread count .*) for configuration .*",
        r"Dynamic thread count update validation failed for .*",
        "the names of Kafka's classes help nobody",
    ),
    BetterText(
        "IncrementalAlterConfigs",
        r"requirement failed: All entries in cordoned\.log\.dirs must be present.*",
        r"All entries in cordoned\.log\.dirs must be present in log\.dirs or log\.dir\. Missing entries : .*; the broker has .*",
        "names the directories that there are",
    ),
    BetterText(
        "DescribeConfigs",
        r"This most likely occurs because of a request being malformed .*",
        r"Unknown resource type -?\d+",
        "names the value that is wrong",
    ),
    BetterText(
        "AlterClientQuotas",
        r"Invalid quota entity combination, IP entity shouldnot be combined with .*",
        r"Invalid quota entity combination, IP entity should not be combined with .*",
        "spelling",
    ),
    BetterText(
        "CreateAcls",
        r"Invalid (resourceType|patternType|operation|permissionType) UNKNOWN",
        r"Invalid (resourceType|patternType|operation|permissionType) -?\d+: .*",
        "names the number that is wrong",
    ),
    BetterText(
        "DeleteAcls",
        r"Unknown (pattern|entry)Filter\.",
        r"The filter has (resource type|pattern type|operation|permission type) -?\d+, which is unknown",
        "names the number that is wrong, and what it would be",
    ),
)
