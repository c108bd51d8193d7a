"""Signatures of databases: Postgres, Prisma, Redis, SQLite."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="database-unreachable",
            component="host",
            role="cause",
            alive=True,
            pattern=r"Can't reach database server at `?(?P<address>[\w.-]{1,200})",
            needle="Can't reach database server at ",
            title="The database does not answer ({address})",
            cause="Nothing listens at that address, or a firewall or another network is between.",
            fix=(
                "Start the database, or correct DATABASE_URL; in a container localhost is the container "
                "itself, so use the "
                "service's name."
            ),
            command="pg_isready -h HOST -p 5432; echo $DATABASE_URL",
            source="prisma P1001",
            fires="Error: P1001: Can't reach database server at `127.0.0.1`:`5432`",
            spares="INFO reach database server at `127.0.0.1`:`5432`",
        ),
        Text(
            "database-unreachable-libpq",
            "connection to server at ",
            (
                r"connection to server at \"(?P<address>[^\"\n]{1,200})\"[^\n]{0,80}? failed: (?:Connection "
                r"refused|[Cc]onnection timed out|timeout expired|No route to host|Network is unreachable|could "
                r"not receive)"
            ),
            (
                'psycopg2.OperationalError: connection to server at "db" (10.0.0.3), port 5432 failed: '
                "Connection refused"
            ),
            'INFO connection to server at "db" done',
            "libpq",
        ),
        Text(
            "database-unreachable-old",
            "could not connect to server: ",
            r"could not connect to server: (?P<address>Connection refused|Connection timed out|No route to host)",
            "psycopg2.OperationalError: could not connect to server: Connection refused",
            "INFO could connect to server: yes",
            "libpq",
        ),
        Text(
            "database-unreachable-timeout",
            "` was reached but timed out",
            r"The database server at `(?P<address>[^`\n]{1,100})` was reached but timed out",
            "The database server at `db:5432` was reached but timed out.",
            "INFO The database server was reached",
            "prisma P1002",
        ),
    ),
    *family(
        Signature(
            id="database-login",
            component="host",
            role="cause",
            alive=True,
            pattern=r"password authentication failed for user \\?[\"`'](?P<user>[^\"`'\\\n]{1,100})",
            needle="password authentication failed for user ",
            title="The database refuses the login of {user}",
            cause=(
                "The password in DATABASE_URL is not that of the database's user (a volume keeps its first "
                "password)."
            ),
            fix="Correct DATABASE_URL (special characters must be percent-encoded), or set the user's password anew.",
            source="Postgres",
            fires='FATAL:  password authentication failed for user "litellm"',
            spares='INFO password authentication for user "litellm"',
        ),
        Text(
            "database-login-prisma",
            "P1000: Authentication failed against database server",
            r"P1000: Authentication failed against database server(?P<user>)",
            "Error: P1000: Authentication failed against database server at `db`",
            "INFO no P1000: Authentication against database server",
            "prisma",
        ),
        Text(
            "database-login-host",
            "no pg_hba.conf entry for host",
            r"no pg_hba\.conf entry for host \"[^\"\n]{1,60}\", user \"(?P<user>[^\"\n]{1,100})\"",
            'FATAL:  no pg_hba.conf entry for host "10.0.0.9", user "litellm", database "litellm", no encryption',
            'INFO a pg_hba.conf entry for host "10.0.0.9"',
        ),
    ),
    *family(
        Signature(
            id="database-connections",
            component="host",
            role="cause",
            alive=True,
            pattern=r"sorry, too many clients already",
            needle="sorry, too many clients already",
            title="Postgres has no connections left",
            cause="All programs together opened as many as max_connections allows.",
            fix=(
                "Use smaller pools (LiteLLM: database_connection_pool_limit), fewer workers, pgbouncer, or raise "
                "max_connections."
            ),
            command="psql -c 'select usename, count(*) from pg_stat_activity group by 1'",
            source="Postgres",
            fires="FATAL:  sorry, too many clients already",
            spares="INFO too many clients are not there already",
        ),
        Text(
            "database-connections-reserved",
            "remaining connection slots are reserved",
            r"remaining connection slots are reserved",
            "FATAL:  remaining connection slots are reserved for non-replication superuser connections",
            "INFO connection slots are reserved",
        ),
        Text(
            "database-connections-pool",
            "Timed out fetching a new connection from the connection pool",
            r"Timed out fetching a new connection from the connection pool",
            (
                "Timed out fetching a new connection from the connection pool. More info: "
                "http://pris.ly/d/connection-pool"
            ),
            "INFO a new connection from the connection pool",
            "prisma P2024",
        ),
        Text(
            "database-connections-sqlalchemy",
            "QueuePool limit of size ",
            r"QueuePool limit of size \d{1,6} overflow \d{1,6} reached",
            (
                "sqlalchemy.exc.TimeoutError: QueuePool limit of size 5 overflow 10 reached, connection timed "
                "out, timeout 30.00"
            ),
            "INFO QueuePool limit of size 5",
            "SQLAlchemy",
        ),
    ),
    Signature(
        id="database-missing",
        component="host",
        role="cause",
        alive=True,
        pattern=r"database \\?\"(?P<name>[^\"\\\n]{1,100})\\?\" does not exist",
        needle=" does not exist",
        title="Postgres has no database {name}",
        cause="It was never created, or DATABASE_URL names another one.",
        fix="Create it, or correct the name in DATABASE_URL.",
        command="createdb {name}; psql -l",
        source="Postgres",
        fires='FATAL:  database "litellm" does not exist',
        spares='INFO database "litellm" does exist',
    ),
    *family(
        Signature(
            id="database-table-missing",
            component="host",
            role="cause",
            alive=True,
            pattern=r"relation \\?\"(?P<name>[^\"\\\n]{1,100})\\?\" does not exist",
            needle=" does not exist",
            title="The database lacks the table {name}",
            cause="Its migrations did not run, or ran for another version or schema.",
            fix="Run the program's migrations (LiteLLM: prisma migrate deploy, or prisma db push).",
            source="Postgres",
            fires='ERROR:  relation "LiteLLM_SpendLogs" does not exist at character 15',
            spares='INFO relation "LiteLLM_SpendLogs" does exist',
        ),
        Text(
            "database-table-missing-prisma",
            "` does not exist in the current database",
            r"The (?:table|column) `(?P<name>[^`\n]{1,100})` does not exist in the current database",
            "The table `public.LiteLLM_UserTable` does not exist in the current database.",
            "INFO The table does exist in the current database",
            "prisma P2021",
        ),
        Text(
            "database-table-missing-sqlite",
            "no such table: ",
            r"no such table: (?P<name>[\w.]{1,100})",
            "sqlite3.OperationalError: no such table: spans",
            "INFO such table: spans",
            "SQLite",
        ),
    ),
    *family(
        Signature(
            id="database-migration",
            component="host",
            role="cause",
            alive=True,
            pattern=r"migrate found failed migrations in the target database",
            needle="migrate found failed migrations in the target database",
            title="A migration of the database failed",
            cause=(
                "An earlier migration failed or the schema differs from what the program expects; Prisma applies no "
                "others."
            ),
            fix="See which (prisma migrate status), repair it, then mark it: prisma migrate resolve --applied NAME.",
            source="prisma",
            fires="Error: P3009 migrate found failed migrations in the target database",
            spares="INFO migrate found no failed migrations in the target database",
        ),
        Text(
            "database-migration-failed",
            "A migration failed to apply",
            r"A migration failed to apply\b",
            "Error: P3018: A migration failed to apply",
            "INFO no migration failed to apply",
        ),
        Text(
            "database-migration-other",
            "The database schema is not empty",
            r"The database schema is not empty\b",
            "Error: P3005: The database schema is not empty",
            "INFO the database schema is not empty any more",
        ),
    ),
    *family(
        Signature(
            id="database-ended",
            component="host",
            role="cause",
            alive=True,
            pattern=r"server closed the connection unexpectedly",
            needle="server closed the connection unexpectedly",
            title="The database closed the connection",
            cause="It was stopped, restarted or killed, or a proxy between closed idle connections.",
            fix="Look in the database's log for that time; let clients test connections before use (pool_pre_ping).",
            source="libpq",
            fires="psycopg2.OperationalError: server closed the connection unexpectedly",
            spares="INFO server closed the connection as expected",
        ),
        Text(
            "database-ended-admin",
            "terminating connection due to administrator command",
            r"terminating connection due to administrator command",
            "FATAL:  terminating connection due to administrator command",
            "INFO terminating connection due to client",
            "Postgres",
        ),
        Text(
            "database-ended-starting",
            "the database system is ",
            r"the database system is (?:starting up|shutting down|in recovery mode)",
            "FATAL:  the database system is starting up",
            "LOG:  the database system is ready to accept connections"[6:],
            "Postgres",
        ),
    ),
    Signature(
        id="sqlite-locked",
        component="host",
        role="cause",
        alive=True,
        pattern=r"OperationalError: database is locked",
        needle="OperationalError: database is locked",
        title="An SQLite database is locked by another process",
        cause=(
            "Two processes write to one file at once, or it lies on a network file system without proper "
            "locks."
        ),
        fix="Give each process a file of its own on a local disk, or raise the timeout of the connection.",
        source="SQLite",
        fires="sqlite3.OperationalError: database is locked",
        spares="INFO no OperationalError: database is open",
    ),
    *family(
        Signature(
            id="sqlite-damaged",
            component="host",
            role="cause",
            pattern=r"database disk image is malformed",
            needle="database disk image is malformed",
            title="An SQLite file is damaged",
            cause="It was cut off while it was written (a full disk, a kill), or is something else.",
            fix="Remove or restore the file; recover what is left with sqlite3 FILE .recover.",
            source="SQLite",
            fires="sqlite3.DatabaseError: database disk image is malformed",
            spares="INFO the database disk image is well",
        ),
        Text(
            "sqlite-other-file",
            "file is not a database",
            r"file is not a database",
            "sqlite3.DatabaseError: file is not a database",
            "INFO the file is a database",
        ),
    ),
    Signature(
        id="sqlite-no-file",
        component="host",
        role="cause",
        pattern=r"OperationalError: unable to open database file",
        needle="OperationalError: unable to open database file",
        title="An SQLite file cannot be opened",
        cause="Its folder does not exist, or this user may not write there.",
        fix="Create the folder, correct its owner, or set the path of the file.",
        source="SQLite",
        fires="sqlite3.OperationalError: unable to open database file",
        spares="INFO no OperationalError: able to open database file",
    ),
    *family(
        Signature(
            id="redis-login",
            component="host",
            role="cause",
            alive=True,
            pattern=r"NOAUTH Authentication required",
            needle="NOAUTH Authentication required",
            title="Redis refuses the login",
            cause="Redis has a password and the client sends none, or another one.",
            fix="Set REDIS_PASSWORD (or the URL's password) to that of the server.",
            command="redis-cli -h HOST -a PASSWORD ping",
            source="Redis",
            fires="redis.exceptions.AuthenticationError: NOAUTH Authentication required.",
            spares="INFO Authentication is not required",
        ),
        Text(
            "redis-login-wrong",
            "invalid username-password pair",
            r"invalid username-password pair",
            "redis.exceptions.AuthenticationError: invalid username-password pair or user is disabled.",
            "INFO username-password pair",
        ),
    ),
    Signature(
        id="redis-full",
        component="host",
        role="cause",
        alive=True,
        pattern=r"command not allowed when used memory > 'maxmemory'",
        needle="command not allowed when used memory > 'maxmemory'",
        title="Redis is full: its maxmemory is reached",
        cause="It may not remove old entries (maxmemory-policy noeviction), so that it refuses writes.",
        fix="Raise maxmemory, set maxmemory-policy allkeys-lru for a cache, or let entries expire sooner.",
        command="redis-cli info memory; redis-cli config get maxmemory-policy",
        source="Redis",
        fires="redis.exceptions.OutOfMemoryError: command not allowed when used memory > 'maxmemory'.",
        spares="INFO command allowed when used memory > 'maxmemory'",
    ),
    *family(
        Signature(
            id="redis-disk",
            component="host",
            role="cause",
            alive=True,
            pattern=r"MISCONF Redis is configured to save RDB snapshots",
            needle="MISCONF Redis is configured to save RDB snapshots",
            title="Redis refuses writes: it cannot save to its disk",
            cause="Its last snapshot failed: a full disk, a folder it may not write, or no memory to fork.",
            fix="Free the disk or correct the folder's owner; for a cache turn snapshots off (config set save '').",
            command="redis-cli lastsave; df -h; redis-cli config get dir",
            source="Redis",
            fires="MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
            spares="INFO Redis is configured to save RDB snapshots",
        ),
        Text(
            "redis-disk-rdb",
            "Failed opening the temp RDB file ",
            r"Failed opening the temp RDB file ",
            "# Failed opening the temp RDB file temp-22.rdb (in server root dir /data) for saving: Permission denied",
            "INFO opening the temp RDB file",
        ),
    ),
    *family(
        Signature(
            id="redis-replica",
            component="host",
            role="cause",
            alive=True,
            pattern=r"READONLY You can't write against a read only (?:replica|slave)",
            needle="READONLY You can't write against a read only ",
            title="The program writes to a replica of Redis, which takes no writes",
            cause="Its address names a replica, or the primary has changed.",
            fix="Use the primary's address, or a client that knows Sentinel or the cluster.",
            command="redis-cli info replication",
            source="Redis",
            fires="redis.exceptions.ReadOnlyError: READONLY You can't write against a read only replica.",
            spares="INFO You can write against a read only replica",
        ),
        Text(
            "redis-cluster",
            "CROSSSLOT Keys in request don't hash to the same slot",
            r"CROSSSLOT Keys in request don't hash to the same slot",
            "redis.exceptions.ResponseError: CROSSSLOT Keys in request don't hash to the same slot",
            "INFO CROSSSLOT is not in use",
        ),
    ),
    *family(
        Signature(
            id="redis-closed",
            component="host",
            role="cause",
            alive=True,
            pattern=r"(?:Got exception from REDIS |redis\.exceptions\.ConnectionError: )Connection closed by server",
            needle="Connection closed by server",
            title="Redis closed the connection",
            cause="It was restarted, its client limit or timeout is reached, or a proxy between closed it.",
            fix="Look in Redis's log; raise maxclients and timeout, or let the client check connections.",
            command="redis-cli info clients; redis-cli config get timeout",
            source="redis-py",
            fires="redis.exceptions.ConnectionError: Connection closed by server.",
            spares="INFO no Connection closed by server",
        ),
        Text(
            "redis-clients",
            "max number of clients reached",
            r"max number of clients reached",
            "redis.exceptions.ConnectionError: max number of clients reached",
            "INFO the max number of clients is not reached",
        ),
    ),
)
