"""Who a command asks as: `--command-config FILE` or `--user NAME`, for every command that talks to a cluster.

The file is properties: `username` and `password`, or what Kafka's tools are given, a `sasl.jaas.config` with both. A password is
never an argument, where others of the machine could read it: with `--user` it comes from the environment. Without either the
command asks as nobody in particular.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .output import CommandFailed

if TYPE_CHECKING:
    from kraftlab.client import AdminClient

PASSWORD_VARIABLE = "KRAFTLAB_PASSWORD"

_USER, _FILE = "kraftlab.user", "kraftlab.command_config"
_JAAS = re.compile(r"""\b(username|password)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;]+))""")

F = TypeVar("F", bound=Callable[..., object])


def _remember(key: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    def remember(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None:
            context.meta[key] = value
        return value

    return remember


user_option = click.option(
    "--user",
    metavar="NAME",
    expose_value=False,
    callback=_remember(_USER),
    help=f"Ask as this user; the password is taken from the environment variable {PASSWORD_VARIABLE}.",
)
remember_command_config = _remember(_FILE)
"""Callback of a `--command-config` that has another meaning as well."""
command_config_option = click.option(
    "--command-config",
    metavar="FILE",
    expose_value=False,
    callback=remember_command_config,
    help="Properties that say who asks: username and password, or Kafka's sasl.jaas.config.",
)


def caller_options(command: F) -> F:
    """Both options."""
    return user_option(command_config_option(command))


def connect(servers: str, **options: Any) -> AdminClient:
    """A client that asks as the options of the running command say. CommandFailed if they do not say who completely."""
    from kraftlab.client import AdminClient

    user, password = _caller(click.get_current_context().meta)
    if user is None:
        return AdminClient(servers, **options)
    try:
        return AdminClient(servers, user=user, password=password, **options)
    except ValueError as error:
        raise CommandFailed(f"Error: {error}") from None


def _caller(meta: dict[str, Any]) -> tuple[str | None, str | None]:
    """(user, password), or None and None."""
    user, path = meta.get(_USER), meta.get(_FILE)
    if user is None:
        return _of_file(path) if path is not None else (None, None)
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is None:
        raise CommandFailed(
            f"Error: --user {user}: no password is in the environment; set {PASSWORD_VARIABLE}, or write username and password "
            "into a file for --command-config"
        )
    return user, password


def _of_file(path: str) -> tuple[str | None, str | None]:
    from kraftlab.config import properties

    values = properties.load(path)
    found = {key: values[key] for key in ("username", "password") if key in values}
    for key, *quoted in _JAAS.findall(values.get("sasl.jaas.config", "")):
        found.setdefault(key, "".join(quoted))
    user, password = found.get("username"), found.get("password")
    if (user is None) != (password is None):
        given, missing = ("username", "password") if password is None else ("password", "username")
        raise CommandFailed(f"Error: {path} has a {given} and no {missing}; add {missing}=… to it")
    return user, password
