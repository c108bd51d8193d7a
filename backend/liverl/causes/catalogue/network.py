"""Signatures of ports and names of hosts."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="port-in-use-address",
        component="host",
        role="cause",
        pattern=(
            r"\[Errno 98\] error while attempting to bind on address \('(?P<host>[^']{1,60})', "
            r"(?P<port>\d{1,5})\S{0,20}\): address already in use"
        ),
        needle="[Errno 98] error while attempting to bind on address",
        title="Port {port} on {host} is taken by another process",
        cause="Another process listens on {host}:{port}, so this server could not start.",
        fix=(
            "See who holds the port; stop it if it is a leftover of yours, or choose another port (for "
            "the proxy infrastructure.litellm_port, 0 takes any free one)."
        ),
        command="ss -ltnp 'sport = :{port}'",
        source="recordings/litellm_fail_port_in_use.log, recordings/cases/53-made-uvicorn-port-in-use.log",
        fires=(
            "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 8203): address "
            "already in use"
        ),
        spares="OSError: [Errno 98] Address already in use",
        recorded=True,
    ),
    Signature(
        id="port-in-use",
        component="host",
        role="cause",
        pattern=r"\[Errno 98\] Address already in use",
        needle="[Errno 98] Address already in use",
        title="A port is taken by another process",
        cause="Another process listens on the port that this server wanted.",
        fix=(
            "See who listens; stop it if it is a leftover of yours, or choose another port "
            "(infrastructure.litellm_port, infrastructure.ray_port; 0 takes any free one)."
        ),
        command="ss -ltnp",
        source="recordings/vllm_fail_port_in_use.log",
        fires="OSError: [Errno 98] Address already in use",
        spares="OSError: [Errno 111] Connection refused",
        recorded=True,
    ),
    Signature(
        id="port-in-use-torch",
        component="torch",
        role="cause",
        pattern=(
            "The server socket has failed to (?:listen on any local network address|bind to "
            r"\S{1,60})[^\n]{0,300}?port: (?P<port>\d{1,5})[^\n]{0,200}?EADDRINUSE"
        ),
        needle="The server socket has failed to",
        title="Port {port} of torch's rendezvous is taken by another process",
        cause="Another process (often a training run that did not end) listens on MASTER_PORT {port}.",
        fix="See who holds port {port}, stop it if it is yours, and restart.",
        command="ss -ltnp 'sport = :{port}'",
        source="torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp",
        fires=(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
            "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address "
            "already in use"
        ),
        spares=(
            "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while "
            "trying to connect to (127.0.0.1, 29500)."
        ),
    ),
    Signature(
        id="port-in-use-zmq",
        component="host",
        role="cause",
        pattern=r"zmq\.error\.ZMQError: Address already in use(?: \(addr='(?P<addr>[^']{1,200})'\))?",
        needle="zmq.error.ZMQError: Address already in use",
        title="A ZMQ socket is taken: another run, or a leftover of one, uses it",
        cause="Two runs use the same ZMQ socket, or a run that was killed left its socket file in /tmp.",
        fix="Stop the other run; if there is none, delete /tmp/rl-colocate-zmq-*.sock and restart.",
        command="ls -l /tmp/rl-colocate-zmq-*.sock",
        source="verl issue 6233",
        fires="zmq.error.ZMQError: Address already in use (addr='ipc:///tmp/rl-colocate-zmq-0.sock')",
        spares="zmq.error.ZMQError: No such device (addr='tcp://eth9:5555')",
    ),
    Signature(
        id="name-resolution",
        component="host",
        role="cause",
        pattern=r"\[Errno -[23]\] (?:Name or service not known|Temporary failure in name resolution)",
        needle="[Errno -",
        title="A host name could not be resolved",
        cause=(
            "DNS gave no address: there is no such name, or this machine or sandbox has no way out to "
            "the internet."
        ),
        fix=(
            "Check the name and the network; where there is no internet, use local paths "
            "(model.model_path, data.data_dir) and HF_HUB_OFFLINE=1."
        ),
        severity="warning",
        alive=True,
        source="socket.gaierror",
        fires="socket.gaierror: [Errno -2] Name or service not known",
        spares="ConnectionRefusedError: [Errno 111] Connection refused",
    ),
    Signature(
        id="name-resolution-url",
        component="host",
        role="cause",
        pattern=r"Failed to resolve '(?P<host>[^'\n]{1,200})'",
        needle="Failed to resolve '",
        title="The host name {host} could not be resolved",
        cause=(
            "DNS gave no address for {host}: there is no such name, or this machine or sandbox has no "
            "way out to the internet."
        ),
        fix=(
            "Check the network; where there is no internet, use local paths (model.model_path, "
            "data.data_dir) and HF_HUB_OFFLINE=1. Sandboxes need their files baked into the image."
        ),
        severity="warning",
        alive=True,
        source="urllib3 NameResolutionError",
        fires=(
            "NameResolutionError(\"HTTPSConnection(host='raw.githubusercontent.com', port=443): Failed to "
            "resolve 'raw.githubusercontent.com' ([Errno -3] Temporary failure in resolving)\")"
        ),
        spares=("Resolved 'raw.githubusercontent.com' to 185.199.108.133; failed over to the next address"),
    ),
    Signature(
        id="tls-not-trusted",
        component="host",
        role="cause",
        pattern=(
            r"certificate(?: verify failed: (?:self[- ]signed|unable to get (?:local )?issuer|IP address "
            r"mismatch|Hostname "
            r"mismatch)| verification failed\. CAfile|(?: problem:|: verify result:) (?:self|unable)| signed by "
            r"unknown "
            "authority)"
        ),
        needle="certificate",
        title="The certificate of a server is not trusted (TLS)",
        cause=(
            "No authority that this machine trusts has signed the server's certificate: a proxy of the network "
            "signs it "
            "anew, or the server made its own."
        ),
        fix=(
            "Give the programs the authority's certificate: SSL_CERT_FILE, REQUESTS_CA_BUNDLE and "
            "NODE_EXTRA_CA_CERTS, in "
            "images update-ca-certificates; or use plain http for a server of your own inside the cluster."
        ),
        command="openssl s_client -connect HOST:443 -showcerts </dev/null | head -20",
        alive=True,
        source="OpenSSL, as Python, curl, git and Go print it",
        fires=(
            "httpx.ConnectError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed "
            "certificate in "
            "certificate chain (_ssl.c:1006)"
        ),
        spares="INFO certificate verified: signed by the authority of this cluster",
    ),
    Signature(
        id="tls-clock",
        component="host",
        role="cause",
        pattern=r"certificate (?:verify failed: certificate )?(?:is not yet valid|has expired)",
        needle="certificate ",
        title="A server's certificate is expired, or this host's clock is wrong",
        cause="Certificates hold for a time, and this host's clock is outside of it.",
        fix=(
            "Compare the clock (date -u) with another host's and set it (chronyc makestep); else renew the "
            "certificate."
        ),
        command="date -u; timedatectl",
        alive=True,
        source="OpenSSL",
        fires=(
            "ssl.SSLCertVerificationError: [SSL] certificate verify failed: certificate is not yet valid "
            "(_ssl.c:1006)"
        ),
        spares="the certificate is valid until 2027",
    ),
    Signature(
        id="http-proxy-refuses",
        component="host",
        role="cause",
        pattern=r"Tunnel connection failed: (?P<status>\d{3}[^\n'\")]{0,60})",
        needle="Tunnel connection failed:",
        title="The HTTP proxy refuses the connection ({status})",
        cause="HTTP_PROXY or HTTPS_PROXY names a proxy that does not let this request through.",
        fix="Have the address allowed, log in to the proxy, or put hosts inside the cluster into NO_PROXY.",
        command="env | grep -i _proxy",
        alive=True,
        source="http.client",
        fires="OSError: Tunnel connection failed: 403 Forbidden",
        spares="Tunnel connection established: 200 OK",
    ),
    Signature(
        id="http-proxy-down",
        component="host",
        role="cause",
        pattern=r"ProxyError\('Unable to connect to proxy', NewConnectionError",
        needle="ProxyError('Unable to connect to proxy', ",
        title="The HTTP proxy of this environment cannot be reached",
        cause="HTTP_PROXY or HTTPS_PROXY names a proxy that does not answer from this host.",
        fix="Correct or unset these variables, and put hosts inside the cluster into NO_PROXY.",
        command="env | grep -i _proxy",
        alive=True,
        source="urllib3",
        fires=(
            "requests.exceptions.ProxyError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries "
            "exceeded (Caused "
            "by ProxyError('Unable to connect to proxy', NewConnectionError('Connection refused')))"
        ),
        spares="ProxyError('Unable to connect to proxy', OSError('Tunnel connection failed'))",
    ),
)
