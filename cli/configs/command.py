"""`kraftlab configs`: show and change configs, quotas and SCRAM credentials (kafka-configs)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kraftlab.common.exit_codes import DONE
from kraftlab.config.resources import ConfigOperation, ResourceType

from ..connection import bootstrap_option, command_config_option, connect
from ..output import Output, WrongUse, json_option
from .text import KINDS, Changes, Entity, check_are_set

if TYPE_CHECKING:
    from kraftlab.client import AdminClient
    from kraftlab.client.results import DescribedConfig

SHORT_OPTIONS = {
    "topic": "topics",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "group": "groups",
    "client-metrics": "client-metrics",
    "user": "users",
    "client": "clients",
    "ip": "ips",
}
"""Option → the type of entity that its value names."""
SHORT_DEFAULTS = {"broker-defaults": "brokers", "user-defaults": "users", "client-defaults": "clients", "ip-defaults": "ips"}


class Defaults(NamedTuple):
    """Number of --entity-default options, and their place: before the first --entity-name or not."""

    times: int
    are_first: bool


def _placed(context: click.Context, parameter: click.Parameter, value: int) -> Defaults:
    """Return the Defaults of --entity-default. click handles options in their order: earlier names are in the context already."""
    return Defaults(value, "entity_names" not in context.params)


def _short_options(command: Any) -> Any:
    for name, plural in reversed(SHORT_OPTIONS.items()):
        metavar = "ID" if name.startswith("broker") else "NAME"
        text = f"Short for --entity-type {plural} --entity-name {metavar}."
        command = click.option(f"--{name}", metavar=metavar, help=text)(command)
    for name, plural in reversed(SHORT_DEFAULTS.items()):
        command = click.option(f"--{name}", is_flag=True, help=f"Short for --entity-type {plural} --entity-default.")(command)
    return command


@click.command(
    "configs",
    epilog="""\b
Examples:
  kraftlab configs --describe --entity-type brokers --entity-name 0 --all
  kraftlab configs --alter --topic t --add-config retention.ms=1000
  kraftlab configs --alter --topic t --delete-config retention.ms
  kraftlab configs --alter --user alice --add-config controller_mutation_rate=5
  kraftlab configs --describe --user alice --client-defaults
  kraftlab configs --alter --user alice --add-config 'SCRAM-SHA-256=[password=secret]'
  kraftlab configs --alter --broker-logger 0 --add-config kraftlab.broker=DEBUG""",
)
@bootstrap_option
@click.option("--describe", is_flag=True, help="Show the configs that were set dynamically.")
@click.option("--alter", is_flag=True, help="Change configs.")
@click.option("--all", "show_all", is_flag=True, help="With --describe: also show static configs and defaults.")
@click.option(
    "--entity-type",
    "entity_types",
    multiple=True,
    type=click.Choice(list(KINDS)),
    help="Type of the entity; users and clients can be combined.",
)
@click.option("--entity-name", "entity_names", multiple=True, metavar="NAME", help="Name of the entity; of a broker its id.")
@click.option(
    "--entity-default",
    count=True,
    callback=_placed,
    help="The default of all entities of the type.",
)
@_short_options
@click.option("--add-config", metavar="K=V,K2=[A,B]", help="Configs to set; put a value with commas in [brackets].")
@click.option("--add-config-file", metavar="FILE", help="Properties file with the configs to set.")
@click.option("--delete-config", metavar="K,K2", help="Configs to remove, separated by commas.")
@command_config_option()
@json_option
def configs(
    describe: bool,
    alter: bool,
    show_all: bool,
    entity_types: tuple[str, ...],
    entity_names: tuple[str, ...],
    entity_default: Defaults,
    add_config: str | None,
    add_config_file: str | None,
    delete_config: str | None,
    as_json: bool,
    **short: object,
) -> int:
    """Show or change configs of topics, brokers, broker loggers, groups and client metrics; quotas of users, clients and IP
    addresses; and SCRAM credentials of users."""
    if describe == alter:
        raise _usage("Command must include exactly one action: --describe, --alter")
    out = Output(as_json)
    entities = entities_of(entity_types, entity_names, entity_default, short)
    changes = _changes(add_config, add_config_file, delete_config)
    if alter:
        _check_alter(entities, changes)
    with connect(changes=alter) as client:
        if entities[0].kind.number is None:
            from ..security import scram_command
            from . import quotas as quotas_command

            if scram_command.concerns(changes):
                scram_command.alter(client, out, entities, changes)
            else:
                quotas_command.run(client, out, entities, changes if alter else None)
        elif alter:
            _alter(client, out, entities[0], changes)
        else:
            _describe(client, out, entities[0], show_all)
    return DONE


def _usage(message: str) -> WrongUse:
    return WrongUse(f"{message}\nSee: kraftlab configs --help")


def entities_of(types: Sequence[str], names: Sequence[str], defaults: Defaults, short: Mapping[str, Any]) -> list[Entity]:
    """Return the entities of the command: one, or a user with a client. Names and defaults go to the types in order."""
    entities = [
        Entity(KINDS[plural], short[option.replace("-", "_")])
        for option, plural in SHORT_OPTIONS.items()
        if short[option.replace("-", "_")] is not None
    ]
    entities += [Entity(KINDS[plural], None) for option, plural in SHORT_DEFAULTS.items() if short[option.replace("-", "_")]]
    if types and entities:
        raise _usage("--topic, --broker and the like are short for --entity-type and --entity-name; give one or the other")
    nameless: list[str | None] = [None] * defaults.times
    named = [*nameless, *names] if defaults.are_first else [*names, *nameless]
    if len(named) > len(types):
        raise _usage("Each --entity-name and --entity-default needs its own --entity-type")
    entities += [Entity(KINDS[plural], name) for plural, name in zip(types, named, strict=False)]
    entities += [Entity(KINDS[plural], None, is_any=True) for plural in types[len(named) :]]
    if not entities:
        raise _usage("At least one entity type must be specified with --entity-type, --topic, --broker or the like")
    kinds = sorted(entity.kind.plural for entity in entities)
    if len(entities) > 1 and kinds != ["clients", "users"]:
        raise _usage("Only '--entity-type users --entity-type clients' can be given together")
    for entity in entities:
        if entity.name is None and not entity.is_any and not entity.kind.has_default:
            raise _usage(f"--entity-default is not for --entity-type {entity.kind.plural}; give --entity-name")
    return entities


def _changes(added: str | None, file: str | None, deleted: str | None) -> Changes:
    from kraftlab.config import properties

    from .text import parse_added, split_outside_brackets

    if added is not None and file is not None:
        raise _usage("Only one of --add-config or --add-config-file must be specified")
    values = dict(properties.load(Path(file))) if file is not None else parse_added(added or "")
    return Changes(values, [key.strip() for key in split_outside_brackets(deleted or "")])


def _check_alter(entities: Sequence[Entity], changes: Changes) -> None:
    if not changes.added and not changes.deleted:
        raise _usage("At least one of --add-config, --add-config-file or --delete-config must be specified with --alter")
    for entity in entities:
        if entity.is_any:
            default = ", or --entity-default" if entity.kind.has_default else ""
            raise _usage(f"--alter of {entity.kind.plural} needs --entity-name{default}")


def _alter(client: AdminClient, out: Output, entity: Entity, changes: Changes) -> None:
    from kraftlab.client.config_parts import config_changes

    from .text import updated_line

    if changes.deleted and entity.kind.number != ResourceType.BROKER_LOGGER:
        check_are_set(changes, _own_keys(client, entity), entity)
    resource = config_changes(entity.kind.number or 0, entity.name or "", changes.added)
    for key in changes.deleted:  # the controller refuses a key that is added as well or named twice
        resource.configs.add(name=key, config_operation=ConfigOperation.DELETE)
    client.incremental_alter_configs([resource])
    out.lines([updated_line(entity)])
    out.result({"updated": {"type": entity.kind.singular, "name": entity.name}})


def _own_keys(client: AdminClient, entity: Entity) -> set[str]:
    """Return the keys that the entity itself sets. ApiError, BadInput."""
    [configs] = _described(client, [entity])
    return {entry.name for entry in configs if entry.config_source in entity.own_sources}


def _described(client: AdminClient, entities: Sequence[Entity]) -> list[tuple[DescribedConfig, ...]]:
    from kraftlab.client import EntriesFailed
    from kraftlab.common.errors import ErrorCode

    from ..output import BadInput

    keys = [(each.kind.number or 0, each.name or "") for each in entities]
    try:
        found = client.describe_configs(keys) if keys else {}
    except EntriesFailed as error:
        resource, failure = next(iter(error.failures.items()))
        if keys[0][0] == ResourceType.TOPIC and failure.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise BadInput(f"The topic '{resource.removeprefix('topic ')}' does not exist.") from None
        raise failure from None
    return [found[key] for key in keys]


def _describe(client: AdminClient, out: Output, entity: Entity, show_all: bool) -> None:
    from kraftlab.admin.v1 import admin_pb2 as pb

    from .text import SOURCES, described_lines

    entities = [entity]
    if entity.is_any:
        request = pb.ListConfigResourcesRequest(resource_types=[entity.kind.number or 0])
        listed = client.call(pb.ListConfigResourcesResponse, request).config_resources
        entities = [Entity(entity.kind, found.resource_name) for found in listed]
        if entity.kind.has_default:
            entities.append(Entity(entity.kind, None))
    document = []
    for described, configs in zip(entities, _described(client, entities), strict=True):
        entries = [entry for entry in configs if show_all or entry.config_source in described.own_sources]
        out.lines(described_lines(described, show_all, entries))
        document.append(
            {
                "type": entity.kind.singular,
                "name": described.name,
                "configs": [
                    {
                        "name": e.name,
                        "value": e.value,
                        "source": SOURCES.get(e.config_source, "UNKNOWN"),
                        "sensitive": e.is_sensitive,
                    }
                    for e in sorted(entries, key=lambda e: e.name)
                ],
            }
        )
    out.result({"entities": document})
