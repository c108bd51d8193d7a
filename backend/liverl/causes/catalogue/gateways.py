"""Signatures of reverse proxies and web servers: nginx, HAProxy, Envoy, Traefik, gunicorn, uvicorn."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

_BEFORE = r"[^\n]{0,400}?upstream: \"(?P<address>[^\"\n]{1,300})\""

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="nginx-backend-refused",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"connect\(\) failed \(111: [\w ]{1,40}\) while connecting to upstream," + _BEFORE,
            needle=" while connecting to upstream,",
            title="nginx cannot reach its backend: nothing listens at {address}",
            cause="nginx passes requests on to {address}, where no server has the port open.",
            fix="Start the backend, or correct proxy_pass or upstream in nginx's configuration.",
            command="ss -ltnp; nginx -T | grep -A5 upstream",
            source="nginx",
            fires=(
                "2026/11/21 [error] 7#7: *1 connect() failed (111: Connection refused) while connecting to "
                "upstream, client: "
                '10.0.0.2, server: _, request: "POST /v1 HTTP/1.1", upstream: "http://10.0.0.5:8000/v1", host: "x"'
            ),
            spares="INFO connect() while connecting to upstream, done",
        ),
        Text(
            "nginx-backend-unreachable",
            " while connecting to upstream,",
            r"connect\(\) (?:to \S{1,100} )?failed \((?:101|110|113|13): [\w ]{1,40}\) while connecting to upstream,"
            + _BEFORE,
            "[error] 7#7: *1 connect() failed (113: No route to host) while connecting to upstream, client: "
            "10.0.0.2, "
            'server: _, request: "GET / HTTP/1.1", upstream: "http://10.0.0.5:8000/", host: "x"',
            "INFO connect() while connecting to upstream, done",
        ),
    ),
    Signature(
        id="nginx-backend-slow",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"upstream timed out \(110: [\w ]{1,40}\) while (?P<what>[\w ]{1,60}) from upstream,"
        + _BEFORE,
        needle="upstream timed out (110: ",
        title="A backend of nginx did not answer in time: {address}",
        cause="nginx waited proxy_read_timeout for the backend, and closed the request with 504.",
        fix="Raise proxy_read_timeout above the longest answer of the model; look why the backend is slow.",
        command="nginx -T | grep -i timeout",
        source="nginx",
        fires=(
            "[error] 7#7: *1 upstream timed out (110: Connection timed out) while reading response header "
            "from upstream, "
            'client: 10.0.0.2, server: _, request: "POST /v1 HTTP/1.1", upstream: "http://10.0.0.5:8000/v1", '
            'host: "x"'
        ),
        spares="INFO upstream timed out 0 times",
    ),
    *family(
        Signature(
            id="nginx-backend-closed",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"upstream prematurely closed connection while (?P<what>[\w ]{1,60}) from upstream",
            needle="upstream prematurely closed connection while ",
            title="A backend of nginx closed the connection before it answered",
            cause="The backend ended, restarted, or reached a limit of its own while nginx waited ({what}).",
            fix="Look in the backend's log for that time.",
            source="nginx",
            fires=(
                "[error] 7#7: *1 upstream prematurely closed connection while reading response header from "
                "upstream"
            ),
            spares="INFO upstream closed connection while idle",
        ),
        Text(
            "nginx-backend-reset",
            "recv() failed (104: ",
            r"recv\(\) failed \(104: [\w ]{1,40}\) while (?P<what>[\w ]{1,60}) from upstream",
            (
                "[error] 7#7: *1 recv() failed (104: Connection reset by peer) while reading response header "
                "from upstream"
            ),
            "INFO recv() failed (104: 0 times",
        ),
    ),
    *family(
        Signature(
            id="gateway-no-backend",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"no live upstreams while connecting to upstream",
            needle="no live upstreams while connecting to upstream",
            title="A gateway has no healthy backend left",
            cause=(
                "Every server behind it failed its check or refused connections, so that it answers 502 or 503 "
                "itself."
            ),
            fix="Start the backends and see their logs; check the addresses in the gateway's configuration.",
            source="nginx",
            fires="[error] 7#7: *3 no live upstreams while connecting to upstream, client: 10.0.0.2",
            spares="INFO live upstreams while connecting to upstream",
        ),
        Text(
            "gateway-no-backend-haproxy",
            " has no server available!",
            r"(?:backend|proxy) \S{1,80} has no server available!",
            "[ALERT] (8) : backend 'vllm' has no server available!",
            "INFO backend 'vllm' has a server available!",
            "HAProxy",
        ),
        Text(
            "gateway-no-backend-envoy",
            "no healthy upstream",
            r"no healthy upstream",
            "openai.InternalServerError: no healthy upstream"[28:],
            "INFO a healthy upstream",
            "Envoy",
        ),
        Text(
            "gateway-backend-connect-envoy",
            "upstream connect error or disconnect/reset before headers",
            r"upstream connect error or disconnect/reset before headers",
            "503 upstream connect error or disconnect/reset before headers. reset reason: connection timeout",
            "INFO no upstream connect error",
            "Envoy",
        ),
        Text(
            "gateway-backend-haproxy-down",
            " is DOWN, reason: ",
            r"Server \S{1,120} is DOWN, reason: ",
            '[WARNING] (8) : Server vllm/gpu1 is DOWN, reason: Layer4 connection problem, info: "Connection refused"',
            "INFO Server vllm/gpu1 is UP, reason: Layer7 check passed",
            "HAProxy",
        ),
    ),
    Signature(
        id="gateway-timeout-envoy",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"upstream request timeout",
        needle="upstream request timeout",
        title="A gateway closed a request: the backend did not answer in time",
        cause="The gateway's time limit (of Envoy 15 s unless set) is shorter than the answer takes.",
        fix="Raise the route's timeout (timeout: 0s turns Envoy's off), or look why the backend is slow.",
        source="Envoy",
        fires="504 upstream request timeout",
        spares="INFO upstream request, timeout 15s",
    ),
    Signature(
        id="nginx-body-large",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"client intended to send too large body: (?P<bytes>\d{1,20}) bytes",
        needle="client intended to send too large body: ",
        title="nginx refuses a request of {bytes} bytes (413)",
        cause="The body is larger than client_max_body_size (1 MB unless set).",
        fix="Set client_max_body_size 0; in nginx's configuration.",
        source="nginx",
        fires="[error] 7#7: *1 client intended to send too large body: 2097152 bytes",
        spares="INFO client intended to send a body: 2097152 bytes",
    ),
    Signature(
        id="nginx-name",
        component="host",
        role="cause",
        pattern=r"host not found in upstream \"(?P<host>[^\"\n]{1,200})\"",
        needle='host not found in upstream "',
        title="nginx does not start: the backend's name {host} cannot be resolved",
        cause="nginx resolves names of backends when it starts, and this one is not known then.",
        fix="Start the backend's container first (depends_on), correct the name, or set resolver and use a variable.",
        source="nginx",
        fires='nginx: [emerg] host not found in upstream "vllm" in /etc/nginx/conf.d/default.conf:4',
        spares='INFO host found in upstream "vllm"',
    ),
    Signature(
        id="nginx-connections",
        component="host",
        role="cause",
        alive=True,
        pattern=r"(?P<most>\d{1,9}) worker_connections are not enough",
        needle=" worker_connections are not enough",
        title="nginx has no connections left (limit {most} per worker)",
        cause="Each request holds two, one to the client and one to the backend.",
        fix="Raise worker_connections and worker_rlimit_nofile.",
        source="nginx",
        fires="[alert] 7#7: 1024 worker_connections are not enough",
        spares="INFO 1024 worker_connections are set",
    ),
    Signature(
        id="nginx-configuration",
        component="host",
        role="cause",
        pattern=(
            r"\[emerg\] [^\n]{0,20}?(?P<why>(?:unknown directive|unexpected|invalid |duplicate |cannot load "
            r"certificate|open\(\) |directive |\"\w{1,40}\" directive)[^\n]{1,200})"
        ),
        needle="[emerg] ",
        title="nginx does not start: its configuration is wrong",
        cause="{why}.",
        fix="Correct the file and line that it names; test it with nginx -t.",
        command="nginx -t",
        source="nginx",
        fires='nginx: [emerg] unknown directive "proxy_pas" in /etc/nginx/nginx.conf:12',
        spares="nginx: [emerg] bind() to 0.0.0.0:80 failed",
    ),
    Signature(
        id="gunicorn-worker-slow",
        component="host",
        role="cause",
        alive=True,
        pattern=r"\[CRITICAL\] WORKER TIMEOUT \(pid:(?P<pid>\d{1,10})\)",
        needle="WORKER TIMEOUT (pid:",
        title="gunicorn killed a worker that did not answer in time (pid {pid})",
        cause="The worker was busy or blocked for longer than --timeout (30 s unless set).",
        fix="Raise --timeout, use asynchronous workers (-k uvicorn.workers.UvicornWorker), or find what blocks it.",
        source="gunicorn",
        fires="[2026-11-21 00:17:39 +0000] [1] [CRITICAL] WORKER TIMEOUT (pid:22)",
        spares="[INFO] WORKER TIMEOUT (pid: is set",
    ),
    Signature(
        id="gunicorn-worker-killed",
        component="host",
        role="cause",
        alive=True,
        pattern=r"Worker \(pid:(?P<pid>\d{1,10})\) was sent SIGKILL! Perhaps out of memory\?",
        needle=") was sent SIGKILL! Perhaps out of memory?",
        title="A worker of gunicorn was killed (pid {pid})",
        cause="It got SIGKILL: no memory left, or gunicorn's own time limit just before.",
        fix="Give it more memory or run fewer workers; if a WORKER TIMEOUT stands before, raise --timeout.",
        command="dmesg -T | grep -i 'killed process'",
        source="gunicorn",
        fires="[ERROR] Worker (pid:22) was sent SIGKILL! Perhaps out of memory?",
        spares="INFO Worker (pid:22) was sent SIGTERM",
    ),
    Signature(
        id="request-not-http",
        component="host",
        role="cause",
        alive=True,
        request=True,
        slips=3,
        severity="info",
        pattern=(
            r"h11\._util\.RemoteProtocolError: (?P<why>illegal request line|Missing mandatory Host: "
            r"header|illegal header line)"
        ),
        needle="h11._util.RemoteProtocolError: ",
        title="A client sent something that is no HTTP request",
        cause="Mostly https:// sent to a port without TLS, or a scanner; the server goes on.",
        fix="Use http:// for this port in the client, or put TLS before it; else ignore it.",
        source="uvicorn",
        fires="h11._util.RemoteProtocolError: illegal request line",
        spares="h11._util.RemoteProtocolError: can't handle event",
    ),
)
