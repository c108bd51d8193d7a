"""The bridge of a Docker daemon: the address at which its containers find this machine. Blocking, with a deadline."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping

from liverl.procs.asking import NotEndedError, ask_program, last_words

SECONDS = 8.0  # for the daemon's answer
# A daemon that has never been restarted tells the subnet only (20.10): the bridge has its first address then.
_GATEWAY = "{{range .IPAM.Config}}{{println .Gateway .Subnet}}{{end}}"


def address(env: Mapping[str, str]) -> tuple[str, str]:
    """The gateway of the bridge if it is an address of this machine, on which something can listen, and "", or else ""
    and why there is none. ``env``: with the variables by which the docker program finds the daemon."""
    gateway, why = bridge_gateway(env)
    if gateway and not is_here(gateway):
        return "", not_here(gateway)
    return gateway, why and f"the gateway of Docker's bridge is not known: {why}"


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
        return "", last_words(done) if done.stderr.strip() else f"docker exited with {done.returncode}"
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
