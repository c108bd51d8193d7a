"""Signatures of file systems, rights, services and remote shells, as command line tools and systemd print them."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="unit-no-program",
            component="host",
            role="cause",
            pattern=(
                r"(?P<unit>[\w@.\\-]{1,120}): Failed to locate executable (?P<program>\S{1,300}?): (?P<why>[\w "
                r"]{1,60})"
            ),
            needle=": Failed to locate executable ",
            title="systemd cannot start {unit}: {program} is not there",
            cause="ExecStart names {program}: {why}.",
            fix=(
                "Correct ExecStart to the program's absolute path, then systemctl daemon-reload and restart the "
                "unit."
            ),
            command="systemctl cat {unit}; ls -l {program}",
            source="systemd",
            fires=(
                "systemd[98303]: ksushy.service: Failed to locate executable /usr/bin/ksushy: No such file or "
                "directory"
            ),
            spares="systemd[1]: ksushy.service: located executable /usr/bin/ksushy",
        ),
        Text(
            "unit-step-failed",
            ": Failed at step ",
            (
                r"(?P<unit>[\w@.\\-]{1,120}): Failed at step [A-Z_]{1,30} spawning (?P<program>\S{1,300}?): "
                r"(?P<why>[\w ]{1,60})"
            ),
            "systemd[9]: a.service: Failed at step EXEC spawning /usr/bin/a: Permission denied",
            "systemd[9]: a.service: Failed at step 3",
        ),
    ),
    Signature(
        id="unit-start-slow",
        component="host",
        role="cause",
        pattern=(
            r"(?P<unit>[\w@.\\-]{1,120}): (?:start|stop-sigterm|State 'stop-sigterm') (?:operation )?timed out"
        ),
        needle="timed out",
        title="systemd gave up on {unit}: it did not start or stop in time",
        cause="The unit did not report ready, or did not end, within its time limit.",
        fix="Raise TimeoutStartSec or TimeoutStopSec of the unit, or find what it waits for in its log.",
        command="systemctl status {unit}; journalctl -u {unit} -n 50",
        source="systemd",
        fires="systemd[1]: docker.service: start operation timed out. Terminating.",
        spares="systemd[1]: docker.service: started, nothing timed out",
    ),
    *family(
        Signature(
            id="unit-failed",
            component="host",
            role="consequence",
            pattern=r"(?P<unit>[\w@.\\-]{1,120}): Failed with result '(?P<why>(?!oom-kill)[\w-]{1,30})'",
            needle=": Failed with result '",
            title="systemd reports that {unit} failed ({why})",
            fix="Its own lines above say why: journalctl -u {unit}.",
            source="systemd",
            fires="systemd[1]: ksushy.service: Failed with result 'exit-code'.",
            spares="systemd[1]: a.service: Failed with result 'oom-kill'.",
        ),
        Text(
            "unit-failed-repeatedly",
            ": Start request repeated too quickly",
            r"(?P<unit>[\w@.\\-]{1,120}): (?P<why>Start request repeated too quickly)",
            "systemd[1]: a.service: Start request repeated too quickly.",
            "systemd[1]: a.service: Start request",
        ),
    ),
    Signature(
        id="no-user-bus",
        component="shell",
        role="cause",
        alive=True,
        pattern=r"Failed to connect to (?:user scope )?bus",
        needle="Failed to connect to ",
        title="systemctl has no systemd to talk to for this user",
        cause=(
            "There is no session of this user (su, sudo, cron, a container), so that XDG_RUNTIME_DIR is not "
            "set."
        ),
        fix="Log in by ssh, or run loginctl enable-linger and set XDG_RUNTIME_DIR=/run/user/$(id -u).",
        source="systemd",
        fires="Failed to connect to bus: No medium found",
        spares="INFO able to connect to bus",
    ),
    Signature(
        id="no-systemd",
        component="shell",
        role="cause",
        alive=True,
        pattern=r"System has not been booted with systemd as init system",
        needle="System has not been booted with systemd as init system",
        title="There is no systemd here (a container)",
        cause="systemctl works only where systemd runs as process 1.",
        fix="Start the program itself, or service NAME start.",
        source="systemd",
        fires="System has not been booted with systemd as init system (PID 1). Can't operate.",
        spares="INFO System has been booted with systemd",
    ),
    Signature(
        id="file-handle-stale",
        component="host",
        role="cause",
        alive=True,
        pattern=r": Stale (?:NFS )?file handle(?:\n|\Z)",
        needle="file handle",
        title="A file on a network file system is gone (stale file handle)",
        cause="It was removed or replaced on the server, or the share was exported anew, while it was open here.",
        fix="Mount the share anew, and start again in a fresh working directory (cd out and in).",
        command="findmnt -t nfs,nfs4",
        source="coreutils",
        fires="ls: cannot access '/data/a': Stale file handle",
        spares="INFO no Stale file handle here",
    ),
    Signature(
        id="mount-dead",
        component="host",
        role="cause",
        alive=True,
        pattern=r"Transport endpoint is not connected",
        needle="Transport endpoint is not connected",
        title="A mounted file system is dead (FUSE)",
        cause="The program that serves the mount (sshfs, s3fs, gcsfuse, juicefs, squashfuse) has ended.",
        fix="Unmount it and mount it again; see that program's log for why it ended.",
        command="mount | grep fuse; fusermount -u MOUNTPOINT",
        source="Linux FUSE",
        fires="ls: cannot access '/mnt/bucket': Transport endpoint is not connected",
        spares="INFO the Transport endpoint is connected",
    ),
    *family(
        Signature(
            id="disk-quota-tool",
            component="host",
            role="cause",
            pattern=r": Disk quota exceeded",
            needle=": Disk quota exceeded",
            title="The disk quota of this user or project is used up",
            cause="The file system has space, but not for this user, group or project.",
            fix="Delete files, move caches elsewhere (HF_HOME, TMPDIR, conda's pkgs_dirs), or ask for more.",
            command="quota -s; lfs quota -h -u $USER .",
            source="coreutils",
            fires="cp: error writing '/home/a/x': Disk quota exceeded",
            spares="OSError: [Errno 122] Disk quota exceeded",
        ),
        Text(
            "disk-quota-node",
            "EDQUOT: disk quota exceeded",
            r"EDQUOT: disk quota exceeded",
            "Error: EDQUOT: disk quota exceeded, write",
            "INFO no EDQUOT: the disk quota is fine",
        ),
    ),
    Signature(
        id="read-only-tool",
        component="host",
        role="cause",
        pattern=r"(?:^|\n)[\w./ -]{1,60}: [^\n]{1,300}: Read-only file system(?:\n|\Z)",
        needle=": Read-only file system",
        title="A file system is mounted read-only",
        cause=(
            "It is mounted so (a container's root, a read-only volume), or the kernel made it so after a "
            "disk error."
        ),
        fix="Write to a mounted, writable folder; see dmesg for disk errors.",
        command="findmnt -o TARGET,SOURCE,OPTIONS | grep ro,; dmesg -T | grep -i 'read-only'",
        source="coreutils",
        fires="touch: cannot touch '/app/x': Read-only file system",
        spares="INFO a Read-only file system is mounted",
    ),
    Signature(
        id="io-error-tool",
        component="host",
        role="cause",
        pattern=r"(?:^|\n)[\w./ -]{1,60}: [^\n]{1,300}: Input/output error(?:\n|\Z)",
        needle=": Input/output error",
        title="A disk or network file system failed to read or write",
        cause="The kernel got an error from the device or server below the file.",
        fix="See dmesg for the device; save the data, check the disk or the storage server.",
        command="dmesg -T | tail -50",
        source="coreutils",
        fires="cat: '/data/a': Input/output error",
        spares="INFO no Input/output error: fine",
    ),
    *family(
        Signature(
            id="nfs-mount-failed",
            component="host",
            role="cause",
            alive=True,
            pattern=(
                r"mount\.nfs4?: [^\n]{0,200}?(?P<why>access denied by server|Connection timed out|Connection "
                r"refused|No route to host|Protocol not supported|wrong fs type|Permission denied|bad superblock)"
            ),
            needle="mount.nfs",
            title="A file system could not be mounted: {why}",
            cause="The server or device did not give it to this host.",
            fix=(
                "Check the server's exports and firewall for this host, and that its client package is installed "
                "(nfs-common)."
            ),
            command="showmount -e SERVER; dmesg | tail",
            source="nfs-utils",
            fires="mount.nfs: access denied by server while mounting nas:/data",
            spares="INFO mount.nfs: done",
        ),
        Text(
            "mount-failed",
            "mount: ",
            (
                r"\bmount: [^\n]{0,200}?(?P<why>access denied by server|Connection timed out|Connection "
                r"refused|No route to host|Protocol not supported|wrong fs type|Permission denied|bad superblock)"
            ),
            "mount: /mnt: wrong fs type, bad option, bad superblock on /dev/sdb",
            "INFO mount: done",
        ),
    ),
    *family(
        Signature(
            id="inotify-instances",
            component="host",
            role="cause",
            pattern=r"(?:inotify_init|inotify instance|inotify object)[^\n]{0,80}?(?:[Tt]oo many open files|limit)",
            needle="inotify",
            title="No further program can watch files: the limit of inotify instances is reached",
            cause="All processes of this user together hold fs.inotify.max_user_instances of them (128 unless set).",
            fix="Raise it: sysctl fs.inotify.max_user_instances=8192, and fs.inotify.max_user_watches likewise.",
            command="sysctl fs.inotify",
            source="systemd, kubectl",
            fires="failed to create fsnotify watcher: inotify_init: too many open files",
            spares="INFO inotify works",
        ),
        Text(
            "inotify-instances-fsnotify",
            "failed to create fsnotify watcher: too many open files",
            r"failed to create fsnotify watcher: too many open files",
            "failed to create fsnotify watcher: too many open files",
            "INFO fsnotify watcher: not too many open files",
            "kubectl",
        ),
    ),
    Signature(
        id="limit-not-allowed",
        component="shell",
        role="cause",
        alive=True,
        pattern=(
            r"ulimit: (?P<what>[\w ]{1,40}): cannot modify limit: (?P<why>Operation not permitted|Invalid "
            r"argument)"
        ),
        needle=": cannot modify limit: ",
        title="A limit cannot be raised here: {what}",
        cause="The hard limit of this session is lower than what the script asks for.",
        fix="Raise the hard limit (/etc/security/limits.conf, LimitNOFILE of the unit, docker run --ulimit).",
        command="ulimit -Ha",
        source="bash",
        fires="start.sh: line 3: ulimit: open files: cannot modify limit: Operation not permitted",
        spares="INFO ulimit: open files: limit is 1024",
    ),
    *family(
        Signature(
            id="sudo-password",
            component="shell",
            role="cause",
            alive=True,
            pattern=(
                r"sudo: (?P<why>a password is required|a terminal is required to read the password|no tty present)"
            ),
            needle="sudo: ",
            title="sudo asks for a password that nobody can type",
            cause="The script calls sudo, and this user needs a password for it ({why}).",
            fix="Run the script as root, or allow the command without password in /etc/sudoers.d.",
            source="sudo",
            fires="sudo: a terminal is required to read the password; either use the -S option",
            spares="sudo: unable to resolve host node7",
        ),
        Text(
            "sudo-forbidden",
            " is not in the sudoers file",
            r"(?P<why>[\w.-]{1,60}) is not in the sudoers file",
            "alice is not in the sudoers file.  This incident will be reported.",
            "INFO alice is in the sudoers file",
        ),
    ),
    *family(
        Signature(
            id="ssh-cut",
            component="shell",
            role="cause",
            alive=True,
            pattern=r"(?:kex|ssh)_exchange_identification: (?P<why>[^\n]{1,120})",
            needle="_exchange_identification: ",
            title="An ssh server closed the connection before the login",
            cause=(
                "Too many connections at once (MaxStartups), a block list (fail2ban), or something else listens "
                "there."
            ),
            fix="Open fewer connections at once or share one (ControlMaster); see the server's auth log.",
            command="ssh -vv HOST",
            source="openssh",
            fires="kex_exchange_identification: Connection closed by remote host",
            spares="INFO exchange_identification done",
        ),
        Text(
            "ssh-cut-broken",
            "client_loop: send disconnect: ",
            r"client_loop: send disconnect: (?P<why>[^\n]{1,80})",
            "client_loop: send disconnect: Broken pipe",
            "INFO no client_loop: send",
        ),
        Text(
            "ssh-cut-closed",
            " closed by remote host",
            r"(?P<why>Connection to \S{1,120}) closed by remote host",
            "Connection to node7 closed by remote host.",
            "INFO no connection was closed by remote host",
        ),
    ),
    Signature(
        id="ssh-host-changed",
        component="shell",
        role="cause",
        alive=True,
        pattern=r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        needle="REMOTE HOST IDENTIFICATION HAS CHANGED",
        title="ssh refuses a host: its key is another one than before",
        cause="The host was installed anew, another one has its address, or somebody stands between.",
        fix="If the change is expected, remove the old key: ssh-keygen -R HOST.",
        source="openssh",
        fires="@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @",
        spares="INFO the remote host's identification has not changed",
    ),
    Signature(
        id="ssh-key-mode",
        component="shell",
        role="cause",
        alive=True,
        pattern=r"Permissions 0?(?P<mode>\d{3}) for '(?P<path>[^'\n]{1,300})' are too open",
        needle="' are too open",
        title="ssh does not use the key {path}: others may read it",
        cause="Its mode is {mode}; a private key must be readable by its owner alone.",
        fix="Make it private: chmod 600.",
        command="chmod 600 '{path}'",
        source="openssh",
        fires="Permissions 0644 for '/root/.ssh/id_ed25519' are too open.",
        spares="INFO Permissions 0600 for '/root/.ssh/id' are fine",
    ),
    Signature(
        id="ssh-many-keys",
        component="shell",
        role="cause",
        alive=True,
        pattern=r"Too many authentication failures",
        needle="Too many authentication failures",
        title="An ssh server gave up after too many keys or passwords",
        cause="The agent offered many keys, none of which was the right one.",
        fix="Name the right key (ssh -o IdentitiesOnly=yes -i KEY).",
        source="openssh",
        fires="Received disconnect from 10.0.0.5 port 22:2: Too many authentication failures",
        spares="INFO not Too many failures",
    ),
    Signature(
        id="pyxis-folder",
        component="slurm",
        role="cause",
        pattern=r"(?<!slurmstepd: error: )pyxis: (?P<why>(?:couldn't|failed to|could not) [^\n]{1,200})",
        needle="pyxis: ",
        title="Slurm's container plugin (pyxis) failed",
        cause="{why}.",
        fix="Let an administrator see that the plugin's runtime folder exists and is writable on this node.",
        command="ls -ld /run/pyxis /run/enroot",
        source="pyxis",
        fires="error: pyxis: couldn't mkdir /run/pyxis/100005: No such file or directory",
        spares="slurmstepd: error: pyxis: couldn't start container",
    ),
)
