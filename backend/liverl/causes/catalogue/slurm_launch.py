"""Further signatures of Slurm: what it refuses, and steps that it cannot start."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="slurm-submit-refused",
        component="slurm",
        role="cause",
        pattern=r"sbatch: error: (?:Batch job submission failed: )?(?P<why>[^\n]{1,200})",
        needle="sbatch: error: ",
        title="Slurm refuses the job",
        cause="sbatch or salloc did not accept the job: {why}.",
        fix=(
            "Change what it asks for (--time, --partition, --account, --qos, --gres, --mem, --nodes); sinfo "
            "and sacctmgr show what you may use."
        ),
        command=("sinfo -o '%P %a %l %D %G'; sacctmgr -n show assoc user=$USER format=account,partition,qos"),
        source="Slurm src/sbatch/sbatch.c",
        fires=(
            "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds "
            "some limit)"
        ),
        spares="sbatch: Submitted batch job 4411024",
    ),
    Signature(
        id="slurm-allocate-refused",
        component="slurm",
        role="cause",
        pattern=r"Job submit/allocate failed: (?P<why>[^\n]{1,200})",
        needle="Job submit/allocate failed: ",
        title="Slurm refuses the job",
        cause="salloc or srun got no allocation: {why}.",
        fix=(
            "Change what it asks for (--time, --partition, --account, --qos, --gres, --mem, --nodes); sinfo "
            "shows what there is."
        ),
        command="sinfo -o '%P %a %l %D %G'",
        source="Slurm src/salloc/salloc.c",
        fires=(
            "salloc: error: Job submit/allocate failed: Invalid account or account/partition combination "
            "specified"
        ),
        spares="salloc: Granted job allocation 12; none failed",
    ),
    Signature(
        id="slurm-oom-task",
        component="slurm",
        role="cause",
        pattern=r"srun: error: (?P<node>\S{1,80}): tasks? (?P<tasks>[\d,-]{1,80}): Out Of Memory",
        needle=": Out Of Memory",
        title="Slurm ended task {tasks} on {node}: the step's memory limit was reached",
        cause=(
            "The processes of the step used more memory than the job asked for, and the kernel killed some "
            "of them."
        ),
        fix=(
            "Ask for more memory (--mem, --mem-per-cpu higher, --mem=0 for all of the node) or use fewer "
            "workers (harbor_runtime.num_workers, verl.agent_workers)."
        ),
        command="sacct -j $SLURM_JOB_ID --format=JobID,ReqMem,MaxRSS,State",
        effect=True,
        source="Slurm src/srun",
        fires="srun: error: gpu-017: task 0: Out Of Memory",
        spares="srun: error: gpu-017: task 0: Terminated",
    ),
    Signature(
        id="slurm-memory-exceeded",
        component="slurm",
        role="cause",
        pattern=(
            r"(?:[Jj]ob|[Ss]tep|StepId=)\s?(?P<step>[\d.]{1,40}) exceeded (?:job |step |virtual )?memory "
            r"limit \((?P<used>\d{1,15}) > (?P<most>\d{1,15})\), being killed"
        ),
        needle="), being killed",
        title="Slurm ended job {step}: it used more memory than it asked for",
        cause="It used {used} kB (or MB), and {most} were asked for.",
        fix=(
            "Ask for more memory (--mem, --mem-per-cpu higher) or use fewer workers "
            "(harbor_runtime.num_workers, verl.agent_workers)."
        ),
        command="sacct -j {step} --format=JobID,ReqMem,MaxRSS,State",
        source="Slurm src/slurmd/slurmstepd",
        fires=("slurmstepd: error: Job 1234 exceeded memory limit (33571204 > 33554432), being killed"),
        spares="slurmstepd: Exceeded step memory limit at some point. 1 > 0",
    ),
    Signature(
        id="slurm-node-failure-srun",
        component="slurm",
        role="cause",
        pattern=r"srun: error: Node failure on (?P<node>\S{1,200})",
        needle="srun: error: Node failure on ",
        title="Node {node} of the job failed",
        cause="Slurm lost node {node}: it went down, rebooted, or its slurmd stopped answering.",
        fix="Submit it again without that node (--exclude={node}); sinfo -R says why it is down.",
        command="sinfo -R",
        source="Slurm src/api/step_launch.c",
        fires="srun: error: Node failure on gpu-018",
        spares="srun: error: gpu-018: task 0: Killed",
    ),
    Signature(
        id="slurm-requeued",
        component="slurm",
        role="cause",
        pattern=(
            r"\*\*\* (?:JOB|STEP) (?P<job>[\w.]{1,40}) (?:ON \S{1,100} )?CANCELLED AT (?P<at>\S{1,40}) DUE TO "
            r"JOB REQUEUE \*\*\*"
        ),
        needle="DUE TO JOB REQUEUE",
        title="Slurm took job {job} back into its queue (requeue)",
        cause=(
            "Somebody, a failed node or a preemption had job {job} requeued at {at}; it starts again by "
            "itself."
        ),
        fix=(
            "Nothing, if the run resumes from its newest checkpoint; sacct shows which state its first part "
            "had."
        ),
        command="sacct -j {job} -D --format=JobID,State,NodeList,Start,End",
        source="Slurm src/slurmd/slurmstepd/mgr.c",
        fires=(
            "slurmstepd: error: *** JOB 911 ON n1 CANCELLED AT 2025-03-01T02:59:56 DUE TO JOB REQUEUE ***"
        ),
        spares="slurmstepd: error: *** JOB 911 ON n1 CANCELLED AT 2025-03-01T02:59:56 ***",
    ),
    Signature(
        id="slurm-execve",
        component="slurm",
        role="cause",
        pattern=(
            r"slurmstepd: error: execve\(\): (?P<program>[^\n]{1,300}): (?P<why>No such file or "
            "directory|Permission denied|Exec format error|Argument list too long)"
        ),
        needle="slurmstepd: error: execve(): ",
        title="Slurm cannot start {program}: {why}",
        cause="The step's command {program} cannot be executed on the node: {why}.",
        fix=(
            "Check that it exists on the compute node and is executable (first line, chmod +x), and that the "
            "environment is loaded before srun."
        ),
        command="srun -N1 ls -l {program}",
        source="Slurm src/slurmd/slurmstepd/task.c",
        fires="slurmstepd: error: execve(): /home/u/run.sh: Permission denied",
        spares="slurmstepd: execve(): /home/u/run.sh",
    ),
    Signature(
        id="slurm-launch-failed",
        component="slurm",
        role="cause",
        pattern=(
            r"srun: error: (?:[Tt]ask launch for (?:StepId=)?(?P<step>[\w.]{1,40}) failed on node "
            r"(?P<node>\S{1,80}): (?P<why>[^\n]{1,160}))"
        ),
        needle="ask launch for ",
        title="Slurm could not start the step on node {node}",
        cause="The launch of step {step} on {node} failed: {why}.",
        fix=(
            "Try another node (--exclude={node}), and report that node to whoever runs the cluster if it "
            "happens again."
        ),
        command="sinfo -N -l -n {node}",
        source="Slurm src/api/step_launch.c",
        fires=(
            "srun: error: Task launch for StepId=1234.0 failed on node gpu-3: Communication connection "
            "failure"
        ),
        spares="srun: launching StepId=1234.0 on host gpu-3, 1 tasks: 0",
    ),
    Signature(
        id="slurm-no-gpu-files",
        component="slurm",
        role="cause",
        pattern=r"invalid literal for int\(\) with base 10: 'NoDevFiles'",
        needle="with base 10: 'NoDevFiles'",
        title="Slurm gave the step no GPU (CUDA_VISIBLE_DEVICES=NoDevFiles)",
        cause=(
            "The step did not ask for GPUs, so Slurm hides them all with this value, which the program "
            "cannot read."
        ),
        fix="Ask for GPUs in the step too (--gres=gpu:N or --gpus-per-node for sbatch and srun).",
        command="srun --gres=gpu:1 nvidia-smi -L",
        source="github.com/ray-project/ray/issues/6978",
        fires="ValueError: invalid literal for int() with base 10: 'NoDevFiles'",
        spares="ValueError: invalid literal for int() with base 10: ''",
    ),
    Signature(
        id="slurm-controller",
        component="slurm",
        role="cause",
        pattern=r"Unable to contact slurm controller \((?P<why>[^)\n]{1,80})\)",
        needle="Unable to contact slurm controller",
        title="Slurm's controller does not answer",
        cause="The command could not reach slurmctld ({why}): it is down or overloaded.",
        fix=(
            "Wait and try again; scontrol ping shows whether it answers. Ask whoever runs the cluster if it "
            "stays so."
        ),
        command="scontrol ping",
        source="Slurm src/common/slurm_errno.c",
        fires="slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        spares="slurm controller contacted",
    ),
    Signature(
        id="slurm-no-directory",
        component="slurm",
        role="cause",
        pattern=(r"couldn't chdir to `(?P<path>[^'\n]{1,300})': (?P<why>[\w ]{1,60}): going to /tmp instead"),
        needle="couldn't chdir to `",
        title="The job runs in /tmp: Slurm could not enter {path}",
        cause=(
            "{path} cannot be entered on the node: {why}; relative paths of the script are therefore wrong."
        ),
        fix="Submit from a directory that the nodes share, or give --chdir.",
        severity="warning",
        alive=True,
        source="Slurm src/slurmd/slurmstepd/task.c",
        fires=(
            "slurmstepd: error: couldn't chdir to `/home/u/run': No such file or directory: going to /tmp "
            "instead"
        ),
        spares="slurmstepd: chdir to /home/u/run",
    ),
    Signature(
        id="slurm-no-output",
        component="slurm",
        role="cause",
        pattern=(
            r"Could not open (?:stdout|stderr|stdin) file:? ?(?P<path>[^\n:]{0,300}): (?P<why>No such file or "
            "directory|Permission denied|No space left on device|Disk quota exceeded|Read-only file system)"
        ),
        needle="Could not open std",
        title="Slurm cannot write the job's output file: {why}",
        cause="The file of --output or --error ({path}) cannot be opened on the node: {why}.",
        fix="Create its directory first (Slurm does not), and use a path that the nodes share.",
        source="Slurm src/slurmd/slurmstepd/io.c",
        fires=("slurmstepd: error: Could not open stdout file /home/u/logs/1.out: No such file or directory"),
        spares="INFO Could open stdout file",
    ),
    Signature(
        id="slurm-task-launch",
        component="slurm",
        role="cause",
        pattern=(r"srun: error: [Tt]asks? (?P<tasks>[\d,-]{1,60}) launch failed: (?P<why>[^\n]{1,160})"),
        needle=" launch failed: ",
        title="Slurm could not start task {tasks}: {why}",
        cause=(
            "The node refused to start the task: {why}. Its slurmd.log says more (plugins such as pyxis, the "
            "prolog, cgroups)."
        ),
        fix="Try another node (--exclude), and report the node to whoever runs the cluster.",
        command="sinfo -N -l",
        source="Slurm src/api/step_launch.c",
        fires="srun: error: task 0 launch failed: Plugin initialization failed",
        spares="srun: task 0 launched, none launch failed: ok",
    ),
    Signature(
        id="slurm-job-container",
        component="slurm",
        role="cause",
        pattern=(r"slurmstepd: error: (?:container_p_join|container_g_join|job_container)[^\n]{0,200}"),
        needle="slurmstepd: error: ",
        title="Slurm's plugin for private directories (job_container) failed on the node",
        cause=("The node could not set up the job's own /tmp or /scratch, so no step can start there."),
        fix=(
            "Submit it again without that node (--exclude), and report the node to whoever runs the cluster."
        ),
        command="scontrol show job $SLURM_JOB_ID",
        source="Slurm src/plugins/job_container/tmpfs",
        fires=(
            "slurmstepd: error: container_p_join: open failed /scratch/119383/.active: No such file or "
            "directory"
        ),
        spares="slurmstepd: error: Detected 1 oom_kill event in StepId=1.0, not in container",
    ),
    Signature(
        id="module-unknown",
        component="shell",
        role="cause",
        pattern=r"The following module\(s\) are unknown:",
        needle="The following module(s) are unknown:",
        title="The cluster has no environment module of a name that a script loads",
        cause=("module load loaded nothing, so what it brings (CUDA, a compiler, Python) is missing."),
        fix="Look for the right name and version, and correct the script.",
        command="module spider",
        severity="warning",
        alive=True,
        source="Lmod",
        fires=('Lmod has detected the following error:  The following module(s) are unknown:\n"cuda/12.4"'),
        spares='INFO The following module(s) are known: "cuda/12.4"',
    ),
    Signature(
        id="module-unknown-tcl",
        component="shell",
        role="cause",
        pattern=r"Unable to locate a modulefile for '(?P<name>[^'\n]{1,120})'",
        needle="Unable to locate a modulefile for '",
        title="The cluster has no environment module {name}",
        cause=("module load {name} loaded nothing, so what it brings (CUDA, a compiler, Python) is missing."),
        fix="Look for the right name and version, and correct the script.",
        command="module avail {name}",
        severity="warning",
        alive=True,
        source="Environment Modules",
        fires="ERROR: Unable to locate a modulefile for 'cuda/12.4'",
        spares="INFO a modulefile for 'cuda/12.4' located",
    ),
    Signature(
        id="mpi-daemons",
        component="host",
        role="consequence",
        pattern="ORTE was unable to reliably start one or more daemons",
        needle="ORTE was unable to reliably start one or more daemons",
        title="mpirun could not start its helpers on other hosts",
        fix=(
            "Read the line above it: usually ssh between the hosts fails; under Slurm use srun --mpi instead "
            "of mpirun."
        ),
        source="Open MPI",
        fires="ORTE was unable to reliably start one or more daemons.",
        spares="INFO ORTE was able to start its daemons",
    ),
    Signature(
        id="slurm-pmix",
        component="slurm",
        role="cause",
        pattern=r"slurmstepd: error: {1,3}mpi/(?P<plugin>pmi\w{1,12}): (?P<why>[^\n]{1,200})",
        needle="slurmstepd: error:",
        title="Slurm's MPI plugin ({plugin}) failed between the nodes",
        cause=(
            "It reports: {why}. The nodes' step daemons could not reach each other, or the MPI in use does "
            "not fit Slurm's PMI."
        ),
        fix=(
            "Look which node is named (--exclude it), set SLURM_MPI_TYPE or srun --mpi to what the MPI was "
            "built with, and check the network between the nodes."
        ),
        command="srun --mpi=list",
        source="Slurm src/plugins/mpi/pmix",
        fires=(
            "slurmstepd: error:  mpi/pmix_v4: pmixp_p2p_send: n12 [0]: pmixp_utils.c:467: send failed, "
            "rc=1001, exceeded the retry limit"
        ),
        spares="slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2025-06-01T10:00:00 ***",
    ),
    Signature(
        id="slurm-job-gone",
        component="slurm",
        role="cause",
        pattern=r"Unable to confirm allocation for job (?P<job>\d{1,12}): (?P<why>[^\n]{1,120})",
        needle="Unable to confirm allocation for job ",
        title="srun is in a job that Slurm does not know any more ({job})",
        cause=(
            "SLURM_JOB_ID is {job}, and Slurm says: {why}. The job has ended, or the variable was kept from "
            "another shell."
        ),
        fix=("Start it within a running job (salloc, sbatch), or unset the SLURM variables of the old one."),
        command="squeue -j {job}; env | grep SLURM_JOB",
        source="Slurm src/srun/libsrun/allocate.c",
        fires="srun: error: Unable to confirm allocation for job 991: Invalid job id specified",
        spares="srun: confirm allocation for job 991: done",
    ),
    Signature(
        id="slurm-prolog",
        component="slurm",
        role="cause",
        pattern=r"Prolog (?:hung|failed|failure) on node (?P<node>\S{1,100})",
        needle="Prolog ",
        title="Node {node} could not prepare itself for the job (prolog)",
        cause=("The cluster's prolog script failed or hung on {node}; Slurm usually drains such a node."),
        fix=(
            "Submit it again without that node (--exclude={node}), and report it to whoever runs the cluster."
        ),
        command="sinfo -R",
        source="Slurm src/srun",
        fires="srun: error: Prolog hung on node gpu-12",
        spares="INFO Prolog done on node gpu-12",
    ),
)
