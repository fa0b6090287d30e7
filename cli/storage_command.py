"""`kraftlab storage`: format data directories, look at them, make ids (kafka-storage)."""

from __future__ import annotations

import click

from .output import DONE, FAILED, Output, json_option


@click.group("storage", short_help="Format data directories, show what they hold, make ids.")
def storage() -> None:
    """Format data directories, show what they hold, make ids."""


@storage.command("random-uuid")
def random_uuid() -> int:
    """Print a random id, for a new cluster."""
    from kraftlab.config import storage as logic

    click.echo(logic.random_cluster_id())
    return DONE


@storage.command(
    "format",
    epilog="""\b
Example:
  kraftlab storage format --cluster-id "$(kraftlab storage random-uuid)" --config server.properties""",
)
@click.option("--cluster-id", "-t", required=True, metavar="ID", help="The cluster that the directories will belong to.")
@click.option("--config", "-c", required=True, metavar="FILE", help="A Kafka-style server.properties.")
@click.option("--ignore-formatted", "-g", is_flag=True, help="Leave directories alone that are formatted already.")
@json_option
def format_directories(cluster_id: str, config: str, ignore_formatted: bool, as_json: bool) -> int:
    """Give a node's directories their identity."""
    from kraftlab.config import storage as logic
    from kraftlab.config.models import load_any

    out = Output(as_json)
    lines = logic.format(load_any(config), cluster_id, ignore_formatted)
    out.lines(lines)
    out.result({"cluster_id": cluster_id, "messages": lines})
    return DONE


@storage.command("info")
@click.option("--config", "-c", required=True, metavar="FILE", help="A Kafka-style server.properties.")
@json_option
def info(config: str, as_json: bool) -> int:
    """Show what a node's directories hold, and what is wrong with them."""
    from kraftlab.config import storage as logic
    from kraftlab.config.models import load_any

    out = Output(as_json)
    found = logic.info(load_any(config))
    out.lines(info_lines(found))
    out.result(
        {
            "directories": [str(path) for path in found.directories],
            "metadata": found.metadata.as_text() if found.metadata else None,
            "problems": found.problems,
        }
    )
    return FAILED if found.problems else DONE


def info_lines(found: object) -> list[str]:
    """The text of `storage info`."""
    from kraftlab.config.storage import StorageInfo

    assert isinstance(found, StorageInfo)
    plural = "y" if len(found.directories) == 1 else "ies"
    lines = [f"Found log director{plural}:", *(f"  {path}" for path in found.directories), ""] if found.directories else []
    if found.metadata is not None:
        lines += [f"Found metadata: {found.metadata.as_text()}", ""]
    if found.problems:
        lines += [f"Found problem{'' if len(found.problems) == 1 else 's'}:", *(f"  {text}" for text in found.problems), ""]
    return lines
