"""Names and addresses by which a machine reaches itself."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host's name or address stands for the machine that asks: 127.0.0.0/8, ::1, localhost and names below it
    (RFC 6761, 6.3), and localhost.localdomain."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        name = host.rstrip(".").lower()
        return name in ("localhost", "localhost.localdomain") or name.endswith(".localhost")
