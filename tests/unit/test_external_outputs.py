"""What a launch script writes elsewhere is found, and linked into the run directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from liverl.external.outputs import OutputLinks, RunningScript, believed, planned, siblings
from liverl.logs.files import also_written
from liverl.plan.spec import ScriptOutputs
from liverl.rundir.layout import RunDir

T = 1_767_225_600.0  # 2026-01-01 00:00:00 UTC
NAME = "exp-20260101-000000"


class Script:
    """A launch script's folder beside a run directory. Files are written at ``T`` + ``at`` seconds."""

    def __init__(self, folder: Path) -> None:
        self.cwd, self.run = folder / "mine", RunDir(folder / "runs" / "p" / "r")
        self.logs = self.run.logs(1)
        self.logs.mkdir(parents=True)
        self.running = RunningScript(self.write(self.logs / "trainer.1.log", ""), T)
        homes = (self.cwd, self.cwd / "repos")
        self.outputs = ScriptOutputs(
            trials=tuple(str(home / "harbor_trials" / "p" / NAME) for home in homes),
            train_logs=tuple(str(home / "logs" / f"{NAME}.log") for home in homes),
            vllm_logs=tuple(str(home / "logs" / f"{NAME}_vllm.log") for home in homes),
        )
        self.links = self.other()

    def other(self, **changes: object) -> OutputLinks:
        return OutputLinks(self.run.path, replace(self.outputs, **changes))

    def write(self, path: Path, text: str = "line\n", at: float = 1.0) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (T + at, T + at))
        return path

    def folder(self, path: Path, at: float = 1.0) -> Path:
        path.mkdir(parents=True)
        os.utime(path, (T + at, T + at))
        return path

    def linked(self) -> dict[str, str]:
        """Name of a log's link -> where it leads, from the script's folder on."""
        links = [path for path in self.logs.iterdir() if path.is_symlink()]
        return {link.name: os.path.relpath(os.readlink(link), self.cwd) for link in links}

    def roots(self) -> list[str]:
        return [os.path.relpath(os.path.realpath(path), self.cwd) for path in self.run.trial_roots()[1:]]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.mark.parametrize("home", [".", "repos"])
def test_logs_where_liverl_writes_them(script: Script, home: str) -> None:
    assert script.links.look(script.running) == [] and script.linked() == {}
    log = script.write(script.cwd / home / "logs" / f"{NAME}.log")
    assert script.links.look(script.running) == [f"reading the log {log} as train-log"]
    assert script.links.look(script.running) == [], "it is known"
    script.write(script.cwd / home / "logs" / f"{NAME}_vllm.log")
    script.links.look(script.running)
    place = os.path.normpath(f"{home}/logs/{NAME}")
    assert script.linked() == {"train-log.1.log": f"{place}.log", "vllm-log.1.log": f"{place}_vllm.log"}
    assert script.other().look(script.running) == [], "nor is it news to the next backend"


def test_a_log_that_is_older_than_the_script_is_not_its_own(script: Script) -> None:
    log = script.write(script.cwd / "logs" / f"{NAME}.log", at=-1)
    assert script.links.look(script.running) == []
    script.write(log, at=0)
    assert len(script.links.look(script.running)) == 1


def test_logs_that_the_script_names_come_first(script: Script) -> None:
    script.write(script.cwd / "logs" / f"{NAME}.log")
    script.write(script.cwd / "elsewhere" / "a.log")
    script.write(script.cwd / "repos" / "logs" / "b.log")
    said = f"\x1b[1mtrain log:\x1b[0m {script.cwd}/elsewhere/a.log\nvLLM log: logs/b.log\n"
    script.write(script.running.log, said)
    script.links.look(script.running)
    assert script.linked() == {"train-log.1.log": "elsewhere/a.log", "vllm-log.1.log": "repos/logs/b.log"}


def test_a_named_log_is_waited_for(script: Script) -> None:
    script.write(script.cwd / "logs" / f"{NAME}.log")
    script.write(script.running.log, f"train log: {script.cwd}/later.log\n")
    assert script.links.look(script.running) == []
    script.write(script.cwd / "later.log")
    script.links.look(script.running)
    assert script.linked() == {"train-log.1.log": "later.log"}


def test_logs_that_the_user_lists(script: Script) -> None:
    for name in ("out/node 1.txt", "out/node2.txt", f"logs/{NAME}.log"):
        script.write(script.cwd / name)
    script.write(script.cwd / "out" / "old.txt", at=-1)
    (script.cwd / "out" / "folder.txt").mkdir()
    script.other(logs=(f"{script.cwd}/out/*.txt",)).look(script.running)
    assert script.linked() == {"log-node_1.1.log": "out/node 1.txt", "log-node2.1.log": "out/node2.txt"}


def test_what_was_also_written_belongs_to_the_process_of_that_generation(script: Script) -> None:
    script.write(script.cwd / "logs" / f"{NAME}.log")
    script.write(script.cwd / "logs" / f"{NAME}_vllm.log")
    script.links.look(script.running)
    second = script.write(script.logs / "trainer.2.log")
    first = also_written(script.running.log)
    assert [path.name for path in first] == ["train-log.1.log", "vllm-log.1.log"]
    assert also_written(second) == [] and also_written(script.logs / "ray.1.log") == []


@pytest.mark.parametrize("home", [".", "repos"])
def test_trials_where_liverl_writes_them(script: Script, home: str) -> None:
    folder = script.folder(script.cwd / home / "harbor_trials" / "p" / NAME)
    assert script.links.look(script.running) == [f"reading the trials in {folder}"]
    assert script.roots() == [os.path.normpath(f"{home}/harbor_trials/p/{NAME}")]
    assert script.links.look(script.running) == script.other().look(script.running) == []
    script.folder(script.cwd / "named")
    script.write(script.running.log, f"agent: null trials: {script.cwd}/named\n")
    script.other().look(script.running)
    assert script.roots()[1:] == ["named"] and (script.run.path / "trials.3").is_symlink()


def test_folders_of_trials_that_are_not_this_runs(script: Script) -> None:
    own = script.folder(script.run.trials)
    script.folder(script.cwd / "harbor_trials" / "p" / NAME, at=-1)
    assert script.links.look(script.running) == []
    assert script.other(trials=(str(own),)).look(script.running) == [], "it is read already"
    file = script.write(script.cwd / "file")
    assert script.other(trials=(str(file),)).look(script.running) == []


def test_folders_of_trials_of_other_hosts(script: Script) -> None:
    parent = script.cwd / "harbor_trials" / "p"
    names = ("exp-20260101-001000", "exp-20260101-001001", "ex-20260101-000000", "exp", "exp-20269999-000000")
    for name in (NAME, *names):
        script.folder(parent / name)
    script.links.look(script.running)
    assert len(script.roots()) == 1
    script.other(nodes=2).look(script.running)
    assert sorted(map(os.path.basename, script.roots())) == [NAME, "exp-20260101-001000"]
    assert list(siblings(str(parent / "exp"), T - 1.0)) == [str(parent / NAME)]
    assert list(siblings(str(script.cwd / "none" / NAME), T)) == []


# --- what a printed line may name ---


def printed(script: Script, *lines: str) -> list[str]:
    script.write(script.running.log, "".join(f"{line}\n" for line in lines))
    return script.other().look(script.running)


@pytest.mark.parametrize(
    "name",
    [
        "/",
        "/tmp",
        "/var/tmp",
        "/dev/shm",
        "~",
        "~/..",
        "../../../../../../..",
        "..",
        ".",
        "\0",
        "/proc/self",
        "/etc",
    ],
)
def test_a_printed_line_names_no_folder_of_everybody(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HOME", str(script.folder(tmp_path / "homes" / "me")))
    path = os.path.expanduser(name)
    assert printed(script, f"trials: {path}", f"trials: {name}") == []
    assert not (script.run.path / "trials.2").is_symlink()


def test_a_printed_line_names_no_private_file(script: Script, tmp_path: Path) -> None:
    private = script.write(tmp_path / "private" / "log")
    fifo = script.cwd / "fifo"
    script.cwd.mkdir(exist_ok=True)
    os.mkfifo(fifo)
    (script.cwd / "way").symlink_to(tmp_path / "private")
    (script.cwd / "link.log").symlink_to(private)
    key = script.write(script.run.path / "secrets" / "run_key")
    names = [private, key, "../private/log", f"{script.cwd}/../private/log", "way/log", "link.log", fifo]
    assert printed(script, *(f"train log: {name}" for name in names)) == []
    assert printed(script, *(f"trials: {name}" for name in ("way", tmp_path / "private"))) == []


def test_a_printed_line_is_believed_below_the_places_of_the_run(script: Script, tmp_path: Path) -> None:
    disk, run_root = tmp_path / "disk", script.run.path.parent.parent
    script.write(disk / "logs" / "a.log")
    script.cwd.mkdir()
    (script.cwd / "logs").symlink_to(disk / "logs")  # as where the disk of the home is small
    script.folder(run_root / "elsewhere")
    script.folder(Path(script.outputs.trials[0]) / "exp")
    found = printed(
        script,
        "train log: logs/a.log",
        f"trials: {run_root}/elsewhere",
        f"trials: {script.outputs.trials[0]}/exp",
    )
    assert len(found) == 4, found  # and the folder of trials itself


def test_a_script_that_runs_in_a_folder_of_everybody_names_nothing_else_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    script = Script(home / "x")
    outputs = replace(script.outputs, train_logs=(str(home / "logs" / "a.log"),), trials=())
    file = script.write(home / "private")
    assert not believed(str(file), script.run.path, outputs)
    assert believed(str(script.write(script.run.path / "file")), script.run.path, outputs)
    assert believed(str(script.write(home / "logs" / "b.log")), script.run.path, outputs)


def test_what_the_plan_names_and_what_only_a_line_has_named(script: Script) -> None:
    log, other = (script.write(script.cwd / "logs" / name) for name in (f"{NAME}.log", "other.log"))
    assert planned(str(log), script.outputs) and not planned(str(other), script.outputs)
    assert planned(str(other), replace(script.outputs, logs=(f"{script.cwd}/logs/o*.log",)))
    folder = script.cwd / "harbor_trials" / "p" / NAME
    beside = folder.with_name("exp-20260101-000100")
    assert planned(str(folder), script.outputs) and not planned(str(beside), script.outputs)
    assert planned(str(beside), replace(script.outputs, nodes=2))
    assert not planned(str(script.cwd / "named"), replace(script.outputs, nodes=2))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
def test_a_folder_of_trials_is_not_found_through_another_users_link(script: Script, tmp_path: Path) -> None:
    parent = script.folder(script.cwd / "harbor_trials" / "p")
    script.folder(parent / NAME)
    private = script.folder(tmp_path / "private")
    other = parent / "exp-20260101-000100"
    other.symlink_to(private)
    links = script.other(nodes=2)
    os.lchown(other, 64321, 64321)
    assert links.look(script.running) == [f"reading the trials in {parent / NAME}"]
    os.lchown(other, 0, 0)
    assert links.look(script.running) == [f"reading the trials in {private}"]
