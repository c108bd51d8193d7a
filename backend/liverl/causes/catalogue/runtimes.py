"""Signatures of errors as programs in JavaScript, Go, Rust and Java print them."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="address-refused",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"connect ECONNREFUSED (?P<address>[\w.:\[\]/-]{1,200})",
            needle="connect ECONNREFUSED ",
            title="Nothing listens at {address}",
            cause="A program connected to {address}, and no server has that port open: it is down, or elsewhere.",
            fix="Start the server, or correct the address (in a container localhost is the container itself).",
            command="ss -ltnp",
            source="Node.js",
            fires="Error: connect ECONNREFUSED 127.0.0.1:4000",
            spares="INFO connect to 127.0.0.1:4000 without ECONNREFUSED",
        ),
        Text(
            "address-refused-go",
            ": connect: connection refused",
            r"dial tcp (?P<address>[\w.:\[\]-]{1,200}): connect: connection refused",
            'Post "http://10.0.0.5:8000/v1": dial tcp 10.0.0.5:8000: connect: connection refused',
            "INFO dial tcp 10.0.0.5:8000: connect: no connection refused",
            "Go net",
        ),
        Text(
            "address-refused-java",
            "ConnectException: Connection refused",
            r"ConnectException: Connection refused(?P<address>[^\n]{0,80})",
            "java.net.ConnectException: Connection refused (Connection refused)",
            "INFO no ConnectException: Connection made",
            "Java",
        ),
    ),
    *family(
        Signature(
            id="address-refused-rust",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"Connection refused \(os error 111\)",
            needle="Connection refused (os error 111)",
            title="Nothing listens at the address that a program connected to",
            cause="No server has that port open: it is down, or elsewhere.",
            fix="Start the server, or correct the address (in a container localhost is the container itself).",
            command="ss -ltnp",
            source="Rust std",
            fires="error sending request: tcp connect error: Connection refused (os error 111)",
            spares="INFO no Connection refused",
        ),
        Text(
            "address-refused-rust-panic",
            "kind: ConnectionRefused",
            r"Os \{ code: 111, kind: ConnectionRefused",
            'called `Result::unwrap()` on an `Err` value: Os { code: 111, kind: ConnectionRefused, message: "x" }',
            "INFO no kind: ConnectionRefused",
        ),
    ),
    *family(
        Signature(
            id="address-silent",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"connect ETIMEDOUT (?P<address>[\w.:\[\]-]{1,200})",
            needle="connect ETIMEDOUT ",
            title="{address} does not answer",
            cause="The connection was neither accepted nor refused: a firewall, no route, or the host is down.",
            fix=(
                "Try it from the same host or container; where only an HTTP proxy leads outside, set the proxy "
                "variables."
            ),
            command="env | grep -i proxy; ip route",
            source="Node.js",
            fires="Error: connect ETIMEDOUT 192.0.2.7:443",
            spares="INFO connect without ETIMEDOUT 192.0.2.7:443",
        ),
        Text(
            "address-silent-go",
            ": i/o timeout",
            r"dial tcp (?P<address>[\w.:\[\]-]{1,200}): i/o timeout",
            'Get "https://x.example.org/": dial tcp 192.0.2.7:443: i/o timeout',
            "dial tcp: lookup x.example.org on 10.0.0.2:53: i/o timeout",
            "Go net",
        ),
        Text(
            "address-silent-route",
            ": connect: no route to host",
            r"dial tcp (?P<address>[\w.:\[\]-]{1,200}): connect: no route to host",
            "dial tcp 10.0.0.5:6443: connect: no route to host",
            "dial tcp 10.0.0.5:6443: connect: a route to host",
            "Go net",
        ),
        Text(
            "address-silent-network",
            ": connect: network is unreachable",
            r"dial tcp (?P<address>[\w.:\[\]-]{1,200}): connect: network is unreachable",
            "dial tcp [2001:db8::7]:443: connect: network is unreachable",
            "dial tcp [2001:db8::7]:443: connect: the network is reachable",
            "Go net",
        ),
    ),
    *family(
        Signature(
            id="name-unknown",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"getaddrinfo (?P<code>ENOTFOUND|EAI_AGAIN) (?P<host>[\w.-]{1,200})",
            needle="getaddrinfo E",
            title="The name {host} cannot be resolved (DNS)",
            cause="No name server answered with an address of {host}.",
            fix=(
                "Check the name and /etc/resolv.conf there; a container needs a name server that it can "
                "reach (docker run "
                "--dns), or an HTTP proxy."
            ),
            command="getent hosts {host}; cat /etc/resolv.conf",
            source="Node.js",
            fires="Error: getaddrinfo ENOTFOUND api.example.org",
            spares="INFO getaddrinfo EXAMPLE api.example.org",
        ),
        Text(
            "name-unknown-go",
            "lookup ",
            (
                r"lookup (?P<host>[\w.-]{1,200})(?: on [\w.:\[\]-]{1,80})?: (?:no such "
                r"host|server misbehaving|Temporary failure in name resolution|i/o timeout|read udp "
                r"[^\n]{1,120}|Try again)"
            ),
            "dial tcp: lookup registry.example.org on 10.0.0.2:53: no such host",
            "INFO lookup registry.example.org: done",
            "Go net",
        ),
        Text(
            "name-unknown-java",
            "UnknownHostException: ",
            r"UnknownHostException: (?P<host>[\w.-]{1,200})",
            "java.net.UnknownHostException: repo.example.org",
            "INFO no UnknownHostException",
            "Java",
        ),
    ),
    Signature(
        id="name-unknown-rust",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"failed to lookup address information: ",
        needle="failed to lookup address information: ",
        title="A name cannot be resolved (DNS)",
        cause="No name server answered with its address.",
        fix="Check the name and /etc/resolv.conf there; a container needs a name server that it can reach.",
        command="cat /etc/resolv.conf",
        source="Rust std",
        fires=(
            "error trying to connect: dns error: failed to lookup address information: Name or service not "
            "known"
        ),
        spares="INFO lookup of address information",
    ),
    *family(
        Signature(
            id="connection-lost-node",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=(
                r"Error: (?P<why>read ECONNRESET|write EPIPE|socket hang up|read ETIMEDOUT|Client network socket "
                r"disconnected)"
            ),
            needle="Error: ",
            title="A connection of a Node.js program broke: {why}",
            cause="The server or a proxy between closed it before the answer was complete.",
            fix=(
                "Look in the log of the server or proxy for that time; a request that takes long may reach its "
                "time limit."
            ),
            source="Node.js",
            fires="Error: read ECONNRESET",
            spares="Error: read EOF",
        ),
        Text(
            "connection-lost-undici",
            "UND_ERR_",
            r"(?P<why>UND_ERR_(?:HEADERS_TIMEOUT|BODY_TIMEOUT|CONNECT_TIMEOUT|SOCKET))",
            "  [cause]: HeadersTimeoutError: Headers Timeout Error { code: 'UND_ERR_HEADERS_TIMEOUT' }",
            "INFO UND_ERR_NONE",
        ),
    ),
)
