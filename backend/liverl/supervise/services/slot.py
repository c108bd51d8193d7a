"""The slot of a service: its current instance, and during a swap the incoming and the retiring ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from dataclasses import replace as replace_machine
from typing import Any

from liverl.model import ServiceState
from liverl.plan.spec import ServiceSpec
from liverl.supervise.services import state_machine
from liverl.supervise.services.instance import Instance, InstanceHost


@dataclass
class Slot:
    """One service of the run with all its instances."""

    spec: ServiceSpec
    current: Instance
    incoming: Instance | None = None
    retiring: list[Instance] = field(default_factory=list)
    highest: int = 0  # highest generation number used
    base: int = 0  # the highest one of earlier attempts: restarts count from it
    restarting: asyncio.Task[dict[str, Any]] | None = None  # the newest restart by a command

    @property
    def name(self) -> str:
        """The service's name."""
        return self.spec.name

    @property
    def state(self) -> ServiceState:
        """State of the current instance."""
        return self.current.machine.state

    @property
    def ended(self) -> bool:
        """Whether no instance runs, is being started or drains, and none will be started without a command."""
        return (
            self.state in state_machine.ENDED
            and not self.current.busy
            and self.incoming is None
            and not self.retiring
        )

    @property
    def being_restarted(self) -> bool:
        """Whether a command restarts this service, and neither a stop nor a failure has overtaken it."""
        if self.restarting is None or self.restarting.done() or not self.current.machine.wanted:
            return False
        return self.incoming is not None or self.state not in state_machine.ENDED

    def hopeless(self, now: float, patience: float) -> bool:
        """Whether waiting for the end of this service is useless: each instance has ended, cannot be killed, or was
        stopped more than ``patience`` seconds ago while its start has not returned."""
        return all(
            i.machine.stuck
            or (i.machine.state in state_machine.ENDED and (not i.busy or now - i.machine.since > patience))
            for i in self.instances()
        )

    @property
    def restarts(self) -> int:
        """Number of starts in this attempt after the first."""
        return max(0, self.current.machine.generation - self.base - 1)

    def instances(self) -> Iterator[Instance]:
        """The current instance, then the incoming one, then the retiring ones, oldest first."""
        yield self.current
        if self.incoming is not None:
            yield self.incoming
        yield from self.retiring

    def find(self, generation: int) -> Instance | None:
        """The instance whose state or newest process has this generation number; None if there is none."""
        for instance in self.instances():
            process = instance.process
            if instance.machine.generation == generation or (process and process.generation == generation):
                return instance
        return None

    def begin_swap(self, hub: InstanceHost) -> Instance:
        """Create the incoming instance beside the current one. It is started once and not restarted: if it fails, the
        current one keeps serving."""
        from msgspec.structs import replace

        spec = replace(self.spec, restart=replace(self.spec.restart, mode="never"))
        self.highest = max(self.highest, self.current.machine.generation)
        self.current.machine = replace_machine(self.current.machine, floor=self.highest + 1)
        machine = state_machine.MachineState(generation=self.highest, since=hub.now())
        self.incoming = Instance(hub, spec, "incoming", machine)
        return self.incoming

    def drop_incoming(self) -> None:
        """Remove the incoming instance after its failure; its generation number is not reused."""
        assert self.incoming is not None
        self.highest = max(self.highest, self.incoming.machine.generation)
        self.current.machine = replace_machine(self.current.machine, floor=self.highest)
        self.incoming.close()
        self.incoming = None

    def promote(self) -> Instance:
        """Make the incoming instance the current one; returns the replaced one, which the caller must drain if it is
        still running."""
        assert self.incoming is not None
        old, new = self.current, self.incoming
        new.spec, new.role = self.spec, "current"
        new.machine = state_machine.succeeded(old.machine, new.machine)
        self.current, self.incoming = new, None
        if old.machine.state in state_machine.ENDED:
            old.close()
        else:
            self.retiring.append(old)
        return old

    def settle(self) -> list[Instance]:
        """Remove the retiring instances that have ended, and return them."""
        ended = [i for i in self.retiring if i.machine.state in state_machine.ENDED and not i.busy]
        self.retiring = [i for i in self.retiring if i not in ended]
        for instance in ended:
            instance.close()
        return ended
