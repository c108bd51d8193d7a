"""Signatures of Docker, Podman, Apptainer and NVIDIA's container runtime."""

from __future__ import annotations

from liverl.causes.signature import Signature

_NOT_STARTED = (
    "docker-name-taken",
    "docker-networks-used-up",
    "docker-port-taken",
    "docker-registry-unreachable",
    "docker-registry-limit",
    "docker-image-missing",
    "docker-tag-missing",
    "docker-tag-unknown",
    "docker-tag-unknown-manifest",
    "docker-platform",
    "docker-registry-login",
    "docker-registry-login-required",
    "docker-registry-silent",
    "docker-cpus-too-many",
    "container-runtime-broken",
    "container-mount-source",
    "container-mount-kind",
    "image-build-killed",
    "image-build-killed-buildkit",
    "docker-no-gpu-runtime",
    "docker-command-not-in-image",
    "docker-no-permission",
    "docker-unreachable",
    "docker-compose-missing",
    "container-driver-mismatch",
    "container-driver-too-old",
    "disk-full",
    "disk-full-tool",
)

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="docker-name-taken",
        component="host",
        role="cause",
        pattern=r'Conflict\. The container name "/?(?P<name>[\w.-]{1,200})" is already in use by container',
        needle="Conflict. The container name",
        title="The container name {name} is taken by an older container",
        cause="A container with that name is left from an earlier trial or run, or two trials use the same name.",
        fix=(
            "Remove it, and let the task's compose file name no container (container_name) if trials run side by "
            "side."
        ),
        command="docker rm -f {name}",
        severity="warning",
        alive=True,
        source="Docker daemon; a public Terminal-Bench run",
        fires=(
            'Error response from daemon: Conflict. The container name "/scraper__server" is already in use by '
            "container "
            '"a198aa9c4ed4". You have to remove (or rename) that container to be able to reuse that name.'
        ),
        spares='Error response from daemon: No such container: "/scraper__server" is not in use',
    ),
    Signature(
        id="docker-networks-used-up",
        component="host",
        role="cause",
        pattern="all predefined address pools have been fully subnetted",
        title="Docker has no address range left for another network",
        cause="Each sandbox has a network of its own, and Docker's default pools hold about 30.",
        fix=(
            "Remove unused networks, run fewer sandboxes at once (harbor_runtime.num_workers), or give the "
            "daemon more "
            "(default-address-pools in /etc/docker/daemon.json)."
        ),
        command="docker network prune",
        severity="warning",
        alive=True,
        needle="all predefined address pools have been fully subnetted",
        source="Docker daemon; a public Terminal-Bench run",
        fires=(
            "failed to create network task-1_default: Error response from daemon: all predefined address pools have "
            "been fully subnetted"
        ),
        spares="created network task-1_default from the predefined address pool 172.20.0.0/16",
    ),
    Signature(
        id="docker-port-taken",
        component="host",
        role="cause",
        pattern=r"Bind for (?P<address>[\w.:\[\]]{1,60}):(?P<port>\d{1,5}) failed: port is already allocated",
        needle="failed: port is already allocated",
        title="Port {port} of a container is taken by another container",
        cause="A container that still runs publishes port {port}, so that a second one cannot.",
        fix="Stop the other container, or publish no fixed port if sandboxes run side by side.",
        command="docker ps --filter publish={port}",
        severity="warning",
        alive=True,
        source="Docker daemon",
        fires=(
            "Error response from daemon: driver failed programming external connectivity on endpoint minio-1: "
            "Bind for "
            "0.0.0.0:9000 failed: port is already allocated"
        ),
        spares="Bind for 0.0.0.0:9000 succeeded: port is already allocated to minio-1",
    ),
    Signature(
        id="docker-registry-unreachable",
        component="host",
        role="cause",
        pattern=(
            r"failed to (?:do request|authorize): [^\n]{0,200}?https?://(?P<host>[\w.-]{1,120}(?::\d{1,5})?)/"
            r"[^\n]{0,300}?: (?P<why>dial tcp[^\n]{1,160}|proxyconnect[^\n]{1,160}|net/http: [^\n]{1,120}|"
            r"context deadline exceeded|EOF|i/o timeout)"
        ),
        needle="failed to ",
        title="The registry {host} cannot be reached, so that an image is missing",
        cause="Docker asked {host} for an image and got no answer: {why}.",
        fix=(
            "Check the name server, proxy and firewall of the Docker host, or pull the images once and serve "
            "them from "
            "a registry inside."
        ),
        command="curl -sSI https://{host}/v2/",
        severity="warning",
        alive=True,
        source="BuildKit; a public Terminal-Bench run",
        fires=(
            "failed to solve: python:3.11-slim: failed to resolve source metadata for "
            "docker.io/library/python:3.11-slim: "
            'failed to do request: Head "https://registry-1.docker.io/v2/library/python/manifests/3.11-slim": '
            "dial tcp: "
            "lookup registry-1.docker.io on 127.0.0.53:53: i/o timeout"
        ),
        spares=(
            "failed to solve: python:3.11-slim: failed to resolve source metadata for "
            "docker.io/library/python:3.11-slim: "
            "not found at https://registry-1.docker.io/"
        ),
    ),
    Signature(
        id="docker-registry-limit",
        component="host",
        role="cause",
        pattern="toomanyrequests: ",
        needle="toomanyrequests: ",
        title="Docker Hub refuses further pulls: its rate limit is reached",
        cause="Docker Hub counts the pulls of an address or account, and this one has used up its share.",
        fix="Log in (docker login), or pull through a mirror of your own and keep the images there.",
        severity="warning",
        alive=True,
        source="Docker Hub",
        fires="Error response from daemon: toomanyrequests: You have reached your pull rate limit.",
        spares="toomanyrequests=0; pull rate limit: 100 of 100 requests remain",
    ),
    Signature(
        id="docker-image-missing",
        component="host",
        role="cause",
        pattern=r"pull access denied for (?P<image>[^\s,]{1,200}), repository does not exist",
        needle="pull access denied for",
        title="The image {image} does not exist, or may not be pulled",
        cause="The registry knows no image of that name, or it wants a login.",
        fix="Correct the name and tag, build and push the image, or log in (docker login).",
        severity="warning",
        alive=True,
        source="Docker daemon",
        fires=(
            "Error response from daemon: pull access denied for org/task, repository does not exist or may require "
            "'docker login'"
        ),
        spares="Downloaded newer image for org/task; the repository does exist and access was not denied",
    ),
    Signature(
        id="docker-tag-missing",
        component="host",
        role="cause",
        pattern=r"manifest for (?P<image>\S{1,200}) not found",
        needle="manifest for ",
        title="There is no image {image}",
        cause="The registry has no image of that name and tag.",
        fix="Correct the tag, or build and push the image.",
        severity="warning",
        alive=True,
        source="Docker daemon",
        fires="Error response from daemon: manifest for org/task:v9 not found: manifest unknown: manifest unknown",
        spares="found the manifest for org/task:v9",
    ),
    Signature(
        id="docker-build-step",
        component="host",
        role="consequence",
        pattern=(
            r'failed to solve: process "(?P<step>[^\n]{1,600}?)" did not complete successfully: exit code: '
            r"(?P<code>(?!137)\d{1,3})"
        ),
        needle="failed to solve: process",
        title="A step of an image's build failed with exit code {code}",
        fix=(
            "Read the lines above that begin with its number, and correct the step; sandboxes often have no way to the "
            "internet."
        ),
        source="BuildKit",
        fires='failed to solve: process "/bin/sh -c pip install torch" did not complete successfully: exit code: 1',
        spares='failed to solve: process "/bin/sh -c make" did not complete successfully: exit code: 137',
    ),
    Signature(
        id="docker-no-gpu-runtime",
        component="host",
        role="cause",
        pattern=r'could not select device driver \\?"\w{0,40}\\?" with capabilities: \[\[\w{0,20}gpu',
        needle="could not select device driver",
        title="Docker cannot give a container the GPUs: NVIDIA's toolkit is missing",
        cause="The Docker daemon has no NVIDIA runtime, so that it cannot start a container with --gpus.",
        fix=(
            "Install nvidia-container-toolkit on the host, run nvidia-ctk runtime configure --runtime=docker, and "
            "restart Docker."
        ),
        command="nvidia-ctk --version; docker info | grep -i runtimes",
        source="Docker daemon; NVIDIA/nvidia-docker issue 1034",
        fires='docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        spares='selected device driver "nvidia" with capabilities: [[gpu]]',
    ),
    Signature(
        id="container-driver-mismatch",
        component="host",
        role="cause",
        pattern=r"nvml error: driver/library version mismatch",
        needle="river/library version mismatch",
        title="The NVIDIA driver was updated, and its old kernel module is loaded",
        cause="The driver's libraries and its loaded kernel module have different versions.",
        fix="Restart the host, or unload and load the nvidia modules while nothing uses a GPU.",
        command="cat /proc/driver/nvidia/version; nvidia-smi",
        source="NVML",
        fires="nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown.",
        spares="nvidia-container-cli: driver/library version 550.54 matches",
    ),
    Signature(
        id="container-driver-too-old",
        component="host",
        role="cause",
        pattern=r"nvidia-container-cli: requirement error: unsatisfied condition: (?P<what>[^\n,]{1,80})",
        needle="requirement error: unsatisfied condition:",
        title="The host's NVIDIA driver is too old for this image ({what})",
        cause="The image asks for {what}, and the driver of the host supports less.",
        fix="Update the host's driver, or take an image with an older CUDA.",
        command="nvidia-smi",
        source="libnvidia-container",
        fires=(
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your "
            "driver to a "
            "newer version, or use an earlier cuda container: unknown"
        ),
        spares="nvidia-container-cli: requirement satisfied: condition: cuda>=12.8",
    ),
    Signature(
        id="container-no-driver",
        component="host",
        role="cause",
        pattern=(
            r"nvidia-container-cli: initialization error: (?:nvml error: )?(?P<why>driver (?:not loaded|error|rpc "
            r"error)[^\n]{0,80}|load library failed: [^\n]{1,120})"
        ),
        needle="nvidia-container-cli: initialization error:",
        title="The container's GPU setup failed: the NVIDIA driver is not loaded",
        cause="NVIDIA's container runtime cannot reach the driver: {why}.",
        fix="See that nvidia-smi works on the host itself; load or install the driver, then restart Docker.",
        command="nvidia-smi; lsmod | grep nvidia",
        source="libnvidia-container",
        fires="nvidia-container-cli: initialization error: driver not loaded: unknown.",
        spares="nvidia-container-cli: initialization done: driver loaded",
    ),
    Signature(
        id="docker-no-permission",
        component="host",
        role="cause",
        pattern=r"permission denied while trying to connect to the [Dd]ocker (?:daemon socket|API)",
        needle="permission denied while trying to connect to the",
        title="This account may not use Docker",
        cause="The socket of the Docker daemon belongs to the group docker, and this account is not in it.",
        fix="Add the account to the group docker and log in again, or use rootless Docker (DOCKER_HOST).",
        command="id; ls -l /var/run/docker.sock",
        alive=True,
        source="docker CLI",
        fires=(
            "permission denied while trying to connect to the Docker daemon socket at "
            "unix:///var/run/docker.sock: Get "
            '"http://%2Fvar%2Frun%2Fdocker.sock/v1.47/containers/json": dial unix: connect: permission denied'
        ),
        spares="permission to connect to the Docker daemon socket was given to the group docker",
    ),
    Signature(
        id="docker-command-not-in-image",
        component="host",
        role="cause",
        pattern=(
            r'exec: "(?P<command>[^"\n]{1,200})": (?:executable file not found in \$PATH|stat [^\n]{1,200}: no such '
            r"file or directory)"
        ),
        needle='exec: "',
        title="The image has no command {command}",
        cause="The container was to run {command}, and its image has no such program.",
        fix="Correct the command or its path, or take an image that has it.",
        source="runc",
        fires=(
            "docker: Error response from daemon: failed to create task for container: OCI runtime create "
            "failed: runc "
            'create failed: unable to start container process: exec: "vllm": executable file not found in '
            "$PATH: unknown."
        ),
        spares='container task-1 runs exec: "vllm" found in $PATH',
    ),
    Signature(
        id="exec-format",
        component="host",
        role="cause",
        pattern=r"(?:exec |cannot execute binary file: |OSError: \[Errno 8\] |: )[Ee]xec format error",
        needle="xec format error",
        title="A program is for another kind of processor (exec format error)",
        cause="The image or program was built for another architecture (arm64, amd64), or a script has no #! line.",
        fix=(
            "Take the image for this host (docker pull --platform linux/amd64), or begin the script with "
            "#!/bin/bash."
        ),
        command="uname -m",
        source="Linux execve, ENOEXEC",
        fires="exec /usr/bin/python3: exec format error",
        spares="wrote the report; format error count: 0",
    ),
    Signature(
        id="podman-few-ids",
        component="host",
        role="cause",
        pattern=r"(?:insufficient UIDs or GIDs available in user|not be enough IDs available in the) namespace "
        r"\(requested (?P<ids>\d{1,12}:\d{1,12}) for (?P<path>[^)\s]{1,200})\)",
        needle=" namespace (requested ",
        title="Rootless Podman has too few user ids for this image",
        cause="{path} in the image belongs to {ids}, and this account's range in /etc/subuid has no such id.",
        fix=(
            "Give the account a range in /etc/subuid and /etc/subgid (usermod --add-subuids 100000-165535 "
            "--add-subgids "
            "100000-165535), then run podman system migrate."
        ),
        command="grep $USER /etc/subuid /etc/subgid",
        source="containers/storage; podman issue 26745",
        fires=(
            "Error: copying system image from manifest list: writing blob: processing tar file(potentially "
            "insufficient "
            "UIDs or GIDs available in user namespace (requested 0:42 for /etc/shadow): Check /etc/subuid and "
            "/etc/subgid): exit status 1"
        ),
        spares="INFO 65536 UIDs or GIDs available in user namespace (requested 0:42)",
    ),
    Signature(
        id="apptainer-image-damaged",
        component="host",
        role="cause",
        pattern=r"(?:bad superblock for|failed to mount) squashfs (?:image partition|filesystem: invalid argument)",
        needle=" squashfs ",
        title="Apptainer cannot mount the image: it is damaged, or the kernel too old",
        cause="The image file is incomplete, or compressed in a way that this host's kernel cannot read.",
        fix="Copy or build the image again, or unpack it once (apptainer build --sandbox) and run the folder.",
        command="apptainer inspect IMAGE",
        source="apptainer issue 2121",
        fires=(
            "FATAL:   container creation failed: mount hook function failure: mount "
            "/proc/self/fd/3->/var/lib/apptainer/"
            "mnt/session/rootfs error: while mounting image /proc/self/fd/3: kernel reported a bad superblock for "
            "squashfs image partition, possible causes are that the image is corrupted"
        ),
        spares="INFO:    kernel reported squashfs image partition 1 mounted",
    ),
    Signature(
        id="apptainer-no-namespaces",
        component="host",
        role="cause",
        pattern="Failed to create user namespace: ",
        needle="Failed to create user namespace: ",
        title="This host does not let Apptainer create user namespaces",
        cause="Unprivileged user namespaces are switched off or used up on this host.",
        fix=(
            "Ask for a setuid installation of Apptainer, or for kernel.unprivileged_userns_clone=1 and a larger "
            "user.max_user_namespaces."
        ),
        command="sysctl user.max_user_namespaces kernel.unprivileged_userns_clone",
        source="apptainer starter.c",
        fires="ERROR  : Failed to create user namespace: user namespace disabled",
        spares="VERBOSE Create user namespace: done",
    ),
    Signature(
        id="docker-command-failed",
        component="host",
        role="consequence",
        pattern=r"CalledProcessError: Command '?\[?'?(?:docker|podman|sudo', 'docker)'?[ ,]",
        needle="CalledProcessError: Command ",
        title="A command of Docker failed; why stands above",
        fix="Read what docker printed above (STDERR, Error response from daemon).",
        severity="warning",
        of=_NOT_STARTED,
        source="Harbor and Terminal-Bench",
        fires=(
            "subprocess.CalledProcessError: Command '['docker', 'compose', '-p', 'task-1', 'up', '-d']' "
            "returned non-zero "
            "exit status 1."
        ),
        spares="subprocess.CalledProcessError: Command '['gcc', '-O2']' returned non-zero exit status 1.",
    ),
)
