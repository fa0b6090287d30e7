"""Exit codes have names: no code of ours ends a process, or a command, with a number of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlab.common import exit_codes

ROOT = Path(__file__).parents[2]
ROOMS = sorted(
    {path.resolve() for path in (ROOT / "src" / "kraftlab").iterdir() if path.is_dir()} | {ROOT / "jepsen-lite", ROOT / "bench"}
)
ENDS_A_PROCESS = {"exit", "_exit", "SystemExit", "Exit"}


def literals(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of a module that end a process or a command with a literal number."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = [word.value for word in node.keywords if word.arg in ("exit_code", "code")]
            given += node.args if name in ENDS_A_PROCESS else []
        elif isinstance(node, ast.FunctionDef) and is_command(node):
            given = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
        else:
            continue
        yield from (value.lineno for value in given if any(is_number(part) for part in choices(value)))


def is_command(function: ast.FunctionDef) -> bool:
    decorators = [one.func if isinstance(one, ast.Call) else one for one in function.decorator_list]
    return any(isinstance(one, ast.Attribute) and one.attr in ("command", "group") for one in decorators)


def choices(value: ast.expr) -> Iterator[ast.expr]:
    """Yield the values that an expression can have: both of `x if y else z`, and of `x or y`."""
    if isinstance(value, ast.IfExp):
        yield from (*choices(value.body), *choices(value.orelse))
    elif isinstance(value, ast.BoolOp):
        yield from (part for each in value.values for part in choices(each))
    else:
        yield value


def is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, int)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("sys.exit(2)", [1]),
        ("raise SystemExit(0 if right else 1)", [1]),
        ("context.exit(3)", [1]),
        ("raise CommandFailed('no', exit_code=4)", [1]),
        ("@click.command()\ndef topics():\n    return found or 1", [3]),
        ("sys.exit(FAILED)\nsys.exit()\nsys.exit(str(error))\nreturned = f(1)", []),
    ],
)
def test_a_literal_is_found(source: str, lines: list[int]) -> None:
    assert list(literals(ast.parse(source))) == lines


def test_every_process_and_command_ends_with_a_named_code() -> None:
    files = [path for room in ROOMS for path in room.rglob("*.py")]
    assert len(files) > 500
    told = {path: source for path in files if any(word in (source := path.read_text()) for word in ("xit", "ommand", "code="))}
    found = [f"{path.relative_to(ROOT)}:{line}" for path, source in told.items() for line in literals(ast.parse(source))]
    assert found == []


def test_the_documented_codes_are_the_named_ones() -> None:
    rows = [line.split("|")[1:3] for line in (ROOT / "docs" / "exit-codes.md").read_text().splitlines() if line.startswith("| ")]
    told = {name.strip(" `"): code.strip() for code, name in rows}
    named = {name: str(value) for name, value in vars(exit_codes).items() if name.isupper()}
    assert {name: told.get(name) for name in named} == named
