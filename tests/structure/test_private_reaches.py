"""Tests use what the product offers: they reach into no private attributes, so that its inside can change."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
OF_NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_make"}
SETTERS = {"setattr", "delattr", "getattr", "object"}
MAY_REACH = re.compile(r"(?<!\w)(?<!\bself\.)(?<!\bcls\.)_[a-z]")
"""In the text of every module that reaches into a private attribute; the others need not be parsed."""


def is_private(name: str) -> bool:
    return re.match(r"_[a-z]", name) is not None and name not in OF_NAMED_TUPLES


def reaches(tree: ast.AST) -> Iterator[int]:
    """Lines that name a private attribute of anything but `self`, `cls` and `super()`."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super"))):
                pass
            case ast.Attribute(attr=name) if is_private(name):
                # trio offers no other way of seeding the order of its tasks.
                if not ast.unparse(node).startswith("trio._core"):
                    yield node.lineno
            case ast.ImportFrom(names=names):
                yield from (node.lineno for alias in names if is_private(alias.name))
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=args) if name in SETTERS:
                texts = [arg.value for arg in args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
                yield from (node.lineno for text in texts if is_private(text.rpartition(".")[2]))


def test_tests_reach_into_no_private_attributes() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(ROOT.rglob("*.py"))
        if MAY_REACH.search(text := path.read_text("utf-8"))
        for line in reaches(ast.parse(text))
    ]
    assert not found
