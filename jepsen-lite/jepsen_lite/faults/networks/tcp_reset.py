"""The answer of a firewall that rejects: a TCP reset to the sender of a segment, in the name of the receiver. Pure.

Frames are Ethernet with IPv4, as a TAP device gives them. Other protocols get no answer. A reset takes its sequence number from
the segment's acknowledgement, or acknowledges the segment if it has none (RFC 793, 3.4).
"""

from __future__ import annotations

import struct

_IPV4, _TCP = 0x0800, 6
_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16
_ETHERNET = struct.Struct("!6s6sH")
_ADDRESSES = struct.Struct("!4s4s")
_SEGMENT = struct.Struct("!HHIIBBHHH")
_HEADER = struct.Struct("!BBHHHBBH4s4s")


def reset_for(frame: bytes) -> bytes | None:
    """Return the frame that breaks the connection at the sender's end; None if there is no connection to break."""
    target, source, kind = _ETHERNET.unpack_from(frame)
    at = _ETHERNET.size
    if kind != _IPV4 or len(frame) < at + _HEADER.size or frame[at + 9] != _TCP:
        return None
    header_size = (frame[at] & 0xF) * 4
    total_size = int.from_bytes(frame[at + 2 : at + 4])
    sender, receiver = _ADDRESSES.unpack_from(frame, at + 12)
    segment = at + header_size
    if len(frame) < segment + _SEGMENT.size:
        return None
    sender_port, receiver_port, sequence, acknowledged, offset, flags, _, _, _ = _SEGMENT.unpack_from(frame, segment)
    if flags & _RST:
        return None
    if flags & _ACK:
        answer = (acknowledged, 0, _RST)
    else:
        length = total_size - header_size - (offset >> 4) * 4 + bool(flags & _SYN) + bool(flags & _FIN)
        answer = (0, (sequence + length) & 0xFFFFFFFF, _RST | _ACK)
    body = _segment(receiver, sender, receiver_port, sender_port, *answer)
    return _ETHERNET.pack(source, target, _IPV4) + _packet(receiver, sender, body)


def _segment(
    sender: bytes, receiver: bytes, sender_port: int, receiver_port: int, sequence: int, acknowledged: int, flags: int
) -> bytes:
    def packed(checksum: int) -> bytes:
        return _SEGMENT.pack(sender_port, receiver_port, sequence, acknowledged, 5 << 4, flags, 0, checksum, 0)

    return packed(checksum(sender + receiver + struct.pack("!HH", _TCP, _SEGMENT.size) + packed(0)))


def _packet(sender: bytes, receiver: bytes, body: bytes) -> bytes:
    def packed(checksum: int) -> bytes:
        return _HEADER.pack(0x45, 0, _HEADER.size + len(body), 0, 0, 64, _TCP, checksum, sender, receiver)

    return packed(checksum(packed(0))) + body


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
