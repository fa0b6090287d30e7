"""kraftlab: a KIP-500-style metadata quorum, its brokers and its tools.

    from kraftlab import AdminClient

The rooms of the house stand at the top of the repository; this package links to them. The client is loaded when it is asked for,
so that `import kraftlab` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftlab.client import AdminClient

__version__ = "0.1.0"
__all__ = ["AdminClient", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "AdminClient":
        from kraftlab.client import AdminClient

        return AdminClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
