"""Signatures of image registries, of the start of the Docker daemon, and of builds of images."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="docker-platform",
        component="host",
        role="cause",
        alive=True,
        pattern=r"no matching manifest for (?P<platform>[\w/]{1,40})",
        needle="no matching manifest for ",
        title="The image has no build for this machine ({platform})",
        cause="It was made for another processor architecture.",
        fix=(
            "Use an image of this architecture, build it here, or run it emulated (--platform linux/amd64 with "
            "QEMU)."
        ),
        command="docker manifest inspect IMAGE | grep architecture; uname -m",
        source="docker",
        fires='Not Found ("no matching manifest for linux/arm64/v8 in the manifest list entries")',
        spares="INFO a matching manifest for linux/arm64",
    ),
    *family(
        Signature(
            id="docker-tag-unknown",
            component="host",
            role="cause",
            alive=True,
            pattern=r"failed to resolve (?:source metadata|reference)[^\n]{0,300}?: not found",
            needle="failed to resolve ",
            title="The registry does not have this image or tag",
            cause="The name or tag is wrong, or was never pushed.",
            fix="Check it with docker manifest inspect; push it, or use a tag that exists.",
            command="docker manifest inspect IMAGE",
            source="docker",
            fires=(
                'failed to resolve reference "docker.io/library/python:3.99": docker.io/library/python:3.99: not '
                "found"
            ),
            spares="INFO failed to resolve nothing: found",
        ),
        Text(
            "docker-tag-unknown-manifest",
            "manifest unknown",
            r"Error response from daemon: manifest unknown",
            "Error response from daemon: manifest unknown",
            "INFO the manifest is known",
        ),
    ),
    *family(
        Signature(
            id="docker-registry-login",
            component="host",
            role="cause",
            alive=True,
            pattern=r"denied: requested access to the resource is denied",
            needle="denied: requested access to the resource is denied",
            title="The image registry refuses this login",
            cause="Nobody is logged in there, or the account may not read (or push) this image.",
            fix="docker login to the registry with an account that may; give pods an imagePullSecret.",
            command="docker login REGISTRY",
            source="docker",
            fires="denied: requested access to the resource is denied",
            spares="INFO requested access to the resource is granted",
        ),
        Text(
            "docker-registry-login-none",
            "no basic auth credentials",
            r"no basic auth credentials",
            'Error response from daemon: Get "https://r.example.org/v2/a/manifests/1": no basic auth credentials',
            "INFO basic auth credentials",
        ),
        Text(
            "docker-registry-login-required",
            "unauthorized: ",
            r"unauthorized: (?:authentication required|incorrect username or password|access token has insufficient)",
            "Error response from daemon: unauthorized: authentication required",
            "INFO no one is unauthorized: all is well",
        ),
        Text(
            "docker-registry-login-helper",
            "error getting credentials",
            r"error getting credentials - err: ",
            "error getting credentials - err: exit status 1, out: `no such item`",
            "INFO no error getting credentials",
        ),
    ),
    Signature(
        id="docker-registry-silent",
        component="host",
        role="cause",
        alive=True,
        pattern=(
            r"Error response from daemon: (?:Get|Head) \"?https?://(?P<host>[\w.:-]{1,200})/v2/"
            r"[^\n]{0,300}?: (?:net/http: |context deadline|dial tcp|EOF|i/o timeout|read tcp|TLS handshake)"
        ),
        needle="Error response from daemon: ",
        title="The Docker daemon gets no answer from the registry {host}",
        cause="The daemon, not the client, connects to the registry: network, DNS or proxy of the Docker host.",
        fix=(
            "Check it from the Docker host; set the daemon's own proxy (/etc/docker/daemon.json or its "
            "systemd unit) or a mirror."
        ),
        command="curl -sI https://{host}/v2/; systemctl show docker --property Environment",
        source="docker",
        fires=(
            'Error response from daemon: Get "https://r.example.org/v2/": net/http: request canceled '
            "while waiting "
            "for connection (Client.Timeout exceeded while awaiting headers)"
        ),
        spares="INFO no Error response from daemon for https://r.example.org/v2/",
    ),
    Signature(
        id="docker-registry-plain",
        component="host",
        role="cause",
        alive=True,
        pattern=r"http: server gave HTTP response to HTTPS client",
        needle="http: server gave HTTP response to HTTPS client",
        title="A server without TLS was asked by https",
        cause="The registry or endpoint speaks plain HTTP on this port.",
        fix="Name it in insecure-registries of /etc/docker/daemon.json, use http:// in the address, or give it TLS.",
        source="Go net/http",
        fires='Get "https://10.0.0.5:5000/v2/": http: server gave HTTP response to HTTPS client',
        spares="INFO the server gave an HTTPS response to the client",
    ),
    *family(
        Signature(
            id="docker-firewall",
            component="host",
            role="cause",
            alive=True,
            pattern=r"iptables: No chain/target/match by that name",
            needle="iptables: No chain/target/match by that name",
            title="Docker's firewall rules are gone",
            cause="Another program (firewalld, ufw, a flush of iptables) removed the chains that Docker made.",
            fix="Restart the Docker daemon, which makes them anew, and keep the other program off them.",
            command="sudo systemctl restart docker; sudo iptables -t nat -L DOCKER -n",
            source="docker",
            fires=(
                "(iptables failed: iptables --wait -t nat -A DOCKER: iptables: No chain/target/match by that "
                "name. (exit 1))"
            ),
            spares="INFO iptables: the chain/target/match by that name",
        ),
        Text(
            "docker-firewall-failed",
            "(iptables failed: ",
            r"\(iptables failed: (?![^\n]{0,400}No chain/target/match)",
            (
                "Error response from daemon: Failed to Setup IP tables: (iptables failed: iptables v1.8.7 "
                "(nf_tables): (exit 4))"
            ),
            "(iptables failed: iptables --wait -A DOCKER: iptables: No chain/target/match by that name.",
        ),
    ),
    Signature(
        id="docker-cpus-too-many",
        component="host",
        role="cause",
        alive=True,
        pattern=r"[Rr]ange of CPUs is from [\d.]{1,8} to (?P<most>[\d.]{1,8}), as there are only",
        needle="ange of CPUs is from ",
        title="A container asks for more CPUs than the Docker host has ({most})",
        cause="The limit of CPUs in the task or compose file is larger than the host.",
        fix="Lower it to at most {most}, or run on a larger host.",
        command="nproc",
        source="docker",
        fires="Error response from daemon: range of CPUs is from 0.01 to 8.00, as there are only 8 CPUs available",
        spares="INFO the range of CPUs is 8",
    ),
    *family(
        Signature(
            id="docker-daemon-start",
            component="host",
            role="cause",
            pattern=r"failed to start daemon: (?P<why>[^\n\"]{1,200})",
            needle="failed to start daemon: ",
            title="The Docker daemon did not start",
            cause="It refused to start: {why}.",
            fix="Correct what it names, then restart it; its whole log is in the journal.",
            command="journalctl -u docker -n 50; dockerd --validate",
            source="docker",
            fires="failed to start daemon: error initializing graphdriver: driver not supported: overlay2",
            spares="INFO the daemon has not failed to start",
        ),
        Text(
            "docker-daemon-start-old",
            "Error starting daemon: ",
            r"Error starting daemon: (?P<why>[^\n\"]{1,200})",
            (
                'level=fatal msg="Error starting daemon: pid file found, ensure docker is not running or delete '
                '/var/run/docker.pid"'
            ),
            "INFO no Error starting daemon",
        ),
        Text(
            "docker-daemon-config",
            "unable to configure the Docker daemon with file ",
            r"unable to configure the Docker daemon with file (?P<why>[^\n]{1,200})",
            "unable to configure the Docker daemon with file /etc/docker/daemon.json: invalid character '}'",
            "INFO able to configure the Docker daemon with file /etc/docker/daemon.json",
        ),
    ),
    *family(
        Signature(
            id="docker-daemon-gone",
            component="host",
            role="cause",
            alive=True,
            pattern=r"error during connect: ",
            needle="error during connect: ",
            title="The container daemon does not answer on its socket",
            cause="The daemon does not run, was restarted meanwhile, or DOCKER_HOST names another socket.",
            fix="Start it (systemctl start docker), and check DOCKER_HOST and docker context ls.",
            command="systemctl status docker; docker context ls; echo $DOCKER_HOST",
            source="docker",
            fires='error during connect: Get "http://docker.example.org/v1.47/info": EOF',
            spares="INFO no error during the connect",
        ),
        Text(
            "docker-daemon-gone-socket",
            ".sock: connect: ",
            r"dial unix /\S{1,160}\.sock: connect: ",
            "dial unix /run/user/1000/podman/podman.sock: connect: no such file or directory",
            "INFO dial unix /run/podman.sock: done",
        ),
    ),
    *family(
        Signature(
            id="docker-daemon-crashed",
            component="host",
            role="cause",
            alive=True,
            pattern=(
                r"(?P<program>dockerd|containerd|kubelet|buildkitd|podman)(?:\[\d{1,10}\])?: fatal error: "
                r"(?P<why>[^\n]{1,160})"
            ),
            needle=": fatal error: ",
            title="{program} crashed: {why}",
            cause="A fault inside of {program} ended it, and with it what it managed at that time.",
            fix="Restart it, update it to its latest release, and look for the same stack in its issues.",
            command="systemctl status {program}; journalctl -u {program} -n 100",
            source="docker",
            fires="dockerd[25200]: fatal error: concurrent map read and map write",
            spares="dockerd[25200]: no fatal error",
        ),
        Text(
            "docker-daemon-crashed-panic",
            "]: panic: ",
            r"(?P<program>dockerd|containerd|kubelet|buildkitd|podman)\[\d{1,10}\]: panic: (?P<why>[^\n]{1,160})",
            "dockerd[25200]: panic: runtime error: invalid memory address",
            "dockerd[25200]: no panic: fine",
        ),
    ),
    *family(
        Signature(
            id="image-build-killed",
            component="host",
            role="cause",
            alive=True,
            pattern=r"returned a non-zero code: 137\b",
            needle="returned a non-zero code: 137",
            title="A step of an image's build was killed (exit code 137)",
            cause=(
                "Something killed it with SIGKILL: nearly always the host, or Docker's machine, had no memory "
                "left."
            ),
            fix="Build fewer images at once (--max_workers), give Docker more memory, or add swap.",
            command="dmesg -T | grep -i 'killed process'; docker system info | grep -i memory",
            source="docker",
            fires="The command '/bin/sh -c /root/setup_env.sh' returned a non-zero code: 137",
            spares="The command '/bin/sh -c /root/setup_env.sh' returned a non-zero code: 1",
        ),
        Text(
            "image-build-killed-buildkit",
            "did not complete successfully: exit code: 137",
            r"did not complete successfully: exit code: 137\b",
            'ERROR: process "/bin/sh -c make" did not complete successfully: exit code: 137',
            'ERROR: process "/bin/sh -c make" did not complete successfully: exit code: 13',
        ),
    ),
    *family(
        Signature(
            id="image-build-step",
            component="host",
            role="consequence",
            pattern=r"The command '(?P<step>[^\n]{1,600}?)' returned a non-zero code: (?P<code>(?!137)\d{1,3})",
            needle="' returned a non-zero code: ",
            title="A step of an image's build failed with exit code {code}",
            fix=(
                "The step's own output, above or in build_image.log, says why: 100 comes from apt, 127 is a "
                "command that "
                "is not found, 128 comes from git."
            ),
            source="docker",
            fires="The command '/bin/sh -c pip install x' returned a non-zero code: 1",
            spares="The command '/bin/sh -c make' returned a non-zero code: 137",
        ),
        Text(
            "image-build-step-buildkit",
            "did not complete successfully: exit code: ",
            (
                r"ERROR: process \"(?P<step>[^\n]{1,600}?)\" did not complete successfully: exit code: "
                r"(?P<code>(?!137)\d{1,3})"
            ),
            'ERROR: process "/bin/sh -c npm ci" did not complete successfully: exit code: 1',
            'ERROR: process "/bin/sh -c npm ci" did complete successfully: exit code: 0',
        ),
        Text(
            "image-build-step-executor",
            "executor failed running [",
            r"executor failed running \[(?P<step>[^\n]{1,900}?)\]: exit code: (?P<code>\d{1,3})",
            "executor failed running [/bin/sh -c pip install x]: exit code: 2",
            "INFO executor running [/bin/sh -c pip install x]",
        ),
    ),
)
