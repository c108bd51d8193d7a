"""Signatures of ssh, and of limits that a shell meets."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="ssh-failed",
        component="shell",
        role="cause",
        pattern=(
            r"ssh: (?:connect to host (?P<host>\S{1,200}) port \d{1,5}: [^\n]{1,80}|Could not resolve hostname "
            r"[^\n]{1,200})"
        ),
        needle="ssh: ",
        title="A host could not be reached by ssh",
        cause="The host is down, its name or port is wrong, or a firewall is between.",
        fix="Try ssh by hand from the same host; on a cluster use the names that the batch system gives the nodes.",
        severity="warning",
        alive=True,
        source="OpenSSH",
        fires="ssh: connect to host worker-2 port 22: Connection refused",
        spares="ssh: connected to host worker-2 port 22",
    ),
    Signature(
        id="ssh-refused",
        component="shell",
        role="cause",
        pattern=r"(?P<who>\S{1,100}@\S{1,200}): Permission denied \(publickey",
        needle=": Permission denied (publickey",
        title="{who} refused the login by ssh",
        cause="The host does not accept a key of this account.",
        fix="Install the key there (ssh-copy-id {who}), or name it with ssh -i.",
        severity="warning",
        alive=True,
        source="OpenSSH",
        fires="ray@worker-2: Permission denied (publickey,password).",
        spares="Permission given to ray@worker-2 (publickey).",
    ),
    Signature(
        id="ssh-host-key",
        component="shell",
        role="cause",
        pattern=r"Host key verification failed\.",
        needle="Host key verification failed.",
        title="ssh does not trust the key of a host",
        cause="The host's key is not known here, or it is another one than before.",
        fix="If the host was renewed, remove its old key (ssh-keygen -R HOST), and log in once by hand.",
        severity="warning",
        alive=True,
        source="OpenSSH",
        fires="Host key verification failed.",
        spares="Host key verification done.",
    ),
    Signature(
        id="fork-limit-shell",
        component="host",
        role="cause",
        pattern=(
            r"(?:bash|sh|\S{1,100}): fork: (?:retry: )?(?:Resource temporarily unavailable|Cannot allocate "
            r"memory)"
        ),
        needle=": fork: ",
        title="A shell could not start a further process: a limit is reached",
        cause=(
            "The user, the container or the Slurm step has as many processes as its limit (ulimit -u, pids.max) "
            "allows."
        ),
        fix="Raise the limit (ulimit -u, pids of the container), or use fewer workers (harbor_runtime.num_workers).",
        command="ulimit -u; cat /sys/fs/cgroup/pids.max",
        source="bash",
        fires="bash: fork: retry: Resource temporarily unavailable",
        spares="bash: fork: 4 children started",
    ),
    Signature(
        id="tmux-session-exists",
        component="shell",
        role="cause",
        pattern=r"(?:^|\n)duplicate session: (?P<name>[^\n]{1,80})",
        needle="duplicate session: ",
        title="There is a tmux session {name} already",
        cause=(
            "tmux new-session -s {name} refused to make a second session of that name, often one of an earlier "
            "run."
        ),
        fix="Attach to it (tmux attach -t {name}), end it if it is a leftover of yours, or choose another name.",
        command="tmux ls",
        severity="warning",
        alive=True,
        source="tmux",
        fires="duplicate session: rl",
        spares="tmux: session rl made; duplicate sessions: 0",
    ),
)
