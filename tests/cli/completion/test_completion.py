"""Completion as a shell asks for it: a process without arguments, and bash with the printed script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = Path(sys.executable).parent
"""The folder of the installed `kraftlab`."""

ASK = """
source <(kraftlab completion bash)
COMP_LINE=$1 COMP_POINT=${2:-${#1}} COMP_CWORD=1
compopt() { echo "compopt $*"; }
$(complete -p kraftlab | sed 's/.*-F \\([^ ]*\\).*/\\1/') kraftlab
printf '%s\\n' "${COMPREPLY[@]}"
"""


def asked(**environment: str) -> list[str]:
    """Lines that the process prints to a shell."""
    done = subprocess.run(
        [COMMANDS / "kraftlab"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


def in_bash(line: str, *point: int) -> list[str]:
    """Replies of bash to a Tab at the end of the line, or at `point`."""
    path = f"{COMMANDS}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK, "bash", line, *map(str, point)],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_a_process_answers_each_shell() -> None:
    first = asked(_KRAFTLAB_COMPLETE="bash_complete", COMP_WORDS="kraftlab ", COMP_CWORD="1")
    assert first[:2] == ["plain,demo", "plain,up"] and "plain,topics" in first
    zsh = asked(_KRAFTLAB_COMPLETE="zsh_complete", COMP_WORDS="kraftlab topi", COMP_CWORD="1")
    assert zsh == ["plain", "topics", "Create, list, describe, alter and delete topics."]
    fish = asked(_KRAFTLAB_COMPLETE="fish_complete", COMP_WORDS="kraftlab metadata-quorum desc", COMP_CWORD="desc")
    assert fish == ["plain,describe\tDescribe the quorum as its leader sees it."]


def test_the_names_of_commands_are_offered_without_loading_them() -> None:
    """A user waits: the list of commands must not import all of them."""
    code = (
        "import sys; from kraftlab.cli import main\n"
        "try: main.run([])\n"
        "except SystemExit: pass\n"
        "print(sorted(name for name in sys.modules if name.endswith('command') and name.startswith(('kraftlab', 'jepsen'))))"
    )
    asks = {"_KRAFTLAB_COMPLETE": "bash_complete", "COMP_WORDS": "kraftlab ", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asks}, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("kraftlab topi", ["topics"]),
        ("kraftlab metadata-quorum --bootstrap-server 127.0.0.1:9092 des", ["describe"]),
        ("kraftlab sim --faults=kill,po", ["kill,power-cut", "kill,power-cut-everywhere"]),
        ("kraftlab up --data /tm", ["compopt", "-o", "default"]),
        ("kraftlab 'topi", ["topics"]),
    ],
)
def test_bash_completes_commands_options_and_values(line: str, replies: list[str]) -> None:
    assert in_bash(line) == replies


def test_bash_completes_the_word_under_the_cursor() -> None:
    assert in_bash("kraftlab topi --list", len("kraftlab topi")) == ["topics"]
