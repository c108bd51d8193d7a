"""Replicas and what the proxy may route to: scaling, weights before listing, draining before the end.

A replica is *joining* until it serves the trainer's current policy version, *listed* while the proxy may send
it new trials, *leaving* while it only finishes what it has. The list is told to the trainer (``replicas.json``)
and to the proxy (``proxy/litellm.yaml`` + SIGHUP; a proxy that starts reads the file by itself).
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from liverl.files import write_atomic
from liverl.model import ProxyStatus, ReplicaSet, ReplicaStatus, TrialsStatus
from liverl.observe.engine_metrics import EngineFacts, EngineMeter, EngineRates, parse_engine_metrics
from liverl.observe.idle import Idle, Load, Look
from liverl.observe.stages import Stage
from liverl.plan.spec import Plan
from liverl.proxy.config import config_sha, render_litellm_config
from liverl.supervise import machine
from liverl.supervise.instance import Instance
from liverl.supervise.journal import read_object
from liverl.supervise.slot import Slot
from liverl.supervise.supervisor import Supervisor
from liverl.supervise.ticks import until_tick

FAST = 0.25  # seconds between looks while a replica joins or leaves


class Replicas:
    """The run's replicas, as the proxy and the trainer should see them."""

    def __init__(self, supervisor: Supervisor, plan: Plan, cooldown: float, interval: float) -> None:
        self.supervisor = supervisor
        self.plan = plan
        self.listed: set[str] = set()
        self.facts: dict[str, EngineFacts] = {}
        self.rates: dict[str, EngineRates] = {}
        self.trainer: dict[str, Any] = {}
        self.proxy_reports: dict[int, dict[str, Any]] = {}
        self._generations: dict[str, int] = {}  # of listed replicas
        self._meters: dict[str, EngineMeter] = {}
        self._idle = Idle()
        self._cooldown = cooldown
        self._interval = interval
        self._told = b""
        self._version = 0
        self._sha = ""
        self._hup: dict[int, float] = {}  # proxy generation -> when it was last told to reload
        self.expected: int = plan.expected_replicas
        self.leaving: set[str] = set()  # they finish what they have
        self.unlisted: set[str] = set()  # leaving ones that have finished: the proxy forgets them
        self.drain: Callable[[], Coroutine[Any, Any, None]] | None = None  # called at every look

    # --- names and slots ---

    def slots(self) -> list[Slot]:
        return [s for s in self.supervisor.slots.values() if s.spec.kind == "replica"]

    def state_of(self, name: str) -> str:
        if name in self.leaving:
            return "leaving"
        return "listed" if name in self.listed else "joining"

    def address(self, slot: Slot) -> str | None:
        process = slot.current.process
        port = process.ports.get("http") if process else None
        if port is None or slot.state not in (*machine.LIVE, "stopping"):
            return None
        return f"http://{slot.spec.ports[0].host}:{port}"

    # --- listing ---

    def update(self) -> None:
        """Bring the list up to date with the services' states. Called on every change."""
        for slot in self.slots():
            name, generation = slot.name, slot.current.unit.generation
            serving = slot.state in ("ready", "degraded")
            if not serving:
                self.facts.pop(name, None)  # the next generation has weights of its own
            if name in self.listed and (not serving or self._generations.get(name) != generation):
                self.listed.discard(name)
                if not self.supervisor.stopping:
                    self.supervisor.say("delisted", "the proxy no longer routes to it", service=name)
            may = serving and name not in self.listed and name not in self.leaving
            if may and self._has_weights(name):
                self.listed.add(name)
                self._generations[name] = generation
                version = self.policy_version if self._trainer_lives() else None
                having = "" if version is None else f" (policy version {version})"
                self.supervisor.say("listed", f"the proxy routes new trials to it{having}", service=name)
        self._publish()

    def _trainer_lives(self) -> bool:
        trainer = self.supervisor.slots.get("trainer")
        return trainer is not None and trainer.state in (*machine.LIVE, "stopping")

    def _has_weights(self, name: str) -> bool:
        if not self._trainer_lives():
            return True
        facts = self.facts.get(name)
        wanted = self.policy_version
        return facts is not None and wanted is not None and facts.policy_version == wanted

    @property
    def policy_version(self) -> int | None:
        """The trainer's, once it has told one."""
        version = self.trainer.get("policy_version")
        return version if isinstance(version, int) else None

    def _publish(self) -> None:
        items = []
        for slot in self.slots():
            address = self.address(slot)
            if address is None or slot.state not in machine.LIVE:
                continue
            state = self.state_of(slot.name)
            if state == "joining" and slot.state == "starting":
                continue  # nothing can be pushed to it yet
            generation = slot.current.unit.generation
            items.append({"name": slot.name, "url": address, "state": state, "generation": generation})
        told = json.dumps(items).encode()
        if told != self._told:
            self._version += 1
            body = {"version": self._version, "replicas": items}
            if self._write(self.supervisor.run_dir / "replicas.json", json.dumps(body).encode()):
                self._told = told
        self._publish_proxy(items)

    def _publish_proxy(self, items: list[dict[str, Any]]) -> None:
        if "proxy" not in self.supervisor.slots:
            return
        text = render_litellm_config(
            [i["url"] for i in items if i["state"] == "listed"],
            self.plan.served_model,
            request_timeout=self.plan.trial_timeout,
            cooldown=self._cooldown,
            draining=[i["url"] for i in items if i["state"] == "leaving" and i["name"] not in self.unlisted],
        )
        sha = config_sha(text)
        if sha != self._sha:
            folder = self.supervisor.run_dir / "proxy"
            if self._write(folder / "litellm.yaml", text.encode()):
                self._sha = sha
                self._hup.clear()
        self._reload_proxies()

    def _write(self, path: Path, data: bytes) -> bool:
        """Whether it could be written; if not, the next look tries again."""
        try:
            path.parent.mkdir(exist_ok=True)
            write_atomic(path, data)
        except OSError as error:
            self.supervisor.records.write_failed(f"{path.name}: {error.strerror}")
            return False
        return True

    def _reload_proxies(self) -> None:
        """Tell each serving proxy process whose list is an old one; again after a second if need be."""
        for instance in self.supervisor.slots["proxy"].instances():
            process = instance.process
            if process is None or instance.unit.state not in ("ready", "degraded"):
                continue
            report = self.proxy_reports.get(process.generation, {})
            now = self.supervisor.now()
            if report.get("config_sha") == self._sha or now - self._hup.get(process.generation, 0.0) < 1.0:
                continue
            if report.get("pid") == process.pid:
                self._hup[process.generation] = now
                from liverl.supervise import tree

                tree.send(process.member, signal.SIGHUP)

    # --- looking ---

    async def look(self, trials: TrialsStatus) -> float:
        """Poll engines, the trainer's report and the proxies' reports once; returns seconds until the next.
        ``trials``: as they were last counted."""
        before = self.facts.copy()
        self.trainer = read_object(self.supervisor.run_dir / "trainer.json") or self.trainer
        self._read_proxy_reports()
        if "proxy" not in self.supervisor.slots and not self.slots():
            return until_tick(self._interval)  # nobody to look at, and nobody to tell of it
        answered = set(await asyncio.gather(*(self._look(slot) for slot in self.slots())))
        if self.drain is not None:
            await self.drain()
        self.update()
        self._idle = self._idle.seen(self._load(trials, before, answered))
        waiting = any(
            slot.state in ("ready", "degraded") and slot.name not in self.listed for slot in self.slots()
        )
        behind = any(
            r.get("config_sha") != self._sha for g, r in self.proxy_reports.items() if self._serves(g)
        )
        return until_tick(FAST if waiting or behind or self.leaving else self._interval)

    def _serves(self, generation: int) -> bool:
        slot = self.supervisor.slots.get("proxy")
        return slot is not None and slot.current.unit.generation == generation and slot.state == "ready"

    def _read_proxy_reports(self) -> None:
        slot = self.supervisor.slots.get("proxy")
        if slot is None:
            return
        wanted = {i.process.generation for i in slot.instances() if i.process is not None}
        folder = self.supervisor.run_dir / "proxy"
        for generation in wanted:
            report = read_object(folder / f"status.{generation}.json")
            if report is not None:
                self.proxy_reports[generation] = report
        self.proxy_reports = {g: r for g, r in self.proxy_reports.items() if g in wanted}

    async def _look(self, slot: Slot) -> str | None:
        """The name of the replica, if it has told its load."""
        import aiohttp

        address = self.address(slot)
        if address is None or slot.state not in ("ready", "degraded"):
            return None
        generation = slot.current.unit.generation
        try:
            status, text = await self.supervisor.http.get(address + "/metrics", 3.0)
        except (OSError, TimeoutError, aiohttp.ClientError):
            return None  # its ready probe reports that
        same = slot.current.unit.generation == generation and slot.state in ("ready", "degraded")
        if status == 200 and same:
            facts = parse_engine_metrics(text)
            self.facts[slot.name] = facts
            meter = self._meters.setdefault(slot.name, EngineMeter())
            self.rates[slot.name] = meter.update(self.supervisor.now(), facts)
            return slot.name
        return None

    def _load(
        self, trials: TrialsStatus, before: Mapping[str, EngineFacts], answered: set[str | None]
    ) -> Look:
        """What everybody does now, for the verdict on idle replicas."""
        now, trainer = self.supervisor.now(), self.trainer
        if trainer.get("phase") != "rollout" or not self._trainer_lives():
            return Look(now, None, {})
        step = int(trainer.get("step") or 0) + 1
        started = next((s.total for s in trials.steps if s.step == step), 0)
        loads = {}
        for slot in self.slots():
            facts, name = self.facts.get(slot.name), slot.name
            if facts is None or facts.running is None or name not in answered:
                loads[name] = Load(may_work=False, busy=False)
                continue
            has_weights = facts.policy_version is None or facts.policy_version == self.policy_version
            waiting = bool(facts.waiting)
            loads[name] = Load(
                may_work=slot.state == "ready" and name in self.listed and has_weights,
                busy=facts.running > 0 or waiting or _moved(before.get(name), facts),
                waiting=waiting,
            )
        return Look(
            at=now,
            rollout=step,
            loads=loads,
            held=self._proxy_holds(),
            handed_out=0 < int(trainer.get("trials_total") or 0) <= started,
        )

    def _proxy_holds(self) -> bool:
        """Whether a proxy process that lives has requests that are not answered yet."""
        slot = self.supervisor.slots.get("proxy")
        return slot is not None and any(
            self.proxy_reports.get(i.process.generation, {}).get("in_flight")
            for i in slot.instances()
            if i.process is not None and not i.unit.leader_gone
        )

    def restore_listing(self) -> None:
        """What an earlier backend had listed stays listed while the same process serves: nothing about it has
        changed, and a proxy that was told otherwise for a moment would refuse requests."""
        told = read_object(self.supervisor.run_dir / "replicas.json")
        if told is None:
            return
        self._version = told["version"]
        for item in told["replicas"]:
            slot = self.supervisor.slots.get(item["name"])
            if slot is None or item["state"] != "listed" or slot.name in self.leaving:
                continue
            if slot.current.unit.generation == item["generation"]:
                self.listed.add(slot.name)  # the next update takes it back if it does not serve
                self._generations[slot.name] = item["generation"]

    def proxy_knows(self) -> bool:
        """Whether the serving proxy has the newest list."""
        slot = self.supervisor.slots.get("proxy")
        if slot is None or slot.state in machine.ENDED:
            return True
        report = self.proxy_reports.get(slot.current.unit.generation, {})
        return report.get("config_sha") == self._sha

    def forget(self, name: str) -> None:
        """A replica is no longer part of the run."""
        self.listed.discard(name)
        self.facts.pop(name, None)
        self._meters.pop(name, None)

    # --- for the snapshot ---

    @property
    def kind(self) -> str:
        """Who serves: the embedded engine, or ``vllm serve``."""
        template = self.plan.replica_template
        embedded = template is not None and "liverl.embedded.engine" in template.argv
        return "embedded" if embedded else "managed"

    def status(self, stages: Mapping[str, Stage]) -> ReplicaSet:
        items = []
        kind, now = self.kind, self.supervisor.now()
        for slot in self.slots():
            idle_since = self._idle.since(slot.name)
            facts = self.facts.get(slot.name) or EngineFacts()
            rates = self.rates.get(slot.name) or EngineRates()
            instance: Instance = slot.current
            stage = stages.get(slot.name)
            items.append(
                ReplicaStatus(
                    name=slot.name,
                    state=slot.state,
                    address=self.address(slot),
                    listed=slot.name in self.listed,
                    generation=instance.unit.generation,
                    restarts=slot.restarts,
                    gpus=instance.process.gpus if instance.process else (),
                    policy_version=facts.policy_version,
                    running=facts.running,
                    waiting=facts.waiting,
                    kv_cache_usage=facts.kv_cache_usage,
                    generation_tokens_total=facts.generation_tokens_total,
                    prompt_tokens_total=facts.prompt_tokens_total,
                    tokens_per_s=rates.tokens_per_s,
                    prefix_cache_hit_rate=rates.prefix_cache_hit_rate,
                    request_success_total=facts.request_success_total,
                    since=instance.unit.since,
                    stage=stage[0] if stage and slot.state == "starting" else None,
                    progress=stage[1] if stage and slot.state == "starting" else None,
                    leaving=slot.name in self.leaving,
                    kind=kind,
                    idle_for=now - idle_since if idle_since is not None else None,
                )
            )
        ready = sum(i.state in ("ready", "degraded") for i in items)
        return ReplicaSet(self.expected, ready, len(self.listed), tuple(items))

    def proxy_status(self) -> ProxyStatus:
        slot = self.supervisor.slots.get("proxy")
        if slot is None:
            return ProxyStatus()
        reports = self.proxy_reports
        current = reports.get(slot.current.unit.generation, {})
        port = slot.current.port("http")
        host = slot.spec.ports[0].host
        sums = {
            key: sum(int(r.get(key) or 0) for r in reports.values())
            for key in ("requests", "failures", "unattributed")
        }
        return ProxyStatus(
            address=f"http://{host}:{port}" if port else None,
            backends=tuple(current.get("backends", ())),
            config="proxy/litellm.yaml",
            generation=slot.current.unit.generation,
            requests=sums["requests"],
            failures=sums["failures"],
            unattributed=sums["unattributed"],
            cooled_down=tuple(current.get("cooled_down", ())),
        )


def _moved(before: EngineFacts | None, after: EngineFacts) -> bool:
    """Whether an engine has generated or answered anything between two looks, however short it was."""
    if before is None:
        return False
    return (before.generation_tokens_total, before.request_success_total) != (
        after.generation_tokens_total,
        after.request_success_total,
    )
