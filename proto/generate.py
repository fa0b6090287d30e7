"""Generate the Python code of every .proto beside this file. `--check` only tests that the committed code is current.

Each generated file ends with the digest of what it was made of, and of its own text. So `--check` needs no compiler.
"""

from __future__ import annotations

import hashlib
import pathlib
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent
SOURCES = sorted(path.relative_to(ROOT) for path in (ROOT / "kraftlab").rglob("*.proto"))
MARK = "# generated from sha256:"


def digest(text: str) -> str:
    """Return the digest of the sources, this file, the version of the compiler, and the text of a generated file."""
    compiler = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]["proto"]
    parts = [(ROOT / path).read_bytes() for path in SOURCES]
    return hashlib.sha256(
        b"\0".join([*parts, pathlib.Path(__file__).read_bytes(), repr(compiler).encode(), text.encode()])
    ).hexdigest()


def generated() -> list[pathlib.Path]:
    """Return the generated files: _pb2.py, _pb2.pyi and _pb2_grpc.py of every source."""
    suffixes = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")
    return [ROOT / path.with_name(path.stem + suffix) for path in SOURCES for suffix in suffixes]


def generate() -> None:
    """Write the generated files."""
    from grpc_tools import protoc

    outputs = [f"--{kind}={ROOT}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    status = protoc.main(["protoc", f"-I{ROOT}", *outputs, *map(str, SOURCES)])
    if status:
        sys.exit(f"protoc failed with status {status}; fix the .proto that it names above")
    for path in generated():
        text = path.read_text()
        path.write_text(f"{text}{MARK}{digest(text)}\n")


def is_current(path: pathlib.Path) -> bool:
    """Return True if a generated file has the digest that belongs to its text and to the sources."""
    if not path.exists():
        return False
    text, _, found = path.read_text().rpartition(MARK)
    return found == f"{digest(text)}\n"


def main() -> None:
    """Generate, or check with `--check`."""
    if "--check" not in sys.argv:
        generate()
    elif stale := [str(path.relative_to(ROOT)) for path in generated() if not is_current(path)]:
        sys.exit(f"generated code is not current: {', '.join(stale)}; run: make proto")


if __name__ == "__main__":
    main()
