"""Signatures of services that do not start: of compose, systemd, supervisord, Postgres, and of clients that "
"miss them."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="compose-dependency",
            component="host",
            role="cause",
            alive=True,
            pattern=r"dependency failed to start: container (?P<name>\S{1,120}) (?:is unhealthy|exited)",
            needle="dependency failed to start: container ",
            title="The container {name}, which others wait for, did not come up",
            cause="It ended, or its health check failed, before the containers that depend on it could start.",
            fix="See its own log and its health check; raise start_period and retries if it only needs longer.",
            command="docker logs {name}; docker inspect --format '{{{{json .State.Health}}}}' {name}",
            source="docker compose",
            fires="dependency failed to start: container db exited (1)",
            spares="INFO no dependency failed to start: container db",
        ),
        Text(
            "compose-dependency-old",
            '" is unhealthy',
            r"Container \"(?P<name>\w{6,80})\" is unhealthy",
            'ERROR: for api  Container "925e231df5aa" is unhealthy.',
            'INFO Container "925e231df5aa" is healthy',
        ),
    ),
    Signature(
        id="unit-setup-failed",
        component="host",
        role="cause",
        pattern=r"(?P<unit>[\w@.\\-]{1,120}): (?:Main|Control) process exited, code=exited, status=217/USER",
        needle="status=217/USER",
        title="systemd cannot start {unit}: its User= does not exist",
        cause="The unit names a user that this host does not have.",
        fix="Create the user, or correct User= of the unit; then systemctl daemon-reload.",
        command="systemctl show {unit} --property User",
        source="systemd",
        fires="systemd[1]: emonhub.service: Control process exited, code=exited, status=217/USER",
        spares="systemd[1]: emonhub.service: no status=217/USER",
    ),
    Signature(
        id="unit-no-folder",
        component="host",
        role="cause",
        pattern=r"(?P<unit>[\w@.\\-]{1,120}): (?:Main|Control) process exited, code=exited, status=200/CHDIR",
        needle="status=200/CHDIR",
        title="systemd cannot start {unit}: its WorkingDirectory= is missing",
        cause="The folder does not exist, or the unit's user may not enter it.",
        fix="Create it, or correct WorkingDirectory= of the unit; then systemctl daemon-reload.",
        command="systemctl show {unit} --property WorkingDirectory",
        source="systemd",
        fires="systemd[1]: a.service: Main process exited, code=exited, status=200/CHDIR",
        spares="systemd[1]: a.service: no status=200/CHDIR",
    ),
    Signature(
        id="supervisor-gave-up",
        component="host",
        role="consequence",
        tells=True,
        pattern=r"gave up: (?P<name>\S{1,80}) entered FATAL state",
        needle="gave up: ",
        title="supervisord gave up on {name}, which ended again and again",
        fix="Its own output (stdout_logfile, stderr_logfile) says why it ended.",
        source="supervisord",
        fires="INFO gave up: postgresql entered FATAL state, too many start retries too quickly",
        spares="INFO gave up: nothing",
    ),
    Signature(
        id="postgres-running",
        component="host",
        role="cause",
        pattern=r"lock file \"(?P<path>[^\"\n]{1,200})\" already exists",
        needle='" already exists',
        title="Postgres does not start: another one runs, or has left its lock file",
        cause="{path} belongs to a server that runs on the same data or socket, or that was killed.",
        fix="End the other server; if the process that the next line names does not exist, remove the lock file.",
        command="pgrep -a postgres; ls -l {path}",
        source="Postgres",
        fires='FATAL:  lock file "postmaster.pid" already exists',
        spares='INFO the lock file "postmaster.pid" exists',
    ),
    *family(
        Signature(
            id="postgres-data-damaged",
            component="host",
            role="cause",
            pattern=r"could not open directory \"pg_\w{1,40}\"",
            needle="could not open directory ",
            title="Postgres does not start: its data directory is damaged",
            cause="Parts of it are missing: an incomplete copy, a lost volume, or a disk that was full.",
            fix=(
                "Restore it from a copy; a database without anything worth keeping can be made anew in an empty "
                "volume."
            ),
            source="Postgres",
            fires='FATAL:  could not open directory "pg_notify": No such file or directory',
            spares='LOG:  could not open directory "/tmp"',
        ),
        Text(
            "postgres-data-checkpoint",
            "could not locate a valid checkpoint record",
            r"could not locate a valid checkpoint record",
            "PANIC:  could not locate a valid checkpoint record",
            "LOG:  located a valid checkpoint record",
        ),
    ),
    Signature(
        id="postgres-data-version",
        component="host",
        role="cause",
        pattern=r"database files are incompatible with server",
        needle="database files are incompatible with server",
        title="Postgres does not start: its data is of another major version",
        cause="The image was updated, and the volume still holds files of the older version.",
        fix="Use the old version's image, or move the data with pg_upgrade or a dump.",
        source="Postgres",
        fires="FATAL:  database files are incompatible with server",
        spares="LOG:  database files are compatible with server",
    ),
    Signature(
        id="postgres-data-owner",
        component="host",
        role="cause",
        pattern=(
            r"data directory \"(?P<path>[^\"\n]{1,200})\" has (?:wrong ownership|invalid permissions|group or "
            r"world access)"
        ),
        needle="data directory ",
        title="Postgres does not start: the owner or mode of its data is wrong",
        cause="{path} must belong to the server's user, and be closed to others (0700 or 0750).",
        fix="chown it to the server's user and chmod 0700.",
        command="ls -ld {path}",
        source="Postgres",
        fires='FATAL:  data directory "/var/lib/postgresql/data" has wrong ownership',
        spares='LOG:  data directory "/var/lib/postgresql/data" is open',
    ),
    Signature(
        id="sandbox-start-slow",
        component="host",
        role="cause",
        alive=True,
        request=True,
        pattern=r"[Ss]andbox failed to start within (?P<seconds>\d{1,6}) ?s",
        needle="andbox failed to start within ",
        title="A sandbox did not start within {seconds} s",
        cause=(
            "Its container was not ready in time: its image is still pulled, its program ended, or the host "
            "is overloaded."
        ),
        fix=(
            "Pull the images before, look at the container's own log, start fewer at once, or raise the time "
            "limit."
        ),
        command="docker ps -a --latest; docker logs $(docker ps -aql)",
        source="OpenHands",
        fires="SandboxError: 500: Sandbox failed to start within 120s: oh-agent-server-5E1k",
        spares="INFO no sandbox failed to start within a minute",
    ),
    Signature(
        id="litellm-no-connection",
        component="litellm",
        role="cause",
        alive=True,
        request=True,
        pattern=r"litellm\.APIConnectionError: (?![^\n]{0,200}Cannot connect to host)(?P<why>[^\n]{0,160})",
        needle=".APIConnectionError: ",
        title="LiteLLM got no usable answer from a model server",
        cause=(
            "The connection failed or broke, or the answer was not what the provider's interface promises. "
            "{why}"
        ),
        fix="Check api_base and the server's log for that time; call it once with curl.",
        source="litellm/exceptions.py",
        fires="litellm.APIConnectionError: OllamaException - ",
        spares="litellm.APIConnectionError: OllamaException - Cannot connect to host localhost:11434",
    ),
    Signature(
        id="node-fetch-failed",
        component="python",
        role="cause",
        alive=True,
        request=True,
        pattern=r"TypeError: fetch failed",
        needle="TypeError: fetch failed",
        title="A request of a Node.js program failed",
        cause="The connection was not made or broke; the reason stands below it as [cause], if it was printed.",
        fix="Read the cause; try the same address with curl from the same place.",
        command="env | grep -i proxy",
        source="Node.js",
        fires="TypeError: fetch failed",
        spares="INFO no fetch failed",
    ),
)
