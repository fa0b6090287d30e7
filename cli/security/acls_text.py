"""Rules and filters of `kraftlab acls`: read from its options, and printed in the words of kafka-acls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import msgspec

from kraftlab.access.authorizer import OPERATIONS
from kraftlab.metadata.acls import CLUSTER_NAME, WILDCARD, Operation, PatternType, PermissionType, ResourceType

if TYPE_CHECKING:
    from kraftlab.admin.v1 import admin_pb2 as pb

RESOURCE_OPTIONS: Mapping[str, ResourceType] = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
"""Option → the type of the resources that it names. `--cluster` names the one cluster."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the command's options, named as on the command line; False or empty if an option was not given."""

    topic: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    transactional_id: tuple[str, ...] = ()
    delegation_token: tuple[str, ...] = ()
    user_principal: tuple[str, ...] = ()
    cluster: bool = False
    resource_pattern_type: str = "literal"
    allow_principal: tuple[str, ...] = ()
    deny_principal: tuple[str, ...] = ()
    allow_host: tuple[str, ...] = ()
    deny_host: tuple[str, ...] = ()
    operation: tuple[Operation, ...] = ()
    principal: tuple[str, ...] = ()
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False
    force: bool = False


def name_of(number: int) -> str:
    """Return Kafka's name of a number; an unknown number is its own name."""
    return getattr(number, "name", str(number))


class AclUsageError(ValueError):
    """Options that exclude each other. The text is for the user."""


class Pattern(NamedTuple):
    """Resources of a rule or a filter. A filter without a name matches any."""

    resource_type: ResourceType
    name: str | None
    pattern_type: PatternType

    def __str__(self) -> str:
        name = "<any>" if self.name is None else self.name
        kind, pattern_type = name_of(self.resource_type), name_of(self.pattern_type)
        return f"ResourcePattern(resourceType={kind}, name={name}, patternType={pattern_type})"


class Entry(NamedTuple):
    """The part of a rule besides its resources."""

    principal: str
    host: str
    operation: Operation
    permission_type: PermissionType

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={name_of(self.operation)}, "
            f"permissionType={name_of(self.permission_type)})"
        )


Rules = dict[Pattern, list[Entry]]
Numbers = TypeVar("Numbers", bound=IntEnum)


def number_name(numbers: type[Numbers], number: int) -> Numbers:
    """Return the enum member of a number; an unknown number stays a number."""
    try:
        return numbers(number)
    except ValueError:
        return cast(Numbers, number)


def patterns(options: Options) -> list[Pattern]:
    """Return the resources that the options name, in the order of the help text."""
    pattern_type = PatternType[options.resource_pattern_type.upper()]
    found = [
        Pattern(kind, name.strip(), pattern_type)
        for option, kind in RESOURCE_OPTIONS.items()
        for name in getattr(options, option)
    ]
    if options.cluster or (options.idempotent and options.producer):
        found.append(Pattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
    return found


def entries(options: Options, operations: Iterable[Operation]) -> list[Entry]:
    """Return one entry for each principal, host and operation, without duplicates; none without a principal."""
    found = []
    for permission_type, principals, hosts in (
        (PermissionType.ALLOW, options.allow_principal, options.allow_host),
        (PermissionType.DENY, options.deny_principal, options.deny_host),
    ):
        if hosts and not principals:
            verb = permission_type.name.lower()
            raise AclUsageError(f"--{verb}-host needs --{verb}-principal")
        for principal in principals:
            if ":" not in principal:
                raise AclUsageError(f"{principal!r} is not Type:name; write for example User:{principal}")
            found += [
                Entry(principal.strip(), host.strip(), operation, permission_type)
                for host in hosts or (WILDCARD,)
                for operation in operations
            ]
    return list(dict.fromkeys(found))


def rules(options: Options) -> Rules:
    """Return the rules to add or remove; the lists are empty without principals. AclUsageError."""
    named = patterns(options)
    if not named:
        names = " or ".join(f"--{option.replace('_', '-')} NAME" for option in RESOURCE_OPTIONS)
        raise AclUsageError(f"You must provide at least one resource: {names} or --cluster")
    if options.producer or options.consumer:
        return _convenient(options, named)
    operations = options.operation or (Operation.ALL,)
    for pattern in named:
        allowed = {*OPERATIONS[pattern.resource_type], Operation.ALL}
        if not set(operations) <= allowed:
            known = ",".join(operation.name for operation in sorted(allowed))
            raise AclUsageError(f"ResourceType {pattern.resource_type.name} only supports operations {known}")
    return {pattern: entries(options, operations) for pattern in named}


_PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (Operation.IDEMPOTENT_WRITE,),
}
_CONSUMER = {ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE), ResourceType.GROUP: (Operation.READ,)}


def _convenient(options: Options, named: Sequence[Pattern]) -> Rules:
    """Return the rules that producers and consumers need."""
    if options.operation:
        raise AclUsageError("--producer and --consumer imply operations; leave --operation out")
    kinds = {pattern.resource_type for pattern in named}
    if ResourceType.TOPIC not in kinds:
        raise AclUsageError("With --producer and --consumer, you must specify a --topic")
    if options.consumer and ResourceType.GROUP not in kinds:
        raise AclUsageError("With --consumer, you must specify a --group")
    wanted: Rules = {}
    for pattern in named:
        operations: list[Operation] = []
        if options.producer and (pattern.resource_type is not ResourceType.CLUSTER or options.idempotent):
            operations += _PRODUCER.get(pattern.resource_type, ())
        if options.consumer:
            operations += _CONSUMER.get(pattern.resource_type, ())
        if operations:
            wanted[pattern] = entries(options, dict.fromkeys(operations))
    return wanted


def described(resources: Iterable[pb.DescribeAclsResource]) -> Rules:
    """Return the rules of a DescribeAcls answer."""
    found: Rules = {}
    for resource in resources:
        pattern = Pattern(
            number_name(ResourceType, resource.resource_type),
            resource.resource_name,
            number_name(PatternType, resource.pattern_type),
        )
        found.setdefault(pattern, []).extend(
            Entry(
                acl.principal, acl.host, number_name(Operation, acl.operation), number_name(PermissionType, acl.permission_type)
            )
            for acl in resource.acls
        )
    return found


def listing(found: Rules, principals: Sequence[str]) -> list[str]:
    """Return the lines of all rules by resource, or of the rules of each principal."""
    if not principals:
        return _current(found)
    lines = []
    for principal in principals:
        lines.append(f"ACLs for principal `{principal}`")
        lines += _current({pattern: [entry for entry in acls if entry.principal == principal] for pattern, acls in found.items()})
    return lines


def _current(found: Rules) -> list[str]:
    lines = []
    for pattern, acls in found.items():
        if acls:
            lines += [f"Current ACLs for resource `{pattern}`:", *(f"\t{entry}" for entry in acls), ""]
    return lines


def adding(pattern: Pattern, acls: Sequence[Entry]) -> list[str]:
    return [f"Adding ACLs for resource `{pattern}`: ", " " + "\n".join(f"\t{entry}" for entry in acls), ""]


def question(pattern: Pattern, acls: Sequence[Entry]) -> str:
    """Return the question before rules are removed."""
    if not acls:
        return f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)"
    listed = "\n".join(f"\t{entry}" for entry in acls)
    return f"Are you sure you want to remove ACLs: \n {listed}\n from resource filter `{pattern}`? (y/n)"


def document(pattern: Pattern, entry: Entry) -> dict[str, str]:
    """Return a rule as a JSON document, under Kafka's names."""
    return {
        "resource_type": name_of(pattern.resource_type),
        "resource_name": pattern.name or "",
        "pattern_type": name_of(pattern.pattern_type),
        "principal": entry.principal,
        "host": entry.host,
        "operation": name_of(entry.operation),
        "permission_type": name_of(entry.permission_type),
    }
