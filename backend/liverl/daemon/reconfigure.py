"""Changes keys of a live run's configuration, and restarts the services that read them, within its attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from liverl.control.messages import CommandError
from liverl.daemon import next_attempt, plan_change
from liverl.daemon.launch import LaunchError
from liverl.daemon.plan_change import PlanChange
from liverl.model import ConfigChange
from liverl.plan.spec import Plan, ServiceSpec
from liverl.rundir.layout import RunDir
from liverl.serving.scaling import Scaling
from liverl.supervise.services import operations
from liverl.supervise.services.slot import Slot
from liverl.supervise.services.supervisor import Supervisor

if TYPE_CHECKING:
    from liverl.config.sections.run import Diagnosis

REPLICAS = "replicas"  # what the table of changes calls the services that ``Scaling`` makes


class Reconfiguration:
    """``use_plan`` is called with the changed plan, once it is written and before a service restarts."""

    def __init__(self, supervisor: Supervisor, scaling: Scaling, use_plan: Callable[[Plan], None]) -> None:
        self._supervisor = supervisor
        self._scaling = scaling
        self._use_plan = use_plan
        self._changing = False
        self._work: asyncio.Task[dict[str, Any]] | None = None

    async def change(self, values: Mapping[str, str], client: str) -> dict[str, Any]:
        """Set ``values`` (dotted key -> value as for ``--set``) on behalf of ``client``. Returns when the restarted
        services are ready; a client that leaves meanwhile changes nothing in that.

        Raises:
            CommandError: ``bad_value``: the configuration refuses it. ``next_attempt``: a key needs a new attempt, or
                can never be changed. ``unchanged``: the run has these values. ``busy``, ``stopping``, ``not_written``:
                nothing was changed either. ``not_started``: it was changed, but a service did not start with it.
        """
        operations.refuse_while_stopping(self._supervisor)
        if self._changing:
            raise CommandError("busy", "another change of the configuration is being applied")
        self._changing = True
        self._work = asyncio.ensure_future(self._change(dict(values), client))
        self._work.add_done_callback(self._done)
        return await asyncio.shield(self._work)

    def _done(self, task: asyncio.Task[dict[str, Any]]) -> None:
        self._changing = False
        if not task.cancelled():
            task.exception()  # it was raised to the client, or that has left

    async def _change(self, values: dict[str, str], client: str) -> dict[str, Any]:
        supervisor = self._supervisor
        change = await asyncio.to_thread(self._checked, values)
        kinds = affected(change.changes)
        at = supervisor.now()
        told = tuple(replace(c, where=client, at=at, attempt=supervisor.attempt) for c in change.changes)
        merged = merge(supervisor.plan, change.plan, kinds)
        services = [slot.name for slot in self._slots(kinds)]
        record = {"k": "config", "changes": msgspec.to_builtins(told), "services": services, "at": at}
        try:
            await supervisor.records.journal(record)
            plan = await asyncio.to_thread(
                plan_change.apply,
                supervisor.run_dir,
                supervisor.plan,
                replace(change, plan=merged, changes=told),
                supervisor.attempt,
            )
        except OSError as error:
            raise CommandError(
                "not_written", f"the configuration could not be written: {error.strerror}"
            ) from None
        self._use_plan(plan)
        for one in told:
            supervisor.say("config_changed", f"configuration changed: {one.words} ({client})", key=one.key)
        slots = self._slots(kinds)
        for slot in slots:
            self._give(slot, self._spec(slot))
        restarted = await self._restart([slot for slot in slots if slot.current.machine.wanted])
        what = "; ".join(one.words for one in told)
        done = f"restarted {', '.join(restarted)}" if restarted else "no service had to be restarted"
        return {"text": f"{what}: {done}", "services": restarted}

    def _checked(self, values: dict[str, str]) -> PlanChange:
        """The change as the configuration allows it; nothing is written. Called in a thread."""
        from liverl.config import ConfigError

        run = RunDir(self._supervisor.run_dir)
        try:
            found = next_attempt.changed_run(run, sets=[f"{key}={value}" for key, value in values.items()])
        except ConfigError as error:
            raise CommandError("bad_value", error.problems[0].sentence) from None
        except LaunchError as error:
            raise CommandError("next_attempt", str(error)) from None
        if found is None:
            raise CommandError("unchanged", f"the run has {', '.join(values)} already")
        loaded, change = found
        if unnamed := _unnamed(loaded.config.diagnosis):
            raise CommandError("bad_value", f"diagnosis.mute: {unnamed}")
        later = [one.key for one in change.changes if not restarts(one.key)]
        if later:
            raise CommandError(
                "next_attempt",
                f"{', '.join(later)} can only be changed for the next attempt: stop the run, then resume it with "
                "--set",
            )
        if names(change.plan) != names(self._supervisor.plan):
            raise CommandError("next_attempt", "with these values the run has other services")
        return change

    def _slots(self, kinds: frozenset[str]) -> list[Slot]:
        """The services of these kinds that the run has: replicas, then what carries the trials, then the trainer."""
        slots = self._supervisor.slots
        if REPLICAS in kinds and self._supervisor.plan.replica_template is None:
            kinds |= {"trainer"}  # verl starts its replicas with its trainer
        replicas = (
            [self._scaling.name_of(i) for i in self._scaling.indices] if self._has_replicas(kinds) else []
        )
        found = [slots[name] for name in replicas if name in slots]
        for kind in ("proxy", "sessions", "trainer"):
            if kind in kinds:
                found += [slot for slot in slots.values() if slot.spec.kind == kind]
        return found

    def _has_replicas(self, kinds: frozenset[str]) -> bool:
        return REPLICAS in kinds and self._supervisor.plan.replica_template is not None

    def _spec(self, slot: Slot) -> ServiceSpec:
        own = next((s for s in self._supervisor.plan.services if s.name == slot.name), None)
        if own is not None:
            return own
        index = next(i for i in self._scaling.indices if self._scaling.name_of(i) == slot.name)
        return self._scaling.spec(index)

    @staticmethod
    def _give(slot: Slot, spec: ServiceSpec) -> None:
        slot.spec = slot.current.spec = spec

    async def _restart(self, slots: list[Slot]) -> list[str]:
        """Restart services one after another, so that not all replicas are down at once, and a value that one of them
        does not start with ends no other.

        Raises:
            CommandError: ``not_started``; the services behind it keep their processes.
        """
        restarted: list[str] = []
        for slot in slots:
            try:
                await operations.restart(self._supervisor, slot)
            except CommandError as error:
                left = [s.name for s in slots[len(restarted) + 1 :]]
                rest = f"; the previous values are still those of {', '.join(left)}" if left else ""
                why = f"{error}{rest}"
                if self._supervisor.stopping:
                    why = f"the run is stopping, so {slot.name} was not restarted; the next attempt has the new values"
                text = f"the configuration was changed, but {why}"
                self._supervisor.say("config_changed", text, "error", slot.name)
                raise CommandError("not_started", text) from None
            restarted.append(slot.name)
        return restarted


def restarts(key: str) -> bool:
    """Whether a restart of services is enough for a changed key to take effect."""
    from liverl.config.changes import on_change

    return on_change(key).kind == "restart"


def _unnamed(diagnosis: Diagnosis) -> str:
    """What is wrong with the first muted id that no alert can have; "" if each can be one. The lines that rules of the
    user's own explain are not known here."""
    from liverl.diagnose.catalogue.alert_ids import OF_LOGS, unknown

    mute = [one for one in diagnosis.mute if not (diagnosis.rules and one.startswith(f"{OF_LOGS}:"))]
    alert, hint = next(unknown(mute), ("", ""))
    return f"no alert is called {alert!r}{'; ' if hint else ''}{hint}" if alert else ""


def at_once(keys: Iterable[str]) -> bool:
    """Whether no service reads these keys: the backend takes their values over by itself."""
    from liverl.config.changes import on_change

    try:
        return all(restarts(key) and not on_change(key).services for key in keys)
    except KeyError:
        return True  # no key at all, which the configuration says


def affected(changes: tuple[ConfigChange, ...]) -> frozenset[str]:
    """What reads the changed keys, as the table of changes calls it: replicas, proxy, sessions, trainer."""
    from liverl.config.changes import on_change

    return frozenset(name for one in changes for name in on_change(one.key).services)


def names(plan: Plan) -> set[str]:
    """The services of a plan; all replicas count as one."""
    template = [] if plan.replica_template is None else [plan.replica_template.name]
    return {*(spec.name for spec in plan.services), *template}


def merge(before: Plan, after: Plan, kinds: frozenset[str]) -> Plan:
    """``before`` with the services of ``kinds``, and the values that go with them, of ``after``. A plan made now may
    differ in more: services that go on running keep what describes them."""
    if REPLICAS in kinds and before.replica_template is None:
        kinds |= {"trainer"}
    new = {spec.name: spec for spec in after.services}
    replicas = REPLICAS in kinds
    settings = replace(
        before.settings,
        batch_end_time=after.settings.batch_end_time,
        batch_margin=after.settings.batch_margin,
        batch_unsaved=after.settings.batch_unsaved,
        mute=after.settings.mute,
    )
    return replace(
        before,
        settings=settings,
        services=tuple(new[s.name] if s.kind in kinds else s for s in before.services),
        replica_template=after.replica_template if replicas else before.replica_template,
        replica_arguments=after.replica_arguments if replicas else before.replica_arguments,
        total_steps=after.total_steps,
        steps_by=after.steps_by,
        trials_per_step=after.trials_per_step,
        trial_timeout=after.trial_timeout,
        warnings=after.warnings,
        inert=after.inert,
    )
