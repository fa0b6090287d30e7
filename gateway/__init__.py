"""The Kafka wire protocol for existing clients: a thin door to the operations that gRPC calls.

kio registers its types with hypothesis where hypothesis is installed, which costs a process 0.2 s and 15 MB. So kio is imported
here first, without hypothesis, unless a test has imported it.
"""

import sys

if "hypothesis" not in sys.modules:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
