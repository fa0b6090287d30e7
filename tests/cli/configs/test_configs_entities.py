"""The entities that options of `configs` select."""

from __future__ import annotations

import pytest

from kraftlab.cli import main
from kraftlab.cli.configs.command import SHORT_DEFAULTS, SHORT_OPTIONS, configs, entities_of

SHORT = [option.replace("-", "_") for option in (*SHORT_OPTIONS, *SHORT_DEFAULTS)]


def entities(*arguments: str) -> list[tuple[str, str | None, bool]]:
    """Return (type, name, is any name) of the entities."""
    given = configs.make_context("configs", ["--bootstrap-server", "h:1", *arguments]).params
    found = entities_of(given["entity_types"], given["entity_names"], given["entity_default"], {key: given[key] for key in SHORT})
    return [(entity.kind.plural, entity.name, entity.is_any) for entity in found]


USERS, CLIENTS = ("--entity-type", "users"), ("--entity-type", "clients")
NAME, DEFAULT = ("--entity-name", "n"), ("--entity-default",)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((*USERS, *NAME, *CLIENTS, *DEFAULT), [("users", "n", False), ("clients", None, False)]),
        ((*USERS, *DEFAULT, *CLIENTS, *NAME), [("users", None, False), ("clients", "n", False)]),
        ((*DEFAULT, *NAME, *CLIENTS, *USERS), [("clients", None, False), ("users", "n", False)]),
        ((*USERS, *DEFAULT, *CLIENTS, *DEFAULT), [("users", None, False), ("clients", None, False)]),
        ((*USERS, *DEFAULT, *CLIENTS), [("users", None, False), ("clients", None, True)]),
        ((*USERS, *NAME, *CLIENTS), [("users", "n", False), ("clients", None, True)]),
        ((*USERS, *CLIENTS), [("users", None, True), ("clients", None, True)]),
        (("--user", "u", "--client-defaults"), [("users", "u", False), ("clients", None, False)]),
    ],
)
def test_names_and_defaults_belong_to_the_types_in_their_order(
    arguments: tuple[str, ...], expected: list[tuple[str, str | None, bool]]
) -> None:
    assert entities(*arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((*USERS, *NAME, *DEFAULT), "needs its own --entity-type"),
        ((*USERS, *DEFAULT, *NAME), "needs its own --entity-type"),
        ((*USERS, *NAME, *CLIENTS, *NAME, *USERS, *NAME), "Only '--entity-type users --entity-type clients'"),
        (("--user", "u", "--user-defaults", "--client", "c"), "Only '--entity-type users --entity-type clients'"),
        ((*USERS, *USERS, *CLIENTS), "Only '--entity-type users --entity-type clients'"),
    ],
)
def test_conflicting_entities_are_refused(arguments: tuple[str, ...], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["configs", "--bootstrap-server", "h:1", "--alter", "--add-config", "request_percentage=1", *arguments]) == 64
    assert error in capsys.readouterr().err
