"""The address at which containers of a Docker daemon find this machine: the gateway of the daemon's bridge, if it runs
here. Blocking, with a deadline."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Mapping
from typing import NamedTuple

from liverl.agents.harbor.docker_endpoint import endpoint
from liverl.procs.asking import NotEndedError, ask_program, last_words
from liverl.sandboxes.daemon_faults import told
from liverl.util.loopback import is_loopback
from liverl.util.primary_address import address_towards

SECONDS = 8.0  # for the daemon's answer
# A daemon that has never been restarted tells the subnet only (20.10): the bridge has its first address then.
_INTERFACES = "/sys/class/net"
_SIOCGIFADDR = 0x8915  # linux/sockios.h
_GATEWAY = "{{range .IPAM.Config}}{{println .Gateway .Subnet}}{{end}}"


class Way(NamedTuple):
    """``address``: of this machine, at which containers of a daemon find it, "" if there is none, for the reason in
    ``why``; ``host``: where the daemon runs, "" on this machine."""

    address: str
    why: str = ""
    host: str = ""


def address(env: Mapping[str, str]) -> tuple[str, str]:
    """An address of this machine at which containers find it, on which something can listen, and "", or else "" and
    why there is none. ``env``: with the variables by which the docker program finds the daemon."""
    found = way(env)
    return found.address, found.why


def way(env: Mapping[str, str]) -> Way:
    """The gateway of the daemon's bridge, if the daemon runs here; else this machine's address on the route to the
    daemon's: there the gateway is another machine's, though this one may have the same address for its own Docker."""
    host = other_host(env)
    if host:
        own = address_towards(host)
        if own and not is_loopback(own):
            return Way(own, host=host)
        return Way("", f"Docker runs on {host}, and this machine has no address on a route to it", host)
    gateway, why = bridge_gateway(env)
    if gateway and not is_here(gateway):
        return Way("", not_here(gateway))
    return Way(gateway, why and f"the gateway of Docker's bridge is not known: {why}")


def other_host(env: Mapping[str, str]) -> str:
    """The machine on which the daemon runs, "" if it is this one, or nothing is known of it."""
    where = endpoint(env)
    host = where.host
    if where.is_local or not host or host == socket.gethostname():
        return ""
    try:
        # A name that only ssh knows, of its own configuration, is no name of this machine.
        known = {str(info[4][0]) for info in socket.getaddrinfo(host, None, socket.AF_INET)}
    except OSError:
        known = set()
    return "" if any(map(is_here, known)) else host


def is_of_a_bridge(address: str) -> bool:
    """Whether an IPv4 address of this machine is that of a bridge, such as docker0: other machines do not reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for name in _bridges():
            try:
                told = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # it has no address
            if socket.inet_ntoa(told[20:24]) == address:
                return True
    return False


def _bridges() -> list[str]:
    try:
        return [name for name in os.listdir(_INTERFACES) if os.path.isdir(f"{_INTERFACES}/{name}/bridge")]
    except OSError:
        return []


def not_here(gateway: str) -> str:
    """What it means that the bridge's gateway is no address of this machine."""
    return (
        f"the gateway of Docker's bridge, {gateway}, is no address of this machine: its interface is gone, which a "
        "restart of the daemon makes again, or the daemon runs on another host"
    )


def bridge_gateway(env: Mapping[str, str]) -> tuple[str, str]:
    """The IPv4 address at which containers find this machine, and "", or else "" and why it is not known."""
    words = ["docker", "network", "inspect", "bridge", "--format", _GATEWAY]
    try:
        done = ask_program(words, SECONDS, env=env)
    except FileNotFoundError:
        return "", "there is no program docker on PATH"
    except NotEndedError:
        return "", f"docker did not answer within {SECONDS:g} s"
    except OSError as error:
        return "", error.strerror or str(error)
    if done.returncode:
        return "", told(
            last_words(done), env
        ) if done.stderr.strip() else f"docker exited with {done.returncode}"
    found = next(filter(None, map(_gateway_of, done.stdout.splitlines())), "")
    return found, "" if found else "its network bridge has no IPv4 gateway"


def is_here(address: str) -> bool:
    """Whether this machine has an IPv4 address: only then can a socket be bound to it."""
    with socket.socket() as sock:
        try:
            sock.bind((address, 0))
        except OSError:
            return False
    return True


def _gateway_of(line: str) -> str:
    """The IPv4 gateway in a line ``GATEWAY SUBNET``, either of which may be missing; "" if there is none."""
    for word in line.split():
        try:
            if "/" in word:
                return str(next(ipaddress.IPv4Network(word, strict=False).hosts()))
            return str(ipaddress.IPv4Address(word))
        except (ValueError, StopIteration):
            continue
    return ""
