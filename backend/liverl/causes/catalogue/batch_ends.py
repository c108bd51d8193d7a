"""Signatures of ends by batch systems other than Slurm."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="pbs-walltime",
        component="host",
        role="cause",
        from_outside=True,
        pattern=r"PBS: job killed: walltime (?P<used>\d{1,9}) exceeded limit (?P<limit>\d{1,9})",
        needle="PBS: job killed: walltime ",
        title="PBS ended the job: its time limit of {limit} s was reached",
        cause="The job ran {used} s, and had asked for {limit} s.",
        fix="Ask for more time (-l walltime=...), and restart: training goes on from its newest checkpoint.",
        source="OpenPBS src/resmom/mom_main.c",
        fires="=>> PBS: job killed: walltime 3636 exceeded limit 3600",
        spares="=>> PBS: job killed: mem 3636kb exceeded limit 3600kb",
    ),
    Signature(
        id="lsf-run-limit",
        component="host",
        role="cause",
        from_outside=True,
        pattern=r"TERM_RUNLIMIT: job killed after reaching LSF run time limit",
        needle="TERM_RUNLIMIT: job killed",
        title="LSF ended the job: its run time limit was reached",
        cause="The job used the whole time that it or its queue allows.",
        fix="Ask for more time (bsub -W), and restart: training goes on from its newest checkpoint.",
        source="LSF bsub reports",
        fires="TERM_RUNLIMIT: job killed after reaching LSF run time limit.",
        spares="TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
    ),
)
