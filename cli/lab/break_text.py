"""Text of `kraftlab cluster status`: pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlab.common.sizes import bytes_text

from .cluster_text import health_lines

if TYPE_CHECKING:
    from kraftlab.lab.faults.orders import OrderState, Status


def status_lines(status: Status) -> list[str]:
    """Return the lines for nodes, faults in force, partitions in doubt, health, and links with waiting messages."""
    width = max(len(node.name) for node in status.nodes)
    lines = [
        f"{node.name:<{width}}  {node.state:<7}  {node.pid or '-':>7}{'  leader' if node.leads else ''}" for node in status.nodes
    ]
    ended = [node for node in status.nodes if node.ended]
    lines += ["", "Faults:" if status.orders or ended else "No faults injected."]
    lines += [
        f"  {node.name} {node.ended}, not by an order; start it again: kraftlab cluster restart {node.name}" for node in ended
    ]
    lines += [f"  #{order.number} {order.text}; {_until(order)}" for order in status.orders]
    lines += ["", *status.in_doubt] if status.in_doubt else []
    lines += ["", *(["The cluster does not answer."] if status.health is None else health_lines(status.health))]
    waiting = [link for link in status.links if link.waiting_bytes]
    if waiting:
        lines += ["", "Waiting messages:"]
        lines += [f"  {link.source} → {link.target}: {bytes_text(link.waiting_bytes)}" for link in waiting]
    return lines


def _until(order: OrderState) -> str:
    return "until it is healed" if order.left_ms is None else f"for another {order.left_ms / 1000:.1f} s"
