"""Where we differ from the recordings of Apache Kafka 4.3 on purpose: the one table of it.

Scenarios that are not among the recordings here stand in the table by what is known of them, with wildcards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from case_runner.judgement import ANYTHING, BetterText, Difference

Step = dict[str, Any]

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
ANY_DIR = "the way to stop a move without knowing where the replica is (KIP-113)"

_PARTITION = "response.topics[0].partitions[0]"
_ANY_PARTITION = "steps[*].response.topics[*].partitions[*]"


def _rows(scenario: str, reason: str, fields: dict[str, Any]) -> tuple[Difference, ...]:
    return tuple(Difference(scenario, path, reason, ours) for path, ours in fields.items())


def _moves(scenario: str, reason: str, *fields: str) -> tuple[Difference, ...]:
    """Fields of partitions in any step, of scenarios of which no more is known."""
    return tuple(Difference(scenario, f"{_ANY_PARTITION}.{field}", reason) for field in fields)


def _dropping(scenario: str, reason: str) -> tuple[Difference, ...]:
    """A replacement that drops an adding broker and names no new one: what is listed, that it ends, and a cancel after that."""
    fields = ("adding_replicas", "removing_replicas", "replica_nodes", "isr_nodes", "offline_replicas", "leader_id")
    rows = {
        "steps[*].response.topics": [],
        "steps[*].response.responses[0].partitions[0].error_code": 85,
    }
    waiting = Difference(scenario, "steps[*].action", reason, when=_is_waiting)
    return (*_moves(scenario, reason, *fields), *_rows(scenario, reason, rows), waiting)


def _is_waiting(step: Step) -> bool:
    return step.get("action") in ("await", "observe")


def _names_a_partition_twice(step: Step) -> bool:
    if step.get("api") != "AlterPartitionReassignments":
        return False
    named = Counter(
        (topic["name"], partition["partition_index"])
        for topic in step["request"].get("topics") or ()
        for partition in topic.get("partitions") or ()
    )
    return any(times > 1 for times in named.values())


def _has_unknown_operation(step: Step) -> bool:
    return step.get("api") == "IncrementalAlterConfigs" and any(
        config["config_operation"] not in range(4) for resource in step["request"]["resources"] for config in resource["configs"]
    )


def _grants_any_or_match(step: Step) -> bool:
    """A filter's value in a rule: ANY (1) of a type or an operation, MATCH (2) or ANY (1) of a pattern."""
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


def _in_requests(when: Callable[[Step], bool], reason: str, **fields: Any) -> tuple[Difference, ...]:
    """Entries of answers to requests of a kind, in any scenario: a field of every entry that has it, and what we say there."""
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
    *_rows("318-replace-disjoint-then-cancel", DISJOINT, {f"steps[8].{_PARTITION}.adding_replicas": [2, 4]}),
    *_rows("318-replace-disjoint-then-cancel", ORIGINAL, {f"steps[10].{_PARTITION}.replica_nodes": [0, 1]}),
    *_rows("319-replace-thrice-then-cancel", ORIGINAL, {f"steps[13].{_PARTITION}.replica_nodes": [0, 1]}),
    *_rows(
        "321-replace-by-original-then-forward",
        DIRECTION,
        {f"steps[7].{_PARTITION}.replica_nodes": [0, 1, 2], "steps[8].response.topics": []},
    ),
    *_rows("322-replace-dropping-one-then-forward", DISJOINT, {f"steps[8].{_PARTITION}.adding_replicas": [3]}),
    # Requests of a kind, wherever they stand.
    *_in_requests(_names_a_partition_twice, TWICE, error_code=42, error_message=ANYTHING),
    *_in_requests(_has_unknown_operation, CLIENT_FAULT, error_code=42, error_message=ANYTHING),
    *_in_requests(_grants_any_or_match, CLIENT_FAULT, error_code=42, error_message=ANYTHING),
    *_in_requests(_has_entry_without_topic, CLIENT_FAULT, error_code=42),
    *_in_requests(_moves_to_any_dir, ANY_DIR, error_code=0),
    # Scenarios of which only the numbers and the rules are known.
    *_moves("026-*", ORIGINAL, "replica_nodes"),
    *(row for scenario in ("029-*", "035-*", "080-*", "320-*") for row in _dropping(scenario, IN_SYNC)),
    *_dropping("032-*", DIRECTION),
    *(
        row
        for scenario in ("056-*", "059-*")
        for row in _moves(scenario, TWICE, "replica_nodes", "isr_nodes", "leader_id", "replicas", "adding_replicas")
    ),
    *_rows("056-*", TWICE, {"steps[*].response.topics": []}),
    *_rows("059-*", TWICE, {"steps[*].response.topics": []}),
    *_moves("068-*", NOT_A_REPLICA, "eligible_leader_replicas"),
    *_moves("089-*", TARGET_SIZE, "replica_nodes", "isr_nodes", "leader_id"),
    *_rows(
        "089-*",
        TARGET_SIZE,
        {"steps[*].response.results[*].error_code": 39, "steps[*].response.results[*].error_message": ANYTHING},
    ),
    *_rows(
        "149-*",
        COLLISION,
        {
            **{
                f"steps[*].response.topics[*].{field}": ANYTHING
                for field in ("topic_id", "error_message", "num_partitions", "replication_factor", "configs", "partitions")
            },
            "steps[*].response.topics[*].error_code": 17,
        },
    ),
)

BETTER_TEXTS: tuple[BetterText, ...] = (
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
        r"The filter has (resource type|pattern type|operation|permission type) -?\d+, which stands for nothing",
        "names the number that is wrong, and what it would be",
    ),
)
