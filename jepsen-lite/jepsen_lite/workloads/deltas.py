"""The images of brokers: made of deltas or from a snapshot, late or cut off, they are the images of the log.

Like `agreement`, for brokers. `digest` is of the image that a broker has published, made of deltas; `reread` is of the image that
its log on disk gives from the last snapshot on. A broker that fell behind a snapshot must start from that snapshot, and one that
lost a batch could not have the same image.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..checkers.images_agree import ImagesAgree
from ..checkers.replayed_image import ReplayedImage
from ..checkers.stats import Stats
from ..checkers.witness import Witness
from ..workload import Checker, Options, Workload
from . import registers
from .agreement import ASKED, DigestClient, digests_of, final_digests_of
from .snapshot_reads import SNAPSHOTS


def workload() -> Workload:
    return Workload(
        "deltas",
        partial(DigestClient, of_brokers=True),
        lambda options: digests_of(options, options.brokers),
        lambda options: final_digests_of(options, options.brokers),
        _checkers,
        registers.setup,
        not_in={"simulated": "simulated brokers have no image of their own"},
        properties=SNAPSHOTS,
        summary="every broker's image, built of deltas or of a snapshot, equals the replayed committed log",
    )


def _checkers(options: Options) -> Sequence[Checker]:
    return (
        Stats(),
        Witness(registers.RegistersFold, local_reads=frozenset({"peek"})),
        ImagesAgree(*ASKED),
        ReplayedImage(),
    )
