from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReadMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    READ_MODE_COMMITTED: _ClassVar[ReadMode]
    READ_MODE_LINEARIZABLE: _ClassVar[ReadMode]

class ConfigSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONFIG_SOURCE_UNKNOWN: _ClassVar[ConfigSource]
    CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG: _ClassVar[ConfigSource]
    CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG: _ClassVar[ConfigSource]
    CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG: _ClassVar[ConfigSource]
    CONFIG_SOURCE_STATIC_BROKER_CONFIG: _ClassVar[ConfigSource]
    CONFIG_SOURCE_DEFAULT_CONFIG: _ClassVar[ConfigSource]
    CONFIG_SOURCE_DYNAMIC_BROKER_LOGGER_CONFIG: _ClassVar[ConfigSource]
    CONFIG_SOURCE_DYNAMIC_CLIENT_METRICS_CONFIG: _ClassVar[ConfigSource]
    CONFIG_SOURCE_DYNAMIC_GROUP_CONFIG: _ClassVar[ConfigSource]
READ_MODE_COMMITTED: ReadMode
READ_MODE_LINEARIZABLE: ReadMode
CONFIG_SOURCE_UNKNOWN: ConfigSource
CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG: ConfigSource
CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG: ConfigSource
CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG: ConfigSource
CONFIG_SOURCE_STATIC_BROKER_CONFIG: ConfigSource
CONFIG_SOURCE_DEFAULT_CONFIG: ConfigSource
CONFIG_SOURCE_DYNAMIC_BROKER_LOGGER_CONFIG: ConfigSource
CONFIG_SOURCE_DYNAMIC_CLIENT_METRICS_CONFIG: ConfigSource
CONFIG_SOURCE_DYNAMIC_GROUP_CONFIG: ConfigSource

class RequestHeader(_message.Message):
    __slots__ = ("cluster_id", "request_id", "min_offset", "read_mode", "timeout_ms", "api_version")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    READ_MODE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    API_VERSION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    request_id: RequestId
    min_offset: int
    read_mode: ReadMode
    timeout_ms: int
    api_version: int
    def __init__(self, cluster_id: _Optional[str] = ..., request_id: _Optional[_Union[RequestId, _Mapping]] = ..., min_offset: _Optional[int] = ..., read_mode: _Optional[_Union[ReadMode, str]] = ..., timeout_ms: _Optional[int] = ..., api_version: _Optional[int] = ...) -> None: ...

class RequestId(_message.Message):
    __slots__ = ("client_id", "sequence")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    client_id: bytes
    sequence: int
    def __init__(self, client_id: _Optional[bytes] = ..., sequence: _Optional[int] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("host", "port")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class ResponseHeader(_message.Message):
    __slots__ = ("error_code", "error_message", "metadata_offset", "epoch", "leader_id", "leader", "outcome_unknown", "throttle_time_ms")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    metadata_offset: int
    epoch: int
    leader_id: int
    leader: Endpoint
    outcome_unknown: bool
    throttle_time_ms: int
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., metadata_offset: _Optional[int] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader: _Optional[_Union[Endpoint, _Mapping]] = ..., outcome_unknown: bool = ..., throttle_time_ms: _Optional[int] = ...) -> None: ...

class Int32List(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, values: _Optional[_Iterable[int]] = ...) -> None: ...

class CreateTopicsRequest(_message.Message):
    __slots__ = ("header", "topics", "validate_only")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    topics: _containers.RepeatedCompositeFieldContainer[CreatableTopic]
    validate_only: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[CreatableTopic, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class CreatableTopic(_message.Message):
    __slots__ = ("name", "num_partitions", "replication_factor", "assignments", "configs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    num_partitions: int
    replication_factor: int
    assignments: _containers.RepeatedCompositeFieldContainer[CreatableReplicaAssignment]
    configs: _containers.RepeatedCompositeFieldContainer[CreatableTopicConfig]
    def __init__(self, name: _Optional[str] = ..., num_partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., assignments: _Optional[_Iterable[_Union[CreatableReplicaAssignment, _Mapping]]] = ..., configs: _Optional[_Iterable[_Union[CreatableTopicConfig, _Mapping]]] = ...) -> None: ...

class CreatableReplicaAssignment(_message.Message):
    __slots__ = ("partition_index", "broker_ids")
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    BROKER_IDS_FIELD_NUMBER: _ClassVar[int]
    partition_index: int
    broker_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partition_index: _Optional[int] = ..., broker_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class CreatableTopicConfig(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class CreateTopicsResponse(_message.Message):
    __slots__ = ("header", "topics")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    topics: _containers.RepeatedCompositeFieldContainer[CreatableTopicResult]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[CreatableTopicResult, _Mapping]]] = ...) -> None: ...

class CreatableTopicResult(_message.Message):
    __slots__ = ("name", "topic_id", "error_code", "error_message", "num_partitions", "replication_factor", "configs", "topic_config_error_code")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NUM_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_CONFIG_ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    error_code: int
    error_message: str
    num_partitions: int
    replication_factor: int
    configs: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    topic_config_error_code: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., num_partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., configs: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ..., topic_config_error_code: _Optional[int] = ...) -> None: ...

class DeleteTopicsRequest(_message.Message):
    __slots__ = ("header", "topics", "topic_names")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_NAMES_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    topics: _containers.RepeatedCompositeFieldContainer[DeleteTopicState]
    topic_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[DeleteTopicState, _Mapping]]] = ..., topic_names: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteTopicState(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ...) -> None: ...

class DeleteTopicsResponse(_message.Message):
    __slots__ = ("header", "responses")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    responses: _containers.RepeatedCompositeFieldContainer[DeletableTopicResult]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., responses: _Optional[_Iterable[_Union[DeletableTopicResult, _Mapping]]] = ...) -> None: ...

class DeletableTopicResult(_message.Message):
    __slots__ = ("name", "topic_id", "error_code", "error_message")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    error_code: int
    error_message: str
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class DescribeTopicPartitionsRequest(_message.Message):
    __slots__ = ("header", "response_partition_limit", "cursor", "topics")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_PARTITION_LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    response_partition_limit: int
    cursor: TopicPartitionCursor
    topics: TopicNames
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., response_partition_limit: _Optional[int] = ..., cursor: _Optional[_Union[TopicPartitionCursor, _Mapping]] = ..., topics: _Optional[_Union[TopicNames, _Mapping]] = ...) -> None: ...

class TopicPartitionCursor(_message.Message):
    __slots__ = ("topic_name", "partition_index")
    TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    topic_name: str
    partition_index: int
    def __init__(self, topic_name: _Optional[str] = ..., partition_index: _Optional[int] = ...) -> None: ...

class TopicNames(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeTopicPartitionsResponse(_message.Message):
    __slots__ = ("header", "topics", "next_cursor")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    topics: _containers.RepeatedCompositeFieldContainer[DescribedTopic]
    next_cursor: TopicPartitionCursor
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[DescribedTopic, _Mapping]]] = ..., next_cursor: _Optional[_Union[TopicPartitionCursor, _Mapping]] = ...) -> None: ...

class DescribedTopic(_message.Message):
    __slots__ = ("error_code", "error_message", "name", "topic_id", "is_internal", "partitions", "configs", "topic_authorized_operations")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    IS_INTERNAL_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_AUTHORIZED_OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    name: str
    topic_id: str
    is_internal: bool
    partitions: _containers.RepeatedCompositeFieldContainer[DescribedPartition]
    configs: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    topic_authorized_operations: int
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., name: _Optional[str] = ..., topic_id: _Optional[str] = ..., is_internal: bool = ..., partitions: _Optional[_Iterable[_Union[DescribedPartition, _Mapping]]] = ..., configs: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ..., topic_authorized_operations: _Optional[int] = ...) -> None: ...

class DescribedPartition(_message.Message):
    __slots__ = ("error_code", "partition_index", "leader_id", "leader_epoch", "replica_nodes", "isr_nodes", "eligible_leader_replicas", "last_known_elr", "offline_replicas", "adding_replicas", "removing_replicas", "original_replicas", "target_replicas", "partition_epoch", "leader_recovery_state", "directories")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICA_NODES_FIELD_NUMBER: _ClassVar[int]
    ISR_NODES_FIELD_NUMBER: _ClassVar[int]
    ELIGIBLE_LEADER_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LAST_KNOWN_ELR_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REMOVING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    TARGET_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_RECOVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: _containers.RepeatedScalarFieldContainer[int]
    isr_nodes: _containers.RepeatedScalarFieldContainer[int]
    eligible_leader_replicas: _containers.RepeatedScalarFieldContainer[int]
    last_known_elr: _containers.RepeatedScalarFieldContainer[int]
    offline_replicas: _containers.RepeatedScalarFieldContainer[int]
    adding_replicas: _containers.RepeatedScalarFieldContainer[int]
    removing_replicas: _containers.RepeatedScalarFieldContainer[int]
    original_replicas: _containers.RepeatedScalarFieldContainer[int]
    target_replicas: _containers.RepeatedScalarFieldContainer[int]
    partition_epoch: int
    leader_recovery_state: int
    directories: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, error_code: _Optional[int] = ..., partition_index: _Optional[int] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., replica_nodes: _Optional[_Iterable[int]] = ..., isr_nodes: _Optional[_Iterable[int]] = ..., eligible_leader_replicas: _Optional[_Iterable[int]] = ..., last_known_elr: _Optional[_Iterable[int]] = ..., offline_replicas: _Optional[_Iterable[int]] = ..., adding_replicas: _Optional[_Iterable[int]] = ..., removing_replicas: _Optional[_Iterable[int]] = ..., original_replicas: _Optional[_Iterable[int]] = ..., target_replicas: _Optional[_Iterable[int]] = ..., partition_epoch: _Optional[int] = ..., leader_recovery_state: _Optional[int] = ..., directories: _Optional[_Iterable[str]] = ...) -> None: ...

class CreatePartitionsRequest(_message.Message):
    __slots__ = ("header", "topics", "validate_only")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    topics: _containers.RepeatedCompositeFieldContainer[CreatePartitionsTopic]
    validate_only: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[CreatePartitionsTopic, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class CreatePartitionsTopic(_message.Message):
    __slots__ = ("name", "count", "assignments")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    count: int
    assignments: CreatePartitionsAssignments
    def __init__(self, name: _Optional[str] = ..., count: _Optional[int] = ..., assignments: _Optional[_Union[CreatePartitionsAssignments, _Mapping]] = ...) -> None: ...

class CreatePartitionsAssignments(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[CreatePartitionsAssignment]
    def __init__(self, values: _Optional[_Iterable[_Union[CreatePartitionsAssignment, _Mapping]]] = ...) -> None: ...

class CreatePartitionsAssignment(_message.Message):
    __slots__ = ("broker_ids",)
    BROKER_IDS_FIELD_NUMBER: _ClassVar[int]
    broker_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, broker_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class CreatePartitionsResponse(_message.Message):
    __slots__ = ("header", "results")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    results: _containers.RepeatedCompositeFieldContainer[CreatePartitionsTopicResult]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., results: _Optional[_Iterable[_Union[CreatePartitionsTopicResult, _Mapping]]] = ...) -> None: ...

class CreatePartitionsTopicResult(_message.Message):
    __slots__ = ("name", "error_code", "error_message")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    error_code: int
    error_message: str
    def __init__(self, name: _Optional[str] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class ElectLeadersRequest(_message.Message):
    __slots__ = ("header", "election_type", "topic_partitions")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ELECTION_TYPE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    election_type: int
    topic_partitions: ElectLeadersTopics
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., election_type: _Optional[int] = ..., topic_partitions: _Optional[_Union[ElectLeadersTopics, _Mapping]] = ...) -> None: ...

class ElectLeadersTopics(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[ElectLeadersTopic]
    def __init__(self, values: _Optional[_Iterable[_Union[ElectLeadersTopic, _Mapping]]] = ...) -> None: ...

class ElectLeadersTopic(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class ElectLeadersResponse(_message.Message):
    __slots__ = ("header", "replica_election_results")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ELECTION_RESULTS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    replica_election_results: _containers.RepeatedCompositeFieldContainer[ReplicaElectionResult]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., replica_election_results: _Optional[_Iterable[_Union[ReplicaElectionResult, _Mapping]]] = ...) -> None: ...

class ReplicaElectionResult(_message.Message):
    __slots__ = ("topic", "partition_result")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_RESULT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_result: _containers.RepeatedCompositeFieldContainer[PartitionElectionResult]
    def __init__(self, topic: _Optional[str] = ..., partition_result: _Optional[_Iterable[_Union[PartitionElectionResult, _Mapping]]] = ...) -> None: ...

class PartitionElectionResult(_message.Message):
    __slots__ = ("partition_id", "error_code", "error_message")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    error_code: int
    error_message: str
    def __init__(self, partition_id: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class DeleteRecordsRequest(_message.Message):
    __slots__ = ("header", "topics")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    topics: _containers.RepeatedCompositeFieldContainer[DeleteRecordsTopic]
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[DeleteRecordsTopic, _Mapping]]] = ...) -> None: ...

class DeleteRecordsTopic(_message.Message):
    __slots__ = ("name", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: _containers.RepeatedCompositeFieldContainer[DeleteRecordsPartition]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[DeleteRecordsPartition, _Mapping]]] = ...) -> None: ...

class DeleteRecordsPartition(_message.Message):
    __slots__ = ("partition_index", "offset")
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition_index: int
    offset: int
    def __init__(self, partition_index: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class DeleteRecordsResponse(_message.Message):
    __slots__ = ("header", "topics")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    topics: _containers.RepeatedCompositeFieldContainer[DeleteRecordsTopicResult]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[DeleteRecordsTopicResult, _Mapping]]] = ...) -> None: ...

class DeleteRecordsTopicResult(_message.Message):
    __slots__ = ("name", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: _containers.RepeatedCompositeFieldContainer[DeleteRecordsPartitionResult]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[DeleteRecordsPartitionResult, _Mapping]]] = ...) -> None: ...

class DeleteRecordsPartitionResult(_message.Message):
    __slots__ = ("partition_index", "low_watermark", "error_code", "error_message")
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    LOW_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    partition_index: int
    low_watermark: int
    error_code: int
    error_message: str
    def __init__(self, partition_index: _Optional[int] = ..., low_watermark: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class ConfigEntry(_message.Message):
    __slots__ = ("name", "value", "read_only", "config_source", "is_sensitive", "synonyms", "config_type", "documentation")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    CONFIG_SOURCE_FIELD_NUMBER: _ClassVar[int]
    IS_SENSITIVE_FIELD_NUMBER: _ClassVar[int]
    SYNONYMS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_TYPE_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    read_only: bool
    config_source: ConfigSource
    is_sensitive: bool
    synonyms: _containers.RepeatedCompositeFieldContainer[ConfigSynonym]
    config_type: int
    documentation: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., read_only: bool = ..., config_source: _Optional[_Union[ConfigSource, str]] = ..., is_sensitive: bool = ..., synonyms: _Optional[_Iterable[_Union[ConfigSynonym, _Mapping]]] = ..., config_type: _Optional[int] = ..., documentation: _Optional[str] = ...) -> None: ...

class ConfigSynonym(_message.Message):
    __slots__ = ("name", "value", "source")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    source: ConfigSource
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[_Union[ConfigSource, str]] = ...) -> None: ...

class IncrementalAlterConfigsRequest(_message.Message):
    __slots__ = ("header", "resources", "validate_only")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    resources: _containers.RepeatedCompositeFieldContainer[AlterConfigsResource]
    validate_only: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[AlterConfigsResource, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class AlterConfigsResource(_message.Message):
    __slots__ = ("resource_type", "resource_name", "configs")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    configs: _containers.RepeatedCompositeFieldContainer[AlterableConfig]
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., configs: _Optional[_Iterable[_Union[AlterableConfig, _Mapping]]] = ...) -> None: ...

class AlterableConfig(_message.Message):
    __slots__ = ("name", "config_operation", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_OPERATION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    config_operation: int
    value: str
    def __init__(self, name: _Optional[str] = ..., config_operation: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...

class IncrementalAlterConfigsResponse(_message.Message):
    __slots__ = ("header", "responses")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    responses: _containers.RepeatedCompositeFieldContainer[AlterConfigsResourceResponse]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., responses: _Optional[_Iterable[_Union[AlterConfigsResourceResponse, _Mapping]]] = ...) -> None: ...

class AlterConfigsResourceResponse(_message.Message):
    __slots__ = ("error_code", "error_message", "resource_type", "resource_name")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    resource_type: int
    resource_name: str
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ...) -> None: ...

class AlterConfigsRequest(_message.Message):
    __slots__ = ("header", "resources", "validate_only")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    resources: _containers.RepeatedCompositeFieldContainer[ReplaceConfigsResource]
    validate_only: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[ReplaceConfigsResource, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class ReplaceConfigsResource(_message.Message):
    __slots__ = ("resource_type", "resource_name", "configs")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    configs: _containers.RepeatedCompositeFieldContainer[ReplacedConfig]
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., configs: _Optional[_Iterable[_Union[ReplacedConfig, _Mapping]]] = ...) -> None: ...

class ReplacedConfig(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class AlterConfigsResponse(_message.Message):
    __slots__ = ("header", "responses")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    responses: _containers.RepeatedCompositeFieldContainer[AlterConfigsResourceResponse]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., responses: _Optional[_Iterable[_Union[AlterConfigsResourceResponse, _Mapping]]] = ...) -> None: ...

class DescribeConfigsRequest(_message.Message):
    __slots__ = ("header", "resources", "include_synonyms", "include_documentation")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_SYNONYMS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_DOCUMENTATION_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    resources: _containers.RepeatedCompositeFieldContainer[DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[DescribeConfigsResource, _Mapping]]] = ..., include_synonyms: bool = ..., include_documentation: bool = ...) -> None: ...

class DescribeConfigsResource(_message.Message):
    __slots__ = ("resource_type", "resource_name", "configuration_keys")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_KEYS_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    configuration_keys: ConfigurationKeys
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., configuration_keys: _Optional[_Union[ConfigurationKeys, _Mapping]] = ...) -> None: ...

class ConfigurationKeys(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeConfigsResponse(_message.Message):
    __slots__ = ("header", "results")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    results: _containers.RepeatedCompositeFieldContainer[DescribeConfigsResult]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., results: _Optional[_Iterable[_Union[DescribeConfigsResult, _Mapping]]] = ...) -> None: ...

class DescribeConfigsResult(_message.Message):
    __slots__ = ("error_code", "error_message", "resource_type", "resource_name", "configs")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    resource_type: int
    resource_name: str
    configs: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., configs: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ...) -> None: ...

class ListConfigResourcesRequest(_message.Message):
    __slots__ = ("header", "resource_types")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPES_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    resource_types: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., resource_types: _Optional[_Iterable[int]] = ...) -> None: ...

class ListConfigResourcesResponse(_message.Message):
    __slots__ = ("header", "config_resources")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CONFIG_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    config_resources: _containers.RepeatedCompositeFieldContainer[ConfigResource]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., config_resources: _Optional[_Iterable[_Union[ConfigResource, _Mapping]]] = ...) -> None: ...

class ConfigResource(_message.Message):
    __slots__ = ("resource_name", "resource_type")
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    resource_name: str
    resource_type: int
    def __init__(self, resource_name: _Optional[str] = ..., resource_type: _Optional[int] = ...) -> None: ...

class AlterClientQuotasRequest(_message.Message):
    __slots__ = ("header", "entries", "validate_only")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    entries: _containers.RepeatedCompositeFieldContainer[ClientQuotaAlteration]
    validate_only: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[ClientQuotaAlteration, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class ClientQuotaAlteration(_message.Message):
    __slots__ = ("entity", "ops")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    OPS_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[QuotaEntityPart]
    ops: _containers.RepeatedCompositeFieldContainer[ClientQuotaOperation]
    def __init__(self, entity: _Optional[_Iterable[_Union[QuotaEntityPart, _Mapping]]] = ..., ops: _Optional[_Iterable[_Union[ClientQuotaOperation, _Mapping]]] = ...) -> None: ...

class QuotaEntityPart(_message.Message):
    __slots__ = ("entity_type", "entity_name")
    ENTITY_TYPE_FIELD_NUMBER: _ClassVar[int]
    ENTITY_NAME_FIELD_NUMBER: _ClassVar[int]
    entity_type: str
    entity_name: str
    def __init__(self, entity_type: _Optional[str] = ..., entity_name: _Optional[str] = ...) -> None: ...

class ClientQuotaOperation(_message.Message):
    __slots__ = ("key", "value", "remove")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: float
    remove: bool
    def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ..., remove: bool = ...) -> None: ...

class AlterClientQuotasResponse(_message.Message):
    __slots__ = ("header", "entries")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    entries: _containers.RepeatedCompositeFieldContainer[ClientQuotaAlterationResult]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[ClientQuotaAlterationResult, _Mapping]]] = ...) -> None: ...

class ClientQuotaAlterationResult(_message.Message):
    __slots__ = ("error_code", "error_message", "entity")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    entity: _containers.RepeatedCompositeFieldContainer[QuotaEntityPart]
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., entity: _Optional[_Iterable[_Union[QuotaEntityPart, _Mapping]]] = ...) -> None: ...

class DescribeClientQuotasRequest(_message.Message):
    __slots__ = ("header", "components", "strict")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    components: _containers.RepeatedCompositeFieldContainer[QuotaFilterComponent]
    strict: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., components: _Optional[_Iterable[_Union[QuotaFilterComponent, _Mapping]]] = ..., strict: bool = ...) -> None: ...

class QuotaFilterComponent(_message.Message):
    __slots__ = ("entity_type", "match_type", "match")
    ENTITY_TYPE_FIELD_NUMBER: _ClassVar[int]
    MATCH_TYPE_FIELD_NUMBER: _ClassVar[int]
    MATCH_FIELD_NUMBER: _ClassVar[int]
    entity_type: str
    match_type: int
    match: str
    def __init__(self, entity_type: _Optional[str] = ..., match_type: _Optional[int] = ..., match: _Optional[str] = ...) -> None: ...

class DescribeClientQuotasResponse(_message.Message):
    __slots__ = ("header", "entries")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    entries: ClientQuotaEntries
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., entries: _Optional[_Union[ClientQuotaEntries, _Mapping]] = ...) -> None: ...

class ClientQuotaEntries(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[ClientQuotaEntry]
    def __init__(self, values: _Optional[_Iterable[_Union[ClientQuotaEntry, _Mapping]]] = ...) -> None: ...

class ClientQuotaEntry(_message.Message):
    __slots__ = ("entity", "values")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[QuotaEntityPart]
    values: _containers.RepeatedCompositeFieldContainer[ClientQuotaValue]
    def __init__(self, entity: _Optional[_Iterable[_Union[QuotaEntityPart, _Mapping]]] = ..., values: _Optional[_Iterable[_Union[ClientQuotaValue, _Mapping]]] = ...) -> None: ...

class ClientQuotaValue(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: float
    def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class UpdateFeaturesRequest(_message.Message):
    __slots__ = ("header", "feature_updates", "validate_only")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    FEATURE_UPDATES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    feature_updates: _containers.RepeatedCompositeFieldContainer[FeatureUpdate]
    validate_only: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., feature_updates: _Optional[_Iterable[_Union[FeatureUpdate, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class FeatureUpdate(_message.Message):
    __slots__ = ("feature", "max_version_level", "allow_downgrade", "upgrade_type")
    FEATURE_FIELD_NUMBER: _ClassVar[int]
    MAX_VERSION_LEVEL_FIELD_NUMBER: _ClassVar[int]
    ALLOW_DOWNGRADE_FIELD_NUMBER: _ClassVar[int]
    UPGRADE_TYPE_FIELD_NUMBER: _ClassVar[int]
    feature: str
    max_version_level: int
    allow_downgrade: bool
    upgrade_type: int
    def __init__(self, feature: _Optional[str] = ..., max_version_level: _Optional[int] = ..., allow_downgrade: bool = ..., upgrade_type: _Optional[int] = ...) -> None: ...

class UpdateFeaturesResponse(_message.Message):
    __slots__ = ("header", "results")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    results: _containers.RepeatedCompositeFieldContainer[FeatureUpdateResult]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., results: _Optional[_Iterable[_Union[FeatureUpdateResult, _Mapping]]] = ...) -> None: ...

class FeatureUpdateResult(_message.Message):
    __slots__ = ("feature", "error_code", "error_message")
    FEATURE_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    feature: str
    error_code: int
    error_message: str
    def __init__(self, feature: _Optional[str] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class AlterPartitionReassignmentsRequest(_message.Message):
    __slots__ = ("header", "allow_replication_factor_change", "topics", "validate_only", "reason", "initiator", "force", "queued", "priority", "throttle", "throttle_expires_ms", "plan_id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ALLOW_REPLICATION_FACTOR_CHANGE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INITIATOR_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    allow_replication_factor_change: bool
    topics: _containers.RepeatedCompositeFieldContainer[ReassignableTopic]
    validate_only: bool
    reason: str
    initiator: str
    force: bool
    queued: bool
    priority: int
    throttle: int
    throttle_expires_ms: int
    plan_id: str
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., allow_replication_factor_change: bool = ..., topics: _Optional[_Iterable[_Union[ReassignableTopic, _Mapping]]] = ..., validate_only: bool = ..., reason: _Optional[str] = ..., initiator: _Optional[str] = ..., force: bool = ..., queued: bool = ..., priority: _Optional[int] = ..., throttle: _Optional[int] = ..., throttle_expires_ms: _Optional[int] = ..., plan_id: _Optional[str] = ...) -> None: ...

class ReassignableTopic(_message.Message):
    __slots__ = ("name", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: _containers.RepeatedCompositeFieldContainer[ReassignablePartition]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[ReassignablePartition, _Mapping]]] = ...) -> None: ...

class ReassignablePartition(_message.Message):
    __slots__ = ("partition_index", "replicas", "expected_replicas", "expected_partition_epoch")
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    partition_index: int
    replicas: Int32List
    expected_replicas: Int32List
    expected_partition_epoch: int
    def __init__(self, partition_index: _Optional[int] = ..., replicas: _Optional[_Union[Int32List, _Mapping]] = ..., expected_replicas: _Optional[_Union[Int32List, _Mapping]] = ..., expected_partition_epoch: _Optional[int] = ...) -> None: ...

class AlterPartitionReassignmentsResponse(_message.Message):
    __slots__ = ("header", "allow_replication_factor_change", "responses")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ALLOW_REPLICATION_FACTOR_CHANGE_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    allow_replication_factor_change: bool
    responses: _containers.RepeatedCompositeFieldContainer[ReassignableTopicResponse]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., allow_replication_factor_change: bool = ..., responses: _Optional[_Iterable[_Union[ReassignableTopicResponse, _Mapping]]] = ...) -> None: ...

class ReassignableTopicResponse(_message.Message):
    __slots__ = ("name", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: _containers.RepeatedCompositeFieldContainer[ReassignablePartitionResponse]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[ReassignablePartitionResponse, _Mapping]]] = ...) -> None: ...

class ReassignablePartitionResponse(_message.Message):
    __slots__ = ("partition_index", "error_code", "error_message", "move_id", "queued", "replicas", "adding_replicas", "removing_replicas", "partition_epoch", "directory_moves")
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REMOVING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_MOVES_FIELD_NUMBER: _ClassVar[int]
    partition_index: int
    error_code: int
    error_message: str
    move_id: str
    queued: bool
    replicas: _containers.RepeatedScalarFieldContainer[int]
    adding_replicas: _containers.RepeatedScalarFieldContainer[int]
    removing_replicas: _containers.RepeatedScalarFieldContainer[int]
    partition_epoch: int
    directory_moves: _containers.RepeatedCompositeFieldContainer[ReplicaDirectory]
    def __init__(self, partition_index: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., move_id: _Optional[str] = ..., queued: bool = ..., replicas: _Optional[_Iterable[int]] = ..., adding_replicas: _Optional[_Iterable[int]] = ..., removing_replicas: _Optional[_Iterable[int]] = ..., partition_epoch: _Optional[int] = ..., directory_moves: _Optional[_Iterable[_Union[ReplicaDirectory, _Mapping]]] = ...) -> None: ...

class ReplicaDirectory(_message.Message):
    __slots__ = ("broker_id", "directory_id")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    directory_id: str
    def __init__(self, broker_id: _Optional[int] = ..., directory_id: _Optional[str] = ...) -> None: ...

class CancelReassignmentsRequest(_message.Message):
    __slots__ = ("header", "topics", "validate_only", "force")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    topics: TopicNames
    validate_only: bool
    force: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., topics: _Optional[_Union[TopicNames, _Mapping]] = ..., validate_only: bool = ..., force: bool = ...) -> None: ...

class CancelReassignmentsResponse(_message.Message):
    __slots__ = ("header", "responses")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    responses: _containers.RepeatedCompositeFieldContainer[ReassignableTopicResponse]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., responses: _Optional[_Iterable[_Union[ReassignableTopicResponse, _Mapping]]] = ...) -> None: ...

class RollbackPlanRequest(_message.Message):
    __slots__ = ("header", "rollback_plan_id", "validate_only", "reason", "initiator", "force", "queued", "priority", "throttle", "throttle_expires_ms", "plan_id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INITIATOR_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    rollback_plan_id: str
    validate_only: bool
    reason: str
    initiator: str
    force: bool
    queued: bool
    priority: int
    throttle: int
    throttle_expires_ms: int
    plan_id: str
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., rollback_plan_id: _Optional[str] = ..., validate_only: bool = ..., reason: _Optional[str] = ..., initiator: _Optional[str] = ..., force: bool = ..., queued: bool = ..., priority: _Optional[int] = ..., throttle: _Optional[int] = ..., throttle_expires_ms: _Optional[int] = ..., plan_id: _Optional[str] = ...) -> None: ...

class RollbackPlanResponse(_message.Message):
    __slots__ = ("header", "responses")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    responses: _containers.RepeatedCompositeFieldContainer[ReassignableTopicResponse]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., responses: _Optional[_Iterable[_Union[ReassignableTopicResponse, _Mapping]]] = ...) -> None: ...

class ForgetPlansRequest(_message.Message):
    __slots__ = ("header", "plan_ids")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PLAN_IDS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    plan_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., plan_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ForgetPlansResponse(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ...) -> None: ...

class ListPartitionReassignmentsRequest(_message.Message):
    __slots__ = ("header", "topics")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    topics: ListReassignmentsTopics
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., topics: _Optional[_Union[ListReassignmentsTopics, _Mapping]] = ...) -> None: ...

class ListReassignmentsTopics(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[ListReassignmentsTopic]
    def __init__(self, topics: _Optional[_Iterable[_Union[ListReassignmentsTopic, _Mapping]]] = ...) -> None: ...

class ListReassignmentsTopic(_message.Message):
    __slots__ = ("name", "partition_indexes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_INDEXES_FIELD_NUMBER: _ClassVar[int]
    name: str
    partition_indexes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., partition_indexes: _Optional[_Iterable[int]] = ...) -> None: ...

class ListPartitionReassignmentsResponse(_message.Message):
    __slots__ = ("header", "topics", "queued", "plans", "has_progress")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    PLANS_FIELD_NUMBER: _ClassVar[int]
    HAS_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    topics: _containers.RepeatedCompositeFieldContainer[OngoingTopicReassignment]
    queued: _containers.RepeatedCompositeFieldContainer[QueuedReassignment]
    plans: _containers.RepeatedCompositeFieldContainer[ReassignmentPlan]
    has_progress: bool
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[OngoingTopicReassignment, _Mapping]]] = ..., queued: _Optional[_Iterable[_Union[QueuedReassignment, _Mapping]]] = ..., plans: _Optional[_Iterable[_Union[ReassignmentPlan, _Mapping]]] = ..., has_progress: bool = ...) -> None: ...

class OngoingTopicReassignment(_message.Message):
    __slots__ = ("name", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: _containers.RepeatedCompositeFieldContainer[OngoingPartitionReassignment]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[OngoingPartitionReassignment, _Mapping]]] = ...) -> None: ...

class OngoingPartitionReassignment(_message.Message):
    __slots__ = ("partition_index", "replicas", "adding_replicas", "removing_replicas", "original_replicas", "target_replicas", "move_id", "plan_id", "initiator", "reason", "started_ms", "throttle", "throttle_until_ms", "partition_epoch", "progress", "blockers", "bytes_done", "bytes_left", "bytes_per_second", "eta_ms", "limit")
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REMOVING_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    TARGET_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    INITIATOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    BLOCKERS_FIELD_NUMBER: _ClassVar[int]
    BYTES_DONE_FIELD_NUMBER: _ClassVar[int]
    BYTES_LEFT_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    ETA_MS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    partition_index: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    adding_replicas: _containers.RepeatedScalarFieldContainer[int]
    removing_replicas: _containers.RepeatedScalarFieldContainer[int]
    original_replicas: _containers.RepeatedScalarFieldContainer[int]
    target_replicas: _containers.RepeatedScalarFieldContainer[int]
    move_id: str
    plan_id: str
    initiator: str
    reason: str
    started_ms: int
    throttle: int
    throttle_until_ms: int
    partition_epoch: int
    progress: _containers.RepeatedCompositeFieldContainer[ReplicaProgress]
    blockers: _containers.RepeatedCompositeFieldContainer[MoveBlocker]
    bytes_done: int
    bytes_left: int
    bytes_per_second: float
    eta_ms: int
    limit: int
    def __init__(self, partition_index: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., adding_replicas: _Optional[_Iterable[int]] = ..., removing_replicas: _Optional[_Iterable[int]] = ..., original_replicas: _Optional[_Iterable[int]] = ..., target_replicas: _Optional[_Iterable[int]] = ..., move_id: _Optional[str] = ..., plan_id: _Optional[str] = ..., initiator: _Optional[str] = ..., reason: _Optional[str] = ..., started_ms: _Optional[int] = ..., throttle: _Optional[int] = ..., throttle_until_ms: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., progress: _Optional[_Iterable[_Union[ReplicaProgress, _Mapping]]] = ..., blockers: _Optional[_Iterable[_Union[MoveBlocker, _Mapping]]] = ..., bytes_done: _Optional[int] = ..., bytes_left: _Optional[int] = ..., bytes_per_second: _Optional[float] = ..., eta_ms: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ReplicaProgress(_message.Message):
    __slots__ = ("broker_id", "bytes_done", "bytes_left", "bytes_per_second", "eta_ms", "reported_ms")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BYTES_DONE_FIELD_NUMBER: _ClassVar[int]
    BYTES_LEFT_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    ETA_MS_FIELD_NUMBER: _ClassVar[int]
    REPORTED_MS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    bytes_done: int
    bytes_left: int
    bytes_per_second: float
    eta_ms: int
    reported_ms: int
    def __init__(self, broker_id: _Optional[int] = ..., bytes_done: _Optional[int] = ..., bytes_left: _Optional[int] = ..., bytes_per_second: _Optional[float] = ..., eta_ms: _Optional[int] = ..., reported_ms: _Optional[int] = ...) -> None: ...

class MoveBlocker(_message.Message):
    __slots__ = ("broker_id", "state", "text")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    state: str
    text: str
    def __init__(self, broker_id: _Optional[int] = ..., state: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class QueuedReassignment(_message.Message):
    __slots__ = ("topic", "partition_index", "position", "move_id", "replicas", "target_replicas", "plan_id", "initiator", "reason", "queued_ms", "priority", "size_bytes", "waits_for", "throttle")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    TARGET_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    INITIATOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    QUEUED_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_index: int
    position: int
    move_id: str
    replicas: _containers.RepeatedScalarFieldContainer[int]
    target_replicas: _containers.RepeatedScalarFieldContainer[int]
    plan_id: str
    initiator: str
    reason: str
    queued_ms: int
    priority: int
    size_bytes: int
    waits_for: str
    throttle: int
    def __init__(self, topic: _Optional[str] = ..., partition_index: _Optional[int] = ..., position: _Optional[int] = ..., move_id: _Optional[str] = ..., replicas: _Optional[_Iterable[int]] = ..., target_replicas: _Optional[_Iterable[int]] = ..., plan_id: _Optional[str] = ..., initiator: _Optional[str] = ..., reason: _Optional[str] = ..., queued_ms: _Optional[int] = ..., priority: _Optional[int] = ..., size_bytes: _Optional[int] = ..., waits_for: _Optional[str] = ..., throttle: _Optional[int] = ...) -> None: ...

class ReassignmentPlan(_message.Message):
    __slots__ = ("plan_id", "created_ms", "initiator", "reason", "partitions", "running", "queued")
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    INITIATOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    plan_id: str
    created_ms: int
    initiator: str
    reason: str
    partitions: int
    running: int
    queued: int
    def __init__(self, plan_id: _Optional[str] = ..., created_ms: _Optional[int] = ..., initiator: _Optional[str] = ..., reason: _Optional[str] = ..., partitions: _Optional[int] = ..., running: _Optional[int] = ..., queued: _Optional[int] = ...) -> None: ...

class AlterReplicationFactorsRequest(_message.Message):
    __slots__ = ("header", "topics", "validate_only", "reason", "initiator", "queued", "priority", "throttle", "throttle_expires_ms", "plan_id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INITIATOR_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    topics: _containers.RepeatedCompositeFieldContainer[TopicReplicationFactor]
    validate_only: bool
    reason: str
    initiator: str
    queued: bool
    priority: int
    throttle: int
    throttle_expires_ms: int
    plan_id: str
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[TopicReplicationFactor, _Mapping]]] = ..., validate_only: bool = ..., reason: _Optional[str] = ..., initiator: _Optional[str] = ..., queued: bool = ..., priority: _Optional[int] = ..., throttle: _Optional[int] = ..., throttle_expires_ms: _Optional[int] = ..., plan_id: _Optional[str] = ...) -> None: ...

class TopicReplicationFactor(_message.Message):
    __slots__ = ("name", "replication_factor")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    replication_factor: int
    def __init__(self, name: _Optional[str] = ..., replication_factor: _Optional[int] = ...) -> None: ...

class AlterReplicationFactorsResponse(_message.Message):
    __slots__ = ("header", "topics")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    topics: _containers.RepeatedCompositeFieldContainer[TopicReplicationFactorResponse]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[TopicReplicationFactorResponse, _Mapping]]] = ...) -> None: ...

class TopicReplicationFactorResponse(_message.Message):
    __slots__ = ("name", "error_code", "error_message", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    error_code: int
    error_message: str
    partitions: _containers.RepeatedCompositeFieldContainer[PlannedReassignment]
    def __init__(self, name: _Optional[str] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[PlannedReassignment, _Mapping]]] = ...) -> None: ...

class PlannedReassignment(_message.Message):
    __slots__ = ("partition_index", "replicas", "target_replicas", "move_id", "queued")
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    TARGET_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    partition_index: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    target_replicas: _containers.RepeatedScalarFieldContainer[int]
    move_id: str
    queued: bool
    def __init__(self, partition_index: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., target_replicas: _Optional[_Iterable[int]] = ..., move_id: _Optional[str] = ..., queued: bool = ...) -> None: ...

class AlterInterBrokerThrottleRequest(_message.Message):
    __slots__ = ("header", "broker_id", "leader_rate", "follower_rate", "validate_only")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_RATE_FIELD_NUMBER: _ClassVar[int]
    FOLLOWER_RATE_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    broker_id: int
    leader_rate: int
    follower_rate: int
    validate_only: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., broker_id: _Optional[int] = ..., leader_rate: _Optional[int] = ..., follower_rate: _Optional[int] = ..., validate_only: bool = ...) -> None: ...

class AlterInterBrokerThrottleResponse(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ...) -> None: ...

class AlterPartitionCountsRequest(_message.Message):
    __slots__ = ("header", "topics", "validate_only")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    topics: _containers.RepeatedCompositeFieldContainer[TopicPartitionCount]
    validate_only: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[TopicPartitionCount, _Mapping]]] = ..., validate_only: bool = ...) -> None: ...

class TopicPartitionCount(_message.Message):
    __slots__ = ("name", "count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    count: int
    def __init__(self, name: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class AlterPartitionCountsResponse(_message.Message):
    __slots__ = ("header", "topics")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    topics: _containers.RepeatedCompositeFieldContainer[TopicPartitionCountResponse]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[TopicPartitionCountResponse, _Mapping]]] = ...) -> None: ...

class TopicPartitionCountResponse(_message.Message):
    __slots__ = ("name", "error_code", "error_message")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    error_code: int
    error_message: str
    def __init__(self, name: _Optional[str] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class DescribeClusterRequest(_message.Message):
    __slots__ = ("header", "include_fenced_brokers", "include_cluster_authorized_operations", "endpoint_type")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FENCED_BROKERS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_CLUSTER_AUTHORIZED_OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_TYPE_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    include_fenced_brokers: bool
    include_cluster_authorized_operations: bool
    endpoint_type: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., include_fenced_brokers: bool = ..., include_cluster_authorized_operations: bool = ..., endpoint_type: _Optional[int] = ...) -> None: ...

class DescribeClusterResponse(_message.Message):
    __slots__ = ("header", "cluster_id", "controller_id", "brokers", "controllers", "node_id", "endpoint_type", "cluster_authorized_operations")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLERS_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_TYPE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_AUTHORIZED_OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    cluster_id: str
    controller_id: int
    brokers: _containers.RepeatedCompositeFieldContainer[DescribedBroker]
    controllers: _containers.RepeatedCompositeFieldContainer[DescribedController]
    node_id: int
    endpoint_type: int
    cluster_authorized_operations: int
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., cluster_id: _Optional[str] = ..., controller_id: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[DescribedBroker, _Mapping]]] = ..., controllers: _Optional[_Iterable[_Union[DescribedController, _Mapping]]] = ..., node_id: _Optional[int] = ..., endpoint_type: _Optional[int] = ..., cluster_authorized_operations: _Optional[int] = ...) -> None: ...

class DescribedBroker(_message.Message):
    __slots__ = ("broker_id", "host", "port", "rack", "is_fenced", "broker_epoch", "in_controlled_shutdown", "peer_host", "peer_port", "log_dirs", "cordoned_log_dirs", "silent_ms")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IN_CONTROLLED_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    PEER_HOST_FIELD_NUMBER: _ClassVar[int]
    PEER_PORT_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    CORDONED_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    host: str
    port: int
    rack: str
    is_fenced: bool
    broker_epoch: int
    in_controlled_shutdown: bool
    peer_host: str
    peer_port: int
    log_dirs: _containers.RepeatedScalarFieldContainer[str]
    cordoned_log_dirs: _containers.RepeatedScalarFieldContainer[str]
    silent_ms: int
    def __init__(self, broker_id: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., rack: _Optional[str] = ..., is_fenced: bool = ..., broker_epoch: _Optional[int] = ..., in_controlled_shutdown: bool = ..., peer_host: _Optional[str] = ..., peer_port: _Optional[int] = ..., log_dirs: _Optional[_Iterable[str]] = ..., cordoned_log_dirs: _Optional[_Iterable[str]] = ..., silent_ms: _Optional[int] = ...) -> None: ...

class DescribedController(_message.Message):
    __slots__ = ("controller_id", "host", "port", "peer_host", "peer_port")
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PEER_HOST_FIELD_NUMBER: _ClassVar[int]
    PEER_PORT_FIELD_NUMBER: _ClassVar[int]
    controller_id: int
    host: str
    port: int
    peer_host: str
    peer_port: int
    def __init__(self, controller_id: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., peer_host: _Optional[str] = ..., peer_port: _Optional[int] = ...) -> None: ...

class DescribeQuorumRequest(_message.Message):
    __slots__ = ("header", "topics")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    topics: _containers.RepeatedCompositeFieldContainer[DescribeQuorumTopic]
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[DescribeQuorumTopic, _Mapping]]] = ...) -> None: ...

class DescribeQuorumTopic(_message.Message):
    __slots__ = ("topic_name", "partitions")
    TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_name: str
    partitions: _containers.RepeatedCompositeFieldContainer[DescribeQuorumPartition]
    def __init__(self, topic_name: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[DescribeQuorumPartition, _Mapping]]] = ...) -> None: ...

class DescribeQuorumPartition(_message.Message):
    __slots__ = ("partition_index",)
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    partition_index: int
    def __init__(self, partition_index: _Optional[int] = ...) -> None: ...

class DescribeQuorumResponse(_message.Message):
    __slots__ = ("header", "cluster_id", "leader_id", "leader_epoch", "high_watermark", "current_voters", "observers", "kraft_version", "log_start_offset", "generation", "voters_offset", "topics", "nodes")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    CURRENT_VOTERS_FIELD_NUMBER: _ClassVar[int]
    OBSERVERS_FIELD_NUMBER: _ClassVar[int]
    KRAFT_VERSION_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    VOTERS_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    cluster_id: str
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: _containers.RepeatedCompositeFieldContainer[QuorumReplica]
    observers: _containers.RepeatedCompositeFieldContainer[QuorumReplica]
    kraft_version: int
    log_start_offset: int
    generation: int
    voters_offset: int
    topics: _containers.RepeatedCompositeFieldContainer[DescribedQuorumTopic]
    nodes: _containers.RepeatedCompositeFieldContainer[QuorumNode]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., cluster_id: _Optional[str] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., current_voters: _Optional[_Iterable[_Union[QuorumReplica, _Mapping]]] = ..., observers: _Optional[_Iterable[_Union[QuorumReplica, _Mapping]]] = ..., kraft_version: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., generation: _Optional[int] = ..., voters_offset: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[DescribedQuorumTopic, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[QuorumNode, _Mapping]]] = ...) -> None: ...

class DescribedQuorumTopic(_message.Message):
    __slots__ = ("topic_name", "partitions")
    TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_name: str
    partitions: _containers.RepeatedCompositeFieldContainer[DescribedQuorumPartition]
    def __init__(self, topic_name: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[DescribedQuorumPartition, _Mapping]]] = ...) -> None: ...

class DescribedQuorumPartition(_message.Message):
    __slots__ = ("partition_index", "error_code", "error_message", "leader_id", "leader_epoch", "high_watermark", "current_voters", "observers")
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    CURRENT_VOTERS_FIELD_NUMBER: _ClassVar[int]
    OBSERVERS_FIELD_NUMBER: _ClassVar[int]
    partition_index: int
    error_code: int
    error_message: str
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: _containers.RepeatedCompositeFieldContainer[QuorumReplica]
    observers: _containers.RepeatedCompositeFieldContainer[QuorumReplica]
    def __init__(self, partition_index: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., current_voters: _Optional[_Iterable[_Union[QuorumReplica, _Mapping]]] = ..., observers: _Optional[_Iterable[_Union[QuorumReplica, _Mapping]]] = ...) -> None: ...

class QuorumNode(_message.Message):
    __slots__ = ("node_id", "listeners")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    listeners: _containers.RepeatedCompositeFieldContainer[QuorumEndpoint]
    def __init__(self, node_id: _Optional[int] = ..., listeners: _Optional[_Iterable[_Union[QuorumEndpoint, _Mapping]]] = ...) -> None: ...

class QuorumReplica(_message.Message):
    __slots__ = ("replica_id", "replica_directory_id", "log_end_offset", "last_fetch_timestamp", "last_caught_up_timestamp", "endpoints")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_FETCH_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LAST_CAUGHT_UP_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    replica_id: int
    replica_directory_id: str
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int
    endpoints: _containers.RepeatedCompositeFieldContainer[QuorumEndpoint]
    def __init__(self, replica_id: _Optional[int] = ..., replica_directory_id: _Optional[str] = ..., log_end_offset: _Optional[int] = ..., last_fetch_timestamp: _Optional[int] = ..., last_caught_up_timestamp: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[QuorumEndpoint, _Mapping]]] = ...) -> None: ...

class QuorumEndpoint(_message.Message):
    __slots__ = ("name", "host", "port")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    name: str
    host: str
    port: int
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class AddRaftVoterRequest(_message.Message):
    __slots__ = ("header", "voter_id", "voter_directory_id", "listeners", "cluster_id", "ack_when_committed")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    ACK_WHEN_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    voter_id: int
    voter_directory_id: str
    listeners: _containers.RepeatedCompositeFieldContainer[QuorumEndpoint]
    cluster_id: str
    ack_when_committed: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., voter_id: _Optional[int] = ..., voter_directory_id: _Optional[str] = ..., listeners: _Optional[_Iterable[_Union[QuorumEndpoint, _Mapping]]] = ..., cluster_id: _Optional[str] = ..., ack_when_committed: bool = ...) -> None: ...

class AddRaftVoterResponse(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ...) -> None: ...

class RemoveRaftVoterRequest(_message.Message):
    __slots__ = ("header", "voter_id", "voter_directory_id", "cluster_id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    voter_id: int
    voter_directory_id: str
    cluster_id: str
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., voter_id: _Optional[int] = ..., voter_directory_id: _Optional[str] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class RemoveRaftVoterResponse(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ...) -> None: ...

class TransferLeadershipRequest(_message.Message):
    __slots__ = ("header", "voter_id", "voter_directory_id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    VOTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTER_DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    voter_id: int
    voter_directory_id: str
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., voter_id: _Optional[int] = ..., voter_directory_id: _Optional[str] = ...) -> None: ...

class TransferLeadershipResponse(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ...) -> None: ...

class CreateSnapshotRequest(_message.Message):
    __slots__ = ("header", "node_id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    node_id: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., node_id: _Optional[int] = ...) -> None: ...

class CreateSnapshotResponse(_message.Message):
    __slots__ = ("header", "node_id", "snapshot")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    node_id: int
    snapshot: MetadataSnapshot
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., node_id: _Optional[int] = ..., snapshot: _Optional[_Union[MetadataSnapshot, _Mapping]] = ...) -> None: ...

class ListSnapshotsRequest(_message.Message):
    __slots__ = ("header", "node_id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    node_id: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., node_id: _Optional[int] = ...) -> None: ...

class ListSnapshotsResponse(_message.Message):
    __slots__ = ("header", "node_id", "snapshots", "log_start_offset", "log_end_offset", "generation", "is_repairing")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    IS_REPAIRING_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    node_id: int
    snapshots: _containers.RepeatedCompositeFieldContainer[MetadataSnapshot]
    log_start_offset: int
    log_end_offset: int
    generation: int
    is_repairing: bool
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., node_id: _Optional[int] = ..., snapshots: _Optional[_Iterable[_Union[MetadataSnapshot, _Mapping]]] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., generation: _Optional[int] = ..., is_repairing: bool = ...) -> None: ...

class MetadataSnapshot(_message.Message):
    __slots__ = ("end_offset", "epoch", "size_bytes", "last_contained_log_timestamp")
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_CONTAINED_LOG_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    end_offset: int
    epoch: int
    size_bytes: int
    last_contained_log_timestamp: int
    def __init__(self, end_offset: _Optional[int] = ..., epoch: _Optional[int] = ..., size_bytes: _Optional[int] = ..., last_contained_log_timestamp: _Optional[int] = ...) -> None: ...

class DescribeMetadataRequest(_message.Message):
    __slots__ = ("header", "reread_log", "at_offset")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REREAD_LOG_FIELD_NUMBER: _ClassVar[int]
    AT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    reread_log: bool
    at_offset: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., reread_log: bool = ..., at_offset: _Optional[int] = ...) -> None: ...

class DescribeMetadataResponse(_message.Message):
    __slots__ = ("header", "node_id", "offset", "epoch", "image_digest", "reread_offset", "reread_digest")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IMAGE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REREAD_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REREAD_DIGEST_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    node_id: int
    offset: int
    epoch: int
    image_digest: bytes
    reread_offset: int
    reread_digest: bytes
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., node_id: _Optional[int] = ..., offset: _Optional[int] = ..., epoch: _Optional[int] = ..., image_digest: _Optional[bytes] = ..., reread_offset: _Optional[int] = ..., reread_digest: _Optional[bytes] = ...) -> None: ...

class ApiVersionsRequest(_message.Message):
    __slots__ = ("header", "client_software_name", "client_software_version")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_SOFTWARE_NAME_FIELD_NUMBER: _ClassVar[int]
    CLIENT_SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    client_software_name: str
    client_software_version: str
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., client_software_name: _Optional[str] = ..., client_software_version: _Optional[str] = ...) -> None: ...

class ApiVersionsResponse(_message.Message):
    __slots__ = ("header", "api_keys", "supported_features", "finalized_features_epoch", "finalized_features", "zk_migration_ready")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    API_KEYS_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_FEATURES_FIELD_NUMBER: _ClassVar[int]
    FINALIZED_FEATURES_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FINALIZED_FEATURES_FIELD_NUMBER: _ClassVar[int]
    ZK_MIGRATION_READY_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    api_keys: _containers.RepeatedCompositeFieldContainer[ApiVersion]
    supported_features: _containers.RepeatedCompositeFieldContainer[SupportedFeature]
    finalized_features_epoch: int
    finalized_features: _containers.RepeatedCompositeFieldContainer[FinalizedFeature]
    zk_migration_ready: bool
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., api_keys: _Optional[_Iterable[_Union[ApiVersion, _Mapping]]] = ..., supported_features: _Optional[_Iterable[_Union[SupportedFeature, _Mapping]]] = ..., finalized_features_epoch: _Optional[int] = ..., finalized_features: _Optional[_Iterable[_Union[FinalizedFeature, _Mapping]]] = ..., zk_migration_ready: bool = ...) -> None: ...

class ApiVersion(_message.Message):
    __slots__ = ("api_key", "min_version", "max_version", "name")
    API_KEY_FIELD_NUMBER: _ClassVar[int]
    MIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    api_key: int
    min_version: int
    max_version: int
    name: str
    def __init__(self, api_key: _Optional[int] = ..., min_version: _Optional[int] = ..., max_version: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class SupportedFeature(_message.Message):
    __slots__ = ("name", "min_version", "max_version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    min_version: int
    max_version: int
    def __init__(self, name: _Optional[str] = ..., min_version: _Optional[int] = ..., max_version: _Optional[int] = ...) -> None: ...

class FinalizedFeature(_message.Message):
    __slots__ = ("name", "max_version_level", "min_version_level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_VERSION_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MIN_VERSION_LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    max_version_level: int
    min_version_level: int
    def __init__(self, name: _Optional[str] = ..., max_version_level: _Optional[int] = ..., min_version_level: _Optional[int] = ...) -> None: ...

class AlterReplicaLogDirsRequest(_message.Message):
    __slots__ = ("header", "dirs")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DIRS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    dirs: _containers.RepeatedCompositeFieldContainer[AlterReplicaLogDir]
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., dirs: _Optional[_Iterable[_Union[AlterReplicaLogDir, _Mapping]]] = ...) -> None: ...

class AlterReplicaLogDir(_message.Message):
    __slots__ = ("path", "topics")
    PATH_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    path: str
    topics: _containers.RepeatedCompositeFieldContainer[AlterReplicaLogDirTopic]
    def __init__(self, path: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[AlterReplicaLogDirTopic, _Mapping]]] = ...) -> None: ...

class AlterReplicaLogDirTopic(_message.Message):
    __slots__ = ("name", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class AlterReplicaLogDirsResponse(_message.Message):
    __slots__ = ("header", "results")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    results: _containers.RepeatedCompositeFieldContainer[AlterReplicaLogDirTopicResult]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., results: _Optional[_Iterable[_Union[AlterReplicaLogDirTopicResult, _Mapping]]] = ...) -> None: ...

class AlterReplicaLogDirTopicResult(_message.Message):
    __slots__ = ("topic_name", "partitions")
    TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_name: str
    partitions: _containers.RepeatedCompositeFieldContainer[AlterReplicaLogDirPartitionResult]
    def __init__(self, topic_name: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[AlterReplicaLogDirPartitionResult, _Mapping]]] = ...) -> None: ...

class AlterReplicaLogDirPartitionResult(_message.Message):
    __slots__ = ("partition_index", "error_code", "error_message")
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    partition_index: int
    error_code: int
    error_message: str
    def __init__(self, partition_index: _Optional[int] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class DescribeLogDirsRequest(_message.Message):
    __slots__ = ("header", "topics", "log_dirs", "only_filling")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    ONLY_FILLING_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    topics: DescribableLogDirTopics
    log_dirs: _containers.RepeatedScalarFieldContainer[str]
    only_filling: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., topics: _Optional[_Union[DescribableLogDirTopics, _Mapping]] = ..., log_dirs: _Optional[_Iterable[str]] = ..., only_filling: bool = ...) -> None: ...

class DescribableLogDirTopics(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[DescribableLogDirTopic]
    def __init__(self, values: _Optional[_Iterable[_Union[DescribableLogDirTopic, _Mapping]]] = ...) -> None: ...

class DescribableLogDirTopic(_message.Message):
    __slots__ = ("topic", "partitions", "all_partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ALL_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    all_partitions: bool
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ..., all_partitions: bool = ...) -> None: ...

class DescribeLogDirsResponse(_message.Message):
    __slots__ = ("header", "results", "broker_id", "move_limit")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    MOVE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    results: _containers.RepeatedCompositeFieldContainer[LogDirResult]
    broker_id: int
    move_limit: int
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., results: _Optional[_Iterable[_Union[LogDirResult, _Mapping]]] = ..., broker_id: _Optional[int] = ..., move_limit: _Optional[int] = ...) -> None: ...

class LogDirResult(_message.Message):
    __slots__ = ("error_code", "log_dir", "topics", "total_bytes", "usable_bytes", "is_cordoned", "directory_id", "strays", "error_message", "kept_copies")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LOG_DIR_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    USABLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_CORDONED_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    STRAYS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    KEPT_COPIES_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    log_dir: str
    topics: _containers.RepeatedCompositeFieldContainer[LogDirTopic]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool
    directory_id: str
    strays: _containers.RepeatedScalarFieldContainer[str]
    error_message: str
    kept_copies: _containers.RepeatedCompositeFieldContainer[KeptReplicaCopy]
    def __init__(self, error_code: _Optional[int] = ..., log_dir: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[LogDirTopic, _Mapping]]] = ..., total_bytes: _Optional[int] = ..., usable_bytes: _Optional[int] = ..., is_cordoned: bool = ..., directory_id: _Optional[str] = ..., strays: _Optional[_Iterable[str]] = ..., error_message: _Optional[str] = ..., kept_copies: _Optional[_Iterable[_Union[KeptReplicaCopy, _Mapping]]] = ...) -> None: ...

class KeptReplicaCopy(_message.Message):
    __slots__ = ("path", "topic_name", "partition_index", "size_bytes", "log_end_offset", "is_stray", "lost_log_end_offset", "doubt")
    PATH_FIELD_NUMBER: _ClassVar[int]
    TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IS_STRAY_FIELD_NUMBER: _ClassVar[int]
    LOST_LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DOUBT_FIELD_NUMBER: _ClassVar[int]
    path: str
    topic_name: str
    partition_index: int
    size_bytes: int
    log_end_offset: int
    is_stray: bool
    lost_log_end_offset: int
    doubt: str
    def __init__(self, path: _Optional[str] = ..., topic_name: _Optional[str] = ..., partition_index: _Optional[int] = ..., size_bytes: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., is_stray: bool = ..., lost_log_end_offset: _Optional[int] = ..., doubt: _Optional[str] = ...) -> None: ...

class LogDirTopic(_message.Message):
    __slots__ = ("name", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: _containers.RepeatedCompositeFieldContainer[LogDirPartition]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[LogDirPartition, _Mapping]]] = ...) -> None: ...

class LogDirPartition(_message.Message):
    __slots__ = ("partition_index", "partition_size", "offset_lag", "is_future_key", "bytes_left", "bytes_per_second", "started_ms", "error", "log_end_offset", "source_log_dir", "lost")
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    PARTITION_SIZE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_LAG_FIELD_NUMBER: _ClassVar[int]
    IS_FUTURE_KEY_FIELD_NUMBER: _ClassVar[int]
    BYTES_LEFT_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LOG_DIR_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool
    bytes_left: int
    bytes_per_second: float
    started_ms: int
    error: str
    log_end_offset: int
    source_log_dir: str
    lost: LostRecords
    def __init__(self, partition_index: _Optional[int] = ..., partition_size: _Optional[int] = ..., offset_lag: _Optional[int] = ..., is_future_key: bool = ..., bytes_left: _Optional[int] = ..., bytes_per_second: _Optional[float] = ..., started_ms: _Optional[int] = ..., error: _Optional[str] = ..., log_end_offset: _Optional[int] = ..., source_log_dir: _Optional[str] = ..., lost: _Optional[_Union[LostRecords, _Mapping]] = ...) -> None: ...

class LostRecords(_message.Message):
    __slots__ = ("truncations", "records", "acknowledged_records", "size_bytes", "unclean_elections", "last_ms")
    TRUNCATIONS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNCLEAN_ELECTIONS_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    truncations: int
    records: int
    acknowledged_records: int
    size_bytes: int
    unclean_elections: int
    last_ms: int
    def __init__(self, truncations: _Optional[int] = ..., records: _Optional[int] = ..., acknowledged_records: _Optional[int] = ..., size_bytes: _Optional[int] = ..., unclean_elections: _Optional[int] = ..., last_ms: _Optional[int] = ...) -> None: ...

class OnlineLogDirRequest(_message.Message):
    __slots__ = ("header", "log_dir")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LOG_DIR_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    log_dir: str
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., log_dir: _Optional[str] = ...) -> None: ...

class OnlineLogDirResponse(_message.Message):
    __slots__ = ("header", "replicas")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    replicas: _containers.RepeatedCompositeFieldContainer[ReturnedReplica]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., replicas: _Optional[_Iterable[_Union[ReturnedReplica, _Mapping]]] = ...) -> None: ...

class ReturnedReplica(_message.Message):
    __slots__ = ("topic_name", "partition_index", "outcome", "directory", "reason")
    TOPIC_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_INDEX_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic_name: str
    partition_index: int
    outcome: str
    directory: str
    reason: str
    def __init__(self, topic_name: _Optional[str] = ..., partition_index: _Optional[int] = ..., outcome: _Optional[str] = ..., directory: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ResolveReplicaCopyRequest(_message.Message):
    __slots__ = ("header", "path", "promote")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    PROMOTE_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    path: str
    promote: bool
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., path: _Optional[str] = ..., promote: bool = ...) -> None: ...

class ResolveReplicaCopyResponse(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ...) -> None: ...

class CreateAclsRequest(_message.Message):
    __slots__ = ("header", "creations")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CREATIONS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    creations: _containers.RepeatedCompositeFieldContainer[AclCreation]
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., creations: _Optional[_Iterable[_Union[AclCreation, _Mapping]]] = ...) -> None: ...

class AclCreation(_message.Message):
    __slots__ = ("resource_type", "resource_name", "resource_pattern_type", "principal", "host", "operation", "permission_type")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_TYPE_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., resource_pattern_type: _Optional[int] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., permission_type: _Optional[int] = ...) -> None: ...

class CreateAclsResponse(_message.Message):
    __slots__ = ("header", "results")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    results: _containers.RepeatedCompositeFieldContainer[AclCreationResult]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., results: _Optional[_Iterable[_Union[AclCreationResult, _Mapping]]] = ...) -> None: ...

class AclCreationResult(_message.Message):
    __slots__ = ("error_code", "error_message")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class DeleteAclsRequest(_message.Message):
    __slots__ = ("header", "filters")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    filters: _containers.RepeatedCompositeFieldContainer[DeleteAclsFilter]
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., filters: _Optional[_Iterable[_Union[DeleteAclsFilter, _Mapping]]] = ...) -> None: ...

class DeleteAclsFilter(_message.Message):
    __slots__ = ("resource_type_filter", "resource_name_filter", "pattern_type_filter", "principal_filter", "host_filter", "operation", "permission_type")
    RESOURCE_TYPE_FILTER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FILTER_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FILTER_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FILTER_FIELD_NUMBER: _ClassVar[int]
    HOST_FILTER_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_TYPE_FIELD_NUMBER: _ClassVar[int]
    resource_type_filter: int
    resource_name_filter: str
    pattern_type_filter: int
    principal_filter: str
    host_filter: str
    operation: int
    permission_type: int
    def __init__(self, resource_type_filter: _Optional[int] = ..., resource_name_filter: _Optional[str] = ..., pattern_type_filter: _Optional[int] = ..., principal_filter: _Optional[str] = ..., host_filter: _Optional[str] = ..., operation: _Optional[int] = ..., permission_type: _Optional[int] = ...) -> None: ...

class DeleteAclsResponse(_message.Message):
    __slots__ = ("header", "filter_results")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    FILTER_RESULTS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    filter_results: _containers.RepeatedCompositeFieldContainer[DeleteAclsFilterResult]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., filter_results: _Optional[_Iterable[_Union[DeleteAclsFilterResult, _Mapping]]] = ...) -> None: ...

class DeleteAclsFilterResult(_message.Message):
    __slots__ = ("error_code", "error_message", "matching_acls")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MATCHING_ACLS_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    matching_acls: _containers.RepeatedCompositeFieldContainer[DeleteAclsMatchingAcl]
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., matching_acls: _Optional[_Iterable[_Union[DeleteAclsMatchingAcl, _Mapping]]] = ...) -> None: ...

class DeleteAclsMatchingAcl(_message.Message):
    __slots__ = ("error_code", "error_message", "resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission_type")
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_TYPE_FIELD_NUMBER: _ClassVar[int]
    error_code: int
    error_message: str
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
    def __init__(self, error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., pattern_type: _Optional[int] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., permission_type: _Optional[int] = ...) -> None: ...

class DescribeAclsRequest(_message.Message):
    __slots__ = ("header", "resource_type_filter", "resource_name_filter", "pattern_type_filter", "principal_filter", "host_filter", "operation", "permission_type")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FILTER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FILTER_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FILTER_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FILTER_FIELD_NUMBER: _ClassVar[int]
    HOST_FILTER_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_TYPE_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    resource_type_filter: int
    resource_name_filter: str
    pattern_type_filter: int
    principal_filter: str
    host_filter: str
    operation: int
    permission_type: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., resource_type_filter: _Optional[int] = ..., resource_name_filter: _Optional[str] = ..., pattern_type_filter: _Optional[int] = ..., principal_filter: _Optional[str] = ..., host_filter: _Optional[str] = ..., operation: _Optional[int] = ..., permission_type: _Optional[int] = ...) -> None: ...

class DescribeAclsResponse(_message.Message):
    __slots__ = ("header", "resources")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    resources: _containers.RepeatedCompositeFieldContainer[DescribeAclsResource]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., resources: _Optional[_Iterable[_Union[DescribeAclsResource, _Mapping]]] = ...) -> None: ...

class DescribeAclsResource(_message.Message):
    __slots__ = ("resource_type", "resource_name", "pattern_type", "acls")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    ACLS_FIELD_NUMBER: _ClassVar[int]
    resource_type: int
    resource_name: str
    pattern_type: int
    acls: _containers.RepeatedCompositeFieldContainer[AclDescription]
    def __init__(self, resource_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., pattern_type: _Optional[int] = ..., acls: _Optional[_Iterable[_Union[AclDescription, _Mapping]]] = ...) -> None: ...

class AclDescription(_message.Message):
    __slots__ = ("principal", "host", "operation", "permission_type")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_TYPE_FIELD_NUMBER: _ClassVar[int]
    principal: str
    host: str
    operation: int
    permission_type: int
    def __init__(self, principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., permission_type: _Optional[int] = ...) -> None: ...

class AlterUserScramCredentialsRequest(_message.Message):
    __slots__ = ("header", "deletions", "upsertions")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DELETIONS_FIELD_NUMBER: _ClassVar[int]
    UPSERTIONS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    deletions: _containers.RepeatedCompositeFieldContainer[ScramCredentialDeletion]
    upsertions: _containers.RepeatedCompositeFieldContainer[ScramCredentialUpsertion]
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., deletions: _Optional[_Iterable[_Union[ScramCredentialDeletion, _Mapping]]] = ..., upsertions: _Optional[_Iterable[_Union[ScramCredentialUpsertion, _Mapping]]] = ...) -> None: ...

class ScramCredentialDeletion(_message.Message):
    __slots__ = ("name", "mechanism")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    name: str
    mechanism: int
    def __init__(self, name: _Optional[str] = ..., mechanism: _Optional[int] = ...) -> None: ...

class ScramCredentialUpsertion(_message.Message):
    __slots__ = ("name", "mechanism", "iterations", "salt", "salted_password")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    SALTED_PASSWORD_FIELD_NUMBER: _ClassVar[int]
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes
    def __init__(self, name: _Optional[str] = ..., mechanism: _Optional[int] = ..., iterations: _Optional[int] = ..., salt: _Optional[bytes] = ..., salted_password: _Optional[bytes] = ...) -> None: ...

class AlterUserScramCredentialsResponse(_message.Message):
    __slots__ = ("header", "results")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    results: _containers.RepeatedCompositeFieldContainer[AlterUserScramCredentialsResult]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., results: _Optional[_Iterable[_Union[AlterUserScramCredentialsResult, _Mapping]]] = ...) -> None: ...

class AlterUserScramCredentialsResult(_message.Message):
    __slots__ = ("user", "error_code", "error_message")
    USER_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    user: str
    error_code: int
    error_message: str
    def __init__(self, user: _Optional[str] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class DescribeUserScramCredentialsRequest(_message.Message):
    __slots__ = ("header", "users")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    users: ScramUserNames
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., users: _Optional[_Union[ScramUserNames, _Mapping]] = ...) -> None: ...

class ScramUserNames(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[ScramUserName]
    def __init__(self, values: _Optional[_Iterable[_Union[ScramUserName, _Mapping]]] = ...) -> None: ...

class ScramUserName(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DescribeUserScramCredentialsResponse(_message.Message):
    __slots__ = ("header", "results")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    results: _containers.RepeatedCompositeFieldContainer[DescribeUserScramCredentialsResult]
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., results: _Optional[_Iterable[_Union[DescribeUserScramCredentialsResult, _Mapping]]] = ...) -> None: ...

class DescribeUserScramCredentialsResult(_message.Message):
    __slots__ = ("user", "error_code", "error_message", "credential_infos")
    USER_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_INFOS_FIELD_NUMBER: _ClassVar[int]
    user: str
    error_code: int
    error_message: str
    credential_infos: _containers.RepeatedCompositeFieldContainer[ScramCredentialInfo]
    def __init__(self, user: _Optional[str] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ..., credential_infos: _Optional[_Iterable[_Union[ScramCredentialInfo, _Mapping]]] = ...) -> None: ...

class ScramCredentialInfo(_message.Message):
    __slots__ = ("mechanism", "iterations")
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    mechanism: int
    iterations: int
    def __init__(self, mechanism: _Optional[int] = ..., iterations: _Optional[int] = ...) -> None: ...

class UnregisterBrokerRequest(_message.Message):
    __slots__ = ("header", "broker_id", "expected_broker_epoch")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    broker_id: int
    expected_broker_epoch: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., broker_id: _Optional[int] = ..., expected_broker_epoch: _Optional[int] = ...) -> None: ...

class UnregisterBrokerResponse(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ...) -> None: ...

class AllocateProducerIdsRequest(_message.Message):
    __slots__ = ("header", "broker_id", "broker_epoch")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    broker_id: int
    broker_epoch: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class AllocateProducerIdsResponse(_message.Message):
    __slots__ = ("header", "producer_id_start", "producer_id_len")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_START_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_LEN_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    producer_id_start: int
    producer_id_len: int
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., producer_id_start: _Optional[int] = ..., producer_id_len: _Optional[int] = ...) -> None: ...

class InitProducerIdRequest(_message.Message):
    __slots__ = ("header", "transactional_id", "transaction_timeout_ms", "producer_id", "producer_epoch")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    transactional_id: str
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., transactional_id: _Optional[str] = ..., transaction_timeout_ms: _Optional[int] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class InitProducerIdResponse(_message.Message):
    __slots__ = ("header", "producer_id", "producer_epoch")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    producer_id: int
    producer_epoch: int
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class DescribeImageRequest(_message.Message):
    __slots__ = ("header", "offset", "time_ms", "first_record")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_RECORD_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    offset: int
    time_ms: int
    first_record: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., offset: _Optional[int] = ..., time_ms: _Optional[int] = ..., first_record: _Optional[int] = ...) -> None: ...

class DescribeImageResponse(_message.Message):
    __slots__ = ("header", "node_id", "offset", "epoch", "append_time_ms", "bodies", "next_record")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    BODIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_RECORD_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    node_id: int
    offset: int
    epoch: int
    append_time_ms: int
    bodies: _containers.RepeatedScalarFieldContainer[bytes]
    next_record: int
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., node_id: _Optional[int] = ..., offset: _Optional[int] = ..., epoch: _Optional[int] = ..., append_time_ms: _Optional[int] = ..., bodies: _Optional[_Iterable[bytes]] = ..., next_record: _Optional[int] = ...) -> None: ...

class ListMetadataRecordsRequest(_message.Message):
    __slots__ = ("header", "from_offset", "to_offset")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    from_offset: int
    to_offset: int
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., from_offset: _Optional[int] = ..., to_offset: _Optional[int] = ...) -> None: ...

class MetadataBatch(_message.Message):
    __slots__ = ("base_offset", "epoch", "append_time_ms", "record_count", "is_control", "body")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    IS_CONTROL_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    epoch: int
    append_time_ms: int
    record_count: int
    is_control: bool
    body: bytes
    def __init__(self, base_offset: _Optional[int] = ..., epoch: _Optional[int] = ..., append_time_ms: _Optional[int] = ..., record_count: _Optional[int] = ..., is_control: bool = ..., body: _Optional[bytes] = ...) -> None: ...

class ListMetadataRecordsResponse(_message.Message):
    __slots__ = ("header", "node_id", "batches", "next_offset")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    header: ResponseHeader
    node_id: int
    batches: _containers.RepeatedCompositeFieldContainer[MetadataBatch]
    next_offset: int
    def __init__(self, header: _Optional[_Union[ResponseHeader, _Mapping]] = ..., node_id: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[MetadataBatch, _Mapping]]] = ..., next_offset: _Optional[int] = ...) -> None: ...

class CallRequests(_message.Message):
    __slots__ = ("calls",)
    CALLS_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[CallRequest]
    def __init__(self, calls: _Optional[_Iterable[_Union[CallRequest, _Mapping]]] = ...) -> None: ...

class CallResponses(_message.Message):
    __slots__ = ("calls",)
    CALLS_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[CallResponse]
    def __init__(self, calls: _Optional[_Iterable[_Union[CallResponse, _Mapping]]] = ...) -> None: ...

class CallRequest(_message.Message):
    __slots__ = ("correlation", "create_topics", "delete_topics", "describe_topic_partitions", "incremental_alter_configs", "describe_configs", "alter_partition_reassignments", "list_partition_reassignments", "describe_cluster", "describe_quorum", "describe_metadata", "alter_replica_log_dirs", "describe_log_dirs", "online_log_dir", "resolve_replica_copy", "add_raft_voter", "remove_raft_voter", "transfer_leadership", "create_snapshot", "list_snapshots", "api_versions", "create_acls", "delete_acls", "describe_acls", "alter_user_scram_credentials", "describe_user_scram_credentials", "alter_configs", "list_config_resources", "alter_client_quotas", "describe_client_quotas", "update_features", "create_partitions", "elect_leaders", "delete_records", "unregister_broker", "allocate_producer_ids", "init_producer_id", "alter_replication_factors", "alter_partition_counts", "alter_inter_broker_throttle", "cancel_reassignments", "rollback_plan", "forget_plans", "describe_image", "list_metadata_records")
    CORRELATION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_TOPIC_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    INCREMENTAL_ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    ALTER_PARTITION_REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    LIST_PARTITION_REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_METADATA_FIELD_NUMBER: _ClassVar[int]
    ALTER_REPLICA_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    ONLINE_LOG_DIR_FIELD_NUMBER: _ClassVar[int]
    RESOLVE_REPLICA_COPY_FIELD_NUMBER: _ClassVar[int]
    ADD_RAFT_VOTER_FIELD_NUMBER: _ClassVar[int]
    REMOVE_RAFT_VOTER_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_LEADERSHIP_FIELD_NUMBER: _ClassVar[int]
    CREATE_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    LIST_SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    API_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    CREATE_ACLS_FIELD_NUMBER: _ClassVar[int]
    DELETE_ACLS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_ACLS_FIELD_NUMBER: _ClassVar[int]
    ALTER_USER_SCRAM_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_USER_SCRAM_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    LIST_CONFIG_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    ALTER_CLIENT_QUOTAS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_CLIENT_QUOTAS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FEATURES_FIELD_NUMBER: _ClassVar[int]
    CREATE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ELECT_LEADERS_FIELD_NUMBER: _ClassVar[int]
    DELETE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    UNREGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    INIT_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    ALTER_REPLICATION_FACTORS_FIELD_NUMBER: _ClassVar[int]
    ALTER_PARTITION_COUNTS_FIELD_NUMBER: _ClassVar[int]
    ALTER_INTER_BROKER_THROTTLE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_PLAN_FIELD_NUMBER: _ClassVar[int]
    FORGET_PLANS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_IMAGE_FIELD_NUMBER: _ClassVar[int]
    LIST_METADATA_RECORDS_FIELD_NUMBER: _ClassVar[int]
    correlation: int
    create_topics: CreateTopicsRequest
    delete_topics: DeleteTopicsRequest
    describe_topic_partitions: DescribeTopicPartitionsRequest
    incremental_alter_configs: IncrementalAlterConfigsRequest
    describe_configs: DescribeConfigsRequest
    alter_partition_reassignments: AlterPartitionReassignmentsRequest
    list_partition_reassignments: ListPartitionReassignmentsRequest
    describe_cluster: DescribeClusterRequest
    describe_quorum: DescribeQuorumRequest
    describe_metadata: DescribeMetadataRequest
    alter_replica_log_dirs: AlterReplicaLogDirsRequest
    describe_log_dirs: DescribeLogDirsRequest
    online_log_dir: OnlineLogDirRequest
    resolve_replica_copy: ResolveReplicaCopyRequest
    add_raft_voter: AddRaftVoterRequest
    remove_raft_voter: RemoveRaftVoterRequest
    transfer_leadership: TransferLeadershipRequest
    create_snapshot: CreateSnapshotRequest
    list_snapshots: ListSnapshotsRequest
    api_versions: ApiVersionsRequest
    create_acls: CreateAclsRequest
    delete_acls: DeleteAclsRequest
    describe_acls: DescribeAclsRequest
    alter_user_scram_credentials: AlterUserScramCredentialsRequest
    describe_user_scram_credentials: DescribeUserScramCredentialsRequest
    alter_configs: AlterConfigsRequest
    list_config_resources: ListConfigResourcesRequest
    alter_client_quotas: AlterClientQuotasRequest
    describe_client_quotas: DescribeClientQuotasRequest
    update_features: UpdateFeaturesRequest
    create_partitions: CreatePartitionsRequest
    elect_leaders: ElectLeadersRequest
    delete_records: DeleteRecordsRequest
    unregister_broker: UnregisterBrokerRequest
    allocate_producer_ids: AllocateProducerIdsRequest
    init_producer_id: InitProducerIdRequest
    alter_replication_factors: AlterReplicationFactorsRequest
    alter_partition_counts: AlterPartitionCountsRequest
    alter_inter_broker_throttle: AlterInterBrokerThrottleRequest
    cancel_reassignments: CancelReassignmentsRequest
    rollback_plan: RollbackPlanRequest
    forget_plans: ForgetPlansRequest
    describe_image: DescribeImageRequest
    list_metadata_records: ListMetadataRecordsRequest
    def __init__(self, correlation: _Optional[int] = ..., create_topics: _Optional[_Union[CreateTopicsRequest, _Mapping]] = ..., delete_topics: _Optional[_Union[DeleteTopicsRequest, _Mapping]] = ..., describe_topic_partitions: _Optional[_Union[DescribeTopicPartitionsRequest, _Mapping]] = ..., incremental_alter_configs: _Optional[_Union[IncrementalAlterConfigsRequest, _Mapping]] = ..., describe_configs: _Optional[_Union[DescribeConfigsRequest, _Mapping]] = ..., alter_partition_reassignments: _Optional[_Union[AlterPartitionReassignmentsRequest, _Mapping]] = ..., list_partition_reassignments: _Optional[_Union[ListPartitionReassignmentsRequest, _Mapping]] = ..., describe_cluster: _Optional[_Union[DescribeClusterRequest, _Mapping]] = ..., describe_quorum: _Optional[_Union[DescribeQuorumRequest, _Mapping]] = ..., describe_metadata: _Optional[_Union[DescribeMetadataRequest, _Mapping]] = ..., alter_replica_log_dirs: _Optional[_Union[AlterReplicaLogDirsRequest, _Mapping]] = ..., describe_log_dirs: _Optional[_Union[DescribeLogDirsRequest, _Mapping]] = ..., online_log_dir: _Optional[_Union[OnlineLogDirRequest, _Mapping]] = ..., resolve_replica_copy: _Optional[_Union[ResolveReplicaCopyRequest, _Mapping]] = ..., add_raft_voter: _Optional[_Union[AddRaftVoterRequest, _Mapping]] = ..., remove_raft_voter: _Optional[_Union[RemoveRaftVoterRequest, _Mapping]] = ..., transfer_leadership: _Optional[_Union[TransferLeadershipRequest, _Mapping]] = ..., create_snapshot: _Optional[_Union[CreateSnapshotRequest, _Mapping]] = ..., list_snapshots: _Optional[_Union[ListSnapshotsRequest, _Mapping]] = ..., api_versions: _Optional[_Union[ApiVersionsRequest, _Mapping]] = ..., create_acls: _Optional[_Union[CreateAclsRequest, _Mapping]] = ..., delete_acls: _Optional[_Union[DeleteAclsRequest, _Mapping]] = ..., describe_acls: _Optional[_Union[DescribeAclsRequest, _Mapping]] = ..., alter_user_scram_credentials: _Optional[_Union[AlterUserScramCredentialsRequest, _Mapping]] = ..., describe_user_scram_credentials: _Optional[_Union[DescribeUserScramCredentialsRequest, _Mapping]] = ..., alter_configs: _Optional[_Union[AlterConfigsRequest, _Mapping]] = ..., list_config_resources: _Optional[_Union[ListConfigResourcesRequest, _Mapping]] = ..., alter_client_quotas: _Optional[_Union[AlterClientQuotasRequest, _Mapping]] = ..., describe_client_quotas: _Optional[_Union[DescribeClientQuotasRequest, _Mapping]] = ..., update_features: _Optional[_Union[UpdateFeaturesRequest, _Mapping]] = ..., create_partitions: _Optional[_Union[CreatePartitionsRequest, _Mapping]] = ..., elect_leaders: _Optional[_Union[ElectLeadersRequest, _Mapping]] = ..., delete_records: _Optional[_Union[DeleteRecordsRequest, _Mapping]] = ..., unregister_broker: _Optional[_Union[UnregisterBrokerRequest, _Mapping]] = ..., allocate_producer_ids: _Optional[_Union[AllocateProducerIdsRequest, _Mapping]] = ..., init_producer_id: _Optional[_Union[InitProducerIdRequest, _Mapping]] = ..., alter_replication_factors: _Optional[_Union[AlterReplicationFactorsRequest, _Mapping]] = ..., alter_partition_counts: _Optional[_Union[AlterPartitionCountsRequest, _Mapping]] = ..., alter_inter_broker_throttle: _Optional[_Union[AlterInterBrokerThrottleRequest, _Mapping]] = ..., cancel_reassignments: _Optional[_Union[CancelReassignmentsRequest, _Mapping]] = ..., rollback_plan: _Optional[_Union[RollbackPlanRequest, _Mapping]] = ..., forget_plans: _Optional[_Union[ForgetPlansRequest, _Mapping]] = ..., describe_image: _Optional[_Union[DescribeImageRequest, _Mapping]] = ..., list_metadata_records: _Optional[_Union[ListMetadataRecordsRequest, _Mapping]] = ...) -> None: ...

class CallResponse(_message.Message):
    __slots__ = ("correlation", "create_topics", "delete_topics", "describe_topic_partitions", "incremental_alter_configs", "describe_configs", "alter_partition_reassignments", "list_partition_reassignments", "describe_cluster", "describe_quorum", "describe_metadata", "alter_replica_log_dirs", "describe_log_dirs", "online_log_dir", "resolve_replica_copy", "add_raft_voter", "remove_raft_voter", "transfer_leadership", "create_snapshot", "list_snapshots", "api_versions", "create_acls", "delete_acls", "describe_acls", "alter_user_scram_credentials", "describe_user_scram_credentials", "alter_configs", "list_config_resources", "alter_client_quotas", "describe_client_quotas", "update_features", "create_partitions", "elect_leaders", "delete_records", "unregister_broker", "allocate_producer_ids", "init_producer_id", "alter_replication_factors", "alter_partition_counts", "alter_inter_broker_throttle", "cancel_reassignments", "rollback_plan", "forget_plans", "describe_image", "list_metadata_records", "fault")
    CORRELATION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_TOPIC_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    INCREMENTAL_ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    ALTER_PARTITION_REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    LIST_PARTITION_REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_METADATA_FIELD_NUMBER: _ClassVar[int]
    ALTER_REPLICA_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    ONLINE_LOG_DIR_FIELD_NUMBER: _ClassVar[int]
    RESOLVE_REPLICA_COPY_FIELD_NUMBER: _ClassVar[int]
    ADD_RAFT_VOTER_FIELD_NUMBER: _ClassVar[int]
    REMOVE_RAFT_VOTER_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_LEADERSHIP_FIELD_NUMBER: _ClassVar[int]
    CREATE_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    LIST_SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    API_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    CREATE_ACLS_FIELD_NUMBER: _ClassVar[int]
    DELETE_ACLS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_ACLS_FIELD_NUMBER: _ClassVar[int]
    ALTER_USER_SCRAM_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_USER_SCRAM_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    LIST_CONFIG_RESOURCES_FIELD_NUMBER: _ClassVar[int]
    ALTER_CLIENT_QUOTAS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_CLIENT_QUOTAS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FEATURES_FIELD_NUMBER: _ClassVar[int]
    CREATE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ELECT_LEADERS_FIELD_NUMBER: _ClassVar[int]
    DELETE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    UNREGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    INIT_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    ALTER_REPLICATION_FACTORS_FIELD_NUMBER: _ClassVar[int]
    ALTER_PARTITION_COUNTS_FIELD_NUMBER: _ClassVar[int]
    ALTER_INTER_BROKER_THROTTLE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_PLAN_FIELD_NUMBER: _ClassVar[int]
    FORGET_PLANS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_IMAGE_FIELD_NUMBER: _ClassVar[int]
    LIST_METADATA_RECORDS_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    correlation: int
    create_topics: CreateTopicsResponse
    delete_topics: DeleteTopicsResponse
    describe_topic_partitions: DescribeTopicPartitionsResponse
    incremental_alter_configs: IncrementalAlterConfigsResponse
    describe_configs: DescribeConfigsResponse
    alter_partition_reassignments: AlterPartitionReassignmentsResponse
    list_partition_reassignments: ListPartitionReassignmentsResponse
    describe_cluster: DescribeClusterResponse
    describe_quorum: DescribeQuorumResponse
    describe_metadata: DescribeMetadataResponse
    alter_replica_log_dirs: AlterReplicaLogDirsResponse
    describe_log_dirs: DescribeLogDirsResponse
    online_log_dir: OnlineLogDirResponse
    resolve_replica_copy: ResolveReplicaCopyResponse
    add_raft_voter: AddRaftVoterResponse
    remove_raft_voter: RemoveRaftVoterResponse
    transfer_leadership: TransferLeadershipResponse
    create_snapshot: CreateSnapshotResponse
    list_snapshots: ListSnapshotsResponse
    api_versions: ApiVersionsResponse
    create_acls: CreateAclsResponse
    delete_acls: DeleteAclsResponse
    describe_acls: DescribeAclsResponse
    alter_user_scram_credentials: AlterUserScramCredentialsResponse
    describe_user_scram_credentials: DescribeUserScramCredentialsResponse
    alter_configs: AlterConfigsResponse
    list_config_resources: ListConfigResourcesResponse
    alter_client_quotas: AlterClientQuotasResponse
    describe_client_quotas: DescribeClientQuotasResponse
    update_features: UpdateFeaturesResponse
    create_partitions: CreatePartitionsResponse
    elect_leaders: ElectLeadersResponse
    delete_records: DeleteRecordsResponse
    unregister_broker: UnregisterBrokerResponse
    allocate_producer_ids: AllocateProducerIdsResponse
    init_producer_id: InitProducerIdResponse
    alter_replication_factors: AlterReplicationFactorsResponse
    alter_partition_counts: AlterPartitionCountsResponse
    alter_inter_broker_throttle: AlterInterBrokerThrottleResponse
    cancel_reassignments: CancelReassignmentsResponse
    rollback_plan: RollbackPlanResponse
    forget_plans: ForgetPlansResponse
    describe_image: DescribeImageResponse
    list_metadata_records: ListMetadataRecordsResponse
    fault: ResponseHeader
    def __init__(self, correlation: _Optional[int] = ..., create_topics: _Optional[_Union[CreateTopicsResponse, _Mapping]] = ..., delete_topics: _Optional[_Union[DeleteTopicsResponse, _Mapping]] = ..., describe_topic_partitions: _Optional[_Union[DescribeTopicPartitionsResponse, _Mapping]] = ..., incremental_alter_configs: _Optional[_Union[IncrementalAlterConfigsResponse, _Mapping]] = ..., describe_configs: _Optional[_Union[DescribeConfigsResponse, _Mapping]] = ..., alter_partition_reassignments: _Optional[_Union[AlterPartitionReassignmentsResponse, _Mapping]] = ..., list_partition_reassignments: _Optional[_Union[ListPartitionReassignmentsResponse, _Mapping]] = ..., describe_cluster: _Optional[_Union[DescribeClusterResponse, _Mapping]] = ..., describe_quorum: _Optional[_Union[DescribeQuorumResponse, _Mapping]] = ..., describe_metadata: _Optional[_Union[DescribeMetadataResponse, _Mapping]] = ..., alter_replica_log_dirs: _Optional[_Union[AlterReplicaLogDirsResponse, _Mapping]] = ..., describe_log_dirs: _Optional[_Union[DescribeLogDirsResponse, _Mapping]] = ..., online_log_dir: _Optional[_Union[OnlineLogDirResponse, _Mapping]] = ..., resolve_replica_copy: _Optional[_Union[ResolveReplicaCopyResponse, _Mapping]] = ..., add_raft_voter: _Optional[_Union[AddRaftVoterResponse, _Mapping]] = ..., remove_raft_voter: _Optional[_Union[RemoveRaftVoterResponse, _Mapping]] = ..., transfer_leadership: _Optional[_Union[TransferLeadershipResponse, _Mapping]] = ..., create_snapshot: _Optional[_Union[CreateSnapshotResponse, _Mapping]] = ..., list_snapshots: _Optional[_Union[ListSnapshotsResponse, _Mapping]] = ..., api_versions: _Optional[_Union[ApiVersionsResponse, _Mapping]] = ..., create_acls: _Optional[_Union[CreateAclsResponse, _Mapping]] = ..., delete_acls: _Optional[_Union[DeleteAclsResponse, _Mapping]] = ..., describe_acls: _Optional[_Union[DescribeAclsResponse, _Mapping]] = ..., alter_user_scram_credentials: _Optional[_Union[AlterUserScramCredentialsResponse, _Mapping]] = ..., describe_user_scram_credentials: _Optional[_Union[DescribeUserScramCredentialsResponse, _Mapping]] = ..., alter_configs: _Optional[_Union[AlterConfigsResponse, _Mapping]] = ..., list_config_resources: _Optional[_Union[ListConfigResourcesResponse, _Mapping]] = ..., alter_client_quotas: _Optional[_Union[AlterClientQuotasResponse, _Mapping]] = ..., describe_client_quotas: _Optional[_Union[DescribeClientQuotasResponse, _Mapping]] = ..., update_features: _Optional[_Union[UpdateFeaturesResponse, _Mapping]] = ..., create_partitions: _Optional[_Union[CreatePartitionsResponse, _Mapping]] = ..., elect_leaders: _Optional[_Union[ElectLeadersResponse, _Mapping]] = ..., delete_records: _Optional[_Union[DeleteRecordsResponse, _Mapping]] = ..., unregister_broker: _Optional[_Union[UnregisterBrokerResponse, _Mapping]] = ..., allocate_producer_ids: _Optional[_Union[AllocateProducerIdsResponse, _Mapping]] = ..., init_producer_id: _Optional[_Union[InitProducerIdResponse, _Mapping]] = ..., alter_replication_factors: _Optional[_Union[AlterReplicationFactorsResponse, _Mapping]] = ..., alter_partition_counts: _Optional[_Union[AlterPartitionCountsResponse, _Mapping]] = ..., alter_inter_broker_throttle: _Optional[_Union[AlterInterBrokerThrottleResponse, _Mapping]] = ..., cancel_reassignments: _Optional[_Union[CancelReassignmentsResponse, _Mapping]] = ..., rollback_plan: _Optional[_Union[RollbackPlanResponse, _Mapping]] = ..., forget_plans: _Optional[_Union[ForgetPlansResponse, _Mapping]] = ..., describe_image: _Optional[_Union[DescribeImageResponse, _Mapping]] = ..., list_metadata_records: _Optional[_Union[ListMetadataRecordsResponse, _Mapping]] = ..., fault: _Optional[_Union[ResponseHeader, _Mapping]] = ...) -> None: ...
# generated from sha256:b6a48017087839cc5bc065d3a2a35662f7512d128f6c6a33cc74e0fe79a44ab8
