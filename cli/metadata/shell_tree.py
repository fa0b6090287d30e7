"""The metadata shell without its terminal: a tree of directories, a working directory, and commands that return lines.

The tree has `/image`, from `metadata/tree.py`, and `/local`, about this program. Paths are absolute or relative, with `.` and
`..`; `*`, `?` and `[…]` match names in any part of a path. A command that fails raises ShellError with the reason. No command
changes the metadata.
"""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from kraftlab.metadata.tree import Directory, Node, plain_document


class ShellError(Exception):
    """A command that fails. The text gives the reason."""


class ShellExit(Exception):
    """`exit` or `quit`."""


class Command(NamedTuple):
    """One command: its usage, and one line about it."""

    usage: str
    about: str


COMMANDS: dict[str, Command] = {
    "cat": Command("cat FILE…", "Show values; directories as JSON."),
    "cd": Command("cd [DIRECTORY]", "Change the working directory, by default to the root."),
    "exit": Command("exit", "Leave the shell."),
    "find": Command("find [PATH…]", "List all paths below these."),
    "help": Command("help", "List the commands."),
    "history": Command("history [N]", "List the entered lines, or the last N."),
    "ls": Command("ls [PATH…]", "List directories."),
    "man": Command("man COMMAND", "Describe a command."),
    "pwd": Command("pwd", "Print the working directory."),
    "quit": Command("quit", "Leave the shell, as exit does."),
    "tree": Command("tree [PATH…]", "Show all names and values below these paths."),
}


class Shell:
    """A tree and a working directory. `entered` has the lines that the user has typed, for `history`."""

    def __init__(self, root: Directory) -> None:
        self.root = root
        self.here: tuple[str, ...] = ()
        self.entered: list[str] = []

    @property
    def working_directory(self) -> str:
        return "/" + "/".join(self.here)

    def run(self, line: str) -> Iterator[str]:
        """Run a line of input and yield the answer. ShellError; ShellExit for `exit` and `quit`."""
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise ShellError(f"{line!r} cannot be read: {error}; quote names with blanks") from None
        return self.run_words(words)

    def run_words(self, words: list[str]) -> Iterator[str]:
        """Run a command line that is split into words already, as `run` does."""
        if not words:
            return iter(())
        name, *arguments = words
        if name not in COMMANDS:
            raise ShellError(f"{name}: no such command; help lists them")
        action: Callable[[list[str]], Iterator[str]] = getattr(self, f"_{name}")
        return action(arguments)

    def completions(self, text: str, *, is_command: bool) -> list[str]:
        """Return the completions of a word, sorted."""
        if is_command:
            return [f"{name} " for name in sorted(COMMANDS) if name.startswith(text)]
        head, slash, start = text.rpartition("/")
        try:
            node = self._node(self._absolute(head + slash if slash else "."))
        except ShellError:
            return []
        if not isinstance(node, Directory):
            return []
        found = [(name, node.get(name)) for name in node.names() if name.startswith(start)]
        return [f"{head}{slash}{name}{'/' if isinstance(child, Directory) else ' '}" for name, child in found]

    # --- paths ---------------------------------------------------------------------------------------------------------------

    def _absolute(self, path: str) -> tuple[str, ...]:
        parts = [] if path.startswith("/") else list(self.here)
        for part in path.split("/"):
            if part == "..":
                parts[-1:] = []
            elif part not in ("", "."):
                parts.append(part)
        return tuple(parts)

    def _node(self, parts: tuple[str, ...]) -> Node:
        node: Node = self.root
        for part in parts:
            if not isinstance(node, Directory) or part not in node:
                raise ShellError(f"/{'/'.join(parts)}: no such file or directory")
            node = node.get(part)
        return node

    def _matches(self, arguments: list[str], default: str = ".") -> Iterator[tuple[str, Node]]:
        """Yield (path, node) for each argument, with patterns expanded."""
        for argument in arguments or [default]:
            parts = self._absolute(argument)
            if not any(mark in argument for mark in "*?["):
                yield argument, self._node(parts)
                continue
            found = list(_matching(self.root, (), parts))
            if not found:
                raise ShellError(f"{argument}: no such file or directory")
            for path, node in found:
                yield "/" + "/".join(path), node

    # --- commands ------------------------------------------------------------------------------------------------------------

    def _cat(self, arguments: list[str]) -> Iterator[str]:
        if not arguments:
            raise ShellError("cat: which file? Give a path")
        for _, node in self._matches(arguments):
            yield value_text(node)

    def _cd(self, arguments: list[str]) -> Iterator[str]:
        if len(arguments) > 1:
            raise ShellError(f"cd: {len(arguments)} directories are given; give one")
        parts = self._absolute(arguments[0] if arguments else "/")
        if not isinstance(self._node(parts), Directory):
            raise ShellError(f"cd: /{'/'.join(parts)}: not a directory")
        self.here = parts
        return iter(())

    def _exit(self, arguments: list[str]) -> Iterator[str]:
        raise ShellExit

    _quit = _exit

    def _find(self, arguments: list[str]) -> Iterator[str]:
        for path, node in self._matches(arguments):
            yield from _below(path, node)

    def _help(self, arguments: list[str]) -> Iterator[str]:
        width = max(len(command.usage) for command in COMMANDS.values())
        for command in COMMANDS.values():
            yield f"{command.usage:<{width}}  {command.about}"

    def _history(self, arguments: list[str]) -> Iterator[str]:
        if arguments and not arguments[0].isdigit():
            raise ShellError(f"history: {arguments[0]!r} is not a number of lines")
        first = max(0, len(self.entered) - int(arguments[0])) if arguments else 0
        for number, line in enumerate(self.entered[first:], first + 1):
            yield f"{number:>5}  {line}"

    def _ls(self, arguments: list[str]) -> Iterator[str]:
        found = list(self._matches(arguments))
        for number, (path, node) in enumerate(found):
            if not isinstance(node, Directory):
                yield path
                continue
            if len(found) > 1:
                yield from [""] * (number > 0)
                yield f"{path}:"
            yield from node.names()

    def _man(self, arguments: list[str]) -> Iterator[str]:
        if len(arguments) != 1 or arguments[0] not in COMMANDS:
            raise ShellError(f"man: {' '.join(arguments) or 'nothing'} is not a command; help lists them")
        command = COMMANDS[arguments[0]]
        yield f"{command.usage}: {command.about}"

    def _pwd(self, arguments: list[str]) -> Iterator[str]:
        yield self.working_directory

    def _tree(self, arguments: list[str]) -> Iterator[str]:
        for _, node in self._matches(arguments):
            yield from _tree_lines(node, 0)


def value_text(node: Node) -> str:
    """Return a value as text: strings without quotes, lists on one line, directories as indented JSON."""
    shown = plain_document(node)
    if isinstance(shown, str):
        return shown
    text = msgspec.json.encode(shown)
    return (msgspec.json.format(text, indent=2) if isinstance(node, Directory) else text).decode()


def _matching(node: Node, path: tuple[str, ...], rest: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    if not rest:
        yield path, node
        return
    if not isinstance(node, Directory):
        return
    first, *others = rest
    names = [first] if first in node else fnmatch.filter(node.names(), first)
    for name in names:
        yield from _matching(node.get(name), (*path, name), tuple(others))


def _below(path: str, node: Node) -> Iterator[str]:
    yield path
    if isinstance(node, Directory):
        for name, child in node.items():
            yield from _below(f"{path.rstrip('/')}/{name}", child)


def _tree_lines(node: Node, depth: int) -> Iterator[str]:
    if not isinstance(node, Directory):
        yield "  " * depth + value_text(node)
        return
    for name, child in node.items():
        yield "  " * depth + name + ("" if isinstance(child, Directory) else f": {value_text(child)}")
        if isinstance(child, Directory):
            yield from _tree_lines(child, depth + 1)
