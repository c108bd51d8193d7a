"""What a second user of the host can do to a run: every command, socket, port, process, file and planted link.

``python tests/bench/second_user.py [--real] [--json FILE]``. Needs root: it makes a user (``useradd``) and removes it.
``--real``: a run of the embedded default through the sessions instead of toys, which has ports and secrets. Each row
says what was tried, what had to come and what came; exit code 1 if any differs.

The user's probes run without capabilities and read nothing that root alone can read; our commands run with the
interpreter of the system, since that of the tests may lie in root's home.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT / "backend"), str(ROOT)]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[2:4])

from kit.real import real_run  # noqa: E402
from kit.runs import ToyRun, make_run, toy  # noqa: E402
from kit.waiting import wait_until  # noqa: E402

from liverl.exit_codes import ExitCode  # noqa: E402
from liverl.procs import procfs  # noqa: E402

SYSTEM_PYTHON = "/usr/bin/python3"
KINDS = ("commands", "sockets", "ports", "processes", "signals", "files", "links")
PROBE_S = 120.0


@dataclass(frozen=True)
class Row:
    """One try: what had to come of it (``expected``) and what came (``got``), in a word each."""

    kind: str
    what: str
    expected: str
    got: str

    @property
    def ok(self) -> bool:
        """Whether it came as it had to; ``expected`` may name several words."""
        return self.got in self.expected.split(" or ")


@contextmanager
def other_user() -> Iterator[str]:
    """A user of its own, which is removed with its processes.

    Raises:
        PermissionError: not root.
    """
    if os.geteuid() != 0:
        raise PermissionError("useradd needs root")
    name = f"liverl-x{os.getpid() % 100_000}"
    subprocess.run(
        ["useradd", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/bin/sh", name], check=True
    )
    uid = pwd.getpwnam(name).pw_uid
    try:
        yield name
    finally:
        for pid in [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]:
            try:
                if os.stat(f"/proc/{pid}").st_uid == uid:
                    os.kill(pid, 9)
            except OSError:
                continue
        subprocess.run(["userdel", name], check=True, capture_output=True)


def as_user(name: str, argv: list[str], text: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program as this user, in its environment alone, without capabilities."""
    user = pwd.getpwnam(name)
    setpriv = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    drop = ["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    base = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **env}
    return subprocess.run(
        [*setpriv, *drop, *argv],
        input=text,
        check=False,
        capture_output=True,
        text=True,
        env=base,
        timeout=PROBE_S,
        cwd="/",
    )


# Runs as the other user: takes a list of [kind, argument, ...] on stdin, prints a list of words.
PROBE = r"""
import ctypes, errno, json, os, socket, sys, urllib.error, urllib.request

def word(error):
    name = type(error).__name__
    return errno.errorcode.get(error.errno or 0, name) if isinstance(error, OSError) else name

def opened(path, flags):
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if flags == os.O_RDONLY and os.fstat(fd).st_mode & 0o170000 == 0o100000 and path.startswith("/proc/"):
            return "read" if os.read(fd, 1) else "empty"
        return "opened"
    finally:
        os.close(fd)

def unix(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(5)
        s.connect(path)
        s.sendall(b'{"id":1,"op":"hello","protocol":1}\n')
        return "answered" if s.recv(1) else "closed"

def port(number, method, path, key):
    data = b"{}" if method == "POST" else None
    request = urllib.request.Request(f"http://127.0.0.1:{number}{path}", method=method, data=data)
    if key:
        request.add_header("Authorization", "Bearer " + key)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return str(reply.status)
    except urllib.error.HTTPError as error:
        return str(error.code)

def ptrace(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, None, None) == 0:
        return "attached"
    raise OSError(ctypes.get_errno(), "ptrace")

def make(path):
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.close(fd); os.unlink(path)
    return "made"

def holds(path, words):
    data = open(path, "rb").read()
    return "a secret" if any(w.encode() in data for w in words) else "clean"

DO = {
    "unix": unix, "port": port, "ptrace": ptrace, "make": make, "holds": holds,
    "read": lambda p: opened(p, os.O_RDONLY),
    "write": lambda p: opened(p, os.O_WRONLY),
    "list": lambda p: (os.listdir(p), "listed")[1],
    "link": lambda p: (os.readlink(p), "read")[1],
    "kill": lambda pid, n: (os.kill(pid, n), "sent")[1],
    "affinity": lambda pid: (os.sched_setaffinity(pid, {0}), "set")[1],
    "prlimit": lambda pid: (__import__("resource").prlimit(pid, 7, (64, 64)), "set")[1],
    "nice": lambda pid: (os.setpriority(os.PRIO_PROCESS, pid, 19), "set")[1],
    "rename": lambda p: (os.rename(p, p + ".x"), "renamed")[1],
    "chmod": lambda p: (os.chmod(p, 0o777), "changed")[1],
}
told = []
for name, *arguments in json.load(sys.stdin):
    try:
        told.append(DO[name](*arguments))
    except BaseException as error:
        told.append(word(error))
json.dump(told, sys.stdout)
"""

Try = tuple[str, str, str, list[object]]  # kind, what, expected, the probe's request


def probe(name: str, tries: list[Try]) -> list[Row]:
    """Everything in one process of the other user."""
    text = json.dumps([request for *_, request in tries])
    done = as_user(name, [SYSTEM_PYTHON, "-I", "-c", PROBE], text)
    if done.returncode:
        raise AssertionError(done.stderr[-600:])
    answers = json.loads(done.stdout)
    return [
        Row(kind, what, want, str(got)) for (kind, what, want, _), got in zip(tries, answers, strict=True)
    ]


# -- what is tried


DENIED = "EACCES or EPERM"


def processes_of(run: ToyRun) -> dict[int, str]:
    """pid -> name of every living process of a run, backend and keeper too."""
    found = {pid: "/".join(tag.split("/")[2:]) for pid, tag in run.tagged().items()}
    return {pid: name for pid, name in found.items() if procfs.alive(pid, None)}


def sockets(run: ToyRun) -> Iterator[Try]:
    """Each Unix socket that a process of the run listens on."""
    for path in sorted(unix_sockets(run)):
        yield "sockets", f"connect to {Path(path).name}", f"{DENIED} or closed", ["unix", path]


def unix_sockets(run: ToyRun) -> set[str]:
    """Paths of the sockets in the run directory, and of those that its processes listen on elsewhere."""
    found = {str(p) for p in run.run_dir.rglob("*") if stat.S_ISSOCK(p.lstat().st_mode)}
    inodes = set(socket_inodes(run))
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        parts = line.split()
        if len(parts) > 7 and parts[6] in inodes and parts[7].startswith("/") and parts[3] == "00010000":
            found.add(parts[7])
    return {path for path in found if os.path.exists(path)}


def socket_inodes(run: ToyRun) -> Iterator[str]:
    """Inodes of all sockets of the run's processes."""
    for pid in processes_of(run):
        try:
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        yield from (link[8:-1] for link in links if link.startswith("socket:["))


def tcp_ports(run: ToyRun) -> list[int]:
    """Ports on which a process of the run listens."""
    inodes, found = set(socket_inodes(run)), set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            parts = line.split()
            if parts[3] == "0A" and parts[9] in inodes:
                found.add(int(parts[1].rpartition(":")[2], 16))
    return sorted(found)


PATHS = (
    *(
        ("GET", path)
        for path in ("/", "/health", "/metrics", "/v1/models", "/policy_version", "/version", "/x")
    ),
    *(
        ("GET", path)
        for path in ("/model/info", "/sess/x/v1/models", "/openapi.json", "/docs", "/config/yaml")
    ),
    *(("POST", path) for path in ("/v1/chat/completions", "/update_weights", "/sessions", "/v1/messages")),
    *(("POST", path) for path in ("/sess/x/v1/chat/completions", "/collective_rpc", "/sleep", "/model/new")),
)
OPEN = ("/health", "/health/liveliness", "/health/readiness")  # SECURITY.md names them


def ports(run: ToyRun) -> Iterator[Try]:
    """Each route of each port, without a key and with a wrong one."""
    for number, port in enumerate(tcp_ports(run)):
        for key, words in (("", "without a key"), ("sk-liverl-wrong", "with a wrong key")):
            for method, path in PATHS:
                what = f"port {number}: {method} {path} {words}"
                # 404: the port does not have the route, and says so without doing anything. 405 likewise.
                expected = "401 or 403 or 404 or 405 or 400" + (" or 200" if path in OPEN else "")
                yield "ports", what, expected, ["port", port, method, path, key]


ENTRIES = (
    "environ",
    "mem",
    "maps",
    "smaps",
    "stack",
    "syscall",
    "io",
    "auxv",
    "personality",
    "pagemap",
    "clear_refs",
)
LINKS = ("cwd", "exe", "root")


def processes(run: ToyRun, words: list[str]) -> Iterator[Try]:
    """Each entry of /proc of each process that holds something of it; command lines are public and hold no secret."""
    for pid, name in processes_of(run).items():
        for entry in ENTRIES:
            flag = "write" if entry == "clear_refs" else "read"
            yield "processes", f"{name}: {entry}", f"{DENIED} or ENOENT", [flag, f"/proc/{pid}/{entry}"]
        for entry in LINKS:
            yield "processes", f"{name}: {entry}", DENIED, ["link", f"/proc/{pid}/{entry}"]
        for entry in ("fd", "map_files"):
            yield "processes", f"{name}: {entry}", f"{DENIED} or ENOENT", ["list", f"/proc/{pid}/{entry}"]
        for entry in ("cmdline", "status", "comm"):
            yield "processes", f"{name}: {entry}", "clean", ["holds", f"/proc/{pid}/{entry}", words]


def signals(run: ToyRun) -> Iterator[Try]:
    """What changes a process."""
    for pid, name in processes_of(run).items():
        for number in (15, 9, 19, 1, 10):
            yield "signals", f"{name}: signal {number}", "EPERM", ["kill", pid, number]
        for what in ("ptrace", "affinity", "prlimit", "nice"):
            yield "signals", f"{name}: {what}", DENIED, [what, pid]


def files(run: ToyRun, words: list[str]) -> Iterator[Try]:
    """Each file and directory of the run: nothing can be changed, secrets cannot be read, and are in nothing else."""
    for path in sorted([run.run_dir, *run.run_dir.rglob("*")]):
        try:
            mode = path.lstat().st_mode
        except OSError:
            continue
        name = str(path.relative_to(run.run_dir))
        private = "secrets" in path.relative_to(run.run_dir).parts or not stat.S_IMODE(mode) & 0o044
        if stat.S_ISDIR(mode):
            yield (
                "files",
                f"{name}/: make a file in it",
                f"{DENIED} or ENOENT",
                ["make", str(path / "planted")],
            )
        elif stat.S_ISREG(mode):
            yield "files", f"{name}: open to write", f"{DENIED} or ENOENT", ["write", str(path)]
            yield "files", f"{name}: rename", f"{DENIED} or ENOENT", ["rename", str(path)]
            yield "files", f"{name}: chmod", f"{DENIED} or ENOENT", ["chmod", str(path)]
            if private:
                yield "files", f"{name}: read", f"{DENIED} or ENOENT", ["read", str(path)]
            else:
                yield (
                    "files",
                    f"{name}: a secret in it",
                    f"clean or {DENIED} or ENOENT",
                    ["holds", str(path), words],
                )


def secrets_of(run: ToyRun) -> list[str]:
    """The contents of ``secrets/``."""
    return [
        t for p in (run.run_dir / "secrets").glob("*") if p.is_file() and len(t := p.read_text().strip()) > 8
    ]


READ = "0 or 1"
REFUSED = "1 or 2 or 3 or 4"
COMMANDS: dict[str, str] = {
    # what another user may do to a run that lives: read its files; a living backend does not answer
    "status": READ,
    "status --json": READ,
    "events": "0",
    "logs": "0",
    "ls": READ,
    "wait --timeout 1": "0 or 1 or 124",
    "plan": READ,
    "attach --readonly --plain": READ,
    "doctor": READ,
    "keys": READ,
    "watch --once": "0 or 1 or 2 or 3 or 4",
    "notify": "0 or 1 or 2",
    # what changes the run
    "up --detach": REFUSED,
    "up --resume --detach": REFUSED,
    "up --resume-or-start --detach": REFUSED,
    "stop": REFUSED,
    "stop --now": REFUSED,
    "stop SERVICE": REFUSED,
    "restart SERVICE": REFUSED,
    "start SERVICE": REFUSED,
    "scale +1": REFUSED,
    "fix --yes": REFUSED,
    "archive": REFUSED,
    "notify --test": REFUSED,
    "attach --no-ui": REFUSED,
}


def commands(run: ToyRun, name: str, folder: Path, service: str) -> Iterator[Row]:
    """Each command on the run. A traceback, or an exit code that says that something was done, is none of them."""
    sites = [path for path in sys.path if path.endswith("site-packages")]
    home = folder / "other-home"
    home.mkdir(exist_ok=True)
    os.chown(home, pwd.getpwnam(name).pw_uid, -1)
    env = {
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "backend"), *sites)),
        "HOME": str(home),
        "TMPDIR": str(home),
    }
    for title, expected in COMMANDS.items():
        line = [service if word == "SERVICE" else word for word in title.split()]
        where = [] if line[0] in ("archive", "doctor", "watch") else ["--run", str(run.run_dir)]
        where = where or [str(run.run_dir)]
        done = as_user(
            name, ["timeout", "30", SYSTEM_PYTHON, "-m", "liverl_tui.cli.main", *line, *where], **env
        )
        said = done.stdout + done.stderr
        got = "a traceback" if "Traceback" in said else str(done.returncode)
        yield Row("commands", title, expected, got)


def links(name: str, folder: Path) -> Iterator[Row]:
    """What another user has planted in a run root that all can write, as /tmp: an ended run of ours follows none of it,
    and nothing appears in our home."""
    uid = pwd.getpwnam(name).pw_uid
    plants: dict[str, tuple[str, str]] = {  # the link's name in the root, and where it leads from our home
        "artifacts/index.yaml is a link": ("artifacts/index.yaml", "planted"),
        "artifacts/archives is a link": ("artifacts/archives", ""),
        "artifacts/.lock is a link": ("artifacts/.lock", "planted"),
        "artifacts is a link": ("artifacts", ""),
        "the project is a link": ("liverl", ""),
        "the run is a link": ("liverl/mine", ""),
        "the project is another user's": ("liverl/other", "planted"),
    }
    for number, (title, (link, target)) in enumerate(plants.items()):
        root, home = folder / f"root{number}", folder / f"home{number}"
        root.mkdir()
        home.mkdir(mode=0o700)
        os.chmod(root, 0o1777)
        (root / link).parent.mkdir(exist_ok=True)
        (root / link).symlink_to(home / target)
        for path in root.rglob("*"):
            os.lchown(path, uid, uid)
            if not path.is_symlink():
                path.chmod(0o777)
        sets = ["run.topology=verl", "run.engine=vllm", "trainer.kind=command", "trainer.command=['true']"]
        sets += [f"run.run_root={root}", "observe.replicas_interval=0.5"]
        argv = [sys.executable, "-m", "liverl_tui.cli.main", "up", "--no-ui", "--yes", "--name", "mine"]
        argv += [word for text in sets for word in ("--set", text)]
        env = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": str(folder / "state")}
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=90,
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        made = sorted(p.name for p in home.iterdir() if not p.name.startswith("."))
        got = (
            f"wrote {', '.join(made)}" if made else "a traceback" if "Traceback" in done.stderr else "nothing"
        )
        refused = done.returncode == ExitCode.PREFLIGHT or "already exists" in done.stderr
        if got == "nothing" and done.returncode and not refused:
            got = f"not tried: rc {done.returncode} {done.stderr.strip()[-200:]}"
        yield Row("links", title, "nothing", got)


# -- all of it


def attempt(folder: Path, *, real: bool = False, kinds: tuple[str, ...] = KINDS) -> list[Row]:
    """Start a run as root in ``folder``, try everything as another user, and end the run.

    Raises:
        PermissionError: not root.
    """
    folder.chmod(0o755)
    with other_user() as name:
        if real:
            run = real_run(
                folder,
                "training.total_steps=5000",
                "proxy.trials_through=sessions",
                "embedded.turn_latency=0.2",
            )
        else:
            run = make_run(folder, [toy("s0", "sleep"), toy("s1", "sleep")])
        try:
            run.start()
            wait_until(lambda: all(s.state == "ready" for s in run.snapshot().services), 120, "the services")
            before = processes_of(run)
            words = secrets_of(run)
            tries: list[Try] = []
            if "sockets" in kinds:
                tries += sockets(run)
            if "ports" in kinds:
                tries += ports(run)
            if "processes" in kinds:
                tries += processes(run, words)
            if "signals" in kinds:
                tries += signals(run)
            if "files" in kinds:
                tries += files(run, words)
            rows = probe(name, tries)
            if "commands" in kinds:
                rows += commands(run, name, folder, "trainer" if real else "s0")
            after = processes_of(run)
            ended = [before[pid] for pid in before if pid not in after and "trial" not in before[pid]]
            rows.append(
                Row("commands", "afterwards: processes that ended", "none", ", ".join(ended) or "none")
            )
            state = run.snapshot().state
            rows.append(Row("commands", "afterwards: the run", "running", state))
        finally:
            run.end()
        if "links" in kinds:
            rows += links(name, folder)
        return rows


def table(rows: list[Row], every: bool = False) -> str:
    """A line per kind, and one per row that came otherwise (``every``: per row)."""
    tried, good = Counter(row.kind for row in rows), Counter(row.kind for row in rows if row.ok)
    lines = [f"{kind:<10}  {good[kind]:>4} of {tried[kind]:>4}" for kind in tried]
    for row in rows:
        if every or not row.ok:
            lines.append(
                f"{'ok' if row.ok else 'OPEN':<5} {row.kind}: {row.what}: {row.got} (expected {row.expected})"
            )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Try everything; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--real", action="store_true", help="a run of the embedded default, through the sessions"
    )
    parser.add_argument("--only", default=",".join(KINDS), metavar="KIND,...", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--every", action="store_true", help="print every row")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    kinds = tuple(options.only.split(","))
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"no kind {', '.join(sorted(unknown))}; kinds: {', '.join(KINDS)}")
    if os.geteuid() != 0:
        parser.error("a second user is made with useradd, which needs root")
    folder = Path(tempfile.mkdtemp(prefix="liverl-second-"))
    began = time.monotonic()
    try:
        rows = attempt(folder, real=options.real, kinds=kinds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(rows, options.every))
    print(f"{len(rows)} tried, {sum(row.ok for row in rows)} as expected, {time.monotonic() - began:.0f} s")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) | {"ok": row.ok} for row in rows], indent=1))
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
