"""Queries verl's server actors for their addresses, and nodes for what they have. Runs in verl's Python, by path:
``python addresses.py
--address HOST:PORT [--namespace NS]``; ``RAY_AUTH_MODE`` and ``RAY_AUTH_TOKEN_PATH`` come from the
environment.

Responds to lines of JSON on stdin with lines of JSON on stdout, and exits at the end of stdin::

    {"ready": "2.60.0"}                                   connected (Ray's version)
    {"fatal": "words"}                                    could not connect; exits
    <- {"id": 1, "names": ["vllm_server_0_0"], "timeout": 3.0, "namespace": "liverl"}
    -> {"id": 1, "addresses": {"vllm_server_0_0": "192.0.2.2:34677"}, "errors": {}}
    <- {"id": 2, "nodes": ["e7ae..."], "question": {..}, "env": {"PYTHONPATH": "/x"}, "timeout": 60.0}
    -> {"id": 2, "facts": {"e7ae...": {.., "asked": [1.0, 2.0]}}, "errors": {}}

``question`` and the facts are those of ``liverl.hosts.node_facts``; ``asked``: this host's clock before and after a
node's answer. A node is asked by a task without CPUs. ``namespace`` is optional. Of actors only
``get_server_address`` is called. Ray's own output goes to stderr. If the cluster goes away, Ray's client ends this
process and the pipe is closed.
"""

import sys

# Modules next to this one must not shadow packages of the same name.
if sys.path and sys.path[0] == __file__.rpartition("/")[0]:
    del sys.path[0]

import argparse
import importlib
import importlib.util
import json
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any


class Asker:
    """Open calls. An actor whose engine is starting does not respond for minutes and then responds to every
    call, so at most one call per name is open, and later queries wait for its response."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._calls: dict[tuple[str | None, str], tuple[str, Any]] = {}

    def ask(
        self, names: Iterable[str], namespace: str | None, timeout: float
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return ``(addresses, errors)`` by name, after at most ``timeout`` seconds (plus Ray's own name
        look-up)."""
        addresses: dict[str, str] = {}
        errors: dict[str, str] = {}
        waiting: dict[str, Any] = {}
        for name in dict.fromkeys(names):
            try:
                waiting[name] = self._call(name, namespace)
            except Exception as error:  # noqa: BLE001 - any exception of Ray is reported as this name's error
                errors[name] = _words(error)
        refs = list(waiting.values())
        done, _ = self._ray.wait(refs, num_returns=len(refs), timeout=timeout) if refs else ([], [])
        for name, ref in waiting.items():
            if ref not in done:
                errors[name] = f"no response within {timeout:g} s"
                continue
            self._calls.pop((namespace, name), None)
            try:
                addresses[name] = join(self._ray.get(ref, timeout=timeout))
            except Exception as error:  # noqa: BLE001 - as above
                errors[name] = _words(error)
        return addresses, errors

    def _call(self, name: str, namespace: str | None) -> Any:
        actor = self._ray.get_actor(name, namespace=namespace)
        identity = actor._actor_id.hex()
        known, ref = self._calls.get((namespace, name), ("", None))
        if known != identity:
            ref = actor.get_server_address.remote()
            self._calls[namespace, name] = (identity, ref)
        return ref


class NodeAsker:
    """Asks nodes what they have, each by a task that runs there."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._task: Any = None

    def ask(
        self, nodes: Iterable[str], question: Mapping[str, Any], env: Mapping[str, str], timeout: float
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return ``(facts, errors)`` by node id, after at most ``timeout`` seconds. ``env``: variables of the task."""
        facts: dict[str, Any] = {}
        errors: dict[str, str] = {}
        task, began = self._remote(), time.time()
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        waiting = {}
        for node in nodes:
            there = strategies.NodeAffinitySchedulingStrategy(node_id=node, soft=False)
            options = {"runtime_env": {"env_vars": dict(env)}} if env else {}
            waiting[task.options(scheduling_strategy=there, **options).remote(dict(question))] = node
        deadline = time.monotonic() + timeout
        while waiting:
            left = max(0.0, deadline - time.monotonic())
            done, _ = self._ray.wait(list(waiting), num_returns=1, timeout=left)
            if not done:
                break
            node = waiting.pop(done[0])
            try:
                facts[node] = {**self._ray.get(done[0]), "asked": [began, time.time()]}
            except Exception as error:  # noqa: BLE001 - any exception of Ray is reported as this node's error
                errors[node] = _words(error)
        for ref, node in waiting.items():
            errors[node] = f"no answer within {timeout:g} s"
            self._ray.cancel(ref, force=True)
        return facts, errors

    def _remote(self) -> Any:
        """The task. Its module travels by value: the nodes need not have it."""
        if self._task is None:
            name = "liverl_node_facts"
            package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
            spec = importlib.util.spec_from_file_location(name, f"{package}/hosts/node_facts.py")
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
            self._ray.cloudpickle.register_pickle_by_value(module)
            self._task = self._ray.remote(num_cpus=0, max_retries=0)(module.look)
        return self._task


def join(answer: Any) -> str:
    """Convert ``(ip, port)`` to ``ip:port``.

    Raises:
        ValueError: it contains no address (yet).
    """
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise ValueError(f"it returned {answer!r:.100} instead of an address")
    host, port = answer
    if not host or not isinstance(port, int) or port <= 0:
        raise ValueError(f"its server has no port yet (it returned {answer!r:.100})")
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def _words(error: BaseException) -> str:
    """Return an exception as one line; if the actor's own code raised one, that exception."""
    raised = getattr(error, "cause", None) or error
    line = next((line for line in str(raised).splitlines() if line.strip()), "").strip()
    return f"{type(raised).__name__}: {line}"[:300].rstrip(": ")


def _request(line: str) -> Mapping[str, Any]:
    try:
        request = json.loads(line)
    except RecursionError:
        raise ValueError("a request is nested too deeply") from None
    if not isinstance(request, dict):
        raise ValueError("a request must be an object")
    return request


def main() -> int:
    """Connect and respond until the end of stdin; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--namespace", default=None)
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Ray prints on stdout

    def answer(what: Mapping[str, Any]) -> None:
        """Write one line of JSON."""
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    try:
        ray: Any = importlib.import_module("ray")
        ray.init(address=options.address, namespace=options.namespace, log_to_driver=False)
    except Exception as error:  # noqa: BLE001 - reported to the caller, who retries
        answer({"fatal": _words(error)})
        return 1
    answer({"ready": ray.__version__})
    asker, node_asker = Asker(ray), NodeAsker(ray)
    for line in sys.stdin:
        try:
            request = _request(line)
            if "nodes" in request:
                words = request["question"], request["env"], float(request["timeout"])
                facts, errors = node_asker.ask(request["nodes"], *words)
                answer({"id": request.get("id"), "facts": facts, "errors": errors})
                continue
            namespace = request.get("namespace") or options.namespace
            addresses, errors = asker.ask(request["names"], namespace, float(request["timeout"]))
            reply = {"id": request.get("id"), "addresses": addresses, "errors": errors}
        except (ValueError, KeyError, TypeError) as error:
            reply = {"id": None, "addresses": {}, "errors": {}, "problem": _words(error)}
        answer(reply)
    return 0


if __name__ == "__main__":
    sys.exit(main())
