"""Connections of clients: what was received and not answered, what was not sent yet, and how much of it is kept."""

import os
import select
import socket
from collections import deque

from .messages import Record, line_of

MAX_LINE = 4 << 20  # bytes of a request
MAX_UNSENT = 4 << 20  # bytes of answers that a client has not read; with more it is disconnected
MAX_BUFFERED = 32 << 20  # bytes of both for all clients; beyond it the client with the most is disconnected
PAUSE_READING = 1 << 16  # bytes of unread answers at which no more requests are taken from a client
MAX_CLIENTS = 128  # connections at the same time
MAX_OF_PROCESS = 16  # of these, from one process; with more, its oldest is disconnected
MAX_UNSEEN = 64  # the same for all processes whose pids cannot be seen from here
MAX_FDS = 4  # descriptors that a client has sent and not used yet; further ones are closed


class Client:
    """One connection: the bytes that were received and not answered yet, and the answers that were not sent yet.

    ``pid``: the process at its other end, 0 if that is in a pid namespace which cannot be seen from here.
    """

    def __init__(self, sock: socket.socket, pid: int) -> None:
        self.sock = sock
        self.pid = pid
        self.fd = sock.fileno()
        self.known = False  # it has made a valid request
        self.closed = False
        self.received = bytearray()
        self.searched = 0  # bytes of ``received`` in which there is no end of a line
        self.fds: list[int] = []  # received and not used yet
        self.unsent: deque[tuple[memoryview, list[int]]] = deque()  # with duplicated descriptors
        self.unsent_bytes = 0

    @property
    def has_request(self) -> bool:
        """Whether there is a complete request that can be answered now."""
        if self.closed or self.unsent_bytes > PAUSE_READING:
            return False
        end = self.received.find(b"\n", self.searched)
        self.searched = end if end >= 0 else len(self.received)
        return end >= 0

    def take_line(self) -> bytes | None:
        """Remove and return the next line; None if it is not complete."""
        end = self.received.find(b"\n", self.searched)
        if end < 0:
            return None
        line = bytes(self.received[:end])
        del self.received[: end + 1]
        self.searched = 0
        return line

    @property
    def events(self) -> int:
        """What to wait for: requests, unless earlier ones or their answers are pending; room for answers."""
        reading = 0 if self.unsent_bytes > PAUSE_READING or self.has_request else select.POLLIN
        return reading | (select.POLLOUT if self.unsent else 0)


class Connections:
    """All clients, the oldest first, and what ``poll`` waits for from each."""

    def __init__(self, poll: "select.poll") -> None:
        self._poll = poll
        self._clients: dict[int, Client] = {}

    def of(self, fd: int) -> Client | None:
        """The client with this descriptor."""
        return self._clients.get(fd)

    def with_requests(self) -> list[Client]:
        """The clients that have a complete request."""
        return [client for client in self._clients.values() if client.has_request]

    @property
    def backend_connected(self) -> bool:
        """Whether a client is connected that has made a valid request."""
        return any(client.known for client in self._clients.values())

    # --- how many ---

    def make_room(self, pid: int) -> bool:
        """Make room for one more connection of the process ``pid``. Returns whether there is some.

        A process that makes ever more connections must not shut out the backend. Processes of another pid namespace
        cannot be told apart: all have the pid 0, and one limit for all, which leaves room for those that can be seen.
        """
        same = [client for client in self._clients.values() if client.pid == pid]
        if len(same) >= (MAX_OF_PROCESS if pid else MAX_UNSEEN):
            self.drop(next((client for client in same if not client.known), same[0]))
        return len(self._clients) < MAX_CLIENTS or self.drop_unknown()

    def add(self, sock: socket.socket, pid: int) -> None:
        """A new client."""
        sock.setblocking(False)
        client = self._clients[sock.fileno()] = Client(sock, pid)
        self._poll.register(sock, client.events)

    def drop(self, client: Client) -> None:
        """Disconnect a client."""
        if client.closed:
            return
        client.closed = True
        self._poll.unregister(client.fd)
        del self._clients[client.fd]
        for fd in client.fds:
            os.close(fd)
        for _, fds in client.unsent:
            for fd in fds:
                os.close(fd)
        client.sock.close()

    def drop_unknown(self) -> bool:
        """Disconnect the oldest client that has never made a valid request. Returns whether there was one."""
        client = next((client for client in self._clients.values() if not client.known), None)
        if client is not None:
            self.drop(client)
        return client is not None

    def limit_buffers(self) -> None:
        """Disconnect the clients with the most bytes, while all together have too many."""
        while True:
            sizes = {fd: len(c.received) + c.unsent_bytes for fd, c in self._clients.items()}
            if sum(sizes.values()) <= MAX_BUFFERED:
                return
            self.drop(self._clients[max(sizes, key=lambda fd: sizes[fd])])

    # --- bytes ---

    def serve(self, client: Client, event: int) -> bool:
        """Send and receive what ``poll`` has reported for a client. Returns whether something was received."""
        self._flush(client)
        if not client.closed and client.events & select.POLLIN:
            return self._receive(client)
        if event & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
            self.drop(client)  # nobody will read the answers that it still gets
        return False

    def _receive(self, client: Client) -> bool:
        try:
            data, fds, _, _ = socket.recv_fds(client.sock, 1 << 16, MAX_FDS, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return False
        except OSError:
            data, fds = b"", []
        client.fds += fds
        while len(client.fds) > MAX_FDS:
            os.close(client.fds.pop())
        if not data or len(client.received) + len(data) > MAX_LINE:
            self.drop(client)
            return False
        client.received += data
        return True

    def requests_answered(self, client: Client) -> None:
        """Wait for more requests of a client, unless it has some left."""
        if client.closed:
            return
        if not client.received:
            while client.fds:  # they belong to no request
                os.close(client.fds.pop())
        self._poll.modify(client.fd, client.events)

    def send_all(self, message: Record) -> None:
        """Send a message to every client."""
        for client in list(self._clients.values()):
            self.send(client, message)

    def send(self, client: Client, message: Record, fds: list[int] | None = None) -> None:
        """Send a message, or keep it until the client reads. ``fds`` now belong to this object."""
        if client.closed or client.unsent_bytes > MAX_UNSENT:
            for fd in fds or ():
                os.close(fd)
            self.drop(client)
            return
        data = memoryview(line_of(message))
        client.unsent.append((data, fds or []))
        client.unsent_bytes += len(data)
        self._flush(client)

    def _flush(self, client: Client) -> None:
        """Send what the client's socket takes now."""
        while client.unsent and not client.closed:
            data, fds = client.unsent[0]
            try:
                sent = socket.send_fds(client.sock, [data], fds) if fds else client.sock.send(data)
            except BlockingIOError:
                break
            except OSError:
                self.drop(client)
                return
            for fd in fds:
                os.close(fd)
            client.unsent_bytes -= sent
            if sent < len(data):
                client.unsent[0] = (data[sent:], [])
            else:
                client.unsent.popleft()
        if not client.closed:
            self._poll.modify(client.fd, client.events)
