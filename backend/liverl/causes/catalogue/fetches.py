"""Signatures of what git, curl and other tools could not fetch while images are built and sandboxes are prepared."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="fetch-name",
            component="shell",
            role="cause",
            alive=True,
            pattern=r"Could not resolve host: (?P<host>[\w.-]{1,200})",
            needle="Could not resolve host: ",
            title="The name {host} cannot be resolved (DNS)",
            cause="git, curl or another tool asked for {host}, and no name server answered with an address.",
            fix=(
                "Check the name and /etc/resolv.conf there; a container needs a name server that it can reach "
                "(docker run --dns, or dns in /etc/docker/daemon.json), or an HTTP proxy."
            ),
            command="getent hosts {host}; cat /etc/resolv.conf",
            source="curl",
            fires="fatal: unable to access 'https://git.example.com/a.git/': Could not resolve host: git.example.com",
            spares="INFO the proxy could resolve host git.example.com",
        ),
        Text(
            "fetch-name-apt",
            "Could not resolve '",
            r"Could not resolve '(?P<host>[\w.-]{1,200})'",
            "E: Failed to fetch http://deb.example.org/x.deb  Could not resolve 'deb.example.org'",
            "INFO could resolve 'deb.example.org'",
            "apt",
        ),
        Text(
            "fetch-name-apt-temporary",
            "Temporary failure resolving '",
            r"Temporary failure resolving '(?P<host>[\w.-]{1,200})'",
            "  Temporary failure resolving 'deb.example.org'",
            "INFO resolving 'deb.example.org' after a temporary failure",
            "apt",
        ),
        Text(
            "fetch-name-wget",
            "unable to resolve host address",
            r"unable to resolve host address [‘'\"](?P<host>[\w.-]{1,200})",
            "wget: unable to resolve host address ‘files.example.org’",
            "wget: resolving host address of files.example.org",
            "wget",
        ),
        Text(
            "fetch-name-ping",
            ": Temporary failure in name resolution",
            r"(?:^|\n)\w{2,20}: (?P<host>[\w.-]{1,200}): Temporary failure in name resolution",
            "ping: files.example.org: Temporary failure in name resolution",
            "INFO no temporary failure in name resolution",
            "iputils",
        ),
    ),
    *family(
        Signature(
            id="fetch-connection",
            component="shell",
            role="cause",
            alive=True,
            pattern=r"Failed to connect to (?P<host>[\w.:-]{1,200}?) port (?P<port>\d{1,5})\b",
            needle="Failed to connect to ",
            title="{host} could not be reached (port {port})",
            cause="The connection to {host} was refused, or nothing answered: a firewall, no route, or it is down.",
            fix=(
                "Try it from the same host or container; where only an HTTP proxy leads outside, set https_proxy "
                "and http_proxy (for builds with --build-arg)."
            ),
            command="curl -sv -o /dev/null --max-time 10 https://{host}:{port}; env | grep -i proxy",
            source="curl",
            fires=(
                "fatal: unable to access 'https://github.com/a/b.git/': Failed to connect to github.com port 443 "
                "after 130000 ms: Couldn't connect to server"
            ),
            spares="INFO connect to github.com port 443 done",
        ),
        Text(
            "fetch-connection-apt",
            "Could not connect to ",
            r"Could not connect to (?P<host>[\w.-]{1,200}):(?P<port>\d{1,5}) \(",
            "E: Failed to fetch http://deb.example.org/x  Could not connect to deb.example.org:80 (192.0.2.1).",
            "INFO connect to deb.example.org:80 done",
            "apt",
        ),
        Text(
            "fetch-connection-address",
            "connection timed out",
            (
                r"(?P<host>[\w.-]{1,200}\.[a-z]{2,20})[^\n]{0,60}?:(?P<port>443|80|22|9418)[^\n]{0,40}?connection "
                r"timed out"
            ),
            "wget: files.example.org:443: connection timed out",
            "INFO no connection timed out",
            "wget",
        ),
    ),
    *family(
        Signature(
            id="fetch-connection-archive",
            component="shell",
            role="cause",
            alive=True,
            pattern=r"Unable to connect to (?P<host>[\w.-]{1,200}):(?P<scheme>https?):",
            needle="Unable to connect to ",
            title="The package archive {host} could not be reached",
            cause="apt got no connection to {host}: no network, a firewall, or it is down.",
            fix=(
                "Check the network of the container; use a mirror that it can reach, or apt's proxy "
                "(Acquire::http::Proxy)."
            ),
            source="apt",
            fires="  Unable to connect to deb.example.org:http: [IP: 192.0.2.1 80]",
            spares="INFO connect to deb.example.org:http: done",
        ),
        Text(
            "fetch-connection-initiate",
            "Cannot initiate the connection to ",
            r"Cannot initiate the connection to (?P<host>[\w.-]{1,200}):\d{1,5}",
            (
                "  Cannot initiate the connection to deb.example.org:80 (2001:db8::1). - connect (101: Network "
                "is unreachable)"
            ),
            "INFO the connection to deb.example.org:80 is made",
        ),
        Text(
            "fetch-connection-failed",
            "Connection failed [IP: ",
            r"//(?P<host>[\w.-]{1,200})/\S{1,300} {1,4}Connection failed \[IP: ",
            "E: Failed to fetch http://deb.example.org/a.deb  Connection failed [IP: 192.0.2.1 80]",
            "INFO no connection failed [IP: 192.0.2.1 80]",
        ),
    ),
    *family(
        Signature(
            id="fetch-cut",
            component="shell",
            role="cause",
            alive=True,
            pattern=r"RPC failed; (?P<why>[^\n]{1,160})",
            needle="RPC failed; ",
            title="git lost the connection while it fetched",
            cause=(
                "The transfer ended before it was complete ({why}): a network fault, a proxy, or a limit of the "
                "server."
            ),
            fix=(
                "Try again; fetch less (git clone --depth 1, or --filter=blob:none), or mirror the repository nearby."
            ),
            source="git",
            fires="error: RPC failed; curl 56 GnuTLS recv error (-54): Error in the pull function.",
            spares="INFO the RPC has not failed",
        ),
        Text(
            "fetch-cut-early",
            "early EOF",
            r"fatal: (?P<why>early EOF)",
            "fatal: early EOF",
            "INFO no early EOF",
        ),
        Text(
            "fetch-cut-remote",
            "he remote end hung up unexpectedly",
            r"fatal: (?P<why>[Tt]he remote end hung up unexpectedly)",
            "fatal: the remote end hung up unexpectedly",
            "INFO the remote end has not hung up",
        ),
        Text(
            "fetch-cut-index",
            "index-pack failed",
            r"fatal: (?:fetch-pack: invalid )?(?P<why>index-pack failed)",
            "fatal: index-pack failed",
            "INFO index-pack has not failed",
        ),
    ),
    Signature(
        id="curl-cut",
        component="shell",
        role="cause",
        alive=True,
        pattern=(
            r"curl: \((?P<code>18|28|52|55|56|92|35)\) (?![^\n]{0,200}(?:wrong version number|CONNECT tunnel "
            r"failed|tlsv1 alert protocol))(?P<why>[^\n]{1,160})"
        ),
        needle="curl: (",
        title="A download by curl broke off or timed out (code {code})",
        cause="curl got no complete answer: {why}.",
        fix="Try again (curl --retry 5 --retry-all-errors), and check the network and the proxy variables there.",
        source="curl",
        fires="curl: (56) Recv failure: Connection reset by peer",
        spares="curl: (22) The requested URL returned error: 404",
    ),
    Signature(
        id="curl-status",
        component="shell",
        role="cause",
        alive=True,
        pattern=r"The requested URL returned error: (?P<status>[45]\d\d)",
        needle="The requested URL returned error: ",
        title="A server answered a download with HTTP {status}",
        cause="git or curl asked for an address, and the server answered {status} instead of the file.",
        fix=(
            "401 and 403: a token is missing or may not read it; 404: the address or version is wrong, or it is "
            "private; 429 and 5xx: wait and try again."
        ),
        source="curl",
        fires="fatal: unable to access 'https://github.com/a/b.git/': The requested URL returned error: 403",
        spares="INFO the requested URL returned no error",
    ),
)
