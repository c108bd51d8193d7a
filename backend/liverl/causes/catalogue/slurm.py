"""Signatures of Slurm."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="slurm-oom",
        component="slurm",
        role="cause",
        pattern=(
            r"slurmstepd: error: Detected (?P<count>\d{1,6}) oom.kill event(?:s|\(s\))? in "
            r"(?:StepId=|step )(?P<step>\w{1,40}(?:\.\w{1,20})?)"
        ),
        needle="slurmstepd: error: Detected",
        title="Slurm step {step} reached its memory limit; processes were killed",
        cause=(
            "The memory limit of Slurm step {step} was reached, and the kernel killed {count} of its "
            "processes."
        ),
        fix=(
            "Ask for more memory (--mem, --mem-per-cpu higher) or use fewer workers "
            "(harbor_runtime.num_workers, verl.agent_workers)."
        ),
        command="sacct -j {step} --format=JobID,ReqMem,MaxRSS,State",
        source="recordings/cases/41-slurm-oom-kill-event.log",
        fires=(
            "slurmstepd: error: Detected 1 oom_kill event in StepId=4191701.0. Some of the step tasks "
            "have been OOM Killed."
        ),
        spares=(
            "slurmstepd: error: *** STEP 4191701.0 ON node7 CANCELLED AT 2025-07-03T14:20:51 DUE TO TIME "
            "LIMIT ***"
        ),
    ),
    Signature(
        id="slurm-time-limit",
        component="slurm",
        role="cause",
        from_outside=True,
        pattern=(
            r"\*\*\* (?:JOB|STEP) (?P<job>[\w.]{1,40}) (?:ON (?P<node>\S{1,100}) )?CANCELLED AT "
            r"(?P<at>\S{1,40}) DUE TO TIME LIMIT \*\*\*"
        ),
        needle="DUE TO TIME LIMIT ***",
        title="Slurm ended job {job}: its time limit was reached",
        cause="Job {job} used the whole time that it asked for and was cancelled at {at}.",
        fix="Ask for more time (--time), and restart: training goes on from its newest checkpoint.",
        command="sacct -j {job} --format=JobID,Timelimit,Elapsed,State",
        source="github.com/ZettaAI/zetta_utils/issues/671",
        fires=(
            "slurmstepd: error: *** STEP 494583.0 ON node12 CANCELLED AT 2024-04-20T09:09:37 DUE TO TIME "
            "LIMIT ***"
        ),
        spares="slurmstepd: error: *** STEP 494583.0 ON node12 CANCELLED AT 2024-04-20T09:09:37 ***",
    ),
    Signature(
        id="slurm-preempted",
        component="slurm",
        role="cause",
        from_outside=True,
        pattern=(
            r"\*\*\* (?:JOB|STEP) (?P<job>[\w.]{1,40}) (?:ON \S{1,100} )?CANCELLED AT (?P<at>\S{1,40}) "
            r"DUE TO PREEMPTION \*\*\*"
        ),
        needle="DUE TO PREEMPTION ***",
        title="Slurm preempted job {job} for a job of higher priority",
        cause="Slurm took the nodes of job {job} at {at} for a job of higher priority.",
        fix=(
            "Submit it again, with --requeue, or on a partition without preemption; save checkpoints "
            "more often (training.save_freq)."
        ),
        source="github.com/SystemsGenetics/GEMmaker/pull/242",
        fires=(
            "slurmstepd: error: *** JOB 32391783 ON cn119 CANCELLED AT 2021-06-18T13:05:36 DUE TO "
            "PREEMPTION ***"
        ),
        spares=(
            "slurmstepd: error: *** JOB 32391783 ON cn119 CANCELLED AT 2021-06-18T13:05:36 DUE TO TIME "
            "LIMIT ***"
        ),
    ),
    Signature(
        id="slurm-node-failed",
        component="slurm",
        role="cause",
        effect=True,
        pattern=(
            r"(?:\*\*\* (?:JOB|STEP) (?P<job>[\w.]{1,40}) (?:ON \S{1,100} )?CANCELLED AT \S{1,40} DUE TO "
            "NODE FAILURE)"
        ),
        needle="DUE TO NODE FAILURE",
        title="Slurm ended job {job}: one of its nodes failed",
        cause="A node of job {job} failed or stopped answering.",
        fix="Submit it again without that node (--exclude); sinfo -R says which node is down and why.",
        command="sinfo -R",
        source="Slurm src/slurmd/slurmstepd/mgr.c",
        fires=(
            "slurmstepd: error: *** STEP 1234.0 ON n1 CANCELLED AT 2024-04-20T09:09:37 DUE TO NODE "
            "FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
        ),
        spares=(
            "slurmstepd: error: *** STEP 1234.0 ON n1 CANCELLED AT 2024-04-20T09:09:37 DUE TO TIME LIMIT ***"
        ),
    ),
    Signature(
        id="slurm-cancelled",
        component="slurm",
        role="cause",
        from_outside=True,
        effect=True,
        pattern=(
            r"slurmstepd: error: \*\*\* (?:JOB|STEP) (?P<job>[\w.]{1,40}) (?:ON \S{1,100} )?CANCELLED AT "
            r"(?P<at>\S{1,40}) \*\*\*"
        ),
        needle="slurmstepd: error: ***",
        title="Slurm job {job} was cancelled (scancel, or its first step ended)",
        cause="Somebody or something cancelled job {job} at {at}; Slurm gives no reason.",
        fix="Ask who called scancel, or look at the end of the job's own script; submit it again.",
        command="sacct -j {job} --format=JobID,State,ExitCode,Comment",
        source="github.com/ai4d-iasc/trixie/issues/45",
        fires="slurmstepd: error: *** STEP 63532.0 ON cn106 CANCELLED AT 2020-12-14T09:43:55 ***",
        spares=(
            "slurmstepd: error: *** STEP 63532.0 ON cn106 CANCELLED AT 2020-12-14T09:43:55 DUE TO TIME "
            "LIMIT ***"
        ),
    ),
    Signature(
        id="slurm-no-allocation",
        component="slurm",
        role="cause",
        pattern=(
            r"srun: error: Unable to (?:allocate resources|create step for job \d{1,12}): "
            r"(?P<why>[^\n]{1,120})"
        ),
        needle="srun: error: Unable to",
        title="Slurm refuses the resources that the job asks for",
        cause="Slurm refused the job or the step: {why}.",
        fix=(
            "Change what it asks for (--nodes, --gres, --time, --mem, --partition); sinfo shows what "
            "there is."
        ),
        command="sinfo -o '%P %a %l %D %G'",
        source="github.com/desihub/desitarget/issues/628",
        fires=(
            "srun: error: Unable to allocate resources: Requested time limit is invalid (missing or "
            "exceeds some limit)"
        ),
        spares="srun: error: node7: task 0: Out Of Memory",
    ),
)
