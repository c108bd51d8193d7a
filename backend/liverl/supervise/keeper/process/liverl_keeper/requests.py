"""What each request does. The package's docstring lists them."""

import os
import signal

from .children import Children
from .connections import Client, Connections
from .listeners import Listeners
from .messages import MAX_NAME, Record, name_in, refusal, request_in, text_in
from .processes import descendants, send

LINES = 8  # requests of one client that are answered before it is the next one's turn


class Requests:
    """Answers requests. ``dismissed``: the keeper exits after the last child has ended, unless a client says hello;
    ``ended``: it exits now."""

    def __init__(self, connections: Connections, children: Children, listeners: Listeners) -> None:
        self._connections = connections
        self._children = children
        self._listeners = listeners
        self.dismissed = False
        self.ended = False

    def answer_some(self, client: Client) -> None:
        """Answer some of the client's requests; the others come after those of other clients."""
        for _ in range(LINES):
            if not client.has_request or self.ended:
                break
            line = client.take_line()
            assert line is not None
            self._answer(client, line)
        self._connections.requests_answered(client)

    def _answer(self, client: Client, line: bytes) -> None:
        send_fds: list[int] = []
        number = None
        try:
            request = request_in(line)
            if isinstance(request.get("id"), int | str):
                number = request["id"]
            answer = self._do(client, request, send_fds)
            client.known = True
        except Exception as error:  # noqa: BLE001 - whatever a request causes is answered
            answer = refusal(error)
        self._connections.send(client, {"id": number, **answer}, send_fds)

    def _do(self, client: Client, request: Record, send_fds: list[int]) -> Record:
        match request["do"]:
            case "hello":
                self.dismissed = False  # a backend uses the keeper again
                children, ports = self._children.records(), self._listeners.ports()
                return {"pid": os.getpid(), "children": children, "listeners": ports}
            case "kill":
                running = descendants(os.getpid())
                send(running, signal.SIGKILL)
                return {"killed": len(running)}
            case "ends":
                self._children.report_exits()
                return {}
            case "spawn":
                return self._children.spawn(request)
            case "listen":
                name, host = name_in(request, "name"), text_in(request, "host")
                return {"port": self._listeners.listen(name, host, request["port"])}
            case "get_fd":
                send_fds.append(self._listeners.duplicate(name_in(request, "name")))
                return {"name": request["name"]}
            case "adopt_fd":
                name = name_in(request, "name")
                if not client.fds:
                    raise ValueError("no descriptor came with the request")
                return {"port": self._listeners.adopt(name, client.fds.pop(0))}
            case "forget":
                self._children.forget(name_in(request, "token"))
                return {}
            case "close":
                self._listeners.close(name_in(request, "name"))
                return {}
            case "exit":
                return self._exit()
            case other:
                raise ValueError(f"unknown request {str(other)[:MAX_NAME]!r}")

    def _exit(self) -> Record:
        self._children.reap(retry=True)
        self.dismissed = True
        if self._children.running:
            return {"error": f"service processes still running: {len(self._children.running)}"}
        self.ended = True
        return {}
