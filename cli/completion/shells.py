"""Completion in the shells: the command line as the shell gives it, and the script that a user loads.

A shell runs `kraftlab` without arguments, with the line in environment variables, and reads the answers. zsh and fish use the
scripts of click. Bash splits words at `:` and `=` (COMP_WORDBREAKS), which would tear `--bootstrap-server 127.0.0.1:9092` apart.
Our script gives the line up to the cursor in COMP_WORDS instead, and cuts from each answer what bash has as words already.
"""

from __future__ import annotations

import os

from click.shell_completion import BashComplete, ShellComplete, add_completion_class, get_completion_class, split_arg_string

_BASH = """\
%(complete_func)s() {
    local line="${COMP_LINE:0:COMP_POINT}" word cut="" mark before entry value
    word="${line##*[[:space:]]}"
    for mark in : =; do
        before="${word%%"${word##*"$mark"}"}"
        if [[ $COMP_WORDBREAKS == *"$mark"* && ${#before} -gt ${#cut} ]]; then
            cut=$before
        fi
    done
    COMPREPLY=()
    while IFS= read -r entry; do
        value="${entry#*,}"
        case "${entry%%%%,*}" in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("${value#"$cut"}") ;;
        esac
    done < <(env COMP_WORDS="$line" COMP_CWORD="$COMP_CWORD" %(complete_var)s=bash_complete "$1")
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class BashLine(BashComplete):
    """Bash, with the line up to the cursor in COMP_WORDS."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)
        is_within_word = line != "" and not line[-1].isspace()
        incomplete = words.pop() if is_within_word and words else ""
        return words[1:], incomplete


def register() -> None:
    """Let click answer bash with `BashLine`."""
    add_completion_class(BashLine)


def shell(name: str) -> type[ShellComplete]:
    """Return the completion of bash, zsh or fish."""
    register()
    kind = get_completion_class(name)
    assert kind is not None, "the choices of `kraftlab completion` are click's own"
    return kind
