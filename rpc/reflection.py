"""gRPC's reflection: the services of a node and their messages, for clients without the .proto files (grpcurl, Postman).

The servicer is that of grpcio-reflection, loaded at the first stream. It knows the protocol by the name v1alpha; v1 has the same
messages under another name, and clients ask for v1 first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from google.protobuf.message import Message

from .health import SERVICE as HEALTH
from .methods import SERVICE as ADMIN

SERVICES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")


async def answers(requests: Callable[[type[Message]], AsyncIterator[Message]]) -> AsyncIterator[Message]:
    """Yield the answer to each request of a stream; `requests` decodes them as messages of a class."""
    from grpc_health.v1 import health_pb2  # noqa: F401 - the messages of a service that is listed
    from grpc_reflection.v1alpha import reflection
    from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

    aio: Any = vars(reflection)["aio"]  # missing in its stubs
    servicer = aio.ReflectionServicer((ADMIN, HEALTH, SERVICES[-1]))
    async for answer in servicer.ServerReflectionInfo(requests(ServerReflectionRequest), None):
        yield answer
