"""What `kraftlab cluster status` prints: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftlab.cluster.chaos.orders import LinkState, Status


def status_lines(status: Status) -> list[str]:
    """Nodes, orders that stand, and links that are not as they were."""
    width = max(len(node.name) for node in status.nodes)
    lines = [
        f"{node.name:<{width}}  {node.state:<7}  {node.pid or '-':>7}{'  leader' if node.leads else ''}" for node in status.nodes
    ]
    lines += ["", "Nothing is broken." if not status.orders else "Broken:"]
    for order in status.orders:
        until = "until it is healed" if order.left_ms is None else f"for another {order.left_ms / 1000:.1f} s"
        lines.append(f"  #{order.number} {order.text}; {until}")
    if status.links:
        lines += ["", "Links:"]
        lines += [f"  {_link(link)}" for link in status.links]
    return lines


def _link(link: LinkState) -> str:
    parts = [{"hold": "cut", "reset": "cut, breaks connections"}[link.cut]] if link.cut else []
    if link.delay_ms or link.jitter_ms:
        parts.append(f"delay {link.delay_ms:g} ms, jitter {link.jitter_ms:g} ms")
    parts += [
        f"{name} {100 * chance:g}%"
        for name, chance in (("loss", link.loss), ("duplicate", link.duplicate), ("reorder", link.reorder))
        if chance
    ]
    if link.waiting_bytes:
        parts.append(f"{link.waiting_bytes} bytes wait")
    return f"{link.source} → {link.target}: {', '.join(parts)}"
