"""Signatures of answers that HTTP and websocket clients got, and of addresses that they cannot use."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="server-status-error",
            component="python",
            role="general",
            where="exception",
            alive=True,
            request=True,
            pattern=(
                r"(?<!Masked)HTTPStatusError: (?:Client|Server) error '(?P<status>\d{3}[^'\n]{0,60})' for url "
                r"'(?P<url>(?!https://huggingface\.co)[^'\n]{1,300})"
            ),
            needle="HTTPStatusError: ",
            title="A server answered {status}",
            cause=(
                "A program asked {url} and got that status: a 5xx is a failure of that server, or of the router "
                "before it that finds no healthy one; a 4xx is a request that it refuses."
            ),
            fix=(
                "Look into the log of the server behind that address at the same time. For 401 and 403 check the key, "
                "for 404 the address, for 400 and 422 the form of the request; for 429 send fewer requests at once."
            ),
            command="curl -sS -i {url}",
            effect=True,
            source="httpx",
            fires="httpx.HTTPStatusError: Server error '502 Bad Gateway' for url 'http://10.0.0.5:8000/v1'",
            spares="MaskedHTTPStatusError: Server error '502 Bad Gateway' for url 'http://10.0.0.5:8000/v1'",
        ),
        Text(
            "server-status-requests",
            " for url: ",
            r"HTTPError: (?P<status>[45]\d\d (?:Client|Server) Error: [^\n]{1,60}?) for url: "
            r"(?P<url>(?!https://huggingface\.co)\S{1,300})",
            "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: http://10.0.0.5:8000/v1",
            "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/a/b",
            "requests",
        ),
        Text(
            "server-status-aiohttp",
            "ClientResponseError: ",
            (
                r"ClientResponseError: (?P<status>[45]\d\d), message=[^\n]{0,160}?, "
                r"url=(?:URL\()?'(?P<url>[^'\n]{1,300})"
            ),
            (
                "aiohttp.client_exceptions.ClientResponseError: 503, message='Service Unavailable', "
                "url='http://10.0.0.5/v1'"
            ),
            "INFO no ClientResponseError: 200",
            "aiohttp",
        ),
    ),
    Signature(
        id="server-status-urllib",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"urllib\.error\.HTTPError: HTTP Error (?P<status>\d{3}: [^\n]{1,80})",
        needle="urllib.error.HTTPError: HTTP Error ",
        title="A server answered {status}",
        cause=(
            "A program asked an address and got that status: a 5xx is a failure of that server, or of the router "
            "before it; a 4xx is a request that it refuses."
        ),
        fix=(
            "The traceback names who asked. For 401 and 403 check the key, for 404 the address; for 429 send fewer "
            "requests at once; for 5xx read the server's own log."
        ),
        source="urllib",
        fires="urllib.error.HTTPError: HTTP Error 404: Not Found",
        spares="INFO no urllib.error.HTTPError: HTTP 200",
    ),
    *family(
        Signature(
            id="answer-no-json",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"Attempt to decode JSON with unexpected mimetype: (?P<type>[\w/;= .-]{1,60})",
            needle="ttempt to decode JSON with unexpected mimetype: ",
            title="A server answered with {type} instead of JSON",
            cause="Mostly an error page of a proxy, or a wrong address.",
            fix="Fetch the address with curl -i to see the page; check the address and the proxy between.",
            source="aiohttp",
            fires=(
                "ContentTypeError: 502, message='Attempt to decode JSON with unexpected mimetype: text/html', "
                "url='http://x'"
            ),
            spares="INFO the JSON has no unexpected mimetype: text/html",
        ),
        Text(
            "answer-no-json-node",
            "Unexpected token '<', ",
            r"Unexpected token '<', \"(?P<type><[^\"\n]{1,30})\"?[^\n]{0,20} is not valid JSON",
            "SyntaxError: Unexpected token '<', \"<!DOCTYPE \"... is not valid JSON",
            "INFO no Unexpected token '<', fine",
            "Node.js",
        ),
    ),
    *family(
        Signature(
            id="url-incomplete",
            component="host",
            role="cause",
            pattern=r"Request URL is missing an 'http://' or 'https://' protocol",
            needle="Request URL is missing an 'http://' or 'https://' protocol",
            title="An address is given without http:// or https://, or is empty",
            cause="A base URL in the configuration or environment is incomplete or not set.",
            fix="Write it as http://host:port/v1.",
            command="env | grep -iE 'base|url'",
            source="httpx",
            fires="httpx.UnsupportedProtocol: Request URL is missing an 'http://' or 'https://' protocol.",
            spares="INFO the Request URL has an 'http://' or 'https://' protocol",
        ),
        Text(
            "url-incomplete-requests",
            "No scheme supplied",
            r"MissingSchema: Invalid URL '[^'\n]{0,200}': No scheme supplied",
            "requests.exceptions.MissingSchema: Invalid URL 'None/v1': No scheme supplied.",
            "INFO No scheme supplied",
            "requests",
        ),
        Text(
            "url-incomplete-node",
            "ERR_INVALID_URL",
            r"ERR_INVALID_URL",
            "TypeError: Invalid URL { code: 'ERR_INVALID_URL', input: 'undefined/v1' }",
            "INFO no INVALID URL",
            "Node.js",
        ),
    ),
    Signature(
        id="websocket-silent",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"keepalive ping timeout",
        needle="keepalive ping timeout",
        title="A websocket's peer did not answer the keepalive ping",
        cause="The peer's or this program's event loop was blocked for too long, or the network between is gone.",
        fix="Do no long work in the event loop; raise ping_timeout, or turn pings off (ping_interval=None).",
        source="websockets",
        fires=(
            "websockets.exceptions.ConnectionClosedError: sent 1011 (internal error) keepalive ping timeout; "
            "no close frame received"
        ),
        spares="INFO keepalive ping, timeout 20",
    ),
    *family(
        Signature(
            id="websocket-closed",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"no close frame received or sent",
            needle="no close frame received or sent",
            title="A websocket's connection was lost",
            cause="The peer ended or a proxy between cut the connection, without a closing message.",
            fix=(
                "Look in the peer's log for that time; raise the proxy's timeout for idle connections; let the "
                "client reconnect."
            ),
            source="websockets",
            fires="websockets.exceptions.ConnectionClosedError: no close frame received or sent",
            spares="INFO a close frame received or sent",
        ),
        Text(
            "websocket-closed-code",
            "code = 1006",
            r"ConnectionClosed(?:Error)?: [^\n]{0,60}?code = 1006",
            (
                "websockets.exceptions.ConnectionClosedError: code = 1006 (connection closed abnormally "
                "[internal]), no reason"
            ),
            "INFO code = 1006",
        ),
    ),
    Signature(
        id="websocket-refused",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"server rejected WebSocket connection: HTTP (?P<status>\d{3})",
        needle="server rejected WebSocket connection: HTTP ",
        title="A server refused a websocket with HTTP {status}",
        cause="401 and 403: no or a wrong token; 404: no such address; 502 and 503: a proxy without its backend.",
        fix="Check the address and the token; a proxy must pass the Upgrade header on.",
        source="websockets",
        fires="websockets.exceptions.InvalidStatus: server rejected WebSocket connection: HTTP 403",
        spares="INFO server accepted WebSocket connection: HTTP 101",
    ),
    Signature(
        id="grpc-message-large",
        component="host",
        role="cause",
        pattern=r"(?:Received|[Ss]ent) message larger than max \((?P<size>\d{1,20}) vs\. (?P<most>\d{1,20})\)",
        needle=" message larger than max (",
        title="A gRPC message is too large ({size} bytes, limit {most})",
        cause="The limit of client or server is smaller than what is sent.",
        fix="Raise grpc.max_receive_message_length and grpc.max_send_message_length on both sides, or send less.",
        source="gRPC",
        fires="StatusCode.RESOURCE_EXHAUSTED: Received message larger than max (5000000 vs. 4194304)",
        spares="INFO no message larger than max (4194304)",
    ),
    Signature(
        id="network-unreachable",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=(
            r"\[Errno (?P<number>101|113|110|60)\] (?P<why>Network is unreachable|No route to host|Connection "
            r"timed out|Operation timed out)"
        ),
        needle="[Errno ",
        title="A server cannot be reached: {why}",
        cause="No route leads to it, a firewall drops the packets, or its host is down.",
        fix=(
            "Check the address, the routes and the firewall; where only an HTTP proxy leads outside, set the "
            "proxy variables."
        ),
        command="ip route; env | grep -i proxy",
        source="Linux",
        fires="OSError: [Errno 113] No route to host",
        spares="OSError: [Errno 111] Connection refused",
    ),
    *family(
        Signature(
            id="socks-missing",
            component="host",
            role="cause",
            pattern=r"Using SOCKS proxy, but the 'socksio' package is not installed",
            needle="Using SOCKS proxy, but the 'socksio' package is not installed",
            title="A SOCKS proxy is set, and the client cannot use one",
            cause="all_proxy or another variable names a SOCKS proxy, and the package for it is missing.",
            fix="pip install 'httpx[socks]' (or PySocks), or unset all_proxy and ALL_PROXY.",
            command="env | grep -i proxy",
            source="httpx",
            fires="ImportError: Using SOCKS proxy, but the 'socksio' package is not installed.",
            spares="INFO Using SOCKS proxy with the 'socksio' package",
        ),
        Text(
            "socks-missing-requests",
            "Missing dependencies for SOCKS support",
            r"Missing dependencies for SOCKS support",
            "requests.exceptions.InvalidSchema: Missing dependencies for SOCKS support.",
            "INFO dependencies for SOCKS support",
            "requests",
        ),
    ),
)
