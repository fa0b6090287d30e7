"""`kraftlab acls`: add, remove and list access rules (kafka-acls)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kraftlab.common.errors import ApiError, ErrorCode
from kraftlab.common.exit_codes import DONE
from kraftlab.metadata.acls import Operation, PatternType, PermissionType, ResourceType

from ..connection import connect, endpoint_options
from ..output import CommandFailed, Output, WrongUse, given_options, json_option
from .acls_text import (
    AclUsageError,
    Entry,
    Options,
    Pattern,
    Rules,
    adding,
    described,
    document,
    listing,
    number_name,
    patterns,
    question,
    rules,
)

if TYPE_CHECKING:
    from kraftlab.admin.v1 import admin_pb2 as pb
    from kraftlab.client import AdminClient

ACTIONS = ("list", "add", "remove")
NO_AUTHORIZER_HINT = """
Set authorizer.class.name on every node first. A cluster to try it on:
  kraftlab up --data DIR --property authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer \\
      --property super.users=User:ANONYMOUS"""
_OPERATIONS = {"".join(map(str.capitalize, each.name.split("_"))): each for each in Operation if each is not Operation.ANY}
"""Operations by their names in Kafka's tool, for example DescribeConfigs."""
_PATTERN_TYPES = ("any", "match", "literal", "prefixed")


def check_usage(given: Collection[str], pattern_type: str) -> str:
    """Return the one action among the names of the options that were given. CommandFailed for options that exclude each other."""
    actions = [action for action in ACTIONS if action in given]
    if len(actions) != 1:
        _refuse("Command must include exactly one action: " + ", ".join(f"--{action}" for action in ACTIONS))
    action = actions[0]
    if action == "add" and pattern_type in ("any", "match"):
        _refuse(f"A '--resource-pattern-type' value of '{pattern_type.upper()}' is not valid when adding acls.")
    if action == "list":
        for option in ("allow-principal", "deny-principal", "allow-host", "deny-host", "operation", "producer", "consumer"):
            if option in given:
                _refuse(f'Option "[{option}]" can\'t be used with option "[list]"; use --principal')
    elif "principal" in given:
        _refuse("The --principal option is only available if --list is set")
    if "idempotent" in given and "producer" not in given:
        _refuse("The --idempotent option is only available if --producer is set")
    return action


def _refuse(message: str) -> None:
    raise WrongUse(f"{message}\nSee: kraftlab acls --help")


def _operations(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[Operation, ...]:
    return tuple(_OPERATIONS[name] for name in value)


_names = {"multiple": True, "metavar": "NAME"}
_principals = {"multiple": True, "metavar": "TYPE:NAME"}


@click.command(
    "acls",
    epilog="""\b
Examples:
  kraftlab acls --list
  kraftlab acls --add --allow-principal User:alice --operation Read --topic orders
  kraftlab acls --add --allow-principal User:alice --producer --topic pay \\
      --resource-pattern-type prefixed
  kraftlab acls --remove --topic orders --force""",
)
@endpoint_options
@click.option("--list", "list_", is_flag=True, help="List the ACLs of the given resources; without resources, all ACLs.")
@click.option("--add", is_flag=True, help="Add ACLs to the given resources; needs --allow-principal or --deny-principal.")
@click.option("--remove", is_flag=True, help="Remove ACLs; without principals, all ACLs of the given resources.")
@click.option("--topic", **_names, help="A topic, or * for all; repeatable.")  # type: ignore[arg-type]
@click.option("--group", **_names, help="A consumer group, or * for all; repeatable.")  # type: ignore[arg-type]
@click.option("--transactional-id", **_names, help="A transactional id, or * for all; repeatable.")  # type: ignore[arg-type]
@click.option("--delegation-token", **_names, help="A delegation token, or * for all; repeatable.")  # type: ignore[arg-type]
@click.option("--user-principal", **_principals, help="The delegation tokens of this user; repeatable.")  # type: ignore[arg-type]
@click.option("--cluster", is_flag=True, help="The cluster as the resource.")
@click.option(
    "--resource-pattern-type",
    type=click.Choice(_PATTERN_TYPES, case_sensitive=False),
    default="literal",
    help="Meaning of the names: literal (default) or prefixed. With --list and --remove also match: every ACL that applies "
    "to the name; or any: ACLs of either type with exactly this name.",
)
@click.option("--allow-principal", **_principals, help="Allow this principal, for example User:alice, or User:* for all.")  # type: ignore[arg-type]
@click.option("--deny-principal", **_principals, help="Deny this principal; deny overrides allow; repeatable.")  # type: ignore[arg-type]
@click.option("--allow-host", multiple=True, metavar="ADDRESS", help="Host of --allow-principal (default: all); repeatable.")
@click.option("--deny-host", multiple=True, metavar="ADDRESS", help="Host of --deny-principal (default: all); repeatable.")
@click.option(
    "--operation",
    type=click.Choice(list(_OPERATIONS), case_sensitive=False),
    multiple=True,
    metavar="NAME",
    callback=_operations,
    help=f"Operation to allow or deny (default: All); repeatable. One of {', '.join(_OPERATIONS)}.",
)
@click.option("--principal", **_principals, help="With --list: only ACLs of this principal; repeatable.")  # type: ignore[arg-type]
@click.option(
    "--producer",
    is_flag=True,
    help="Shorthand for the operations that a producer needs on the given topics and transactional ids.",
)
@click.option(
    "--consumer", is_flag=True, help="Shorthand for the operations that a consumer needs on the given topics and groups."
)
@click.option("--idempotent", is_flag=True, help="With --producer: also allow idempotent writes.")
@click.option("--force", is_flag=True, help="With --remove: do not ask for confirmation.")
@json_option
def acls(as_json: bool, **values: object) -> int:
    """Add, remove or list access control lists (ACLs). They take effect on nodes with an authorizer (authorizer.class.name).

    Users are those of server.properties (listener.name.grpc.users, PLAIN), of certificates, and of SCRAM credentials."""
    options = msgspec.convert(values, Options)
    action = check_usage(given_options(values), options.resource_pattern_type)

    try:
        with connect(changes=action != "list") as client:
            _RUN[action](client, Output(as_json), options)
    except AclUsageError as error:
        _refuse(str(error))
    except ApiError as error:
        hint = NO_AUTHORIZER_HINT if error.code == ErrorCode.SECURITY_DISABLED else ""
        raise CommandFailed(f"Error while executing ACL command: {error.message or error}{hint}", on_stdout=True) from None
    return DONE


def _find(client: AdminClient, pattern: Pattern | None) -> Rules:
    """Return the rules of a pattern, of every pattern for None."""
    from kraftlab.admin.v1 import admin_pb2 as pb

    any_rule = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    request = pb.DescribeAclsRequest(**(any_rule if pattern is None else _every_rule(pattern)))
    return described(client.call(pb.DescribeAclsResponse, request).resources)


def _every_rule(pattern: Pattern) -> dict[str, Any]:
    """Return the fields of a filter that matches every rule of a pattern."""
    return {
        "resource_type_filter": pattern.resource_type,
        "resource_name_filter": pattern.name,
        "pattern_type_filter": pattern.pattern_type,
        "operation": Operation.ANY,
        "permission_type": PermissionType.ANY,
    }


def _list(client: AdminClient, out: Output, options: Options) -> None:

    found: Rules = {}
    for pattern in patterns(options) or (None,):
        found |= _find(client, pattern)
    out.lines(listing(found, options.principal))
    shown = [
        document(pattern, entry)
        for pattern, entries in found.items()
        for entry in entries
        if not options.principal or entry.principal in options.principal
    ]
    out.result({"acls": shown})


def _add(client: AdminClient, out: Output, options: Options) -> None:
    from kraftlab.admin.v1 import admin_pb2 as pb

    wanted = rules(options)
    if not all(wanted.values()):
        raise AclUsageError("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    added, existing = [], []
    for pattern, entries in wanted.items():
        known = _find(client, pattern).get(pattern, ())
        for entry in entries:
            if entry in known:
                out.lines([f"Acl (pattern={pattern}, entry={entry}) already exists."])
                existing.append(document(pattern, entry))
        new = [entry for entry in entries if entry not in known]
        if new:
            out.lines(adding(pattern, new))
            creations = [
                pb.AclCreation(
                    resource_type=pattern.resource_type,
                    resource_name=pattern.name,
                    resource_pattern_type=pattern.pattern_type,
                    principal=entry.principal,
                    host=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission_type,
                )
                for entry in new
            ]
            client.call(pb.CreateAclsResponse, pb.CreateAclsRequest(creations=creations))
            added += [document(pattern, entry) for entry in new]
    out.result({"added": added, "existing": existing})


def _remove(client: AdminClient, out: Output, options: Options) -> None:
    from kraftlab.admin.v1 import admin_pb2 as pb

    if out.as_json and not options.force:
        raise AclUsageError("With --json there is no prompt; add --force to remove rules")
    removed = []
    for pattern, entries in rules(options).items():
        if not options.force and not _is_sure(question(pattern, entries)):
            continue
        whole = _every_rule(pattern)
        filters = [
            pb.DeleteAclsFilter(
                **whole
                | {
                    "principal_filter": entry.principal,
                    "host_filter": entry.host,
                    "operation": entry.operation,
                    "permission_type": entry.permission_type,
                }
            )
            for entry in entries
        ]
        filters = filters or [pb.DeleteAclsFilter(**whole)]
        results = client.call(pb.DeleteAclsResponse, pb.DeleteAclsRequest(filters=filters)).filter_results
        removed += [_document_of(acl) for result in results for acl in result.matching_acls]
    out.result({"removed": removed})


def _document_of(acl: pb.DeleteAclsMatchingAcl) -> dict[str, str]:

    kind, pattern_type = number_name(ResourceType, acl.resource_type), number_name(PatternType, acl.pattern_type)
    operation, permission_type = number_name(Operation, acl.operation), number_name(PermissionType, acl.permission_type)
    return document(Pattern(kind, acl.resource_name, pattern_type), Entry(acl.principal, acl.host, operation, permission_type))


def _is_sure(asked: str) -> bool:
    click.echo(asked)
    answer = sys.stdin.readline()
    if not answer:
        raise CommandFailed("Nothing was removed: standard input ended without an answer. Use --force to remove without one.")
    return answer.strip().lower() == "y"


_RUN: dict[str, Callable[[AdminClient, Output, Options], None]] = {"list": _list, "add": _add, "remove": _remove}
