"""Signatures of HTTP and websocket clients: the peer closed the connection or was too slow."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="server-cut-answer",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"ClientPayloadError: Response payload is not completed",
            needle="ClientPayloadError: Response payload is not completed",
            title="A server, or a proxy before it, cut an answer off",
            cause=(
                "The connection ended before the whole answer had come: the server died or restarted, or a time "
                "limit was reached."
            ),
            fix=(
                "Look in the log of the server and of each proxy between for that time; raise their time limits "
                "for streams."
            ),
            source="aiohttp",
            fires="aiohttp.client_exceptions.ClientPayloadError: Response payload is not completed",
            spares="INFO no ClientPayloadError: Response payload is completed",
        ),
        Text(
            "server-cut-answer-codex",
            "stream disconnected before completion: ",
            r"stream disconnected before completion: ",
            "ERROR: stream disconnected before completion: error sending request for url (http://proxy:4000/v1/responses)",
            "INFO the stream disconnected after completion",
            "Codex",
        ),
        Text(
            "server-cut-answer-httpx",
            "peer closed connection without sending complete message body",
            r"peer closed connection without sending complete message body",
            (
                "httpx.RemoteProtocolError: peer closed connection without sending complete message body "
                "(incomplete chunked read)"
            ),
            "INFO the peer closed connection",
            "httpx",
        ),
        Text(
            "server-cut-answer-requests",
            "ChunkedEncodingError: ",
            r"ChunkedEncodingError: ",
            "requests.exceptions.ChunkedEncodingError: ('Connection broken: InvalidChunkLength', 0 bytes read)",
            "INFO no ChunkedEncodingError",
            "requests",
        ),
        Text(
            "server-cut-answer-urllib3",
            "IncompleteRead(",
            r"IncompleteRead\(\d{1,20} bytes read",
            "urllib3.exceptions.ProtocolError: ('Connection broken: IncompleteRead(5 bytes read, 9 more expected)')",
            "INFO no IncompleteRead(0)",
            "urllib3",
        ),
    ),
    *family(
        Signature(
            id="server-hung-up",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"\.ServerDisconnectedError\b",
            needle=".ServerDisconnectedError",
            title="A server closed the connection without an answer",
            cause=(
                "It died, restarted or is overloaded, or it had just closed an idle connection that the "
                "client used again."
            ),
            fix=(
                "Look in the server's log for that time; let the client retry, and raise the server's keep-alive "
                "timeout."
            ),
            source="aiohttp",
            fires="aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected",
            spares="INFO no ServerDisconnectedError here",
        ),
        Text(
            "server-hung-up-httpx",
            "Server disconnected without sending a response",
            r"Server disconnected without sending a response",
            "httpx.RemoteProtocolError: Server disconnected without sending a response.",
            "INFO Server disconnected",
            "httpx",
        ),
        Text(
            "server-hung-up-requests",
            "Remote end closed connection without response",
            r"Remote end closed connection without response",
            "('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))",
            "INFO Remote end closed connection",
            "http.client",
        ),
        Text(
            "server-hung-up-httpx-read",
            "httpx.ReadError",
            r"httpx\.ReadError\b",
            "httpx.ReadError",
            "INFO no httpx.ReadErrors"[:20],
            "httpx",
        ),
    ),
    *family(
        Signature(
            id="server-slow",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"httpx\.(?P<what>ReadTimeout)\b",
            needle="httpx.ReadTimeout",
            title="A server did not answer in the client's time limit ({what})",
            cause="The request was accepted, and no answer came in time: the server is slow, overloaded or hangs.",
            fix="Raise the client's timeout, send fewer requests at once, and look in the server's log.",
            source="httpx",
            fires="httpx.ReadTimeout: The read operation timed out",
            spares="INFO httpx.ReadTimeouts: none",
        ),
        Text(
            "server-slow-go-headers",
            "net/http: timeout awaiting response headers",
            r"net/http: (?P<what>timeout) awaiting response headers",
            "Error proxying to upstream server: net/http: timeout awaiting response headers",
            "INFO net/http: no timeout",
            "Go net/http",
        ),
        Text(
            "server-slow-connect",
            "httpx.ConnectTimeout",
            r"httpx\.(?P<what>ConnectTimeout)\b",
            "httpx.ConnectTimeout",
            "INFO httpx.ConnectTimeouts: none",
        ),
        Text(
            "server-slow-aiohttp",
            "aiohttp.",
            (
                r"aiohttp\.(?:client_exceptions\.)?(?P<what>ServerTimeoutError|ConnectionTimeou"
                r"tError)\b"
            ),
            "aiohttp.client_exceptions.ConnectionTimeoutError: Connection timeout to host",
            "INFO aiohttp.client_exceptions is imported",
            "aiohttp",
        ),
        Text(
            "server-slow-litellm",
            "Timeout: ",
            r"litellm\.(?:exceptions\.)?(?P<what>Timeout): (?![^\n]{0,400}Timeout passed=)",
            "litellm.Timeout: OpenAIException - Request timed out.",
            "litellm.Timeout: Connection timed out. Timeout passed=60.0, time taken=60.1 seconds",
            "litellm/exceptions.py",
        ),
        Text(
            "server-slow-grpc",
            "StatusCode.DEADLINE_EXCEEDED",
            r"StatusCode\.(?P<what>DEADLINE_EXCEEDED)",
            "status = StatusCode.DEADLINE_EXCEEDED",
            "INFO no StatusCode.DEADLINE",
            "gRPC",
        ),
        Text(
            "server-slow-go",
            "Client.Timeout exceeded while awaiting headers",
            (
                r"(?:Get|Post|Put|Head) \"https?://[^\"\n]{1,300}\": (?:net/http: request canceled|context "
                r"deadline exceeded) \((?P<what>Client\.Timeout) exceeded while awaiting headers"
            ),
            (
                'Post "http://10.0.0.5:8000/v1/chat": context deadline exceeded (Client.Timeout exceeded while '
                "awaiting headers)"
            ),
            "INFO no Client.Timeout exceeded while awaiting headers",
            "Go net/http",
        ),
    ),
    Signature(
        id="client-pool-full",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"httpx\.PoolTimeout\b",
        needle="httpx.PoolTimeout",
        title="A client has more requests at once than connections",
        cause="All connections of its pool were busy for as long as its pool timeout.",
        fix=(
            "Raise the client's limits (httpx.Limits), lower its concurrency, and close answers that are not "
            "read."
        ),
        source="httpx",
        fires="httpx.PoolTimeout",
        spares="INFO httpx.PoolTimeouts: none",
    ),
    Signature(
        id="address-unreachable",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"(?<!Hosted_vllmException - )Cannot connect to host (?P<address>[\w.:\[\]-]{1,200}) ssl:",
        needle="Cannot connect to host ",
        title="{address} cannot be reached",
        cause="The connection was refused, no route leads there, or its name is not known.",
        fix="Check the address, that the server runs, and the network between.",
        command="curl -sv -o /dev/null --max-time 10 http://{address}",
        source="aiohttp",
        fires=(
            "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host 10.0.0.5:8000 "
            "ssl:default [None]"
        ),
        spares=(
            "litellm.InternalServerError: Hosted_vllmException - Cannot connect to host 10.0.0.5:8000 "
            "ssl:default"
        ),
    ),
)
