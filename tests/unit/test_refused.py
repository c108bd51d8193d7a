"""What is said of a service that was not started at all: the reasons are those that the program itself gives."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace

from liverl.causes.inputs.refused import refused
from liverl.model import GpuStatus
from liverl.observe.gpu.ledger import UNKNOWN_NAMESPACE, GpuLedger
from liverl.plan.spec import PortSpec
from liverl.procs.procfs import Holder
from liverl.rundir.holders import held_by
from liverl.rundir.index import RunInfo

ROOT = Path(__file__).parents[2]


def gpu(index: int, owner: str = "free") -> GpuStatus:
    return GpuStatus(index, f"GPU-{index}", "NVIDIA H100", 0.0, 0, 80 << 30, None, None, None, owner)


def reason(*owners: str, count: int = 2, allowed: int | None = None) -> str:
    gpus = [gpu(number, owner) for number, owner in enumerate(owners)]
    uuids = None if allowed is None else [one.uuid for one in gpus[:allowed]]
    grant = GpuLedger().reserve("replica-1", count, gpus, uuids)
    assert grant.reason is not None
    return grant.reason


@pytest.mark.parametrize(
    ("owners", "kind"),
    [
        ((), "gpus-not-seen"),
        (("free", "replica-0"), "gpus-too-few"),
        (("free", "foreign pid 9 (bob)"), "gpus-held"),
        (("replica-0 + foreign pid 9 (bob)", "free"), "gpus-held"),
        ((UNKNOWN_NAMESPACE, "free"), "gpus-held"),
    ],
)
def test_gpus_that_a_service_did_not_get(owners: tuple[str, ...], kind: str) -> None:
    found = refused(reason(*owners), "replica-1")
    assert found is not None and found.id == kind
    assert found.why and found.command == "nvidia-smi"
    assert ("end these processes" in found.fix) == (kind == "gpus-held")
    assert ("run.replicas" in found.fix) == (kind == "gpus-too-few")


def test_a_share_of_the_gpus_that_is_too_small_is_the_batch_system_s() -> None:
    found = refused(reason("free", "free", allowed=1), "replica-1")
    assert found is not None and "batch system" in found.fix


def test_the_reason_is_found_behind_the_count_of_failures() -> None:
    text = f"failed 2 times within 300 s; last failure: {reason('foreign pid 9 (bob)', count=1)}"
    found = refused(text, "replica-1")
    assert found is not None and found.id == "gpus-held"


@pytest.mark.parametrize(
    "key", ["infrastructure.litellm_port", "session_proxy.port", "infrastructure.ray_port"]
)
def test_a_port_that_is_held_has_the_setting_to_type_first(key: str) -> None:
    """Behind the sentence of a port of a plan, with or without the name of its key."""
    words = PortSpec("http", 4000, key=key).words
    found = refused(f"failed 2 times; last failure: {words} is held by pid 7 (user x): nc", "proxy")
    assert found is not None and found.id == "port-held" and found.patch == {key: "0"}
    assert found.fix.startswith(f"--set {key}=0 takes any free port; or end the process that holds port 4000")
    denied = refused(f"cannot listen on {words} of 127.0.0.1: Permission denied", "proxy")
    assert (
        denied is not None and denied.patch == found.patch and denied.fix.startswith(found.fix.split(";")[0])
    )


@pytest.mark.parametrize(
    ("holder", "run"),
    [
        (Holder(7, "x", "nc -l 4000"), None),
        (Holder(7, "x", "python"), RunInfo("p/r", Path("/runs/p/r"), "live", "h", 1, 1.0, 1.0)),
        (Holder(7, "x", "python"), RunInfo("p/r", Path("/runs/p/r"), "orphaned", "h", 1, 1.0, 1.0)),
    ],
)
@pytest.mark.parametrize("folder", ["/runs/p/r", "/my runs/p (old)/r"])
@pytest.mark.parametrize("key", ["session_proxy.port", ""])
def test_the_holder_of_a_port_is_ended_as_what_it_is(
    holder: Holder,
    run: RunInfo | None,
    key: str,
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process of a run is not ended by itself: that run is named, with the command that stops it."""
    run = None if run is None else replace(run, run_dir=Path(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    words = PortSpec("http", 4000, key=key).words
    said = held_by(holder, run)
    found = refused(f"{words} is held by {said}", "proxy")
    assert found is not None and ("takes any free port" in found.fix) == bool(key)
    assert ("nd the process that holds port 4000" in found.fix) == (run is None)
    stop = f"liverl-tui stop --run {shlex.quote(folder)}"
    assert (stop in found.fix) == (run is not None)
    assert (stop in said) == (run is not None and run.state != "live")


def test_a_port_without_a_key_is_freed_or_changed() -> None:
    found = refused(f"{PortSpec('http', 4000).words} is held by pid 7 (user x): nc", "proxy")
    assert found is not None and found.id == "port-held" and not found.patch
    assert "process that holds port 4000" in found.fix and "give proxy another port" in found.fix


@pytest.mark.parametrize(
    "other",
    [
        "exit 1",
        "the support 4000 is held by pid 7",
        "a 7B model needs 2 GPUs",
        "not ready after 60 s",
        "replica-1 needs GPUs, some of them free",
    ],
)
def test_other_reasons_say_what_they_say(other: str) -> None:
    assert refused(other, "replica-1") is None


def test_a_path_in_a_command_to_type_is_quoted() -> None:
    """Of every command of ours that a message of the program names: a directory may have blanks."""
    bare = re.compile(r"liverl-tui (?:[a-z-]+ )+\{(?:now|where|root|path|[\w.]*(?:_dir|\.path|\.parent))\}")
    sources = [
        file for package in ("backend/liverl", "liverl_tui") for file in (ROOT / package).rglob("*.py")
    ]
    found = {file.name: bare.findall(file.read_text()) for file in sources if bare.search(file.read_text())}
    assert found == {}
