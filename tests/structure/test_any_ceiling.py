"""`Any` in public signatures: values that cross a module's border without a type. The number only goes down.

Counted: each parameter, result and attribute of public functions, methods and classes, and each public alias of a module. Private
names, functions within functions and generated code are a module's own business.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

CEILING = 134
ROOT = Path(__file__).parents[2]
ROOMS = [*sorted((ROOT / "src" / "kraftlab").iterdir()), ROOT / "src" / "jepsen_lite", ROOT / "bench"]


def mentions(node: ast.AST | None) -> bool:
    """Return True if an annotation mentions Any."""
    return node is not None and any(isinstance(part, ast.Name) and part.id == "Any" for part in ast.walk(node))


def is_public(name: str) -> bool:
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__"))


def uses(body: list[ast.stmt], is_class: bool) -> Iterator[int]:
    """Yield the line of each use of Any in the public part of a module or class."""
    for node in body:
        if isinstance(node, ast.ClassDef) and is_public(node.name):
            yield from uses(node.body, True)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_public(node.name):
            arguments = node.args
            everything = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            annotations = [*(argument.annotation for argument in everything if argument is not None), node.returns]
            yield from (annotation.lineno for annotation in annotations if annotation is not None and mentions(annotation))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield from [node.lineno] if is_public(node.target.id) and mentions(node.annotation) else []
        elif isinstance(node, ast.Assign) and not is_class and isinstance(node.targets[0], ast.Name):
            yield from [node.lineno] if is_public(node.targets[0].id) and mentions(node.value) else []


def found() -> list[str]:
    """Return path:line of every use."""
    paths = (path for room in ROOMS if room.is_dir() for path in sorted(room.resolve().rglob("*.py")) if "_pb2" not in path.name)
    return [f"{path.relative_to(ROOT)}:{line}" for path in paths for line in uses(ast.parse(path.read_bytes()).body, False)]


def test_any_crosses_few_borders() -> None:
    uses_found = found()
    rooms = Counter(place.partition("/")[0] for place in uses_found)
    assert len(uses_found) <= CEILING, f"{len(uses_found)} uses of Any in public signatures: {rooms}"
