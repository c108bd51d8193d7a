"""A service's place in the run: its current instance, and during a swap an incoming and retiring ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from dataclasses import replace as replace_machine

from liverl.model import ServiceState
from liverl.plan.spec import ServiceSpec
from liverl.supervise.services import state_machine
from liverl.supervise.services.instance import Instance, InstanceHost


@dataclass
class Slot:
    spec: ServiceSpec
    current: Instance
    incoming: Instance | None = None
    retiring: list[Instance] = field(default_factory=list)
    highest: int = 0  # highest generation number used
    base: int = 0  # the highest one of earlier attempts: restarts count from it

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def state(self) -> ServiceState:
        return self.current.machine.state

    @property
    def ended(self) -> bool:
        """Nothing of it runs, and nothing will by itself."""
        return (
            self.state in state_machine.ENDED
            and not self.current.busy
            and self.incoming is None
            and not self.retiring
        )

    def hopeless(self, now: float, patience: float) -> bool:
        """Nothing more of it will end: it has ended, nothing can end what is left, or its start has not returned for
        ``patience`` seconds since it was stopped."""
        return all(
            i.machine.stuck
            or (i.machine.state in state_machine.ENDED and (not i.busy or now - i.machine.since > patience))
            for i in self.instances()
        )

    @property
    def restarts(self) -> int:
        """Starts in this attempt beyond the first."""
        return max(0, self.current.machine.generation - self.base - 1)

    def instances(self) -> Iterator[Instance]:
        yield self.current
        if self.incoming is not None:
            yield self.incoming
        yield from self.retiring

    def find(self, generation: int) -> Instance | None:
        """The instance whose newest process, or newest start, is of this generation."""
        for instance in self.instances():
            process = instance.process
            if instance.machine.generation == generation or (process and process.generation == generation):
                return instance
        return None

    def begin_swap(self, hub: InstanceHost) -> Instance:
        """A second instance beside the current one. It is tried once: a failure leaves the current one serving."""
        from msgspec.structs import replace

        spec = replace(self.spec, restart=replace(self.spec.restart, mode="never"))
        self.highest = max(self.highest, self.current.machine.generation)
        self.current.machine = replace_machine(self.current.machine, floor=self.highest + 1)
        machine = state_machine.MachineState(generation=self.highest, since=hub.now())
        self.incoming = Instance(hub, spec, "incoming", machine)
        return self.incoming

    def drop_incoming(self) -> None:
        """The incoming instance has failed; its generation number is used up."""
        assert self.incoming is not None
        self.highest = max(self.highest, self.incoming.machine.generation)
        self.current.machine = replace_machine(self.current.machine, floor=self.highest)
        self.incoming.close()
        self.incoming = None

    def promote(self) -> Instance:
        """The incoming instance becomes the current one; the replaced one begins to drain."""
        assert self.incoming is not None
        old, new = self.current, self.incoming
        new.spec, new.role = self.spec, "current"
        self.current, self.incoming = new, None
        if old.machine.state in state_machine.ENDED:
            old.close()
        else:
            self.retiring.append(old)
        return old

    def settle(self) -> list[Instance]:
        """Drop retiring instances that have ended; returns them."""
        over = [i for i in self.retiring if i.machine.state in state_machine.ENDED and not i.busy]
        self.retiring = [i for i in self.retiring if i not in over]
        for instance in over:
            instance.close()
        return over
