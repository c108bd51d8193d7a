"""Changes the number of replicas: new ones are listed with the current weights, others are drained before they stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from liverl.control.messages import CommandError
from liverl.plan.spec import INDEX, Plan, ServiceSpec
from liverl.serving.endpoint import slot_address
from liverl.serving.registry import FAST, ReplicaRegistry
from liverl.serving.replica_bounds import MOST, Machine, machine, too_many
from liverl.serving.unfinished_trials import trials_of, unfinished
from liverl.supervise.services import state_machine
from liverl.supervise.services.failpoints import crashpoint
from liverl.supervise.services.operations import refuse_while_stopping
from liverl.supervise.services.slot import Slot
from liverl.supervise.services.supervisor import Supervisor
from liverl.util.nearest import nearest
from liverl.util.plural import quantity

QUIET = 2.0  # seconds without a request after which a leaving replica counts as drained


def replica_spec(template: ServiceSpec, index: int, further: tuple[str, ...] = ()) -> ServiceSpec:
    """The template with ``{index}`` filled in name, arguments and environment, and ``further`` arguments."""

    def fill(text: str) -> str:
        return text.replace(INDEX, str(index))

    return replace(
        template,
        name=fill(template.name),
        argv=(*(fill(word) for word in template.argv), *further),
        env={k: fill(v) for k, v in template.env.items()},
    )


class Scaling:
    """The indices of the replicas that are wanted, and of those that are leaving."""

    def __init__(
        self,
        supervisor: Supervisor,
        plan: Plan,
        replicas: ReplicaRegistry,
        look_at_gpus: Callable[[], Awaitable[None]],
        *,
        host: Callable[[], Machine] = machine,
        replica_bytes: Callable[[], int | None] = lambda: None,
    ) -> None:
        """``look_at_gpus`` takes a new sample of the GPUs. ``host``: what all replicas share; ``replica_bytes``:
        memory of the largest one that runs, None if it is not known."""
        self.supervisor = supervisor
        self._look_at_gpus = look_at_gpus
        self._host, self._replica_bytes = host, replica_bytes
        self.plan = plan
        self.replicas = replicas
        self.indices: list[int] = list(range(plan.expected_replicas))
        self._leaving: dict[int, float] = {}  # index -> time since which it has no requests (0 = it has some)
        self._deadlines: dict[int, float] = {}
        self._unfinished: dict[int, set[str]] = {}  # index -> unfinished trials on a leaving replica
        # Held while a command chooses replicas, journals them and makes their slots, but not while it waits for them.
        self._choosing = asyncio.Lock()

    def name_of(self, index: int) -> str:
        """The service name of the replica with this index. Only for runs with managed replicas."""
        assert self.plan.replica_template is not None
        return self.plan.replica_template.name.replace(INDEX, str(index))

    def spec(self, index: int) -> ServiceSpec:
        """The service of the replica with this index. Only for runs with managed replicas."""
        assert self.plan.replica_template is not None
        further = self.plan.replica_arguments.get(str(index), ())
        return replica_spec(self.plan.replica_template, index, further)

    def specs(self) -> list[ServiceSpec]:
        """The services of all replicas that are wanted or leaving, by index."""
        return [self.spec(index) for index in sorted({*self.indices, *self._leaving})]

    def restore(self, indices: tuple[int, ...], leaving: tuple[int, ...]) -> None:
        """Take over the wanted and leaving replicas of an earlier backend, from the journal."""
        self.indices = list(indices)
        for index in leaving:
            self._begin_leaving(index)
        self._changed()

    def _begin_leaving(self, index: int) -> None:
        self._leaving[index] = 0.0
        self._deadlines[index] = self.supervisor.now() + self.plan.trial_timeout

    def _changed(self) -> None:
        self.replicas.expected = len(self.indices)
        self.replicas.leaving = {self.name_of(index) for index in self._leaving}

    async def _journal(self) -> None:
        record = {"k": "replicas", "indices": self.indices, "leaving": sorted(self._leaving)}
        await self.supervisor.records.journal(record)

    # --- the command ---

    async def scale(
        self,
        to: int | None = None,
        delta: int | None = None,
        remove: str | None = None,
        *,
        force: bool = False,
    ) -> dict[str, Any]:
        """Change the number of replicas, or remove the one of that name. Returns when new ones are listed, or old
        ones have drained and ended. ``force``: also to more than this machine should carry.

        Raises:
            CommandError: this topology cannot, the number is out of range, no replica has that name, too few GPUs are
                free, the machine has too few CPUs or too little memory, or a new one did not come up.
        """
        if self.plan.replica_template is None:
            raise CommandError(
                "not_scalable", "verl manages its replicas; this run cannot add or remove them"
            )
        if sum(wish is not None for wish in (to, delta, remove)) > 1:
            raise CommandError("bad_args", "scale takes exactly one of: to, delta, remove")
        async with self._choosing:
            wanted, leaving = self._wish(to, delta, remove)
            if self._gpus_missing(wanted - len(self.indices)) is not None:
                await self._look_at_gpus()  # GPUs that were just released may be busy in the last sample
                wanted, leaving = self._wish(to, delta, remove)
                missing = self._gpus_missing(wanted - len(self.indices))
                if missing is not None:
                    raise CommandError("no_gpus", f"replicas not added: {missing}")
            now_wanted = len(self.indices)
            if not force:
                self._refuse_too_many(wanted)
            if wanted < now_wanted:
                leaving = leaving or sorted(self.indices)[wanted - now_wanted :]
            added = await self._begin_adding(wanted - now_wanted) if wanted > now_wanted else {}
            removed = await self._begin_removing(leaving) if leaving else {}
        if added:
            await self._until_added(added)
        if removed:
            await self._until_removed(removed)
        names = [self.name_of(index) for index in added]
        return {"replicas": wanted, "added": names, "removed": [self.name_of(index) for index in leaving]}

    def _refuse_too_many(self, wanted: int) -> None:
        """Raises:
        CommandError: the machine cannot carry so many replicas.
        """
        why = too_many(self.plan, self._host(), wanted, len(self.indices), self._replica_bytes())
        if why is not None:
            raise CommandError(
                "too_many",
                f"cannot scale from {len(self.indices)} to {wanted} replicas: {why}. Nothing was changed. To have so "
                f"many all the same: liverl-tui scale --force {wanted}, or set supervise.max_replicas",
            )

    def _wish(self, to: int | None, delta: int | None, remove: str | None) -> tuple[int, list[int]]:
        """Return the number of replicas that a command asks for, and the indices that it removes by name."""
        refuse_while_stopping(self.supervisor)
        leaving = [self._wanted_index(remove)] if remove is not None else []
        wanted = to if to is not None else len(self.indices) + (delta or 0) - len(leaving)
        if not 1 <= wanted <= MOST:
            raise CommandError(
                "out_of_range", f"cannot scale to {wanted} replicas; the number must be from 1 to {MOST}"
            )
        return wanted, leaving

    async def _begin_adding(self, count: int) -> dict[int, Slot]:
        """Make and journal ``count`` further replicas; returns their slots by index."""
        chosen = self._unused(count)
        self._reserve_gpus(chosen)
        before = self.indices
        self.indices = sorted([*self.indices, *chosen])
        self._changed()
        try:
            await self._journal()
        except OSError as error:
            self.indices = [index for index in self.indices if index not in chosen or index in before]
            for index in chosen:
                self.supervisor.ledger.release(self.name_of(index))
            self._changed()
            raise _not_written("added", error) from None
        crashpoint("mid_scale")
        new = {index: self.ensure_slot(index) for index in chosen}
        names = ", ".join(slot.name for slot in new.values())
        self.supervisor.say("scale", f"{quantity(len(self.indices), 'replica')} requested; adding {names}")
        self.supervisor.kick()
        return new

    def _is_current(self, slot: Slot) -> bool:
        """Whether the run still has this slot; another replica of that name may have been added since."""
        return self.supervisor.slots.get(slot.name) is slot

    async def _until_added(self, new: dict[int, Slot]) -> None:
        """Wait until the proxy lists the new replicas. Those that ended are dropped.

        Raises:
            CommandError: one of them ended or was removed by another command, or the run is stopping.
        """
        supervisor, listed = self.supervisor, self.replicas.listed

        def settled(slot: Slot) -> bool:
            return slot.ended or not self._is_current(slot) or slot.name in listed

        await supervisor.until(lambda: all(map(settled, new.values())) or supervisor.stopping)
        refuse_while_stopping(supervisor)
        missing = []
        for index, slot in new.items():
            if not self._is_current(slot):
                missing.append(f"{slot.name}: another command removed it")
            elif slot.ended:
                missing.append(f"{slot.name}: {slot.current.machine.why}")
                self.indices = [other for other in self.indices if other != index]
                self._drop(index)
        if missing:
            raise CommandError("not_started", f"replicas not added: {'; '.join(missing)}")

    def _unused(self, count: int) -> list[int]:
        """The lowest indices that no replica has."""
        slots = self.supervisor.slots
        free = [i for i in range(MOST) if i not in self.indices and self.name_of(i) not in slots]
        return free[: max(0, count)]

    def _gpus_missing(self, count: int) -> str | None:
        """Why there are no GPUs for ``count`` more replicas, with the holders named; None if there are."""
        assert self.plan.replica_template is not None
        each = self.plan.replica_template.gpus
        names = [self.name_of(index) for index in self._unused(count)]
        return self.supervisor.gpus_missing(names, each) if each else None

    def _reserve_gpus(self, chosen: list[int]) -> None:
        """Reserve GPUs for the new replicas, so that no other command plans with the same ones."""
        for spec in map(self.spec, chosen):
            if spec.gpus:
                self.supervisor.reserve_gpus(spec.name, spec.gpus)

    def ensure_slot(self, index: int) -> Slot:
        """The slot of a replica, made if there is none."""
        name = self.name_of(index)
        used = self.supervisor.used_generations.get(name, 0)
        return self.supervisor.slots.get(name) or self.supervisor.add_slot(self.spec(index), highest=used)

    def _wanted_index(self, name: str) -> int:
        names = {self.name_of(index): index for index in self.indices}
        if name not in names:
            text = f"no replica {name!r}; replicas: {', '.join(names)}"
            raise CommandError("unknown_service", text, nearest(name, names, 0.5))
        return names[name]

    async def _begin_removing(self, chosen: list[int]) -> dict[int, Slot]:
        """Journal that these replicas leave, and begin to drain them; returns their slots by index."""
        names = [self.name_of(index) for index in chosen]
        slots = self.supervisor.slots
        old = {index: slots[name] for index, name in zip(chosen, names, strict=True) if name in slots}
        before = self.indices
        self.indices = [index for index in self.indices if index not in chosen]
        for index in chosen:
            self._begin_leaving(index)
        self._changed()
        try:
            await self._journal()
        except OSError as error:
            self.indices = sorted({*self.indices, *(index for index in chosen if index in before)})
            for index in chosen:
                self._leaving.pop(index, None)
                self._deadlines.pop(index, None)
            self._changed()
            raise _not_written("removed", error) from None
        self.replicas.listed.difference_update(names)
        crashpoint("mid_scale")
        self.supervisor.say(
            "scale", f"{quantity(len(self.indices), 'replica')} requested; draining {', '.join(names)}"
        )
        self.replicas.update()
        return old

    async def _until_removed(self, old: dict[int, Slot]) -> None:
        """Wait until the replicas have drained and ended, or the run is stopping.

        Raises:
            CommandError: a process of one of them cannot be killed.
        """

        def settled(slot: Slot) -> bool:
            return not self._is_current(slot) or slot.current.machine.stuck

        await self.supervisor.until(lambda: all(map(settled, old.values())) or self.supervisor.stopping)
        stuck = [slot.name for slot in old.values() if self._is_current(slot)]
        if stuck and not self.supervisor.stopping:
            text = f"replicas not removed: processes of {', '.join(stuck)} cannot be killed"
            raise CommandError("not_stopped", text)

    # --- draining ---

    async def drain(self) -> None:
        """Stop leaving replicas when their trials have ended, and drop those that have stopped.

        First proxy and sessions send it no new trials. When it has no unfinished trial and no request for ``QUIET``
        seconds, it is removed from their lists. When both have loaded these, it is stopped, so no request fails.
        """
        now = self.supervisor.now()
        for index in list(self._leaving):
            name = self.name_of(index)
            slot = self.supervisor.slots.get(name)
            if slot is None or (slot.ended and not slot.current.machine.wanted):
                self._drop(index)
                continue
            if slot.state not in state_machine.SERVING:
                slot.current.feed(state_machine.Stop(why="the replica is removed"))
                continue
            since, late = self._leaving[index], now >= self._deadlines[index]
            busy = self.replicas.requests_on(name) != 0  # also if that is not known
            if not late and (busy or not self.replicas.routes_known()):
                self._leaving[index] = 0.0
            elif since == 0.0 and not late:
                self._leaving[index] = now
            elif late or (name in self.replicas.unlisted and now - since >= FAST):
                how = "drain timed out" if late else "drained"
                self.supervisor.say("drained", f"{how}; stopping this replica", service=name)
                slot.current.feed(state_machine.Stop(why="the replica is removed"))
            elif now - since >= QUIET and not await self._trials_left(index, slot):
                self.replicas.unlisted.add(name)
                self._leaving[index] = 0.0

    async def _trials_left(self, index: int, slot: Slot) -> bool:
        """Whether a trial of the newest step that lives on this replica has no result yet."""
        address, run_dir = slot_address(slot), self.supervisor.run_dir
        trials = self._unfinished.get(index)
        try:
            if trials is None and address is not None:
                trials = await asyncio.to_thread(trials_of, run_dir, address)
            trials = await asyncio.to_thread(unfinished, run_dir, trials or set())
        except OSError as error:
            self.supervisor.say(
                "drain", f"cannot read the trials of {slot.name}: {error}", "warning", slot.name
            )
            return False
        self._unfinished[index] = trials
        return bool(trials) or self.replicas.sessions.placed_on(address) > 0

    def _drop(self, index: int) -> None:
        name = self.name_of(index)
        for memory in (self._leaving, self._deadlines, self._unfinished):
            memory.pop(index, None)
        self._changed()
        self.replicas.unlisted.discard(name)
        self.replicas.forget(name)
        slot = self.supervisor.slots.pop(name, None)
        if slot is not None:
            self.supervisor.used_generations[name] = slot.current.machine.generation
            slot.current.close()
        self.supervisor.spawn_task(self._journal())


def _not_written(what: str, error: OSError) -> CommandError:
    """The error for a change that could not be journalled."""
    return CommandError("not_written", f"replicas not {what}: cannot write the journal: {error.strerror}")
