"""Several hosts on one machine: namespaces of network, processes, host name and mounts, whose cables end in a bridge.

Each has an address, processes, a host name, /dev/shm and /etc/hosts of its own; the file system is shared, as over NFS,
and so is the clock. No host reaches the outside network. The bridge is in a network namespace of its own, and all ends
with the processes that hold the namespaces: no name is left on the machine.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from kit.waiting import wait_until
from liverl.procs import procfs

_NEW = ("--net", "--uts", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")
# Process 1 of a host: it reaps orphans, as an init does.
_INIT = """
hostname "$1" && mount -t tmpfs -o size=2g tmpfs /dev/shm && mount --bind "$2" /etc/hosts && ip link set lo up || exit 1
while :; do sleep 3600 & wait $!; done
"""


def refused() -> str:
    """Why this machine makes no such hosts; "" if it does."""
    for program in ("ip", "unshare", "nsenter", "setpriv", "hostname"):
        if shutil.which(program) is None:
            return f"there is no program {program}"
    for words in (("unshare", *_NEW, "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"),
                  ("unshare", "--net", "ip", "link", "add", "br0", "type", "bridge"),
                  ("unshare", "--net", "ip", "link", "add", "v0", "type", "veth")):  # fmt: skip
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            return done.stderr.strip() or f"{' '.join(words)}: exit {done.returncode}"
    return ""


class Hosts:
    """``count`` hosts n0, n1, ... with the addresses 10.77.0.10, .11, ... on one net, and 10.78.0.10, ... on the second
    of ``nets``, which is apart from the first. ``folder``: for their files."""

    def __init__(self, folder: Path, count: int, nets: int = 1) -> None:
        self._nets = nets
        self._names = folder / "etc-hosts"
        lines = [f"{self.address(number)} n{number}" for number in range(count)]
        self._names.write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        self._first: dict[int, int] = {}  # process 1 of each host, as this one sees it
        self._switch = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"]
        )
        try:
            wait_until(lambda: _other_net(self._switch.pid), what="the switch")
            for net in range(nets):
                self._ip(self._switch.pid, f"link add br{net} type bridge")
                self._ip(self._switch.pid, f"link set br{net} up")
            for number in range(count):
                self.boot(number)
        except BaseException:
            self.end()
            raise

    @staticmethod
    def address(number: int, net: int = 0) -> str:
        """The address of a host on a net of all."""
        return f"10.{77 + net}.0.{10 + number}"

    def boot(self, number: int) -> None:
        """Start a host that does not run, without a process but its first."""
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", *_NEW, "bash", "-c", _INIT, "init"]
        holder = subprocess.Popen([*words, f"n{number}", str(self._names)])
        self._holders[number] = holder
        self._first[number] = wait_until(lambda: _ready(holder), what=f"host n{number}")
        # A host that boots again keeps its address of the link, or the others would send to the old one for a while.
        for net in range(self._nets):
            link = f"address 02:00:00:00:{net:02x}:{10 + number:02x} netns {self._first[number]}"
            end = f"v{number}" if net == 0 else f"v{number}-{net}"
            self._ip(self._switch.pid, f"link add {end} type veth peer name eth{net} {link}")
            self._ip(self._switch.pid, f"link set {end} master br{net} up")
            for words_ in (f"addr add {self.address(number, net)}/24 dev eth{net}", f"link set eth{net} up"):
                self._ip(self._first[number], words_)
        self._ip(self._first[number], "route add default via 10.77.0.1")

    def on(self, number: int) -> tuple[str, ...]:
        """The command that runs the one behind it on a host, as the same user in the same directory."""
        target = str(self._first[number])
        return ("nsenter", "-t", target, "--net", "--uts", "--pid", "--mount", f"--wd={Path.cwd()}")

    def cut(self, number: int, net: int = 0) -> None:
        """Pull a host's cable: packets are lost, and nothing is closed."""
        self._ip(self._switch.pid, f"link set {f'v{number}-{net}' if net else f'v{number}'} down")

    def mend(self, number: int) -> None:
        """Plug it in again."""
        self._ip(self._switch.pid, f"link set v{number} up")

    def kill(self, number: int) -> None:
        """Power a host off: all its processes get SIGKILL."""
        holder = self._holders.pop(number)
        holder.kill()
        holder.wait()
        first = self._first.pop(number)
        wait_until(lambda: first not in procfs.scan(), what=f"the end of host n{number}")

    def end(self) -> None:
        """Power all off, and the switch."""
        for number in tuple(self._first):
            self.kill(number)
        for process in (*self._holders.values(), self._switch):
            process.kill()
            process.wait()

    @staticmethod
    def _ip(holder: int, words: str) -> None:
        subprocess.run(["nsenter", "-t", str(holder), "--net", "ip", *words.split()], check=True)


def _other_net(pid: int) -> bool:
    return _net(pid) != _net("self")


def _net(pid: int | str) -> str:
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def _ready(holder: subprocess.Popen[bytes]) -> int:
    """The first process of a host, once it has done all that ``_INIT`` does before it waits; 0 before."""
    assert holder.poll() is None, "the host ended while it started"
    table = procfs.scan()
    for first in table.values():
        if first.ppid == holder.pid:
            waits = any(
                one.ppid == first.pid and procfs.arguments(one.pid)[:1] == ("sleep",)
                for one in table.values()
            )
            return first.pid if waits else 0
    return 0
