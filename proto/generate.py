"""Generates the Python code of every .proto beside this file; --check only says whether the committed code is current."""

from __future__ import annotations

import pathlib
import sys
import tempfile

from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parent
SOURCES = sorted(path.relative_to(ROOT) for path in (ROOT / "kraftlab").rglob("*.proto"))


def generate(into: pathlib.Path) -> None:
    """Writes _pb2.py, _pb2.pyi and _pb2_grpc.py of every source below `into`."""
    outputs = [f"--{kind}={into}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    status = protoc.main(["protoc", f"-I{ROOT}", *outputs, *map(str, SOURCES)])
    if status:
        sys.exit(f"protoc failed with status {status}; fix the .proto that it names above")


def stale(fresh: pathlib.Path) -> list[str]:
    """Generated files whose committed text is not what the sources give."""
    names = [path.relative_to(fresh) for path in fresh.rglob("*_pb2*")]
    return sorted(
        str(name) for name in names if not (ROOT / name).exists() or (ROOT / name).read_text() != (fresh / name).read_text()
    )


def main() -> None:
    if "--check" not in sys.argv:
        generate(ROOT)
        return
    with tempfile.TemporaryDirectory() as directory:
        generate(pathlib.Path(directory))
        if names := stale(pathlib.Path(directory)):
            sys.exit(f"generated code is not current: {', '.join(names)}; run: make proto")


if __name__ == "__main__":
    main()
