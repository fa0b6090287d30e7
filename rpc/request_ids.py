"""Which requests can be named so that a retry is answered like the first sending, and nothing is done twice.

Those that change metadata, by the active controller's hand. A request that only validates changes nothing and is judged anew each
time; an id on it, or on any other call, is ignored.
"""

from __future__ import annotations

from typing import Any

CLIENT_ID_BYTES = 16

NAMEABLE = frozenset(
    {
        "CreateTopics",
        "DeleteTopics",
        "CreatePartitions",
        "ElectLeaders",
        "IncrementalAlterConfigs",
        "AlterConfigs",
        "AlterClientQuotas",
        "UpdateFeatures",
        "AlterPartitionReassignments",
        "AlterReplicationFactors",
        "AlterPartitionCounts",
        "AlterInterBrokerThrottle",
        "UnregisterBroker",
        "AllocateProducerIds",
        "CreateAcls",
        "DeleteAcls",
        "AlterUserScramCredentials",
    }
)

ONCE = frozenset(
    {
        "CreateTopics",
        "DeleteTopics",
        "CreatePartitions",
        "AlterPartitionReassignments",
        "DeleteAcls",
        "AlterUserScramCredentials",
        "AddRaftVoter",
        "RemoveRaftVoter",
        "UnregisterBroker",
    }
)
"""Made twice without an id, these answer that the topic, voter or broker exists, or does not, that nothing moves or has moved on:
their outcome is told wrongly. Who passes calls on does not send them again.
"""


def can_be_named(api: str, request: object) -> bool:
    """Whether an id on this request counts."""
    return api in NAMEABLE and not getattr(request, "validate_only", False)


def is_named(api: str, request: Any) -> bool:
    """Whether sending this request twice is the same as sending it once."""
    return can_be_named(api, request) and bool(request.header.HasField("request_id"))
