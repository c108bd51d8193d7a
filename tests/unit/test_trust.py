"""Who may have changed a run directory: stat results and access control lists in, verdict out."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from kit.acls import acl_of, set_acl

from liverl.config import load_config as loaded
from liverl.daemon import trusted_run
from liverl.daemon.launch import LaunchError, create_run, start_backend
from liverl.daemon.trusted_run import ROOTS_VARIABLE, UntrustedRun, require_trusted, trusted_roots, vouch
from liverl.exit_codes import ExitCode
from liverl.plan import make_plan
from liverl.rundir.path_facts import path_facts, present_caller
from liverl.rundir.trust import Caller, PathFacts, assess
from liverl.util.posix_acl import Acl
from liverl_tui.data.own_files import write_own

ME, ROOT, OTHER, NOBODY = Caller(1000), Caller(0), 1001, 65534
DIR, FILE = stat.S_IFDIR, stat.S_IFREG


def own(uid: int = 1000, mode: int = FILE | 0o644, path: str = "/r/p/n/plan.json", **more: bool) -> PathFacts:
    return PathFacts(path, uid, mode, "", **more)


def above(uid: int = 0, mode: int = DIR | 0o755, path: str = "/r") -> PathFacts:
    return PathFacts(path, uid, mode, "", parent=True)


@pytest.mark.parametrize(
    ("fact", "caller", "refused", "warned"),
    [
        (own(), ME, False, False),
        (own(0), ME, False, False),
        (own(OTHER), ME, True, False),
        (own(), ROOT, True, False),
        (own(mode=FILE | 0o646), ME, True, False),
        (own(mode=FILE | 0o664), ME, False, True),
        (own(mode=FILE | 0o664, own_group=True), ME, False, False),
        (own(mode=FILE | 0o666, own_group=True), ME, True, False),
        # the run directory: others may not even add files
        (own(mode=DIR | 0o1777, path="/r/p/n"), ME, True, False),
        (above(), ME, False, False),
        (above(1000), ME, False, False),
        (above(OTHER), ME, True, False),
        (above(1000), ROOT, True, False),
        (above(mode=DIR | 0o1777), ME, False, False),
        (above(mode=DIR | 0o777), ME, True, False),
        (above(OTHER, DIR | 0o1777), ME, True, False),  # its owner may replace what is in it
        (above(mode=DIR | 0o775), ME, False, True),
        (above(mode=DIR | 0o1775), ME, False, False),
        # in a container of the user's own, all directories of root belong to the unmapped user
        (above(NOBODY), Caller(1000, NOBODY), False, False),
        (above(NOBODY, DIR | 0o777), Caller(1000, NOBODY), True, False),
        (above(NOBODY), ME, True, False),
        (own(NOBODY), Caller(1000, NOBODY), True, False),
    ],
)
def test_one_path(fact: PathFacts, caller: Caller, refused: bool, warned: bool) -> None:
    verdict = assess([fact], caller)
    assert (bool(verdict.refused), bool(verdict.warnings)) == (refused, warned)


# The mode of each is what the kernel shows: its group bits are the mask of the list.
@pytest.mark.parametrize(
    ("acl", "mode", "refused", "warned"),
    [
        (acl_of(user=OTHER), DIR | 0o775, True, False),
        (acl_of(user=OTHER, mask=5), DIR | 0o755, False, False),
        (acl_of(user=OTHER, named=5), DIR | 0o775, False, False),
        (acl_of(user=1000), DIR | 0o775, False, False),
        (acl_of(user=0), DIR | 0o775, False, False),
        (acl_of(user=NOBODY), DIR | 0o775, True, False),
        (acl_of(user=OTHER, others=7), DIR | 0o777, True, False),
        (acl_of(group=OTHER), DIR | 0o775, False, True),
        (acl_of(group=OTHER, mask=5), DIR | 0o755, False, False),
        (acl_of(group=OTHER, named=5), DIR | 0o775, False, False),
    ],
)
@pytest.mark.parametrize("own_group", [True, False])
def test_an_access_control_list(acl: Acl, mode: int, refused: bool, warned: bool, own_group: bool) -> None:
    for parent in (False, True):
        fact = PathFacts("/r", 1000, mode, "", parent, own_group, acl)
        verdict = assess([fact], Caller(1000, NOBODY))
        assert (bool(verdict.refused), bool(verdict.warnings)) == (refused, warned), parent
    sticky = PathFacts("/r", 1000, mode | stat.S_ISVTX, "", True, own_group, acl)
    verdict = assess([sticky], ME)
    assert not verdict.refused and not verdict.warnings, "as in /tmp"


def test_the_owning_group_of_a_list_is_that_of_the_entry_and_not_of_the_mask() -> None:
    acl = tuple(e._replace(permissions=7) if e.tag == 4 else e for e in acl_of(user=1000))
    assert assess([PathFacts("/r", 1000, DIR | 0o775, acl=acl)], ME).warnings
    assert not assess([PathFacts("/r", 1000, DIR | 0o775, own_group=True, acl=acl)], ME).warnings


def test_a_finding_names_the_users_of_a_list() -> None:
    (finding,) = assess([PathFacts("/r", 1000, DIR | 0o775, acl=acl_of(user=OTHER))], ME).refused
    assert f"uid {OTHER} write it" in finding.problem and finding.cure == "chmod g-w /r"


@pytest.mark.parametrize(
    ("root", "trusted"),
    [("/r/p/n", True), ("/r/p", True), ("/", True), ("/r/p/n2", False), ("/r/p/nn", False), ("/s", False)],
)
def test_a_trusted_root_covers_what_it_holds_and_what_is_above_it(root: str, trusted: bool) -> None:
    facts = [own(OTHER, path="/r/p/n/plan.json"), own(OTHER, DIR | 0o777, "/r/p/n")]
    assert (not assess(facts, ME, [root]).refused) is trusted


def test_what_is_above_a_trusted_root_is_trusted_only_for_it() -> None:
    facts = [above(OTHER, path="/team"), own(OTHER, path="/team/evil/plan.json")]
    assert [f.path for f in assess(facts, ME, ["/team/mine"]).refused] == ["/team/evil/plan.json"]


def test_a_finding_says_how_to_mend_a_mode_and_not_an_owner() -> None:
    refused = assess([own(mode=FILE | 0o666), own(OTHER)], ME).refused
    assert [f.cure for f in refused] == ["chmod o-w /r/p/n/plan.json", ""]
    assert "mode 0666" in refused[0].problem and "uid 1001" in refused[1].problem


# --- real paths ---------------------------------------------------------------------------------------


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    path = tmp_path / "root" / "p" / "n"
    path.mkdir(parents=True)
    (path / "plan.json").write_text("{}")
    return path


def refusals(run_dir: Path) -> list[str]:
    return [f.path for f in assess(path_facts(run_dir), present_caller()).refused]


def test_an_ordinary_run_directory_is_trusted(run_dir: Path) -> None:
    assert refusals(run_dir) == []
    assert require_trusted(run_dir) == ()


@pytest.mark.parametrize(
    "name",
    [".", "plan.json", "config.yaml", "journal.jsonl", "members.json", "keeper.json", "backend.json"]
    + ["backend.log", "keeper.log", "lock", "secrets", "exits", "proxy", "attempt_001", "attempt_001/logs"],
)
def test_each_file_that_a_backend_reads_or_writes_is_looked_at(run_dir: Path, name: str) -> None:
    path = run_dir / name
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.mkdir() if "." not in name and name != "lock" else path.write_text("")
    path.chmod(0o777)
    assert refusals(run_dir) == [str(path.resolve())]


@pytest.mark.parametrize("name", [".", "plan.json", "..", "../.."])
def test_another_user_in_an_access_control_list_is_refused_and_the_cure_works(
    run_dir: Path, name: str
) -> None:
    path = (run_dir / name).resolve()
    set_acl(path, acl_of(user=65533))
    (finding,) = assess(path_facts(run_dir), present_caller()).refused
    assert finding.path == str(path)
    assert os.system(finding.cure) == 0
    assert refusals(run_dir) == []


def test_each_directory_above_is_looked_at(run_dir: Path) -> None:
    run_dir.parent.parent.chmod(0o777)
    assert refusals(run_dir) == [str(run_dir.parent.parent)]
    assert refusals(run_dir.parent / "not_made_yet") == [str(run_dir.parent.parent)]


def test_a_link_is_followed_to_where_the_plan_really_lies(run_dir: Path, tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    loose.mkdir()
    (run_dir / "plan.json").rename(loose / "plan.json")
    (run_dir / "plan.json").symlink_to(loose / "plan.json")
    assert refusals(run_dir) == []
    loose.chmod(0o777)
    assert refusals(run_dir) == [str(loose)]


def test_the_message_names_path_mode_cure_and_way_out(run_dir: Path) -> None:
    (run_dir / "plan.json").chmod(0o666)
    with pytest.raises(UntrustedRun) as refused:
        require_trusted(run_dir)
    text = str(refused.value)
    for part in (
        "run p/n is not trusted; nothing was started or stopped",
        f"{run_dir}/plan.json: every user can write it (mode 0666)",
        f"chmod o-w {run_dir}/plan.json",
        f"--trust {run_dir}",
        "supervise.trusted_roots",
        ROOTS_VARIABLE,
    ):
        assert part in text
    assert refused.value.exit_code == ExitCode.PREFLIGHT


def test_many_findings_are_counted(run_dir: Path) -> None:
    for name in ("plan.json", "config.yaml", "journal.jsonl", "members.json", "backend.json", "lock"):
        (run_dir / name).touch()
        (run_dir / name).chmod(0o666)
    with pytest.raises(UntrustedRun, match="and 2 more"):
        require_trusted(run_dir)


def test_a_backend_is_not_started_and_nothing_is_written(run_dir: Path) -> None:
    (run_dir / "plan.json").chmod(0o666)
    with pytest.raises(LaunchError, match="not trusted") as refused:
        start_backend(run_dir)
    assert refused.value.exit_code == ExitCode.PREFLIGHT
    assert os.listdir(run_dir) == ["plan.json"]


def test_no_run_is_made_where_others_could_replace_it(tmp_path: Path) -> None:
    root = tmp_path / "open"
    root.mkdir()
    root.chmod(0o777)
    config = loaded(env={})
    with pytest.raises(LaunchError, match="every user can write it"):
        create_run(config, make_plan(config, root / "p" / "n"), root / "p" / "n")
    assert os.listdir(root) == []


# --- the way out ----------------------------------------------------------------------------------------


def test_vouching_adds_to_what_the_environment_says(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run_dir / "plan.json").chmod(0o666)
    monkeypatch.setenv(ROOTS_VARIABLE, "[/one, '/two, three']")
    vouch([])
    with pytest.raises(UntrustedRun):
        require_trusted(run_dir)
    monkeypatch.chdir(run_dir)
    vouch([".", "/one"])
    assert trusted_roots(os.environ) == ("/one", "/two, three", str(run_dir))
    assert json.loads(os.environ[ROOTS_VARIABLE])[-1] == str(run_dir)
    assert require_trusted(run_dir) == ()


def test_a_trusted_root_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert trusted_roots({ROOTS_VARIABLE: f"[{tmp_path}/link]"}) == (str(tmp_path / "real"),)
    assert trusted_roots({"HOME": "/x"}) == ()


def test_a_variable_that_is_no_list_is_named() -> None:
    with pytest.raises(UntrustedRun, match=ROOTS_VARIABLE):
        trusted_roots({ROOTS_VARIABLE: "/a"})


def test_a_group_is_only_warned_about(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from liverl.rundir import path_facts as module

    run_dir.chmod(0o775)
    monkeypatch.setattr(module, "_own_group", lambda gid: False)
    warned = trusted_run.require_trusted(run_dir)
    assert [(f.path, f.cure) for f in warned] == [(str(run_dir), f"chmod g-w {run_dir}")]


def test_what_the_interface_writes_does_not_follow_a_link_in_the_run_of_another_user(
    run_dir: Path, tmp_path: Path, own_state: Path
) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("keep")
    (run_dir / "crash.txt").symlink_to(mine)
    run_dir.chmod(0o777)  # as its owner would have it
    path = write_own(run_dir, "crash.txt", "report")
    assert path.is_relative_to(own_state) and mine.read_text() == "keep"
    (run_dir / "screenshots").symlink_to(tmp_path)
    assert write_own(run_dir, "screenshots/mine.txt", "picture").is_relative_to(own_state)
    assert mine.read_text() == "keep"
    run_dir.chmod(0o755)
    assert write_own(run_dir, "crash.txt", "report").is_relative_to(own_state) and mine.read_text() == "keep"
    (run_dir / "crash.txt").unlink()
    assert write_own(run_dir, "crash.txt", "report") == run_dir / "crash.txt"
