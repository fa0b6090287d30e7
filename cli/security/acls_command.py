"""`kraftlab acls`: add, remove and list access rules (kafka-acls)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from ..connection import connect, endpoint_options
from ..output import DONE, CommandFailed, Output, json_option

if TYPE_CHECKING:
    from kraftlab.admin.v1 import admin_pb2 as pb
    from kraftlab.client import AdminClient

ACTIONS = ("list", "add", "remove")
ANY = 1
NO_AUTHORIZER_HINT = """
Set authorizer.class.name on every node first. A cluster to try it on:
  kraftlab up --data DIR --property authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer \\
      --property super.users=User:ANONYMOUS"""
_OPERATIONS = (
    "All",
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "ClusterAction",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
    "CreateTokens",
    "DescribeTokens",
    "TwoPhaseCommit",
)
_PATTERN_TYPES = ("any", "match", "literal", "prefixed")


def check_usage(given: Mapping[str, object]) -> str:
    """The one action. CommandFailed for options that do not go together."""
    actions = [action for action in ACTIONS if action in given]
    if len(actions) != 1:
        _refuse("Command must include exactly one action: " + ", ".join(f"--{action}" for action in ACTIONS))
    action = actions[0]
    pattern_type = str(given.get("resource-pattern-type", "literal"))
    if action == "add" and pattern_type in ("any", "match"):
        _refuse(f"A '--resource-pattern-type' value of '{pattern_type.upper()}' is not valid when adding acls.")
    if action == "list":
        for option in ("allow-principal", "deny-principal", "allow-host", "deny-host", "operation", "producer", "consumer"):
            if option in given:
                _refuse(f'Option "[{option}]" can\'t be used with option "[list]"; --principal chooses what is listed')
    elif "principal" in given:
        _refuse("The --principal option is only available if --list is set")
    if "idempotent" in given and "producer" not in given:
        _refuse("The --idempotent option is only available if --producer is set")
    return action


def _refuse(message: str) -> None:
    raise CommandFailed(f"{message}\nSee: kraftlab acls --help")


def _numbers_name(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Operations as the protocol spells them: DescribeConfigs is DESCRIBE_CONFIGS."""
    return tuple("".join(f"_{letter}" if letter.isupper() else letter for letter in name).lstrip("_").upper() for name in value)


_names = {"multiple": True, "metavar": "NAME"}
_principals = {"multiple": True, "metavar": "TYPE:NAME"}


@click.command(
    "acls",
    short_help="Add, remove and list access rules.",
    epilog="""\b
Examples:
  kraftlab acls --bootstrap-server 127.0.0.1:9092 --list
  kraftlab acls --bootstrap-server 127.0.0.1:9092 --add --allow-principal User:alice --operation Read --topic orders
  kraftlab acls --bootstrap-server 127.0.0.1:9092 --add --allow-principal User:alice --producer --topic pay \\
      --resource-pattern-type prefixed
  kraftlab acls --bootstrap-server 127.0.0.1:9092 --remove --topic orders --force""",
)
@endpoint_options
@click.option("--list", "list_", is_flag=True, help="List rules, of the resources given or of all.")
@click.option("--add", is_flag=True, help="Add rules.")
@click.option("--remove", is_flag=True, help="Remove rules; without principals, all of the resources given.")
@click.option("--topic", **_names, help="A topic, or * for all; may be given again.")  # type: ignore[arg-type]
@click.option("--group", **_names, help="A consumer group, or *.")  # type: ignore[arg-type]
@click.option("--transactional-id", **_names, help="A transactional id, or *.")  # type: ignore[arg-type]
@click.option("--delegation-token", **_names, help="A delegation token, or *.")  # type: ignore[arg-type]
@click.option("--user-principal", **_principals, help="A user as a resource, whose tokens are meant.")  # type: ignore[arg-type]
@click.option("--cluster", is_flag=True, help="The cluster itself.")
@click.option(
    "--resource-pattern-type",
    type=click.Choice(_PATTERN_TYPES, case_sensitive=False),
    help="How names are meant: literal (default) or prefixed; to list and remove also any, or match: whatever concerns the name.",
)
@click.option("--allow-principal", **_principals, help="Whom to allow, for example User:alice, or User:* for everybody.")  # type: ignore[arg-type]
@click.option("--deny-principal", **_principals, help="Whom to deny; this wins over any that allow.")  # type: ignore[arg-type]
@click.option("--allow-host", multiple=True, metavar="ADDRESS", help="From where it is allowed (default: everywhere).")
@click.option("--deny-host", multiple=True, metavar="ADDRESS", help="From where it is denied (default: everywhere).")
@click.option(
    "--operation",
    type=click.Choice(_OPERATIONS, case_sensitive=False),
    multiple=True,
    metavar="NAME",
    callback=_numbers_name,
    help=f"What is allowed or denied (default: All); may be given again. One of {', '.join(_OPERATIONS)}.",
)
@click.option("--principal", **_principals, help="With --list: only rules of this principal.")  # type: ignore[arg-type]
@click.option("--producer", is_flag=True, help="Whatever a producer needs on the topics and transactional ids.")
@click.option("--consumer", is_flag=True, help="Whatever a consumer needs on the topics and groups.")
@click.option("--idempotent", is_flag=True, help="With --producer: to write idempotently.")
@click.option("--force", is_flag=True, help="Do not ask before removing.")
@json_option
def acls(as_json: bool, **options: object) -> int:
    """Add, remove or list access rules. They count only where nodes have an authorizer (authorizer.class.name)."""
    given: dict[str, Any] = {
        key.rstrip("_").replace("_", "-"): value for key, value in options.items() if value not in (None, False, ())
    }
    action = check_usage(given)
    from kraftlab.metadata.errors import ApiError, ErrorCode

    from .acls_text import AclUsageError

    out = Output(as_json)
    try:
        with connect() as client:
            _RUN[action](client, out, given)
    except AclUsageError as error:
        _refuse(str(error))
    except ApiError as error:
        hint = NO_AUTHORIZER_HINT if error.code == ErrorCode.SECURITY_DISABLED else ""
        raise CommandFailed(f"Error while executing ACL command: {error.message or error}{hint}", on_stdout=True) from None
    return DONE


def _find(client: AdminClient, pattern: Any) -> Any:
    """Rules of a pattern (None: all)."""
    from kraftlab.admin.v1 import admin_pb2 as pb

    from .acls_text import described

    if pattern is None:
        return described(client.describe_acls().resources)
    return described(client.describe_acls(pb.DescribeAclsRequest(**_all_of(pattern))).resources)


def _all_of(pattern: Any) -> dict[str, Any]:
    """The fields of a filter for every rule of a pattern."""
    return {
        "resource_type_filter": pattern.resource_type,
        "resource_name_filter": pattern.name,
        "pattern_type_filter": pattern.pattern_type,
        "operation": ANY,
        "permission_type": ANY,
    }


def _list(client: AdminClient, out: Output, given: dict[str, Any]) -> None:
    from .acls_text import document, listing, patterns

    found: dict[Any, Any] = {}
    named = patterns(given)
    for pattern in named:
        found |= _find(client, pattern)
    if not named:
        found = _find(client, None)
    principals = given.get("principal", ())
    out.lines(listing(found, principals))
    shown = [
        document(pattern, entry)
        for pattern, said in found.items()
        for entry in said
        if not principals or entry.principal in principals
    ]
    out.result({"acls": shown})


def _add(client: AdminClient, out: Output, given: dict[str, Any]) -> None:
    from kraftlab.admin.v1 import admin_pb2 as pb
    from kraftlab.client import raise_first_error

    from .acls_text import AclUsageError, adding, document, rules

    wanted = rules(given)
    if not all(wanted.values()):
        raise AclUsageError("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    added, existing = [], []
    for pattern, said in wanted.items():
        known = _find(client, pattern).get(pattern, ())
        for entry in said:
            if entry in known:
                out.lines([f"Acl (pattern={pattern}, entry={entry}) already exists."])
                existing.append(document(pattern, entry))
        new = [entry for entry in said if entry not in known]
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
            raise_first_error(client.create_acls(creations).results)
            added += [document(pattern, entry) for entry in new]
    out.result({"added": added, "existing": existing})


def _remove(client: AdminClient, out: Output, given: dict[str, Any]) -> None:
    from kraftlab.admin.v1 import admin_pb2 as pb
    from kraftlab.client import raise_first_error

    from .acls_text import AclUsageError, question, rules

    if out.as_json and "force" not in given:
        raise AclUsageError("With --json nothing is asked; add --force to remove rules")
    removed = []
    for pattern, said in rules(given).items():
        if "force" not in given and not _is_sure(question(pattern, said)):
            continue
        whole = _all_of(pattern)
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
            for entry in said
        ]
        filters = filters or [pb.DeleteAclsFilter(**whole)]
        results = client.delete_acls(filters).filter_results
        raise_first_error(results)
        removed += [_document_of(acl) for result in results for acl in result.matching_acls]
    out.result({"removed": removed})


def _document_of(acl: pb.DeleteAclsMatchingAcl) -> dict[str, str]:
    from kraftlab.metadata.acls import Operation, PatternType, PermissionType, ResourceType

    from .acls_text import Entry, Pattern, document, number_name

    kind, pattern_type = number_name(ResourceType, acl.resource_type), number_name(PatternType, acl.pattern_type)
    operation, permission_type = number_name(Operation, acl.operation), number_name(PermissionType, acl.permission_type)
    return document(Pattern(kind, acl.resource_name, pattern_type), Entry(acl.principal, acl.host, operation, permission_type))


def _is_sure(asked: str) -> bool:
    click.echo(asked)
    return sys.stdin.readline().strip().lower() == "y"


_RUN: dict[str, Callable[[AdminClient, Output, dict[str, Any]], None]] = {"list": _list, "add": _add, "remove": _remove}
