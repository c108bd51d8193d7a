"""Signatures of hosts of sandboxes: Docker's socket, files of builds, slow nodes, lost storage."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="docker-not-there",
        component="host",
        role="cause",
        pattern=(
            r"Error while fetching server API version: "
            r"[^\n]{0,160}?(?P<why>FileNotFoundError|ConnectionRefusedError|Connection refused|Not supported "
            r"URL scheme)"
        ),
        needle="Error while fetching server API version: ",
        title="Docker does not run here, or its socket is elsewhere",
        cause="The Python client found no daemon at its socket ({why}).",
        fix="Start Docker, mount /var/run/docker.sock into a container, or set DOCKER_HOST to where it listens.",
        command="docker info; ls -l /var/run/docker.sock; echo $DOCKER_HOST",
        source="docker-py",
        fires=(
            "docker.errors.DockerException: Error while fetching server API version: ('Connection aborted.', "
            "FileNotFoundError(2, 'No such file or directory'))"
        ),
        spares="INFO no Error while fetching server API version: 1.47",
    ),
    Signature(
        id="docker-not-allowed",
        component="host",
        role="cause",
        pattern=r"Error while fetching server API version: [^\n]{0,160}?PermissionError",
        needle="Error while fetching server API version: ",
        title="This user may not use Docker",
        cause="The socket of the Docker daemon belongs to root and the group docker.",
        fix="Add the user to the group docker and log in again, or use rootless Docker.",
        command="ls -l /var/run/docker.sock; id",
        source="docker-py",
        fires=(
            "Error while fetching server API version: ('Connection aborted.', PermissionError(13, "
            "'Permission denied'))"
        ),
        spares="INFO no Error while fetching server API version: 1.47",
    ),
    *family(
        Signature(
            id="build-file-missing",
            component="host",
            role="cause",
            alive=True,
            pattern=r"failed to calculate checksum of ref [^\n]{1,200}?: \"(?P<path>[^\"\n]{1,300})\": not found",
            needle="failed to calculate checksum of ref ",
            title="An image's build misses {path}",
            cause=(
                "COPY or ADD names a file that is not in the build context: a wrong path, or .dockerignore "
                "leaves it out."
            ),
            fix="Correct the path (it is relative to the context), or take it out of .dockerignore.",
            source="BuildKit",
            fires='failed to calculate checksum of ref abc::def: "/docker-entrypoint.sh": not found',
            spares="INFO failed to calculate nothing",
        ),
        Text(
            "build-file-missing-classic",
            "file not found in build context",
            r"file not found in build context[^\n]{0,60}?stat (?P<path>[^\n:]{1,300}):",
            (
                "COPY failed: file not found in build context or excluded by .dockerignore: stat a.sh: file does "
                "not exist"
            ),
            "INFO file found in build context",
            "docker",
        ),
        Text(
            "build-file-missing-walk",
            "failed to compute cache key: ",
            (
                r"failed to compute cache key: (?:failed to walk [^\n]{1,200}?: lstat "
                r")?\"?(?P<path>/[^\"\n:]{1,300})\"?(?: not found)?: (?:not found|no such file)"
            ),
            'failed to compute cache key: "/go/src/a" not found: not found',
            "INFO no cache key failed to compute",
            "BuildKit",
        ),
        Text(
            "build-no-dockerfile",
            "failed to read dockerfile: open ",
            r"failed to read dockerfile: open (?P<path>[^\n:]{1,300}): no such file",
            "ERROR: failed to solve: failed to read dockerfile: open Dockerfile: no such file or directory",
            "INFO the dockerfile was read, open",
            "BuildKit",
        ),
    ),
    Signature(
        id="container-mount-refused",
        component="host",
        role="cause",
        pattern=r"container creation failed: (?P<what>(?:mount|hook)[^\n]{0,160}?): (?P<why>[\w ]{1,60})(?:\n|\Z)",
        needle="container creation failed: ",
        title="Apptainer could not set up the container's mounts",
        cause="{what}: {why}; the file system or the kernel does not allow this mount for the user.",
        fix=(
            "Bind a folder on a local disk instead (--bind, --no-mount tmp, APPTAINER_TMPDIR), or build without "
            "--fakeroot."
        ),
        source="apptainer",
        fires="FATAL:   container creation failed: mount /tmp failed: invalid argument",
        spares="INFO no container creation failed: fine",
    ),
    *family(
        Signature(
            id="node-runtime-slow",
            component="host",
            role="cause",
            alive=True,
            pattern=r"timing out in CRI-O due to system load",
            needle="timing out in CRI-O due to system load",
            title="A node's container runtime is too slow to make containers",
            cause="The node is overloaded, or it relabels or changes the owner of a large volume at each start.",
            fix=(
                "Start fewer pods at once; for large volumes set fsGroupChangePolicy: OnRootMismatch; check the "
                "node's disk."
            ),
            command="uptime; iostat -x 1 3; crictl ps -a | head",
            source="kubelet",
            fires="Error: Kubelet may be retrying requests that are timing out in CRI-O due to system load",
            spares="INFO no requests are timing out",
        ),
        Text(
            "node-runtime-slow-operation",
            "operation timeout: context deadline exceeded",
            r"operation timeout: context deadline exceeded",
            "RunContainerError: runContainer: operation timeout: context deadline exceeded",
            "INFO no operation timeout",
        ),
        Text(
            "node-runtime-slow-create",
            "code = DeadlineExceeded desc = ",
            (
                r"(?:[Cc]reate|[Rr]un|[Ss]tart)\w{0,20} [^\n]{0,120}?code = DeadlineExceeded desc = (?:context "
                r"deadline|stream terminated)"
            ),
            (
                "Error: failed to create containerd task: rpc error: code = DeadlineExceeded desc = context "
                "deadline exceeded"
            ),
            "INFO code = DeadlineExceeded desc = none",
        ),
    ),
    *family(
        Signature(
            id="volume-slow",
            component="host",
            role="cause",
            alive=True,
            pattern=r"timeout expired waiting for volumes to attach",
            needle="timeout expired waiting for volumes to attach",
            title="A pod waits in vain for its volumes",
            cause=(
                "A volume could not be attached or mounted in time: its server, driver or another node holds it "
                "back."
            ),
            fix="See the pod's events and the storage driver's log; check that no other node holds the volume.",
            command="kubectl describe pod POD; kubectl get volumeattachment",
            source="kubelet",
            fires="timeout expired waiting for volumes to attach/mount for pod",
            spares="INFO waiting for volumes to attach",
        ),
        Text(
            "volume-slow-condition",
            "unmounted volumes=",
            r"unmounted volumes=\[[^\]\n]{0,200}\][^\n]{0,300}?timed out waiting for the condition",
            (
                "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[data]: timed "
                "out waiting for the condition"
            ),
            "INFO no unmounted volumes=[]",
        ),
    ),
    *family(
        Signature(
            id="storage-lost",
            component="host",
            role="cause",
            alive=True,
            pattern=r"LustreError: [^\n]{1,200}?operation \w{1,40} to node \S{1,80} failed: rc = -1(?:07|08|10)",
            needle="LustreError: ",
            title="The host lost a server of its parallel file system",
            cause="The connection to a storage server broke; programs that read or write there wait or fail.",
            fix="Check the network to it (InfiniBand), ask who runs the storage; restart what got errors.",
            command="dmesg -T | grep -iE 'lustre|lnet|ceph' | tail; df -h",
            source="Lustre",
            fires="LustreError: 11-0: x-MDT0000-mdc: operation obd_ping to node 10.0.0.9@o2ib failed: rc = -107",
            spares="LustreError: none",
        ),
        Text(
            "storage-lost-evicted",
            "This client was evicted by ",
            r"This client was evicted by \S{1,100}",
            "LustreError: 167-0: x-OST0001: This client was evicted by x-OST0001; in progress operations will fail",
            "INFO This client was not evicted",
        ),
        Text(
            "storage-lost-connection",
            ") was lost; in progress operations",
            r"Connection to \S{1,100} \(at [^)\n]{1,80}\) was lost; in progress operations",
            (
                "Lustre: x-MDT0000: Connection to x-MDT0000 (at 10.0.0.9@o2ib) was lost; in progress operations "
                "will wait"
            ),
            "INFO no Connection was lost; in progress operations go on",
        ),
        Text(
            "storage-lost-ceph",
            "evicting unresponsive client ",
            r"evicting unresponsive client \S{1,120}",
            "log_channel(cluster) log [WRN] : evicting unresponsive client a:b (977313), after 316.554 seconds",
            "INFO no unresponsive client for evicting",
            "Ceph",
        ),
        Text(
            "storage-lost-ceph-client",
            "ceph: mds",
            r"ceph: mds\d{1,4} (?:hung|reconnect denied|rejected session|caps stale)",
            "[  99.1] ceph: mds0 hung",
            "ceph: mds0 reconnect start",
            "Linux ceph",
        ),
    ),
    *family(
        Signature(
            id="provider-failed",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"- internalServerException\b",
            needle="- internalServerException",
            title="A model provider failed while it answered",
            cause="Bedrock reported an error of its own within the stream.",
            fix="Let the client retry with growing pauses; if it lasts, use another region or model.",
            source="Bedrock",
            fires=(
                'Exception occured - internalServerException {"message":"The system encountered an unexpected '
                'error"}'
            ),
            spares="INFO internalServerException is a name",
        ),
        Text(
            "provider-failed-busy",
            "Bedrock is unable to process your request",
            r"Bedrock is unable to process your request",
            "ServiceUnavailableException: Bedrock is unable to process your request.",
            "INFO Bedrock is able to process your request",
        ),
    ),
    Signature(
        id="storage-address",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"EndpointConnectionError: Could not connect to the endpoint URL: \"(?P<url>[^\"\n]{1,300})",
        needle="EndpointConnectionError: ",
        title="The cloud storage could not be reached",
        cause="Nothing answers at {url}: a wrong region or endpoint, no network, or a firewall.",
        fix="Check the region (AWS_DEFAULT_REGION), the endpoint URL, and the network there.",
        source="botocore",
        fires=(
            "botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "
            '"https://b.s3.example.org/k"'
        ),
        spares="INFO no EndpointConnectionError",
    ),
)
