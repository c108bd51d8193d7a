"""Runs the checks side by side. One that does not answer delays no other, and never the command for long."""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan.attention import planned
from liverl.plan.spec import Plan
from liverl.preflight.registry import CHECKS, ON_ENTER, Entry
from liverl.preflight.subject import Ours, Subject
from liverl.util import redact

NO_ANSWER = "no answer within"  # the beginning of what is said of a check that hangs
HOST = "host"  # the id of what is said in the place of the checks of this host
Tell = Callable[[Sequence[str]], None]


def run_checks(
    plan: Plan,
    config: RunConfig,
    *,
    env: Mapping[str, str] | None = None,
    entries: Sequence[Entry] | None = None,
    elsewhere: bool = False,
    gpu_memory: float | None = None,
    ours: Ours | None = None,
    tell: Tell = lambda _: None,
) -> list[Check]:
    """What the checks that apply to a run find, in the order of ``entries`` (None: all), without secrets. Nothing is
    changed.

    ``env``: the variables of the caller (None: of this process). ``elsewhere``: the run starts on another host, so what
    looks at this one is skipped. ``gpu_memory``: GiB of one of its GPUs, None = of those of this host. ``ours``: see
    ``Subject``. ``tell``: is told the ids of the checks that go on, each time one has ended.
    """
    config = planned(config)  # what is started, not what the file says
    subject = Subject(plan, config, os.environ if env is None else env, gpu_memory, elsewhere, ours)
    apply = [entry for entry in (CHECKS if entries is None else entries) if entry.when(config)]
    found = [_elsewhere([entry.id for entry in apply if entry.host])] if elsewhere else []
    jobs = [_Job(entry, subject) for entry in apply if not (elsewhere and entry.host)]
    began = time.monotonic()
    for job in jobs:
        job.start()
    for job in jobs:
        tell([other.entry.id for other in jobs if other.thread.is_alive()])
        found += job.checks(began)
    return [redact.struct(check) for check in found]


def again_on_enter(
    plan: Plan, config: RunConfig, before: Sequence[Check], *, env: Mapping[str, str] | None = None
) -> list[Check]:
    """``before``, with what the checks find now that are made once more when the user has agreed to start. Where
    nothing of this host was looked at, it is not looked at now."""
    ids = {entry.id for entry in ON_ENTER}
    if not any(check.id in ids for check in before):
        return list(before)
    now = run_checks(plan, config, env=env, entries=ON_ENTER)
    return [*now, *(check for check in before if check.id not in ids)]


def _elsewhere(ids: Sequence[str]) -> Check:
    words = f"the run starts on another host (--other-host): not looked at are {', '.join(ids)}"
    return Check("this host", "skipped", words, HOST)


class _Job:
    """One check in a thread of its own. The thread does not keep the process from ending."""

    def __init__(self, entry: Entry, subject: Subject) -> None:
        self.entry = entry
        self._subject = subject
        self._function = entry.function  # imported here: imports in several threads may wait for each other
        self._found: list[Check] = []
        self._over = False
        self.thread = threading.Thread(target=self._run, name=f"check {entry.id}", daemon=True)

    def start(self) -> None:
        """Begin. Where no thread can be had (a limit on processes), the check is made here, without a time-out."""
        try:
            self.thread.start()
        except RuntimeError:
            self._run()

    def _run(self) -> None:
        try:
            for check in _called(self._function, self._subject):
                self._found.append(check)
        except OSError as error:
            what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            self._found.append(Check(self.entry.id, "skipped", f"could not be looked at: {what}"))
        except Exception as error:  # noqa: BLE001 - told as a warning: one wrong check must not hide the others
            words = f"a fault of liverl-tui's own, please report it: {type(error).__name__}: {error}"
            self._found.append(Check(self.entry.id, "warn", f"was not checked: {words}"))
        self._over = True

    def checks(self, began: float) -> list[Check]:
        """What it has found, and that it has not ended if it has not within its time. ``began``: monotonic."""
        if self.thread.ident is not None:
            self.thread.join(max(0.0, began + self.entry.seconds - time.monotonic()))
        over = self._over  # before the list: what comes later is not half of it
        found = [named(check, self.entry) for check in tuple(self._found)]
        if not over:
            words = (
                f"{NO_ANSWER} {self.entry.seconds:g} s: a file system, a driver, a host or a program hangs"
            )
            found.append(Check(self.entry.id, "skipped", words, self.entry.id))
        return found


def named(check: Check, entry: Entry) -> Check:
    """``check`` with the id of its entry, unless it has one."""
    return check if check.id else replace(check, id=entry.id)


def _called(function: Callable[..., Any], subject: Subject) -> Iterable[Check]:
    """The function, with the fields of the subject that it names as parameters."""
    fields = {name: getattr(subject, name) for name in subject.__struct_fields__}
    wanted = {name: fields[name] for name in inspect.signature(function).parameters if name in fields}
    found = function(**wanted)
    return () if found is None else (found,) if isinstance(found, Check) else found
