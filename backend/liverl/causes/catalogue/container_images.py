"""Signatures of a Docker daemon that does not answer, and of images that enroot cannot fetch."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="docker-silent",
        component="host",
        role="cause",
        pattern=(
            r"UnixHTTPConnectionPool\(host='localhost', port=None\): Read timed out\. \(read "
            r"timeout=(?P<seconds>[\d.]{1,10})\)"
        ),
        needle="UnixHTTPConnectionPool(host='localhost', port=None): Read timed out.",
        title="The Docker daemon did not answer within {seconds} s",
        cause="The daemon is overloaded, or its disk is slow: many containers start, stop or build at once.",
        fix=(
            "Run fewer sandboxes at once (harbor_runtime.num_workers), and look at the load and disk of the "
            "Docker host."
        ),
        command="docker info; uptime; df -h /var/lib/docker",
        severity="warning",
        alive=True,
        source="docker SDK; a public Terminal-Bench run",
        fires=(
            "requests.exceptions.ReadTimeout: UnixHTTPConnectionPool(host='localhost', port=None): Read timed "
            "out. (read timeout=60)"
        ),
        spares="UnixHTTPConnectionPool(host='localhost', port=None): Read 12 bytes",
    ),
    Signature(
        id="enroot-registry-refused",
        component="slurm",
        role="cause",
        pattern=r"\[ERROR\] URL (?P<url>\S{1,300}) returned error code: (?P<code>\d{3}[^\n]{0,40})",
        needle="[ERROR] URL ",
        title="The registry refused an image to enroot ({code})",
        cause="enroot asked {url} and got {code}: there is no such image, or it wants a login.",
        fix=(
            "Correct the name; write a local image with ./ or its whole path, and put logins into "
            "~/.config/enroot/.credentials."
        ),
        source="enroot; pyxis issue 67",
        fires=(
            "slurmstepd: error: pyxis:     [ERROR] URL "
            "https://registry-1.docker.io/v2/library/cont.sqsh/manifests/latest returned error code: 401 "
            "Unauthorized"
        ),
        spares="[INFO] URL https://registry-1.docker.io/v2/ returned code: 200",
    ),
    Signature(
        id="enroot-disk-full",
        component="slurm",
        role="cause",
        pattern=r"pyxis: {1,12}Write failed because No space left on device",
        needle="Write failed because No space left on device",
        title="Disk full: enroot could not write the image of a container",
        cause="The file system of enroot's data, cache or runtime folder has no space for the unpacked image.",
        fix="Point ENROOT_DATA_PATH, ENROOT_CACHE_PATH and pyxis' runtime_path to a larger disk, or clean them.",
        command="df -h /run /tmp; enroot list",
        source="squashfs-tools; enroot issue 83",
        fires="slurmstepd: error: pyxis:     Write failed because No space left on device",
        spares="pyxis: Write done; space left on device: 40 GiB",
    ),
)
