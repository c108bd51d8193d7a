"""The address by which other machines most likely reach this one."""

from __future__ import annotations

import socket

# RFC 5737: an address that no host has. Nothing is sent: connecting a UDP socket only chooses the route.
_ELSEWHERE = ("192.0.2.1", 9)


def primary_address() -> str:
    """This machine's IPv4 address on the route to other networks; 127.0.0.1 without such a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(_ELSEWHERE)
        except OSError:
            return "127.0.0.1"
        return str(sock.getsockname()[0])
