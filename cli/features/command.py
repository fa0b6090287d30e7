"""`kraftlab features`: show and change the levels of features (kafka-features)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kraftlab.common.exit_codes import DONE

from ..completion.values import complete_features
from ..connection import bootstrap_option, caller_options, connect
from ..option_placement import AddressedGroup
from ..output import CommandFailed, Output, WrongUse, json_option

if TYPE_CHECKING:
    from kraftlab.client import AdminClient

    from .text import FeatureView

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


@click.group(
    "features",
    cls=AddressedGroup,
    epilog="""\b
Examples:
  kraftlab features describe
  kraftlab features upgrade --feature transaction.version=2
  kraftlab features upgrade --release-version 4.3 --dry-run
  kraftlab features downgrade --feature transaction.version=1
  kraftlab features disable --feature eligible.leader.replicas.version""",
)
def features() -> None:
    """Show and change feature levels: the record formats and behaviours that the whole cluster uses."""


@features.command(
    "describe",
    short_help="Show supported ranges and finalized levels.",
    epilog="""\b
Example:
  kraftlab features describe --json""",
)
@bootstrap_option
@caller_options
@json_option
def describe(as_json: bool) -> int:
    """Show every feature with its supported range of levels and its finalized level."""
    from .text import feature_lines

    out = Output(as_json)
    with connect() as client:
        views = _views(client)
    out.lines(feature_lines(views))
    out.result(
        {
            "features": [
                {"name": v.name, "min": v.lowest, "max": v.highest, "finalized": v.finalized, "epoch": v.epoch}
                for v in sorted(views)
            ]
        }
    )
    return DONE


def _views(client: AdminClient) -> list[FeatureView]:
    from kraftlab.admin.v1 import admin_pb2 as pb
    from kraftlab.client.kafka_calls import SOFTWARE

    from .text import FeatureView

    # A broker answers from its own image: after this it has caught up with the controller.
    header = pb.RequestHeader(min_offset=client.describe_cluster().metadata_offset)
    answer = client.call(pb.ApiVersionsResponse, pb.ApiVersionsRequest(header=header, **SOFTWARE))
    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return [
        FeatureView(
            feature.name,
            feature.min_version,
            feature.max_version,
            finalized.get(feature.name, 0),
            answer.finalized_features_epoch,
        )
        for feature in answer.supported_features
    ]


def _change_options(command: Any) -> Any:
    for option in (
        json_option,
        caller_options,
        bootstrap_option,
        click.option("--dry-run", is_flag=True, help="Validate the change without making it."),
    ):
        command = option(command)
    return command


_levels_option = click.option(
    "--feature",
    "levels",
    multiple=True,
    metavar="NAME=LEVEL",
    shell_complete=complete_features,
    help="A feature and its level; repeatable.",
)
_metadata_option = click.option(
    "--metadata", metavar="VERSION", help="Level of metadata.version, by name or release, for example 4.3."
)
_unsafe_option = click.option("--unsafe", is_flag=True, help="Allow changes that may lose metadata.")


@features.command(
    "upgrade",
    short_help="Raise levels.",
    epilog="""\b
Example:
  kraftlab features upgrade --feature transaction.version=2 --feature group.version=1""",
)
@_levels_option
@_metadata_option
@click.option(
    "--release-version", metavar="RELEASE", help="Raise all features to the default levels of a release, for example 4.3."
)
@_change_options
def upgrade(
    levels: tuple[str, ...],
    metadata: str | None,
    release_version: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Raise the levels of features. Either all changes are made, or none."""
    wanted = _parsed(levels, metadata, release_version)
    return _update("upgraded", wanted, _UPGRADE, dry_run, as_json)


@features.command(
    "downgrade",
    short_help="Lower levels.",
    epilog="""\b
Examples:
  kraftlab features downgrade --feature transaction.version=1 --dry-run
  kraftlab features downgrade --release-version 4.2 --dry-run""",
)
@_levels_option
@_metadata_option
@click.option(
    "--release-version",
    metavar="RELEASE",
    help="Lower all features that are above the default levels of a release, for example 4.2.",
)
@_unsafe_option
@_change_options
def downgrade(
    levels: tuple[str, ...],
    metadata: str | None,
    release_version: str | None,
    unsafe: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Lower the levels of features. Refused if metadata would be lost, unless --unsafe is given."""
    if release_version is None:
        wanted = _parsed(levels, metadata, None)
    else:
        from .text import levels_above, parse_levels

        released = parse_levels(levels, metadata, release_version)
        with connect(changes=not dry_run) as client:
            wanted = levels_above(released, {view.name: view.finalized for view in _views(client)})
        if not wanted:
            Output(as_json).lines([f"Nothing to lower: no level is above that of release {release_version}."])
            Output(as_json).result({"downgraded": {}, "dry_run": dry_run})
            return DONE
    upgrade_type = _UNSAFE_DOWNGRADE if unsafe else _SAFE_DOWNGRADE
    return _update("downgraded", wanted, upgrade_type, dry_run, as_json)


@features.command(
    "disable",
    short_help="Disable features.",
    epilog="""\b
Example:
  kraftlab features disable --feature group.version""",
)
@click.option(
    "--feature",
    "names",
    multiple=True,
    required=True,
    metavar="NAME",
    shell_complete=complete_features,
    help="The feature to disable; repeatable.",
)
@_unsafe_option
@_change_options
def disable(names: tuple[str, ...], unsafe: bool, dry_run: bool, as_json: bool) -> int:
    """Disable features: lower their levels to 0."""
    upgrade_type = _UNSAFE_DOWNGRADE if unsafe else _SAFE_DOWNGRADE
    return _update("disabled", dict.fromkeys(names, 0), upgrade_type, dry_run, as_json)


def _parsed(levels: tuple[str, ...], metadata: str | None, release: str | None) -> dict[str, int]:
    from .text import parse_levels

    wanted = parse_levels(levels, metadata, release)
    if not wanted:
        raise WrongUse("You must specify at least one feature with --feature or --metadata\nSee: kraftlab features --help")
    return wanted


def _update(action: str, levels: dict[str, int], upgrade_type: int, dry_run: bool, as_json: bool) -> int:
    from kraftlab.admin.v1 import admin_pb2 as pb
    from kraftlab.common.errors import ApiError

    from .text import done_lines, failed_lines

    updates = [
        pb.FeatureUpdate(feature=name, max_version_level=level, upgrade_type=upgrade_type)
        for name, level in sorted(levels.items())
    ]
    out = Output(as_json)
    with connect(changes=not dry_run) as client:
        try:
            request = pb.UpdateFeaturesRequest(feature_updates=updates, validate_only=dry_run)
            client.call(pb.UpdateFeaturesResponse, request)
        except ApiError as error:
            reason = error.message or str(error)
            text = reason if as_json else "\n".join(failed_lines(action, levels, dry_run, reason))
            raise CommandFailed(text, on_stdout=True) from None
    out.lines(done_lines(action, levels, dry_run))
    out.result({action: levels, "dry_run": dry_run})
    return DONE
