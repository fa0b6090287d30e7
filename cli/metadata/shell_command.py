"""`kraftlab metadata-shell`: browse the metadata like a file system."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import click

from kraftlab import __version__
from kraftlab.common.exit_codes import DONE, FAILED
from kraftlab.config.secrets import is_secret
from kraftlab.metadata.tree import Directory, Node, image_tree
from kraftlab.node.history import NEWEST, Moment

from ..output import CommandFailed, WrongUse
from .shell_tree import Shell, ShellError, ShellExit
from .sources import EpochEdge, Source, moment_of, moment_options, open_source, parse_moment, source_options
from .text import place_text, warnings

_offset, _time = moment_options


@click.command(
    "metadata-shell",
    context_settings={"ignore_unknown_options": True},
    epilog="""\b
Examples:
  kraftlab metadata-shell --snapshot 00000000000000004711-0000000003.checkpoint
  kraftlab metadata-shell --metadata-dir /var/lib/kraftlab/metadata --offset 4000 cat /image/topics/byName/orders/0
  kraftlab metadata-shell find /image/cluster
  kraftlab metadata-shell --watch 2 cat '/image/topics/byName/orders/*/isr'

\b
With a COMMAND, the shell runs it and exits (exit code 1 if it fails); without one, it prompts for commands. `help` lists them.
The tree: /image/{provenance,features,cluster,topics,configs,clientQuotas,producerIds,acls,scram,moves,requests,transaction}
and /local/{version,commitId}. Secrets are not shown. The shell cannot change the metadata.""",
)
@click.option("-s", "--snapshot", type=click.Path(), metavar="FILE", help="Read this snapshot file.")
@_offset
@_time
@source_options
@click.option("--watch", "watch_s", type=click.FloatRange(min=0.2), metavar="SECONDS", help="Repeat COMMAND at this interval.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND…]")
@click.pass_context
def metadata_shell(
    context: click.Context,
    /,
    snapshot: str | None,
    offset: Moment | EpochEdge | None,
    time: str | None,
    metadata_dir: str | None,
    node_id: int | None,
    watch_s: float | None,
    command: tuple[str, ...],
) -> int:
    """Browse the metadata in a snapshot file, in a node's metadata directory, or on a running node. The node of a directory may
    be running, stopped or broken.
    """
    if command and command[0].startswith("-"):  # options of the shell's commands follow their names
        known = [name for option in context.command.params for name in option.opts if name.startswith("-")]
        raise click.NoSuchOption(command[0].partition("=")[0], possibilities=known, ctx=context)
    moment = parse_moment(offset, time)
    if watch_s is not None and (moment != NEWEST or not command):
        raise WrongUse("Error: --watch repeats a command on the newest metadata; give a command, without --offset and --time")
    with open_source(metadata_dir, node_id, snapshot) as source:
        if watch_s is not None:
            return _watch(source, list(command), watch_s)
        shell, remarks = _open(source, moment)
        for line in remarks:
            click.echo(line, err=True)
        if not command:
            return _interact(shell, source.name)
        return _once(shell, list(command))


def _open(source: Source, moment: Moment | EpochEdge) -> tuple[Shell, list[str]]:
    """Return a shell on the source's image, and remarks for the user about the image."""
    image, stopped, notes = source.at(moment_of(source, moment))
    remarks = list(warnings(image, stopped, notes, source.known_committed()))
    tops: dict[str, Node] = {
        "image": image_tree(image, is_secret),
        "local": _directory({"version": __version__, "commitId": "unknown"}),
    }
    return Shell(_directory(tops)), [f"{source.name}: {place_text(image.provenance)}", *remarks]


def _directory(nodes: dict[str, Node] | dict[str, str]) -> Directory:
    return Directory(lambda: nodes, lambda name: nodes[name])


def _once(shell: Shell, words: list[str]) -> int:
    try:
        for line in shell.run_words(words):
            click.echo(line)
    except ShellExit:
        return DONE
    except ShellError as error:
        raise CommandFailed(f"Error: {error}") from None
    return DONE


def _watch(source: Source, words: list[str], interval_s: float) -> int:
    """Print the output of the command whenever it changes, until interrupted."""
    before: list[str] | None = None
    while True:
        shell, remarks = _open(source, NEWEST)
        try:
            lines = list(shell.run_words(words))
        except ShellExit:
            return DONE
        except ShellError as error:
            lines = [f"Error: {error}"]
        if lines != before:
            click.echo("\n".join([f"--- {remarks[0]}", *lines]))
            before = lines
        time.sleep(interval_s)


def _interact(shell: Shell, name: str) -> int:
    """Read commands until `exit` or the end of the input. Exit code 1 if input from a file or pipe has a faulty line."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        _prepare_editing(shell)
        click.echo(f"Metadata of {name}. help lists the commands, exit leaves.")
    failed = False
    for line in _lines(is_terminal):
        shell.entered.append(line)
        try:
            for answer in shell.run(line):
                click.echo(answer)
        except ShellExit:
            break
        except ShellError as error:
            failed = True
            click.echo(f"Error: {error}", err=True)
    return FAILED if failed and not is_terminal else DONE


def _lines(is_terminal: bool) -> Iterator[str]:
    while True:
        try:
            line = input(">> " if is_terminal else "")
        except EOFError:
            return
        except KeyboardInterrupt:
            click.echo()
            continue
        if line.strip():
            yield line


def _prepare_editing(shell: Shell) -> None:
    """Set up line editing and completion by tab, if Python has readline."""
    try:
        import readline
    except ImportError:
        return
    readline.set_completer_delims(" \t\n")
    readline.set_completer(completer(shell, readline.get_line_buffer))
    readline.parse_and_bind("tab: complete")


def completer(shell: Shell, line: Callable[[], str]) -> Callable[[str, int], str | None]:
    """Return readline's completer. It completes a command if only blanks come before the word, otherwise a path."""

    def complete(text: str, state: int) -> str | None:
        is_command = line().lstrip() == text
        found = shell.completions(text, is_command=is_command)
        return found[state] if state < len(found) else None

    return complete
