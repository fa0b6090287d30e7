"""Groups of commands, loaded on demand, with suggestions for mistyped names. A group can end commands for its own errors."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import click
from click.shell_completion import CompletionItem

from kraftlab.common.exit_codes import MACHINE
from kraftlab.common.extras import install_command, not_installed

from .output import CommandFailed, WrongUse


class CommandGroup(click.Group):
    """A group that suggests names for a mistyped command. Every group is one: click suggests only commands that are loaded
    already.
    """

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"No such command {name!r}.{_did_you_mean(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


@dataclass(frozen=True, slots=True)
class Endings:
    """Errors of a group of commands, and how they end a command. An error without a `text` is a bug and passes unchanged."""

    codes: Sequence[tuple[type[Exception], int]]
    """Kind of error → exit code. The first row that fits counts."""
    text: Callable[[Exception], str | None]
    """Sentence for the user: the fault and the next step."""
    extra: str
    """The extra of pyproject.toml with the packages of the group."""
    packages: frozenset[str]
    """Import names of the packages that `extra` installs."""

    def missing(self, error: Exception) -> str | None:
        """Return the package of `extra` that `error` says is missing."""
        name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        return name if name in self.packages else None

    def failure(self, error: Exception) -> CommandFailed | None:
        """Return the failure that ends the command for `error`, None if the error passes unchanged."""
        package = self.missing(error)
        if package is not None:
            return CommandFailed(f"Error: {not_installed(package, self.extra)}", exit_code=MACHINE)
        code = next((code for kind, code in self.codes if isinstance(error, kind)), None)
        text = None if code is None else self.text(error)
        return None if code is None or text is None else CommandFailed(f"Error: {text}", exit_code=code)


_PASSING = (CommandFailed, click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError)


class LazyGroup(CommandGroup):
    """A group that imports a command when it is called: no command pays for the imports of another.

    `modules` maps a command to "module:attribute", in the order of `--help`. With `short_helps`, help and completion of the group
    import no command. Without `endings` an error ends as in `cli.main`.
    """

    def __init__(
        self,
        *args: Any,
        modules: Mapping[str, str],
        short_helps: Mapping[str, str] | None = None,
        endings: Endings | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._modules = modules
        self._short_helps = short_helps
        self._endings = endings

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._modules:
            return None
        module, _, attribute = self._modules[cmd_name].partition(":")
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if self._endings is None or self._endings.missing(error) is None:
                raise
            return _NotInstalled(cmd_name, install_command(self._endings.extra), error)
        if self._short_helps is not None:
            command.short_help = self._short_helps[cmd_name]
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if self._short_helps is None:
            return super().shell_complete(ctx, incomplete)
        names = [CompletionItem(name, help=text) for name, text in self._short_helps.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self._short_helps is None:
            super().format_commands(ctx, formatter)
            return
        with formatter.section("Commands"):
            formatter.write_dl(list(self._short_helps.items()))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise wrong_use(error, ctx.command_path) from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise wrong_use(error, ctx.command_path) from None
        except _PASSING:
            raise
        except Exception as error:
            failure = self._endings and self._endings.failure(error)
            if not failure:
                raise
            raise failure from error


class _NotInstalled(click.Command):
    """A command without its packages. Help and completion list it; a call says what to install."""

    def __init__(self, name: str, install: str, error: ModuleNotFoundError) -> None:
        super().__init__(name, short_help=f"Not installed: {install}")
        self._error = error

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            raise self._error
        return []


def wrong_use(error: click.UsageError, command: str) -> WrongUse:
    """Return the failure for a command line that cannot be parsed: the help of a command that lacks all its words, otherwise a
    line that names the command, `command` if click does not know it.
    """
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return WrongUse(error.format_message())
    return WrongUse(f"Error: {error.format_message()}\nSee: {error.ctx.command_path if error.ctx else command} --help")


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion of the names that begin with `name`, otherwise of similar names; empty without either."""
    near = [other for other in known if other.startswith(name)] or get_close_matches(name.lower(), known)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near and name else ""
