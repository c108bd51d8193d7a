"""Protocols: what screens and widgets may use of the application that shows them.

Screens and widgets do not import the application; they depend on these protocols only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from liverl.model import ServiceStatus
from liverl_tui.data.source import Source
from liverl_tui.data.view import View

if TYPE_CHECKING:
    from textual.dom import DOMNode

    from liverl.diagnose.evidence import LogPlace
    from liverl.offline.run_list import RunListed
    from liverl_tui.data.last_visit import Visit
    from liverl_tui.data.list_memory import ListMemory
    from liverl_tui.data.verbs import Verb


class Notifications(Protocol):
    """Short messages to the user."""

    def toast(
        self,
        text: str,
        severity: Literal["information", "warning", "error"] = "information",
        *,
        brief: bool = False,
        about: str = "",
    ) -> None:
        """Show ``text`` for some seconds. ``brief``: cut it to one line. ``about``: replace toasts on this subject."""

    def screen_changed(self) -> None:
        """Remove what was answered to keys of another screen than the present one."""


class Commands(Protocol):
    """Commands to the backend. If one cannot be sent now, a toast says why; harmful ones are confirmed first."""

    def refused(self) -> str | None:
        """Why no command can be sent to the backend now; None if one can."""

    def action_add_replica(self) -> None:
        """Start one more replica."""

    def scale(self, to: int | None = None, delta: int | None = None) -> None:
        """Set the number of replicas to ``to``, or change it by ``delta``; after confirmation if it gets smaller."""

    def act_on(self, verb: Verb, names: Sequence[str]) -> None:
        """Restart, start, stop or remove (``verb``) the services ``names``; several after one question."""

    def restart_one(self, service: ServiceStatus) -> None:
        """Restart a service; after confirmation, unless it is the run's own proxy or not running."""

    def start_one(self, service: ServiceStatus) -> None:
        """Start a service that is not running."""

    def stop_one(self, service: ServiceStatus) -> None:
        """Stop a service, after confirmation."""

    def remove_one(self, service: ServiceStatus) -> None:
        """Drain and stop a replica, after confirmation."""


class NextAttempt(Protocol):
    """Changes of the run's configuration."""

    def refused(self) -> str | None:
        """Why no attempt can be begun from this interface; None if one can."""

    def problem_with(self, values: Mapping[str, str]) -> str | None:
        """Why the run cannot have ``values``, in one sentence; None if it can."""

    def present_values(self) -> Mapping[str, str]:
        """Dotted key -> its present value."""

    def offer(self, values: Mapping[str, str], *, guess: bool = False) -> None:
        """Show what ``values`` (dotted key -> value) change, ask, and restart what reads them, or resume the run with
        them. ``guess``: a rule of thumb chose them."""


class Navigation(Protocol):
    """Changes of what is shown; none of them affects the run."""

    def copy_text(self, text: str) -> None:
        """Copy ``text`` to the clipboard or a file, and say which."""

    def action_back(self) -> None:
        """Close the topmost screen; on the dashboard, restore a maximised pane."""

    def action_events(self) -> None:
        """Show the events of the run."""

    def action_sandboxes(self) -> None:
        """Show what the trials have in Docker or Kubernetes."""

    def open_service(self, name: str) -> None:
        """Show the screen of service or replica ``name``."""

    def open_gpu(self, uuid: str | None = None) -> None:
        """Show the screen of the GPU ``uuid``; without a UUID, of the first GPU."""

    def open_log(self, name: str) -> None:
        """Show the log of service or replica ``name`` in the dashboard."""

    def open_log_place(self, place: LogPlace) -> None:
        """Show a line of a log in the dashboard."""

    def open_log_time(self, text: str) -> None:
        """Show the log of the dashboard at a time, as ``liverl.logs.times.parse_moment`` reads it."""

    def open_log_line(self, number: int) -> None:
        """Show line ``number`` (from 1) of the file that the logs pane of the dashboard shows."""

    def find_trial(self, text: str) -> None:
        """Open the trial of the run that has this name, or list those whose names have it."""

    def open_trial_row(self, number: int) -> None:
        """Go to a row of the list of trials, counted from 1."""

    def open_step(self, step: int) -> None:
        """Show all trials of a step in the dashboard."""

    def use_setting(self, key: str, value: str) -> None:
        """Use a value of the section ``ui`` of the configuration in this interface; ``key`` is without ``ui.``."""

    def export(self, form: str | None) -> None:
        """Save what is shown to a file. ``form``: csv, json, svg or txt; None: the usual one."""

    def action_help(self) -> None:
        """Show the keys of the current screen."""

    def open_trial(
        self,
        path: str,
        *,
        trials: Callable[[], Any] | None = None,
        among: Callable[[], str] | None = None,
        moved: Callable[[str], None] | None = None,
    ) -> None:
        """Show one trial turn by turn. ``path``: its directory, relative to the run's. See ``TrajectoryScreen``."""

    def open_pair(self, left: str, right: str) -> None:
        """Show two trials side by side. ``left``, ``right``: their directories, relative to the run's. See
        ``PairScreen``."""

    def open_tokens(self, path: str, turn: int = 0) -> None:
        """Show the tokens of a trial. ``path``: its directory, relative to the run's. See ``TokensScreen``."""

    def choose_order(self, pane: Any) -> None:
        """Let the user choose what ``pane``, a list (``RowsPane``), is sorted by."""

    def choose_rewards(
        self, narrow: Callable[[str], None], rewards: Sequence[float], unknown: int, what: str
    ) -> None:
        """Let the user choose a bar of the histogram of ``rewards``; ``narrow`` gets its filter."""

    def choose_columns(self, pane: Any) -> None:
        """Let the user choose the columns of ``pane``, a list (``RowsPane``)."""

    def use_theme(self, name: str) -> None:
        """Switch to theme ``name``.

        Raises:
            KeyError: there is no such theme.
        """


class Host(Protocol):
    """The application, as seen by its screens and widgets.

    ``view``: the newest one. ``held``: nothing is painted before ``release``. ``readonly``: commands are refused with
    a toast that says ``why_readonly``. ``lists``: orders and columns of lists. ``last_visit``: when this user closed
    the interface of the run last; None if never. ``absence``: what has happened since then, a sentence; empty once the
    user has looked, or if nothing has.
    """

    source: Source
    view: View
    last_visit: Visit | None
    absence: str
    readonly: bool
    why_readonly: str
    held: bool
    lists: ListMemory

    @property
    def answers_key(self) -> bool:
        """Whether a key was pressed a moment ago, so that what changes now is its answer."""

    @property
    def notifications(self) -> Notifications:
        """Shows toasts."""

    @property
    def commands(self) -> Commands:
        """Sends commands to the backend."""

    @property
    def next_attempt(self) -> NextAttempt:
        """Stops the run and resumes it with other values."""

    @property
    def navigation(self) -> Navigation:
        """Opens and closes screens."""

    @property
    def run_screen(self) -> Any:
        """The topmost full screen, even if a dialog covers it; None before the first one."""

    def leave(self) -> None:
        """Ask whether to detach from the run or to stop it, and exit."""

    def release(self) -> None:
        """Do the first paint; without effect if it was done."""

    def open_run(self, run: RunListed) -> None:
        """Show another run in place of this one, or say why that is not possible here."""

    def call_later(self, callback: Callable[..., Any], *args: Any) -> bool:
        """Call ``callback`` after the messages queued so far; return False if the application is closing."""


def host_of(node: DOMNode) -> Host:
    """Return the application that shows ``node``."""
    return cast(Host, node.app)
