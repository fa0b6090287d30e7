"""The core is a function of its events: it must not use a clock, a disk, a process or any other varying input."""

import ast
from pathlib import Path

import pytest

import kraftlab.quorum.core as core

MODULES = sorted(Path(core.__file__).parent.glob("*.py"))
ALLOWED_IMPORTS = {
    "__future__",
    "abc",
    "array",
    "base64",
    "bisect",
    "collections",
    "collections.abc",
    "enum",
    "functools",
    "heapq",
    "importlib",
    "itertools",
    "msgspec",
    "random",
    "struct",
    "typing",
    "zlib",
}
FORBIDDEN_CALLS = {"hash", "id", "open", "print", "input", "eval", "exec", "set", "frozenset"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_imports_nothing_impure(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert {alias.name for alias in node.names} <= ALLOWED_IMPORTS, f"line {node.lineno}"
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            assert node.level == 1 or module.startswith("kraftlab.common.") or module in ALLOWED_IMPORTS, f"line {node.lineno}"
            assert module != "random", f"line {node.lineno}: the generator is injected"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_uses_nothing_whose_result_varies_between_runs(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_CALLS, f"line {node.lineno}: {node.func.id}()"
        assert not isinstance(node, ast.Set | ast.SetComp), f"line {node.lineno}: a set has no order"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
            assert node.attr == "Random", f"line {node.lineno}: random.{node.attr}"
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            pytest.fail(f"line {node.lineno}: {node.value} is a float")
        assert not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)), f"line {node.lineno}: / makes a float"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_functions_fit_a_screen(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 70, node.name
