"""The tables of docs/reliability.md: each row names a test, as `folder/test_module.py::test_name`, and the test exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
TEST = re.compile(r"`([\w/-]+\.py)::(\w+)`")
HEADING = re.compile(r"\|[ :|-]+\|")


def rows() -> list[str]:
    """Return the rows of all tables, without their headings."""
    lines = PAGE.splitlines()
    return [
        line
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("|") and not HEADING.fullmatch(line) and not HEADING.fullmatch(following)
    ]


def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_row_names_a_test() -> None:
    assert [row for row in rows() if not TEST.search(row)] == []


def test_every_named_test_exists() -> None:
    named = TEST.findall(PAGE)
    files = {path for path, _ in named}
    assert [path for path in sorted(files) if not (ROOT / "tests" / path).is_file()] == []
    defined = {path: functions(path) for path in files}
    assert [(path, name) for path, name in named if name not in defined[path]] == []


def test_no_file_stands_twice_in_a_table() -> None:
    tables = [table.splitlines() for table in re.findall(r"^\| file \|.*\n(?:\|.*\n)+", PAGE, re.MULTILINE)]
    files = [[line.split(" | ")[0] for line in table] for table in tables]
    assert [row for rows in files for row in set(rows) if rows.count(row) > 1] == []
    assert len(tables) > 2
