"""The address by which other machines most likely reach this one."""

from __future__ import annotations

import socket

_ELSEWHERE = "192.0.2.1"  # RFC 5737: an address that no host has
_PORT = 9  # nothing is sent to it: connecting a UDP socket only chooses the route


def primary_address() -> str:
    """This machine's IPv4 address on the route to other networks; 127.0.0.1 without such a route."""
    return address_towards(_ELSEWHERE) or "127.0.0.1"


def address_towards(host: str) -> str:
    """This machine's IPv4 address on the route to a host; "" without a route, and if its name is not known."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((host, _PORT))
        except OSError:
            return ""
        return str(sock.getsockname()[0])
