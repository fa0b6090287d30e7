"""All controllers have the same log: the image of each, now and in the past, is the one that the committed log gives.

Clients write and read registers. In addition `digest` asks one node for a digest of its newest image, `digest-at` for the image
at an offset that this client has seen, and `reread` for the image that the log on its disk gives. In the final phase every node
must have everything. Nodes take snapshots all the time, so a node that returns starts from one.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftlab.admin.v1 import admin_pb2 as pb

from ..checkers.images_agree import ImagesAgree
from ..checkers.log_agreement import LogAgreement
from ..checkers.replayed_image import ReplayedImage
from ..checkers.stats import Stats
from ..checkers.witness import Witness
from ..generators import Invocation, Source, mix
from ..workload import Checker, Completion, Options, Port, Workload
from . import registers
from .callers import Caller, ended, repeated_until_ok
from .snapshot_reads import SNAPSHOTS

ASKED = ("digest", "digest-at", "reread")


def workload() -> Workload:
    return Workload(
        "agreement",
        DigestClient,
        lambda options: digests_of(options, options.controllers),
        lambda options: final_digests_of(options, options.controllers),
        _checkers,
        registers.setup,
        properties=SNAPSHOTS,
        summary="every controller's images, current and past, in memory and on disk, equal the replayed committed log",
    )


def digests_of(options: Options, count: int) -> Source:
    """Yield operations on registers, and digests of so many nodes; keys of digests are positions of nodes."""

    def of_some(f: str) -> Source:
        return lambda context: Invocation(f, str(context.random.randrange(count)))

    return mix(registers.mixed(options), *(of_some(f) for f in ASKED), weights=(10, 3, 3, 1))


def final_digests_of(options: Options, count: int) -> Source:
    """Check that every node has everything, in memory and on its disk. A node that is gone is waited for once, not for each
    question.
    """
    asked = [repeated_until_ok(*(Invocation(f, str(place)) for f in ASKED)) for place in range(count)]
    return [registers.final_of_mixed(options), asked]


class DigestClient:
    """The client of one process. `of_brokers`: keys are positions among the brokers."""

    def __init__(self, options: Options, process: int, *, of_brokers: bool = False) -> None:
        self._caller = Caller(options, process, "digests")
        self._registers = registers.RegisterClient(options, process)
        self._of_brokers = of_brokers
        self._seen = [0]

    async def invoke(self, invocation: Invocation, port: Port) -> Completion:
        if invocation.f not in ASKED:
            ending = await self._registers.invoke(invocation, port)
            self._seen = [*self._seen[-50:], max(0, ending.offset)]
            return ending
        asked = sorted(port.brokers if self._of_brokers else port.controllers)
        request = pb.DescribeMetadataRequest(reread_log=invocation.f == "reread")
        if invocation.f == "digest-at":
            request.at_offset = self._caller.random.choice(self._seen)
        self._caller.newest = max(self._caller.newest, self._seen[-1])
        node = asked[int(invocation.key) % len(asked)]
        reply = await self._caller.read(port, "DescribeMetadata", request, local=True, node=node)
        found = reply.response
        reread = [found.reread_offset, found.reread_digest.hex()] if request.reread_log else [-1, ""]
        return ended(reply._replace(node=node), [found.offset, found.image_digest.hex(), *reread])._replace(offset=-1)


def _checkers(options: Options) -> Sequence[Checker]:
    return (
        Stats(),
        Witness(registers.RegistersFold, local_reads=frozenset({"peek"})),
        ImagesAgree(*ASKED),
        ReplayedImage(),
        LogAgreement(),
    )
