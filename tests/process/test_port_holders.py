"""Who has a port, and at which descriptor: real sockets of real processes, one of another user."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from liverl.external import port_holders
from liverl.procs import procfs
from liverl.supervise.recovery import adoption

LISTENER = """
import os, socket, sys
one = socket.create_server(("127.0.0.1", 0))
two = socket.create_server(("::1", 0), family=socket.AF_INET6) if socket.has_dualstack_ipv6() else one
talking = socket.create_connection(one.getsockname())
others = [socket.create_connection(one.getsockname()) for _ in range(20)]
accepted = [one.accept()[0] for _ in range(21)]
if os.fork() == 0:  # a worker that has the connections and not the listening sockets
    one.close(), two.close()
    sys.stdin.readline()
    os._exit(0)
for connection in accepted:
    connection.close()
print(one.getsockname()[1], one.fileno(), two.getsockname()[1], two.fileno(), talking.getsockname()[1], flush=True)
sys.stdin.readline()
"""


@contextmanager
def listener() -> Iterator[tuple[int, list[int]]]:
    """(pid, [port, descriptor, another port, its descriptor, a port on which it talks])."""
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.pid, [int(word) for word in process.stdout.readline().split()]
    finally:
        process.communicate("\n" * 2)


def test_a_listener_is_named_and_a_mere_connection_is_not() -> None:
    with listener() as (pid, (port, fd, second, second_fd, talking)):
        for number in (port, second):
            holder = procfs.port_holder(number)
            assert holder is not None and (holder.pid, holder.user) == (pid, getpass.getuser())
            assert "create_server" in holder.command and f"pid {pid} (user " in holder.words()
        assert procfs.port_holder(talking) is None, "nobody listens there"
        assert procfs.listening(pid) == {port: fd, second: second_fd}
    assert procfs.port_holder(port) is None
    assert procfs.listening(pid) == {} and procfs.user_of(pid) == "?"


def test_the_holder_that_we_may_not_look_at_is_known_by_its_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("another user's view needs root")
    code = (
        "import os, psutil, pwd, sys; from liverl.procs import procfs; "
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); "
        "h = procfs.port_holder(int(sys.argv[1])); print(h.pid, h.user, procfs.listening(int(sys.argv[2])))"
    )
    with listener() as (pid, (port, *_)):
        argv = [sys.executable, "-c", code, str(port), str(pid)]
        out = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert out.split() == ["None", "root", "{}"]


def test_a_listening_socket_is_taken_over_from_a_process_and_serves_on_when_that_has_gone() -> None:
    with listener() as (pid, (port, _, second, *_)):
        assert adoption._steal_listener(pid, 1, bridge=False) is None
        fd = adoption._steal_listener(pid, port, bridge=False)
        assert fd is not None and not os.get_inheritable(fd)
    with socket.socket(fileno=fd) as ours:
        assert ours.getsockname()[1] == port and ours.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        with socket.create_connection(("127.0.0.1", port), 60):
            assert ours.accept()
    assert adoption._steal_listener(pid, second, bridge=False) is None


def test_of_two_sockets_with_one_number_the_one_for_sandboxes_is_told_by_its_address() -> None:
    """Here 127.0.0.1 is the machine's own; another address of it stands for the gateway of Docker's bridge."""
    other = next((a for a in port_holders.own_addresses() if "." in a and not a.startswith("127.")), None)
    if other is None:
        pytest.skip("this machine has loopback addresses only")
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        with socket.create_server((other, port)) as gateway:
            assert procfs.listening_at(os.getpid(), port) == {
                "127.0.0.1": own.fileno(),
                other: gateway.fileno(),
            }
            for bridge, host in ((False, "127.0.0.1"), (True, other)):
                fd = adoption._steal_listener(os.getpid(), port, bridge=bridge)
                assert fd is not None
                with socket.socket(fileno=fd) as stolen:
                    assert stolen.getsockname() == (host, port)


def test_own_addresses_are_those_that_can_be_bound() -> None:
    found = port_holders.own_addresses()
    assert "127.0.0.1" in found
    for address in found:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        if not address.startswith("fe80:"):  # a link's own: it means nothing without its interface
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.bind((address, 0))
