"""Signatures of what the Docker daemon, its runtimes and Podman refuse."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="container-runtime-broken",
            component="host",
            role="cause",
            alive=True,
            pattern=r"(?P<runtime>[\w./-]{1,80}) did not terminate successfully: exit status (?P<code>\d{1,3})",
            needle=" did not terminate successfully: exit status ",
            title="The container runtime {runtime} itself failed",
            cause=(
                "containerd started {runtime}, which ended before it made the container: a missing library (127), a "
                "broken installation, or no memory or disk for it."
            ),
            fix="Run it by hand to see why; reinstall containerd.io and libseccomp, and free memory and /run.",
            command="{runtime} --version; df -h /run; journalctl -u docker -u containerd -n 50",
            source="containerd",
            fires=(
                "Error response from daemon: failed to create shim task: OCI runtime create failed: unable "
                "to retrieve "
                "OCI runtime error: runc did not terminate successfully: exit status 127: unknown"
            ),
            spares="INFO runc did terminate successfully: exit status 0",
        ),
        Text(
            "container-runtime-broken-old",
            "did not terminate sucessfully",
            r"(?P<runtime>[\w./-]{1,80}) did not terminate sucessfully",
            "/usr/local/bin/runsc did not terminate sucessfully: unknown.",
            "INFO runsc did terminate sucessfully",
        ),
    ),
    *family(
        Signature(
            id="rootless-cgroup",
            component="host",
            role="cause",
            alive=True,
            pattern=r"(?:writ\w{2,4} (?:file )?[`'\"]?/sys/fs/cgroup\S{0,300}: [Pp]ermission denied)",
            needle="/sys/fs/cgroup",
            title="Containers of this user may not use cgroups",
            cause="The runtime runs without root, and no cgroup is delegated to this user's session.",
            fix=(
                "Start from a session of systemd (ssh, not su or sudo), allow lingering (loginctl enable-linger), or "
                "set the cgroup manager to cgroupfs (podman --cgroup-manager=cgroupfs)."
            ),
            command="loginctl show-user $USER; cat /proc/self/cgroup",
            source="crun",
            fires=(
                "Error: crun: writing file `/sys/fs/cgroup/user.slice/user-1001.slice/cgroup.procs`: "
                "Permission denied: "
                "OCI permission denied"
            ),
            spares="INFO writing file `/sys/fs/cgroup/user.slice/cgroup.procs` done",
        ),
        Text(
            "rootless-cgroup-bus",
            "sd-bus call: ",
            r"sd-bus call: [^\n]{0,80}?(?:Permission denied|authentication required)",
            "sd-bus call: Interactive authentication required.: Permission denied",
            "INFO sd-bus call: done",
            "crun",
        ),
        Text(
            "rootless-cgroup-runc",
            "unable to apply cgroup configuration",
            r"unable to apply cgroup configuration",
            (
                "runc create failed: unable to start container process: unable to apply cgroup configuration: "
                "permission denied"
            ),
            "INFO able to apply cgroup configuration",
            "runc",
        ),
        Text(
            "rootless-cgroup-systemd",
            "systemd unit `libpod-",
            r"systemd unit `libpod-\S{1,100}`: got `failed`",
            "Error: OCI runtime error: crun: error creating systemd unit `libpod-09.scope`: got `failed`",
            "INFO systemd unit `libpod-09.scope`: got `done`",
        ),
    ),
    *family(
        Signature(
            id="rootless-ids",
            component="host",
            role="cause",
            pattern=r"No subuid ranges found for user (?P<user>[^\n]{1,60}?)(?:\n|\Z)",
            needle="No subuid ranges found for user ",
            title="The user {user} has no range of ids for rootless containers",
            cause="Rootless Docker and Podman map a container's users to ids that /etc/subuid and /etc/subgid give.",
            fix="Let an administrator add a range for the user to both files, then run podman system migrate.",
            command="grep $USER /etc/subuid /etc/subgid",
            source="rootlesskit",
            fires='failed to compute uid/gid map: No subuid ranges found for user 993 ("git")',
            spares="INFO subuid ranges found for user 993",
        ),
        Text(
            "rootless-ids-newuidmap",
            "newuidmap",
            r"newuidmap\b[^\n]{0,200}?(?:[Oo]peration not permitted|[Ii]nvalid argument|not found)(?P<user>)",
            "newuidmap 1234 0 1000 1: newuidmap: write to uid_map failed: Operation not permitted",
            "INFO newuidmap is installed",
            "shadow",
        ),
        Text(
            "rootless-ids-cannot-find",
            "cannot find UID/GID for user ",
            r"cannot find UID/GID for user (?P<user>[\w.-]{1,60})",
            "ERRO[0000] cannot find UID/GID for user alice: no subuid ranges found for user",
            "INFO UID/GID for user alice",
            "podman",
        ),
    ),
    Signature(
        id="container-mount-source",
        component="host",
        role="cause",
        alive=True,
        pattern=r"bind source path does not exist: (?P<path>[^\n]{1,300}?)\.?(?:\n|\Z)",
        needle="bind source path does not exist: ",
        title="A container mounts {path}, which is not on the host",
        cause="The path is looked up on the Docker host, not where the client runs.",
        fix="Create it on the Docker host, or correct the path of the mount.",
        command="ls -ld {path}",
        source="docker",
        fires=(
            'Error response from daemon: invalid mount config for type "bind": bind source path does not exist: '
            "/data/a"
        ),
        spares="INFO bind source path /data/a does exist",
    ),
    Signature(
        id="container-mount-kind",
        component="host",
        role="cause",
        alive=True,
        pattern=r"Are you trying to mount a directory onto a file \(or vice-versa\)",
        needle="Are you trying to mount a directory onto a file (or vice-versa)",
        title="A container mounts a folder over a file, or a file over a folder",
        cause=(
            "The file did not exist on the host when it was first mounted, so that Docker made a folder of "
            "its name."
        ),
        fix="Remove that folder on the host, put the file there, and make the container anew.",
        source="runc",
        fires="not a directory: unknown: Are you trying to mount a directory onto a file (or vice-versa)?",
        spares="INFO mount a directory onto a directory",
    ),
    *family(
        Signature(
            id="container-gone",
            component="host",
            role="cause",
            alive=True,
            request=True,
            pattern=r"No such container: (?P<name>[\w.-]{1,128})",
            needle="No such container: ",
            title="The container {name} does not exist (any more)",
            cause="It was removed (--rm, a clean-up, another job's prune), or never made.",
            fix="See how it ended in the daemon's events; do not prune while runs use containers.",
            command="docker ps -a --filter name={name}; docker events --since 1h --until 0s",
            source="docker",
            fires="Error response from daemon: No such container: sandbox-17",
            spares="INFO the container sandbox-17 exists; No such network",
        ),
        Text(
            "container-gone-stopped",
            " is not running",
            r"[Cc]ontainer (?P<name>[\w.-]{1,128}) is not running",
            "Error response from daemon: container 4f1c2d is not running",
            "INFO Container 4f1c2d is running",
        ),
        Text(
            "container-gone-exec",
            "cannot exec in a stopped ",
            r"cannot exec in a stopped (?P<name>state|container)",
            "OCI runtime exec failed: exec failed: cannot exec in a stopped container: unknown",
            "INFO exec in a stopped container is refused",
            "runc",
        ),
    ),
    Signature(
        id="docker-image-local-missing",
        component="host",
        role="cause",
        alive=True,
        pattern=r"No such image: (?P<image>[\w./:@-]{1,200})",
        needle="No such image: ",
        title="The image {image} is not on this Docker host",
        cause="It was never built or pulled here, or a prune removed it.",
        fix="Build or pull it before the run.",
        command="docker image ls | grep {image}",
        source="docker",
        fires="Error response from daemon: No such image: sweb.env.x86_64.2baa:latest",
        spares="INFO the image sweb.env is there; No such volume",
    ),
    *family(
        Signature(
            id="docker-network-missing",
            component="host",
            role="cause",
            alive=True,
            pattern=r"\bnetwork (?P<name>[\w.-]{1,128}) not found",
            needle=" not found",
            title="The Docker network {name} is missing, or still in use",
            cause="It was removed before the container started, or containers of an earlier run still use it.",
            fix="End the leftover containers, then make the network anew.",
            command="docker network ls; docker network inspect {name}",
            source="docker",
            fires="Error response from daemon: network 4f1c2d not found",
            spares="INFO network 4f1c2d found",
        ),
        Text(
            "docker-network-busy",
            "has active endpoints",
            r"\bnetwork (?P<name>[\w.-]{1,128}) (?:id \w{1,80} )?has active endpoints",
            "error while removing network: network sandbox_default has active endpoints",
            "INFO the network has endpoints",
        ),
    ),
    Signature(
        id="docker-client-version",
        component="host",
        role="cause",
        alive=True,
        pattern=r"client version (?P<version>[\d.]{1,8}) is too (?P<how>old|new)\.",
        needle="client version ",
        title="The Docker client is too {how} for the daemon (API {version})",
        cause="Client and daemon speak different versions of Docker's API.",
        fix="Bring both to fitting versions, or set DOCKER_API_VERSION to one that both know (docker version).",
        command="docker version",
        source="docker",
        fires=(
            "Error response from daemon: client version 1.24 is too old. Minimum supported API version is 1.44, "
            "please upgrade your client to a newer version"
        ),
        spares="INFO client version 1.47",
    ),
)
