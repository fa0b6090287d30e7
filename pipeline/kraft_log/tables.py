"""The record types of Kafka's metadata log up to 4.3, and the control records of KRaft: one row per field. Numbers 6, 13 and 16
were never released. A version here is one that a released Kafka has written or reads.
"""

from __future__ import annotations

from .schema import Field, Kind, Schema

_ENDPOINT = (
    Field("name", Kind.STRING),
    Field("host", Kind.STRING),
    Field("port", Kind.UINT16),
    Field("securityProtocol", Kind.INT16),
)
_FEATURE = (
    Field("name", Kind.STRING),
    Field("minSupportedVersion", Kind.INT16),
    Field("maxSupportedVersion", Kind.INT16),
)

METADATA_RECORDS = (
    Schema(
        0,
        "REGISTER_BROKER_RECORD",
        4,
        (
            Field("brokerId", Kind.INT32),
            Field("isMigratingZkBroker", Kind.BOOL, since=2),
            Field("incarnationId", Kind.UUID),
            Field("brokerEpoch", Kind.INT64),
            Field("endPoints", Kind.STRUCT, array=True, fields=_ENDPOINT),
            Field("features", Kind.STRUCT, array=True, fields=_FEATURE),
            Field("rack", Kind.STRING, nullable=True),
            Field("fenced", Kind.BOOL),
            Field("inControlledShutdown", Kind.BOOL, since=1),
            Field("logDirs", Kind.UUID, since=3, array=True, tag=0),
            Field("cordonedLogDirs", Kind.UUID, since=4, array=True, nullable=True, tag=1),
        ),
    ),
    Schema(1, "UNREGISTER_BROKER_RECORD", 0, (Field("brokerId", Kind.INT32), Field("brokerEpoch", Kind.INT64))),
    Schema(2, "TOPIC_RECORD", 0, (Field("name", Kind.STRING), Field("topicId", Kind.UUID))),
    Schema(
        3,
        "PARTITION_RECORD",
        2,
        (
            Field("partitionId", Kind.INT32),
            Field("topicId", Kind.UUID),
            Field("replicas", Kind.INT32, array=True),
            Field("isr", Kind.INT32, array=True),
            Field("removingReplicas", Kind.INT32, array=True),
            Field("addingReplicas", Kind.INT32, array=True),
            Field("leader", Kind.INT32),
            Field("leaderRecoveryState", Kind.INT8, tag=0, default=0),
            Field("leaderEpoch", Kind.INT32),
            Field("partitionEpoch", Kind.INT32),
            Field("directories", Kind.UUID, since=1, array=True),
            Field("eligibleLeaderReplicas", Kind.INT32, since=2, array=True, nullable=True, tag=1),
            Field("lastKnownElr", Kind.INT32, since=2, array=True, nullable=True, tag=2),
        ),
    ),
    Schema(
        4,
        "CONFIG_RECORD",
        0,
        (
            Field("resourceType", Kind.INT8),
            Field("resourceName", Kind.STRING),
            Field("name", Kind.STRING),
            Field("value", Kind.STRING, nullable=True),
        ),
    ),
    Schema(
        5,
        "PARTITION_CHANGE_RECORD",
        2,
        (
            Field("partitionId", Kind.INT32),
            Field("topicId", Kind.UUID),
            Field("isr", Kind.INT32, array=True, nullable=True, tag=0),
            Field("leader", Kind.INT32, tag=1, default=-2),
            Field("replicas", Kind.INT32, array=True, nullable=True, tag=2),
            Field("removingReplicas", Kind.INT32, array=True, nullable=True, tag=3),
            Field("addingReplicas", Kind.INT32, array=True, nullable=True, tag=4),
            Field("leaderRecoveryState", Kind.INT8, tag=5, default=-1),
            Field("directories", Kind.UUID, since=1, array=True, nullable=True, tag=8),
            Field("eligibleLeaderReplicas", Kind.INT32, since=2, array=True, nullable=True, tag=6),
            Field("lastKnownElr", Kind.INT32, since=2, array=True, nullable=True, tag=7),
        ),
    ),
    Schema(7, "FENCE_BROKER_RECORD", 0, (Field("id", Kind.INT32), Field("epoch", Kind.INT64))),
    Schema(8, "UNFENCE_BROKER_RECORD", 0, (Field("id", Kind.INT32), Field("epoch", Kind.INT64))),
    Schema(9, "REMOVE_TOPIC_RECORD", 0, (Field("topicId", Kind.UUID),)),
    Schema(
        10,
        "DELEGATION_TOKEN_RECORD",
        0,
        (
            Field("owner", Kind.STRING),
            Field("requester", Kind.STRING),
            Field("renewers", Kind.STRING, array=True),
            Field("issueTimestamp", Kind.INT64),
            Field("maxTimestamp", Kind.INT64),
            Field("expirationTimestamp", Kind.INT64),
            Field("tokenId", Kind.STRING),
        ),
    ),
    Schema(
        11,
        "USER_SCRAM_CREDENTIAL_RECORD",
        0,
        (
            Field("name", Kind.STRING),
            Field("mechanism", Kind.INT8),
            Field("salt", Kind.BYTES),
            Field("storedKey", Kind.BYTES),
            Field("serverKey", Kind.BYTES),
            Field("iterations", Kind.INT32),
        ),
    ),
    Schema(12, "FEATURE_LEVEL_RECORD", 0, (Field("name", Kind.STRING), Field("featureLevel", Kind.INT16))),
    Schema(
        14,
        "CLIENT_QUOTA_RECORD",
        0,
        (
            Field(
                "entity",
                Kind.STRUCT,
                array=True,
                fields=(Field("entityType", Kind.STRING), Field("entityName", Kind.STRING, nullable=True)),
            ),
            Field("key", Kind.STRING),
            Field("value", Kind.FLOAT64),
            Field("remove", Kind.BOOL),
        ),
    ),
    Schema(
        15,
        "PRODUCER_IDS_RECORD",
        0,
        (Field("brokerId", Kind.INT32), Field("brokerEpoch", Kind.INT64), Field("nextProducerId", Kind.INT64)),
    ),
    Schema(
        17,
        "BROKER_REGISTRATION_CHANGE_RECORD",
        3,
        (
            Field("brokerId", Kind.INT32),
            Field("brokerEpoch", Kind.INT64),
            Field("fenced", Kind.INT8, tag=0, default=0),
            Field("inControlledShutdown", Kind.INT8, since=1, tag=1, default=0),
            Field("logDirs", Kind.UUID, since=2, array=True, tag=2),
            Field("cordonedLogDirs", Kind.UUID, since=3, array=True, nullable=True, tag=3),
        ),
    ),
    Schema(
        18,
        "ACCESS_CONTROL_ENTRY_RECORD",
        0,
        (
            Field("id", Kind.UUID),
            Field("resourceType", Kind.INT8),
            Field("resourceName", Kind.STRING),
            Field("patternType", Kind.INT8),
            Field("principal", Kind.STRING),
            Field("host", Kind.STRING),
            Field("operation", Kind.INT8),
            Field("permissionType", Kind.INT8),
        ),
    ),
    Schema(19, "REMOVE_ACCESS_CONTROL_ENTRY_RECORD", 0, (Field("id", Kind.UUID),)),
    Schema(20, "NO_OP_RECORD", 0),
    Schema(21, "ZK_MIGRATION_STATE_RECORD", 0, (Field("zkMigrationState", Kind.INT8),)),
    Schema(22, "REMOVE_USER_SCRAM_CREDENTIAL_RECORD", 0, (Field("name", Kind.STRING), Field("mechanism", Kind.INT8))),
    Schema(23, "BEGIN_TRANSACTION_RECORD", 0, (Field("name", Kind.STRING, nullable=True, tag=0),)),
    Schema(24, "END_TRANSACTION_RECORD", 0),
    Schema(25, "ABORT_TRANSACTION_RECORD", 0, (Field("reason", Kind.STRING, nullable=True, tag=0),)),
    Schema(26, "REMOVE_DELEGATION_TOKEN_RECORD", 0, (Field("tokenId", Kind.STRING),)),
    Schema(
        27,
        "REGISTER_CONTROLLER_RECORD",
        0,
        (
            Field("controllerId", Kind.INT32),
            Field("incarnationId", Kind.UUID),
            Field("zkMigrationReady", Kind.BOOL),
            Field("endPoints", Kind.STRUCT, array=True, fields=_ENDPOINT),
            Field("features", Kind.STRUCT, array=True, fields=_FEATURE),
        ),
    ),
    Schema(28, "CLEAR_ELR_RECORD", 0, (Field("topicName", Kind.STRING),)),
)
"""Records of data batches, by the number in the frame."""

_VOTER = (Field("voterId", Kind.INT32), Field("voterDirectoryId", Kind.UUID, since=1))

CONTROL_RECORDS = (
    Schema(
        2,
        "LeaderChange",
        1,
        (
            Field("version", Kind.INT16),
            Field("leaderId", Kind.INT32),
            Field("voters", Kind.STRUCT, array=True, fields=_VOTER),
            Field("grantingVoters", Kind.STRUCT, array=True, fields=_VOTER),
        ),
    ),
    Schema(3, "SnapshotHeader", 0, (Field("version", Kind.INT16), Field("lastContainedLogTimestamp", Kind.INT64))),
    Schema(4, "SnapshotFooter", 0, (Field("version", Kind.INT16),)),
    Schema(5, "KRaftVersion", 0, (Field("version", Kind.INT16), Field("kRaftVersion", Kind.INT16))),
    Schema(
        6,
        "KRaftVoters",
        0,
        (
            Field("version", Kind.INT16),
            Field(
                "voters",
                Kind.STRUCT,
                array=True,
                fields=(
                    Field("voterId", Kind.INT32),
                    Field("voterDirectoryId", Kind.UUID),
                    Field("endpoints", Kind.STRUCT, array=True, fields=_ENDPOINT[:3]),
                    Field(
                        "kRaftVersionFeature",
                        Kind.STRUCT,
                        fields=_FEATURE[1:],
                    ),
                ),
            ),
        ),
    ),
)
"""Records of control batches, by the number in the key. The value's first field is its version."""
