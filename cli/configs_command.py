"""`kraftlab configs`: show and change configs of topics and brokers (kafka-configs)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .output import DONE, CommandFailed, Output, bootstrap_option, json_option

if TYPE_CHECKING:
    from kraftlab.client import AdminClient

_TYPES = {"topics": ("topic", 2), "brokers": ("broker", 4)}
_DYNAMIC = (1, 2, 3)
_SET = 0
_DELETE = 1


@click.command(
    "configs",
    short_help="Show and change configs of topics and brokers.",
    epilog="""\b
Examples:
  kraftlab configs --bootstrap-server 127.0.0.1:9092 --describe --entity-type brokers --entity-name 0
  kraftlab configs --bootstrap-server 127.0.0.1:9092 --alter --entity-type topics --entity-name t --add-config retention.ms=1000
  kraftlab configs --bootstrap-server 127.0.0.1:9092 --alter --topic t --delete-config retention.ms""",
)
@bootstrap_option
@click.option("--describe", is_flag=True, help="Show configs that were set at run time.")
@click.option("--alter", is_flag=True, help="Change configs.")
@click.option("--all", "show_all", is_flag=True, help="With --describe: static values and defaults too.")
@click.option("--entity-type", type=click.Choice(list(_TYPES)), help="What the configs belong to.")
@click.option("--entity-name", metavar="NAME", help="A topic's name or a broker's id.")
@click.option("--entity-default", is_flag=True, help="The default of all brokers.")
@click.option("--topic", metavar="NAME", help="Short for --entity-type topics --entity-name NAME.")
@click.option("--broker", metavar="ID", help="Short for --entity-type brokers --entity-name ID.")
@click.option("--add-config", metavar="K=V,K2=[A,B]", help="Configs to set; brackets keep commas.")
@click.option("--delete-config", metavar="K,K2", help="Configs to remove.")
@click.option("--command-config", metavar="FILE", help="Accepted for Kafka's sake; nothing in it is needed.")
@json_option
def configs(
    bootstrap_server: str,
    describe: bool,
    alter: bool,
    show_all: bool,
    entity_type: str | None,
    entity_name: str | None,
    entity_default: bool,
    topic: str | None,
    broker: str | None,
    add_config: str | None,
    delete_config: str | None,
    command_config: str | None,
    as_json: bool,
) -> int:
    """Show or change configs of topics and brokers."""
    if describe == alter:
        raise _usage("Command must include exactly one action: --describe, --alter")
    if topic is not None or broker is not None:
        if entity_type is not None or (topic is not None and broker is not None):
            raise _usage("--topic and --broker stand for --entity-type and --entity-name; give one of the three")
        entity_type, entity_name = ("topics", topic) if topic is not None else ("brokers", broker)
    if entity_type is None:
        raise _usage("At least one entity type must be specified with --entity-type, --topic or --broker")
    if entity_default and (entity_name is not None or entity_type != "brokers"):
        raise _usage("--entity-default is for --entity-type brokers without --entity-name")
    if alter and not add_config and not delete_config:
        raise _usage("At least one of --add-config or --delete-config must be specified with --alter")
    if alter and entity_name is None and not entity_default:
        raise _usage("--alter needs --entity-name, or --entity-default for brokers")
    from kraftlab.client import AdminClient
    from kraftlab.metadata.errors import ApiError

    from .configs_text import ConfigUsageError

    out = Output(as_json)
    try:
        with AdminClient(bootstrap_server) as client:
            if alter:
                _alter(client, out, entity_type, entity_name, add_config or "", delete_config or "")
            else:
                _describe(client, out, entity_type, entity_name, entity_default, show_all)
    except ConfigUsageError as error:
        raise CommandFailed(f"Error: {error}") from None
    except ApiError as error:
        raise CommandFailed(f"Error: {error.message or error}") from None
    return DONE


def _usage(message: str) -> CommandFailed:
    return CommandFailed(f"{message}\nSee: kraftlab configs --help")


def _alter(client: AdminClient, out: Output, entity_type: str, name: str | None, added: str, deleted: str) -> None:
    from kraftlab.admin.v1 import admin_pb2 as pb
    from kraftlab.client import raise_first_error

    from .configs_text import parse_added, split_outside_brackets, updated_line

    kind, number = _TYPES[entity_type]
    changes = [pb.AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in parse_added(added).items()]
    changes += [pb.AlterableConfig(name=key.strip(), config_operation=_DELETE) for key in split_outside_brackets(deleted)]
    resource = pb.AlterConfigsResource(resource_type=number, resource_name=name or "", configs=changes)
    raise_first_error(client.incremental_alter_configs([resource]).responses)
    out.lines([updated_line(kind, name)])
    out.result({"updated": {"type": kind, "name": name}})


def _describe(client: AdminClient, out: Output, entity_type: str, name: str | None, is_default: bool, show_all: bool) -> None:
    from kraftlab.admin.v1 import admin_pb2 as pb
    from kraftlab.client import raise_first_error

    from .configs_text import SOURCES, ConfigView, described_lines

    kind, number = _TYPES[entity_type]
    names: list[str | None] = [None if is_default else name]
    if name is None and not is_default:
        if kind == "topic":
            names = [topic.name for topic in client.describe_topics().topics]
        else:
            names = [str(broker.broker_id) for broker in client.describe_cluster().brokers]
    resources = [pb.DescribeConfigsResource(resource_type=number, resource_name=item or "") for item in names]
    results = client.describe_configs(resources).results
    raise_first_error(results)
    document = []
    for item, result in zip(names, results, strict=True):
        dynamic = (3,) if is_default else tuple(source for source in _DYNAMIC if source != 3 or show_all)
        entries = [
            ConfigView(entry.name, entry.value if entry.HasField("value") else None, int(entry.config_source), entry.is_sensitive)
            for entry in result.configs
            if show_all or entry.config_source in dynamic
        ]
        out.lines(described_lines(kind, item, show_all, entries))
        document.append(
            {
                "type": kind,
                "name": item,
                "configs": [
                    {"name": key, "value": value, "source": SOURCES.get(source, "UNKNOWN"), "sensitive": sensitive}
                    for key, value, source, sensitive in sorted(entries)
                ],
            }
        )
    out.result({"entities": document})
