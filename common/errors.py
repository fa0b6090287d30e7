"""Table of error codes: Kafka's numbers and names, each with a default message that names the next step.

Responses have a code and often a more precise message of their own. `ErrorCode(35)` finds a row by its number. `describe` also
accepts numbers that are not in the table.
"""

from __future__ import annotations

import enum


class ErrorCode(enum.IntEnum):
    """One row per code: `NAME = number, default message`."""

    message: str

    def __new__(cls, value: int, message: str = "") -> ErrorCode:
        row = int.__new__(cls, value)
        row._value_ = value
        row.message = message
        return row

    UNKNOWN_SERVER_ERROR = -1, "The server met an error it did not expect; its log has the details."
    NONE = 0, ""
    OFFSET_OUT_OF_RANGE = 1, "The offset is outside the log; ask for the log's start and end offsets first."
    CORRUPT_MESSAGE = 2, "The batch's checksum does not hold; send it again, and check the disk if it came from one."
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This node has no such topic or partition; check the name, or retry if it is new."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader; bring one of its in-sync replicas back."
    NOT_LEADER_OR_FOLLOWER = 6, "This node does not lead or host the partition; refresh the metadata and retry."
    REQUEST_TIMED_OUT = 7, "The request was not begun before its timeout; nothing was changed. Retry with a longer timeout."
    BROKER_NOT_AVAILABLE = 8, "The node is shutting down; retry on another one."
    REPLICA_NOT_AVAILABLE = 9, "The broker hosts no replica of this partition; it may still be about to be created."
    MESSAGE_TOO_LARGE = 10, "The batch is larger than the topic takes; send smaller batches or raise max.message.bytes."
    OFFSET_METADATA_TOO_LARGE = 12, "The note of a committed offset is larger than offset.metadata.max.bytes."
    NETWORK_EXCEPTION = 13, "The node was cut off before it answered; whether the request took effect is unknown."
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator still reads the group's records; retry."
    COORDINATOR_NOT_AVAILABLE = 15, "The group has no coordinator now; retry."
    NOT_COORDINATOR = 16, "This broker is not the group's coordinator; find the coordinator again."
    INVALID_TOPIC_EXCEPTION = 17, "The topic name is not valid; use 1 to 249 of the characters a-z A-Z 0-9 . _ -"
    NOT_ENOUGH_REPLICAS = 19, "Fewer replicas are in sync than min.insync.replicas asks for; nothing was written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, "Written, but fewer replicas are in sync than min.insync.replicas asks for."
    INVALID_REQUIRED_ACKS = 21, "acks must be 1 or -1 (all)."
    ILLEGAL_GENERATION = 22, "The generation is not the group's present one; join again."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The group's members have no such protocol in common; use the protocols of the others."
    INVALID_GROUP_ID = 24, "The group id is empty; give the group a name."
    UNKNOWN_MEMBER_ID = 25, "The group has no such member; join again without a member id."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside of group.min.session.timeout.ms and group.max.…."
    REBALANCE_IN_PROGRESS = 27, "The group rebalances; join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The offsets of one commit are too large for a batch; commit fewer at once."
    TOPIC_AUTHORIZATION_FAILED = 29, "The principal may not do this to the topic; add an ACL that allows it."
    GROUP_AUTHORIZATION_FAILED = 30, "The principal may not do this to the group; add an ACL that allows it."
    CLUSTER_AUTHORIZATION_FAILED = 31, "The principal may not do this to the cluster; add an ACL that allows it."
    INVALID_TIMESTAMP = 32, "A record's timestamp is outside of message.timestamp.before.max.ms and after.max.ms."
    UNSUPPORTED_SASL_MECHANISM = 33, "The SASL mechanism is not offered here; choose one of the offered ones."
    ILLEGAL_SASL_STATE = 34, "The request does not fit the state of the connection's login; log in once, by SaslHandshake first."
    UNSUPPORTED_VERSION = 35, "This node does not know that api or that version of it; upgrade the older side."
    TOPIC_ALREADY_EXISTS = 36, "A topic with this name exists already."
    INVALID_PARTITIONS = 37, "The number of partitions is not valid; it must be positive, and larger than the current one."
    INVALID_REPLICATION_FACTOR = 38, "The replication factor is not positive or is larger than the number of usable brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, "The replica assignment is not valid; name registered brokers, each once per partition."
    INVALID_CONFIG = 40, "The config key is not known or its value is not valid."
    NOT_CONTROLLER = 41, "This node is not the active controller; send the request to the one that is."
    INVALID_REQUEST = 42, "The request contradicts itself or the protocol; the message of the entry says where."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The log's format does not support this."
    POLICY_VIOLATION = 44, "The request breaks a policy or limit of the server; split it or change the policy."
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        "The batch does not follow the producer's last one; get a new producer id.",
    )
    DUPLICATE_SEQUENCE_NUMBER = 46, "The request may have been carried out before; see what is there, and use a new sequence."
    INVALID_PRODUCER_EPOCH = 47, "A newer producer has this producer id; get a new producer id."
    INVALID_PRODUCER_ID_MAPPING = 49, "Another producer has this producer id; get a new producer id."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "The principal may not use this transactional id; add an ACL that allows it."
    SECURITY_DISABLED = 54, "No authorizer is configured; set authorizer.class.name first."
    OPERATION_NOT_ATTEMPTED = 55, "Not attempted, because another part of the request failed."
    KAFKA_STORAGE_ERROR = (
        56,
        "The log directory is offline; look at the broker's log, repair the disk and run kraftlab log-dirs --online.",
    )
    LOG_DIR_NOT_FOUND = 57, "The broker has no such log directory; use one of its log.dirs."
    SASL_AUTHENTICATION_FAILED = 58, "The caller could not be authenticated; check user and password."
    UNKNOWN_PRODUCER_ID = 59, "The producer id is no longer known here; the producer must start again."
    REASSIGNMENT_IN_PROGRESS = 60, "A reassignment of the partition is in progress."
    NON_EMPTY_GROUP = 68, "The group has members; stop them first."
    GROUP_ID_NOT_FOUND = 69, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The fetch session is not known here; begin a new one."
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch is not the next one of its session; begin a new one."
    LISTENER_NOT_FOUND = 72, "The leader has no listener for this protocol; add one to its configuration."
    TOPIC_DELETION_DISABLED = 73, "Topic deletion is disabled; set delete.topic.enable=true."
    FENCED_LEADER_EPOCH = 74, "The leader epoch in the request is older than this node's; refresh the metadata."
    UNKNOWN_LEADER_EPOCH = 75, "The leader epoch in the request is newer than this node's; retry, it is catching up."
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The compression type is not supported."
    STALE_BROKER_EPOCH = 77, "The broker has registered again, or is not registered; it must register first."
    MEMBER_ID_REQUIRED = 79, "A new member joins again with the member id of this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader was not available; bring it back into the in-sync set first."
    GROUP_MAX_SIZE_REACHED = 81, "The group has group.max.size members."
    FENCED_INSTANCE_ID = 82, "Another member has this group.instance.id now; stop one of the two."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica that may lead is available; bring one of the replicas back first."
    ELECTION_NOT_NEEDED = 84, "Leader election not needed for topic partition."
    NO_REASSIGNMENT_IN_PROGRESS = 85, "No reassignment of the partition is in progress."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "Members of the group are subscribed to the topic; stop them first."
    INVALID_RECORD = 87, "The batch breaks the record format; nothing was written."
    THROTTLING_QUOTA_EXCEEDED = 89, "The mutation quota is used up; retry after the throttle time."
    RESOURCE_NOT_FOUND = 91, "There is no such resource."
    DUPLICATE_RESOURCE = 92, "The request names the same resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, "The nodes name different voters; give all controllers the same controller.quorum.voters."
    INVALID_UPDATE_VERSION = 95, "The update was computed from an older version of the state; refresh it and retry."
    FEATURE_UPDATE_FAILED = 96, "The features could not be updated; see the server's log."
    SNAPSHOT_NOT_FOUND = 98, "The snapshot was deleted; fetch again for a newer one."
    POSITION_OUT_OF_RANGE = 99, "The position is not inside the snapshot; fetch it again from its start."
    UNKNOWN_TOPIC_ID = 100, "This node has no topic with this id; it may have been deleted, or not be known here yet."
    DUPLICATE_BROKER_REGISTRATION = 101, "A broker with this node.id is running; stop it or choose another node.id."
    BROKER_ID_NOT_REGISTERED = 102, "No broker with this id is registered."
    INCONSISTENT_TOPIC_ID = 103, "The topic id does not match the log's; the topic was deleted and created again."
    INCONSISTENT_CLUSTER_ID = 104, "The node belongs to another cluster; check the address and the cluster.id in meta.properties."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The session names its topics in another way, by name or by id; begin a new session."
    INELIGIBLE_REPLICA = 107, "A replica of the proposed in-sync set is fenced, shutting down or has restarted."
    NEW_LEADER_ELECTED = 108, "The change was made, and it moved the leadership to another replica."
    MISMATCHED_ENDPOINT_TYPE = 114, "The endpoint is of the other kind (broker or controller); use the other bootstrap address."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "There are no endpoints of this type; ask for brokers (1) or controllers (2)."
    UNKNOWN_CONTROLLER_ID = 116, "No controller with this id is registered."
    INVALID_REGISTRATION = 119, "The registration is not valid; the message says which part."
    INVALID_VOTER_KEY = 125, "The node is addressed by a directory id that is not its own; its disk was probably replaced."
    DUPLICATE_VOTER = 126, "The node is a voter already."
    VOTER_NOT_FOUND = 127, "The node is not a voter."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is not valid; the message says why."
    STALE_GENERATION = (
        1000,
        "The quorum was forced after one of the two nodes was last connected; that node's generation is over.",
    )


class ApiError(Exception):
    """Refuses a request, or one entry of it, with a code and a text for the caller.

    Without `message` the text is the code's default. With `message` "" there is no text, where Kafka's clients expect null,
    and `self.message` stays None.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message: str | None = (code.message if message is None else message) or None
        super().__init__(f"{describe(code)}: {self.message or code.message}")


def describe(code: int) -> str:
    """`NAME(number)` for any number, also one that is not in the table."""
    try:
        row = ErrorCode(code)
    except ValueError:
        return f"UNKNOWN({code})"
    return f"{row.name}({row.value})"


class InvariantViolation(AssertionError):
    """The state machine was about to break one of its own rules, by a bug in it. Never caught; the node ends."""
