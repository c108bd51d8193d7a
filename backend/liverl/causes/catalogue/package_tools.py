"""Signatures of apt and dpkg."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="apt-file-gone",
        component="shell",
        role="cause",
        alive=True,
        pattern=r"Failed to fetch (?P<url>\S{1,300}) {1,4}404 {1,4}Not Found",
        needle="Failed to fetch ",
        title="apt's list of packages is old: a file is no longer on the mirror",
        cause="The archive has replaced {url} with a newer version since apt-get update ran (a cached image layer).",
        fix=(
            "Run apt-get update in the same step right before apt-get install, and build without the cache; of an "
            "old distribution use its archive (old-releases.ubuntu.com, archive.debian.org)."
        ),
        source="apt",
        fires="E: Failed to fetch http://deb.example.org/pool/a_1.deb  404  Not Found [IP: 192.0.2.1 80]",
        spares="E: Failed to fetch http://deb.example.org/pool/a_1.deb  Connection timed out",
    ),
    *family(
        Signature(
            id="apt-archive-fault",
            component="shell",
            role="cause",
            alive=True,
            pattern=r"Failed to fetch (?P<url>\S{1,300}) {1,4}(?P<why>(?:50\d|403|429) {1,4}[\w ]{2,40})",
            needle="Failed to fetch ",
            title="The package archive answered apt with an error: {why}",
            cause="The mirror, or a proxy before it, did not give {url}.",
            fix="Try again later or use another mirror; 403 comes mostly from a proxy that blocks the archive.",
            source="apt",
            fires="E: Failed to fetch http://deb.example.org/a.deb  502  Bad Gateway [IP: 192.0.2.1 80]",
            spares="E: Failed to fetch http://deb.example.org/a.deb  404  Not Found",
        ),
        Text(
            "apt-archive-sync",
            "Mirror sync in progress?",
            r"Failed to fetch (?P<url>\S{1,300}) {1,4}(?P<why>(?:File has unexpected size|Hash Sum mismatch))"
            r"[^\n]{0,80}?Mirror sync in progress\?",
            (
                "E: Failed to fetch http://deb.example.org/P.xz  File has unexpected size (3 != 4). Mirror sync "
                "in progress?"
            ),
            "INFO no Mirror sync in progress",
        ),
        Text(
            "apt-archive-hash",
            "Hash Sum mismatch",
            r"Failed to fetch (?P<url>\S{1,300}) {1,4}(?P<why>Hash Sum mismatch)",
            "E: Failed to fetch http://deb.example.org/P.xz  Hash Sum mismatch",
            "INFO no Hash Sum mismatch",
        ),
    ),
    Signature(
        id="apt-locked",
        component="shell",
        role="cause",
        alive=True,
        pattern=r"Could not get lock (?P<path>/\S{1,200}?)[.:]?(?: |\n|\Z)",
        needle="Could not get lock ",
        title="Another apt or dpkg runs: {path} is locked",
        cause="Two installations at once, often the system's own (unattended-upgrades) or a parallel sandbox step.",
        fix="Wait for it to end (apt-get -o DPkg::Lock::Timeout=600 install ...), or run installations one by one.",
        source="apt",
        fires="E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1234 (unattended-upgr)",
        spares="INFO got lock /var/lib/dpkg/lock-frontend",
    ),
    *family(
        Signature(
            id="apt-no-package",
            component="shell",
            role="cause",
            alive=True,
            pattern=r"E: Unable to locate package (?P<name>\S{1,120})",
            needle="E: Unable to locate package ",
            title="apt knows no package {name}",
            cause="apt-get update did not run or failed before, or this distribution does not have the package.",
            fix="Run apt-get update first; check the name for this distribution, and that its component is enabled.",
            source="apt",
            fires="E: Unable to locate package python3.13-venv",
            spares="INFO able to locate package python3.13-venv",
        ),
        Text(
            "apt-no-candidate",
            "' has no installation candidate",
            r"E: Package '(?P<name>[^'\n]{1,120})' has no installation candidate",
            "E: Package 'python-pip' has no installation candidate",
            "INFO package 'python-pip' has an installation candidate",
        ),
        Text(
            "apt-no-version",
            "' was not found",
            r"E: Version '[^'\n]{1,80}' for '(?P<name>[^'\n]{1,120})' was not found",
            "E: Version '1.2-3' for 'curl' was not found",
            "INFO Version '1.2-3' for 'curl' was found",
        ),
    ),
    *family(
        Signature(
            id="apt-signature",
            component="shell",
            role="cause",
            alive=True,
            pattern=r"NO_PUBKEY (?P<what>[0-9A-F]{8,40})",
            needle="NO_PUBKEY ",
            title="apt does not trust an archive: its signature cannot be checked",
            cause="The key that signs the archive is missing or expired here ({what}).",
            fix="Install the archive's current key in /etc/apt/keyrings and name it in the source (signed-by=).",
            source="apt",
            fires="W: GPG error: https://x.example.org stable InRelease: NO_PUBKEY A4B469963BF863CC",
            spares="INFO a PUBKEY A4B469963BF863CC",
        ),
        Text(
            "apt-signature-expired",
            "EXPKEYSIG ",
            r"EXPKEYSIG (?P<what>[0-9A-F]{8,40})",
            "W: GPG error: https://x.example.org stable InRelease: EXPKEYSIG A4B469963BF863CC",
            "INFO no EXPKEYSIG of A4B469963BF863CC",
        ),
        Text(
            "apt-signature-none",
            "' is not signed",
            r"E: The repository '(?P<what>[^'\n]{1,200})' is not signed",
            "E: The repository 'http://deb.example.org/debian stable InRelease' is not signed.",
            "INFO The repository 'http://deb.example.org/debian' is signed",
        ),
        Text(
            "apt-signature-invalid",
            "At least one invalid signature was encountered",
            r"(?P<what>At least one invalid signature was encountered)",
            (
                "W: GPG error: http://deb.example.org bookworm InRelease: At least one invalid signature was "
                "encountered."
            ),
            "INFO no invalid signature was encountered",
        ),
    ),
    Signature(
        id="apt-clock",
        component="shell",
        role="cause",
        alive=True,
        pattern=r"Release file for (?P<url>\S{1,200}) is (?:not valid yet|expired) \(invalid (?P<how>[^\n)]{1,80})",
        needle="Release file for ",
        title="apt refuses an archive: the clock here is wrong, or the archive is old",
        cause="The release file of {url} counts as invalid {how} by this host's clock.",
        fix="Set the clock (timedatectl set-ntp true); for a snapshot pass -o Acquire::Check-Valid-Until=false.",
        command="date -u; timedatectl",
        source="apt",
        fires=(
            "E: Release file for http://deb.example.org/InRelease is not valid yet (invalid for another 2h 3min 4s). "
            "Updates for this repository will not be applied."
        ),
        spares="INFO Release file for http://deb.example.org/InRelease is valid",
    ),
    Signature(
        id="apt-no-release",
        component="shell",
        role="cause",
        alive=True,
        pattern=r"The repository '(?P<name>[^'\n]{1,200})' (?:does not have a|no longer has a) Release file",
        needle="The repository '",
        title="An apt source has no packages for this distribution (any more)",
        cause="{name} is not there: the distribution has reached its end of life, or the source's line is wrong.",
        fix=(
            "Use a supported base image, or its archive (old-releases.ubuntu.com, archive.debian.org); correct "
            "the source."
        ),
        source="apt",
        fires="E: The repository 'http://deb.example.org/debian buster Release' does not have a Release file.",
        spares="INFO The repository 'http://deb.example.org/debian' does have a Release file",
    ),
    *family(
        Signature(
            id="apt-conflict",
            component="shell",
            role="cause",
            alive=True,
            pattern=r"E: Unable to correct problems, you have held broken packages",
            needle="E: Unable to correct problems, you have held broken packages",
            title="apt finds no set of packages that fit each other",
            cause="A wanted package needs versions that the sources do not have, or that others forbid.",
            fix="Read the unmet dependencies above it; do not mix sources of several distributions.",
            source="apt",
            fires="E: Unable to correct problems, you have held broken packages.",
            spares="INFO able to correct problems",
        ),
        Text(
            "apt-conflict-unmet",
            "E: Unmet dependencies.",
            r"E: Unmet dependencies\.",
            "E: Unmet dependencies. Try 'apt --fix-broken install' with no packages (or specify a solution).",
            "INFO no Unmet dependencies.",
        ),
    ),
    *family(
        Signature(
            id="dpkg-broken",
            component="shell",
            role="cause",
            alive=True,
            pattern=r"dpkg: error processing (?:package|archive) \S{1,200}",
            needle="dpkg: error processing ",
            title="dpkg could not set up a package",
            cause="A package's own script failed, or an installation was cut off before.",
            fix="Read the lines above it; run dpkg --configure -a, and free disk space if there is none.",
            source="dpkg",
            fires="dpkg: error processing package nvidia-dkms-550 (--configure):",
            spares="INFO dpkg: processing package nvidia-dkms-550",
        ),
        Text(
            "dpkg-interrupted",
            "dpkg was interrupted, you must manually run",
            r"dpkg was interrupted, you must manually run",
            "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem.",
            "INFO dpkg was not interrupted",
        ),
    ),
)
