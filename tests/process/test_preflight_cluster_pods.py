"""The cluster of a run's own trials is asked before the start. SIMULATED: the cluster is ``kit.fake_apiserver``, over
TLS with a token; no real apiserver was asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.pods import TOKEN, Served
from kit.waiting import wait_until

from liverl.config import load_config
from liverl.model import Check
from liverl.plan import make_plan
from liverl.preflight import cluster_pods
from liverl.preflight.registry import CHECKS
from liverl.procs import procfs

ALL = ("get", "list", "watch", "create", "delete", "create/exec")
SETS = ("agent.kind=harbor", "harbor_agent.agent_name=terminus-2", "k8s.namespace=rl")
TYPES = ("harbor_agent.environment_type=ack", "harbor_agent.environment_type=gke",
         "harbor_agent.environment_type=openshift")  # fmt: skip


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    one = Served(tmp_path)
    monkeypatch.setattr(one.server.RequestHandlerClass, "verbs", ALL)
    yield one
    one.close()


def checks(*sets: str, env: dict[str, str] | None = None) -> list[Check]:
    """What is said before the start of a run whose sandboxes are pods."""
    loaded = load_config(profile="cpu-verl", sets=(*SETS, *sets), env={})
    entry = next(entry for entry in CHECKS if entry.id == "cluster-pods")
    if not entry.when(loaded.config):
        return []
    return list(entry.function(make_plan(loaded, Path("/runs/p/n")), loaded.config, env or dict(os.environ)))


@pytest.mark.parametrize("kind", TYPES)
def test_a_cluster_in_which_trials_can_run(served: Served, kind: str) -> None:
    (check,) = checks(kind, f"k8s.kubeconfig={served.path}")
    assert check.status == "ok", check
    assert "namespace rl: 1 of 1 nodes are ready, and this user may do what trials need" in check.text
    assert TOKEN not in check.text and not served.fake.pods, "nothing was created"


@pytest.mark.parametrize("kind", ["docker", "local", "daytona"])
def test_sandboxes_that_are_no_pods_ask_no_cluster(kind: str) -> None:
    assert checks(f"harbor_agent.environment_type={kind}") == []


def lacks(*verbs: str) -> Callable[[Served, pytest.MonkeyPatch], None]:
    def change(served: Served, patch: pytest.MonkeyPatch) -> None:
        left = tuple(verb for verb in ALL if verb not in verbs)
        patch.setattr(served.server.RequestHandlerClass, "verbs", left)

    return change


def handler(**values: object) -> Callable[[Served, pytest.MonkeyPatch], None]:
    def change(served: Served, patch: pytest.MonkeyPatch) -> None:
        for name, value in values.items():
            patch.setattr(served.server.RequestHandlerClass, name, value)

    return change


def hangs(served: Served, patch: pytest.MonkeyPatch) -> None:
    program = served.path.parent / "get-token"
    program.write_text(f"#!{sys.executable}\nimport subprocess; subprocess.run(['sleep', '4712'])\n")
    program.chmod(0o755)
    patch.setattr(cluster_pods, "PLUGIN_S", 0.5)
    served.write({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./get-token"}})


@pytest.mark.parametrize(
    ("change", "status", "words", "fix"),
    [
        (lacks("create"), "fail", "this user may not create pods (no sandbox can be made)", "k8s.namespace"),
        (lacks("create/exec", "delete"), "fail",
         "delete pods (sandboxes would stay after their trials); create pods/exec (nothing can be", "k8s.namespace"),
        (lacks("watch"), "warn", "this user may not watch pods (what trials have there is not shown)", "a role with"),
        (handler(namespaces=("default",)), "fail", "namespace rl: there is no such namespace", "k8s.namespace"),
        (handler(nodes=(False, False)), "fail", "none of its 2 nodes is ready", "wait for a node"),
        (handler(nodes=()), "fail", "none of its 0 nodes is ready", "wait for a node"),
        (handler(nodes=None), "ok", "its nodes may not be listed by this user, and this user may do", ""),
        (handler(token="another"), "fail", "the credentials of the kubeconfig were refused (HTTP 401", "kubectl"),
        (hangs, "fail", "get-token did not answer within 0.5 s and was ended; try it", "mend the user of that context"),
        (lambda served, _: served.fault("fail", code=500, n=10), "fail", "the API refused (HTTP 500", "kubectl"),
        (lambda served, _: served.close(), "fail", "Connection refused", "kubectl"),
        (lambda served, _: served.write({"token": TOKEN}, **{"current-context": "trainin"}), "fail",
         "did you mean training", "correct k8s.kubeconfig"),
        (lambda served, _: served.path.unlink(), "fail", "cannot be read as a kubeconfig: No such file",
         "correct k8s.kubeconfig"),
    ],
)  # fmt: skip
def test_what_keeps_trials_from_it_is_said_before_the_start(
    served: Served, monkeypatch: pytest.MonkeyPatch, change: Callable[[Served, pytest.MonkeyPatch], object],
    status: str, words: str, fix: str,
) -> None:  # fmt: skip
    change(served, monkeypatch)
    (check,) = checks(TYPES[0], f"k8s.kubeconfig={served.path}")
    assert check.status == status and words in check.text and fix in check.fix, check
    assert TOKEN not in check.text + check.fix and "\n" not in check.text
    wait_until(
        lambda: not any("4712" in procfs.command_line(pid) for pid in procfs.scan()),
        what="the end of the plug-in's own program",
    )


def test_an_api_that_tells_no_rights_is_not_called_good(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = served.server.RequestHandlerClass.do_POST  # type: ignore[attr-defined]

    def refuses(self: object) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))  # type: ignore[attr-defined]
        self.answer(403, {"kind": "Status", "message": "forbidden"})  # type: ignore[attr-defined]

    monkeypatch.setattr(served.server.RequestHandlerClass, "do_POST", refuses)
    (check,) = checks(TYPES[0], f"k8s.kubeconfig={served.path}")
    assert (
        post is not refuses
        and check.status == "skipped"
        and "does not tell what this user may do" in check.text
    )


def test_the_kubeconfig_is_the_one_that_trials_find(served: Served, tmp_path: Path) -> None:
    """KUBECONFIG counts only where trials inherit it."""
    home = tmp_path / "home"
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(served.path)}
    (check,) = checks(TYPES[2], env=env)
    assert check.status == "fail" and f"there is no kubeconfig {home}/.kube/config" in check.text
    assert "KUBECONFIG is set here, but trials do not inherit it: add it to supervise.pass_env" in check.fix
    (check,) = checks(TYPES[2], 'supervise.pass_env=["KUBECONFIG"]', env=env)
    assert check.status == "ok", check
    (check,) = checks(TYPES[2], env={"PATH": os.environ["PATH"], "HOME": str(home)})
    assert check.status == "fail" and "set k8s.kubeconfig to the file" in check.fix
