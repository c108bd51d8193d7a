"""Signatures of TLS and HTTP proxies, as tools and programs of other languages than Python print them."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="certificate-unknown",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"unable to verify the first certificate",
            needle="unable to verify the first certificate",
            title="A server's certificate is not trusted here",
            cause=(
                "Its issuer is not among the trusted ones: a company's proxy that opens TLS, or a self-made "
                "certificate."
            ),
            fix=(
                "Add the issuer's certificate to the system (update-ca-certificates) and to the container; "
                "for Docker put "
                "it in /etc/docker/certs.d/HOST/ca.crt, for Node.js in NODE_EXTRA_CA_CERTS."
            ),
            command="openssl s_client -connect HOST:443 -showcerts </dev/null",
            source="Node.js",
            fires="Error: unable to verify the first certificate",
            spares="INFO able to verify the first certificate",
        ),
        Text(
            "certificate-unknown-node-self",
            "certificate in certificate chain",
            r"Error: self[- ]signed certificate in certificate chain",
            "Error: self-signed certificate in certificate chain",
            "INFO a certificate in certificate chain",
            "Node.js",
        ),
        Text(
            "certificate-unknown-node-issuer",
            "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
            r"UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
            "npm error code UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
            "INFO able to get the issuer's cert locally",
            "Node.js",
        ),
        Text(
            "certificate-unknown-java",
            "PKIX path building failed",
            r"PKIX path building failed",
            (
                "sun.security.validator.ValidatorException: PKIX path building failed: unable to find valid "
                "certification path"
            ),
            "INFO PKIX path building done",
            "Java",
        ),
    ),
    *family(
        Signature(
            id="certificate-time",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"CERT_HAS_EXPIRED",
            needle="CERT_HAS_EXPIRED",
            title="A server's certificate is out of date, or this host's clock is wrong",
            cause="By the clock here the certificate is not valid now.",
            fix="Compare date -u with the right time; if that is right, the server's certificate must be renewed.",
            command="date -u; timedatectl",
            source="Node.js",
            fires="npm ERR! code CERT_HAS_EXPIRED",
            spares="INFO no CERT has expired",
        ),
        Text(
            "clock-skew-aws",
            "(RequestTimeTooSkewed)",
            r"\(RequestTimeTooSkewed\)",
            "An error occurred (RequestTimeTooSkewed) when calling the GetObject operation",
            "INFO RequestTimeTooSkewed is a name",
            "AWS",
        ),
    ),
    *family(
        Signature(
            id="tls-on-plain-port",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"\[SSL: WRONG_VERSION_NUMBER\]",
            needle="[SSL: WRONG_VERSION_NUMBER]",
            title="https was used for a port that speaks plain HTTP",
            cause="The answer of the server, or of a proxy, is no TLS.",
            fix="Write http:// for this address (and for the proxy in https_proxy), or put TLS before the server.",
            command="env | grep -i proxy",
            source="OpenSSL",
            fires="ssl.SSLError: [SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1129)",
            spares="INFO no [SSL: WRONG_VERSION]",
        ),
        Text(
            "tls-on-plain-port-curl",
            "wrong version number",
            r"(?:routines:[\w ]{0,40}:|SSL_connect: )[^\n]{0,60}?wrong version number",
            "curl: (35) error:0A00010B:SSL routines::wrong version number",
            "INFO no wrong version number",
            "curl",
        ),
        Text(
            "tls-on-plain-port-go",
            "first record does not look like a TLS handshake",
            r"first record does not look like a TLS handshake",
            'Get "https://10.0.0.5:8000/": tls: first record does not look like a TLS handshake',
            "INFO the first record does look like a TLS handshake",
            "Go crypto/tls",
        ),
    ),
    Signature(
        id="tls-cut",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"EOF occurred in violation of protocol",
        needle="EOF occurred in violation of protocol",
        title="A TLS connection was cut off",
        cause="The server, or a firewall or proxy between, closed it without the closing message of TLS.",
        fix=(
            "Try again; if it happens always, a firewall or proxy blocks this host name: set the proxy "
            "variables."
        ),
        command="env | grep -i proxy",
        source="OpenSSL",
        fires=(
            "ssl.SSLError: [SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol "
            "(_ssl.c:1007)"
        ),
        spares="INFO no EOF occurred",
    ),
    *family(
        Signature(
            id="tls-versions",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"ALERT_HANDSHAKE_FAILURE\]",
            needle="ALERT_HANDSHAKE_FAILURE]",
            title="Client and server have no version or cipher of TLS in common",
            cause="One of them is too old or configured too strictly.",
            fix="Update the older one; for old servers lower the client's security level (OPENSSL_CONF, SECLEVEL=1).",
            source="OpenSSL",
            fires="ssl.SSLError: [SSL: SSLV3_ALERT_HANDSHAKE_FAILURE] sslv3 alert handshake failure",
            spares="INFO no ALERT_HANDSHAKE_FAILURE",
        ),
        Text(
            "tls-versions-protocol",
            "UNSUPPORTED_PROTOCOL]",
            r"UNSUPPORTED_PROTOCOL\]",
            "ssl.SSLError: [SSL: UNSUPPORTED_PROTOCOL] x (_ssl.c:1007)",
            "INFO no UNSUPPORTED_PROTOCOL here",
        ),
        Text(
            "tls-versions-key",
            "DH_KEY_TOO_SMALL]",
            r"DH_KEY_TOO_SMALL\]",
            "ssl.SSLError: [SSL: DH_KEY_TOO_SMALL] x (_ssl.c:1007)",
            "INFO no DH_KEY_TOO_SMALL here",
        ),
        Text(
            "tls-versions-legacy",
            "UNSAFE_LEGACY_RENEGOTIATION_DISABLED]",
            r"UNSAFE_LEGACY_RENEGOTIATION_DISABLED\]",
            "ssl.SSLError: [SSL: UNSAFE_LEGACY_RENEGOTIATION_DISABLED] x (_ssl.c:1007)",
            "INFO no UNSAFE_LEGACY_RENEGOTIATION_DISABLED here",
        ),
        Text(
            "tls-versions-alert",
            "tlsv1 alert protocol version",
            r"tlsv1 alert protocol version",
            "curl: (35) OpenSSL/1.1: tlsv1 alert protocol version",
            "INFO the tlsv1 protocol version",
        ),
    ),
    *family(
        Signature(
            id="proxy-refused-tool",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"Received HTTP code (?P<status>\d{3}) from proxy after CONNECT",
            needle="Received HTTP code ",
            title="The HTTP proxy refused a connection ({status})",
            cause="The proxy in https_proxy wants a login (407), or does not allow this host.",
            fix=(
                "Put the login into the proxy's URL, ask for the host to be allowed, or list it in no_proxy if "
                "it is local."
            ),
            command="env | grep -i proxy",
            source="curl",
            fires="fatal: unable to access 'https://github.com/a/': Received HTTP code 403 from proxy after CONNECT",
            spares="INFO Received HTTP code 200",
        ),
        Text(
            "proxy-refused-response",
            "CONNECT tunnel failed, response ",
            r"CONNECT tunnel failed, response (?P<status>\d{3})",
            "curl: (56) CONNECT tunnel failed, response 403",
            "INFO no CONNECT tunnel failed",
            "curl",
        ),
        Text(
            "proxy-login",
            " Proxy Authentication Required",
            r"(?P<status>407) Proxy Authentication Required",
            "HTTP/1.1 407 Proxy Authentication Required",
            "INFO no Proxy Authentication Required",
            "HTTP proxies",
        ),
    ),
    Signature(
        id="proxy-name",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"Could not resolve proxy: (?P<host>[\w.-]{1,200})",
        needle="Could not resolve proxy: ",
        title="The HTTP proxy {host} is not known (DNS)",
        cause="A proxy variable names a host that cannot be resolved here, often inside of a container.",
        fix="Correct or unset http_proxy and https_proxy; in a container use an address that is known there.",
        command="env | grep -i proxy",
        source="curl",
        fires="curl: (5) Could not resolve proxy: proxy.example.org",
        spares="INFO resolve proxy: proxy.example.org",
    ),
)
