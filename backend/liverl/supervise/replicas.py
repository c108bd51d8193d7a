"""Replicas and what the proxy may route to: scaling, weights before listing, draining before the end.

A replica is *joining* until it serves the trainer's current policy version, *listed* while the proxy may send
it new trials, *leaving* while it only finishes what it has. The list is told to the trainer (``replicas.json``)
and to the proxy (``proxy/litellm.yaml`` + SIGHUP; a proxy that starts reads the file by itself).
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from liverl.control.messages import CommandError
from liverl.model import ProxyStatus, ReplicaSet, ReplicaStatus
from liverl.observe.engine_metrics import EngineFacts, EngineMeter, EngineRates, parse_engine_metrics
from liverl.observe.stages import Stage
from liverl.plan.spec import Plan, ServiceSpec
from liverl.proxy.config import config_sha, render_litellm_config
from liverl.supervise import machine
from liverl.supervise.crashpoints import crashpoint
from liverl.supervise.instance import Instance
from liverl.supervise.journal import read_object, write_atomic
from liverl.supervise.leaving import trials_of, unfinished
from liverl.supervise.slot import Slot
from liverl.supervise.supervisor import Supervisor
from liverl.supervise.ticks import until_tick

FAST = 0.25  # seconds between looks while a replica joins or leaves
QUIET = 2.0  # seconds without a request after which a leaving replica counts as drained


def replica_spec(template: ServiceSpec, index: int, further: tuple[str, ...] = ()) -> ServiceSpec:
    """The template with ``{index}`` filled in name, arguments and environment, and ``further`` arguments."""
    from msgspec.structs import replace

    def fill(text: str) -> str:
        return text.replace("{index}", str(index))

    return replace(
        template,
        name=fill(template.name),
        argv=(*(fill(word) for word in template.argv), *further),
        env={k: fill(v) for k, v in template.env.items()},
    )


class Replicas:
    """The run's replicas, as the proxy and the trainer should see them."""

    def __init__(self, supervisor: Supervisor, plan: Plan, cooldown: float, interval: float) -> None:
        self.supervisor = supervisor
        self.plan = plan
        self.indices: list[int] = list(range(plan.expected_replicas))
        self.leaving: dict[str, float] = {}  # name -> quiet since
        self.listed: set[str] = set()
        self.facts: dict[str, EngineFacts] = {}
        self.rates: dict[str, EngineRates] = {}
        self.trainer: dict[str, Any] = {}
        self.proxy_reports: dict[int, dict[str, Any]] = {}
        self._generations: dict[str, int] = {}  # of listed replicas
        self._unlisted: set[str] = set()  # leaving ones that had become quiet: the proxy forgets them
        self._unfinished: dict[str, set[str]] = {}  # trials that live on a leaving replica
        self._meters: dict[str, EngineMeter] = {}
        self._cooldown = cooldown
        self._interval = interval
        self._told = b""
        self._version = 0
        self._sha = ""
        self._hup: dict[int, float] = {}  # proxy generation -> when it was last told to reload
        self._deadlines: dict[str, float] = {}

    # --- names and slots ---

    @property
    def template(self) -> ServiceSpec | None:
        return self.plan.replica_template

    def spec(self, index: int) -> ServiceSpec:
        assert self.template is not None
        return replica_spec(self.template, index, self.plan.replica_arguments.get(str(index), ()))

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
            draining=[i["url"] for i in items if i["state"] == "leaving" and i["name"] not in self._unlisted],
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

    async def look(self) -> float:
        """Poll engines, the trainer's report and the proxies' reports once; returns seconds until the next."""
        self.trainer = read_object(self.supervisor.run_dir / "trainer.json") or self.trainer
        self._read_proxy_reports()
        await asyncio.gather(*(self._look(slot) for slot in self.slots()))
        await self._drain()
        self.update()
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

    async def _look(self, slot: Slot) -> None:
        import aiohttp

        address = self.address(slot)
        if address is None or slot.state not in ("ready", "degraded"):
            return
        generation = slot.current.unit.generation
        try:
            status, text = await self.supervisor.http.get(address + "/metrics", 3.0)
        except (OSError, TimeoutError, aiohttp.ClientError):
            return  # its ready probe reports that
        same = slot.current.unit.generation == generation and slot.state in ("ready", "degraded")
        if status == 200 and same:
            facts = parse_engine_metrics(text)
            self.facts[slot.name] = facts
            meter = self._meters.setdefault(slot.name, EngineMeter())
            self.rates[slot.name] = meter.update(self.supervisor.now(), facts)

    # --- scaling ---

    def restore(self, indices: tuple[int, ...], leaving: tuple[int, ...]) -> None:
        """What the journal says was wanted."""
        self.indices = list(indices)
        self.leaving = {self.spec(i).name: 0.0 for i in leaving}
        now = self.supervisor.now()
        self._deadlines = dict.fromkeys(self.leaving, now + self.plan.trial_timeout)

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

    async def scale(self, to: int | None, delta: int | None) -> dict[str, Any]:
        """Change the number of replicas. Returns when new ones are listed, or the drain of old ones has begun.

        Raises:
            CommandError: this topology cannot, the number is out of range, or a new replica did not come up.
        """
        if self.template is None:
            raise CommandError(
                "not_scalable", "verl owns its replicas: none can be added or removed from outside"
            )
        if self.supervisor.stopping:
            raise CommandError("stopping", "the run is stopping")
        now_wanted = len(self.indices)
        wanted = to if to is not None else now_wanted + (delta or 0)
        if wanted < 1:
            raise CommandError("out_of_range", f"{wanted} replicas: at least 1 must stay")
        if wanted > 256:
            raise CommandError("out_of_range", f"{wanted} replicas: at most 256")
        added = await self._add(wanted - now_wanted) if wanted > now_wanted else []
        removed = await self._remove(now_wanted - wanted) if wanted < now_wanted else []
        return {"replicas": wanted, "added": added, "removed": removed}

    async def _add(self, count: int) -> list[str]:
        free = [
            i for i in range(256) if i not in self.indices and self.spec(i).name not in self.supervisor.slots
        ]
        chosen = free[:count]
        self.indices = sorted([*self.indices, *chosen])
        await self._journal()
        crashpoint("mid_scale")
        names = [self.spec(index).name for index in chosen]
        for index in chosen:
            self.ensure_slot(index)
        self.supervisor.say("scale", f"{len(self.indices)} replicas wanted; adding {', '.join(names)}")
        self.supervisor.kick()
        slots = [self.supervisor.slots[name] for name in names]
        await self.supervisor.until(
            lambda: (
                all(s.name in self.listed or s.state in machine.ENDED for s in slots)
                or self.supervisor.stopping
            )
        )
        failed = [s for s in slots if s.state in machine.ENDED]
        if failed:
            self.indices = [i for i in self.indices if self.spec(i).name not in {s.name for s in failed}]
            await self._journal()
            why = "; ".join(f"{s.name}: {s.current.unit.why}" for s in failed)
            for slot in failed:
                self._drop(slot.name)
            raise CommandError("not_started", f"not added: {why}")
        return names

    def ensure_slot(self, index: int, highest: int = 0) -> Slot:
        """The slot of a replica, made if there is none."""
        spec = self.spec(index)
        found = self.supervisor.slots.get(spec.name)
        used = max(highest, self.supervisor.used_generations.get(spec.name, 0))
        return found or self.supervisor.add_slot(spec, highest=used)

    async def _remove(self, count: int) -> list[str]:
        chosen = sorted(self.indices)[-count:]
        names = [self.spec(i).name for i in chosen]
        self.indices = [i for i in self.indices if i not in chosen]
        now = self.supervisor.now()
        for name in names:
            self.leaving[name] = 0.0
            self.listed.discard(name)
            self._deadlines[name] = now + self.plan.trial_timeout
        await self._journal()
        crashpoint("mid_scale")
        self.supervisor.say("scale", f"{len(self.indices)} replicas wanted; draining {', '.join(names)}")
        self.update()
        await self.supervisor.until(
            lambda: all(n not in self.supervisor.slots for n in names) or self.supervisor.stopping
        )
        return names

    async def _journal(self) -> None:
        leaving = [i for i in range(256) if self.template and self.spec(i).name in self.leaving]
        await self.supervisor.records.journal({"k": "replicas", "indices": self.indices, "leaving": leaving})

    async def _drain(self) -> None:
        """Stop leaving replicas when their trials have ended, and drop those that have stopped.

        First the proxy gives it no new trials; when no trial lives there and it has been quiet for a while the
        proxy forgets it; when that is done and nothing runs there, it is stopped: so no request meets its end.
        """
        now = self.supervisor.now()
        for name in list(self.leaving):
            slot = self.supervisor.slots.get(name)
            if slot is None or (slot.ended and not slot.current.unit.wanted):
                self._drop(name)
                continue
            if slot.state not in ("ready", "degraded"):
                slot.current.feed(machine.Stop())
                continue
            facts = self.facts.get(name)
            late = now >= self._deadlines.get(name, now)
            busy = facts is None or (facts.running or 0) + (facts.waiting or 0) > 0
            if not late and (busy or not self._proxy_knows()):
                self.leaving[name] = 0.0
            elif self.leaving[name] == 0.0 and not late:
                self.leaving[name] = now
            elif late or (name in self._unlisted and now - self.leaving[name] >= FAST):
                said = "its time is up" if late else "no request is left"
                self.supervisor.say("drained", f"{said}; it is stopped", service=name)
                slot.current.feed(machine.Stop())
            elif now - self.leaving[name] >= QUIET and not await self._trials_left(slot):
                self._unlisted.add(name)
                self.leaving[name] = 0.0

    async def _trials_left(self, slot: Slot) -> bool:
        """Whether a trial of the newest step that lives on this replica has no result yet."""
        address, run_dir = self.address(slot), self.supervisor.run_dir
        known = self._unfinished.get(slot.name)
        try:
            if known is None and address is not None:
                known = await asyncio.to_thread(trials_of, run_dir, address)
            known = await asyncio.to_thread(unfinished, run_dir, known or set())
        except OSError as error:
            self.supervisor.say("drain", f"its trials cannot be read: {error}", "warning", slot.name)
            return False
        self._unfinished[slot.name] = known
        return bool(known)

    def _proxy_knows(self) -> bool:
        slot = self.supervisor.slots.get("proxy")
        if slot is None or slot.state in machine.ENDED:
            return True
        report = self.proxy_reports.get(slot.current.unit.generation, {})
        return report.get("config_sha") == self._sha

    def _drop(self, name: str) -> None:
        self.leaving.pop(name, None)
        self._unlisted.discard(name)
        self._unfinished.pop(name, None)
        slot = self.supervisor.slots.pop(name, None)
        if slot is not None:
            self.supervisor.used_generations[name] = slot.current.unit.generation
            slot.current.close()
        self.facts.pop(name, None)
        self._meters.pop(name, None)
        self.supervisor.spawn_task(self._journal())

    # --- for the snapshot ---

    def status(self, stages: Mapping[str, Stage]) -> ReplicaSet:
        items = []
        for slot in self.slots():
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
                )
            )
        ready = sum(i.state in ("ready", "degraded") for i in items)
        return ReplicaSet(len(self.indices), ready, len(self.listed), tuple(items))

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
