"""The table of typed commands. A new command is one entry here, or in one of the modules that it joins."""

from __future__ import annotations

from liverl_tui.typed.command import Act, Command, Completion, Here, TypedError, starting, wrong
from liverl_tui.typed.lists import LISTS
from liverl_tui.typed.places import PLACES
from liverl_tui.typed.services import SERVICES
from liverl_tui.typed.settings import SETTINGS


def _plain(name: str, help: str, act: Act) -> Command:
    """A command without arguments."""

    def parse(text: str, here: Here) -> Act:
        del here
        if text:
            raise wrong(name, text, "nothing after the name")
        return act

    return Command(name, "", help, parse)


_FORMS = ("csv", "json", "svg", "txt")


def _export(text: str, here: Here) -> Act:
    del here
    if text and text not in _FORMS:
        raise wrong("export", text, f"one of {', '.join(_FORMS)}, or nothing", _FORMS)
    return lambda host: host.navigation.export(text or None)


COMMANDS: tuple[Command, ...] = (
    *SERVICES,
    *PLACES,
    *SETTINGS,
    *LISTS,
    Command(
        "export",
        "[csv|json|svg|txt]",
        "Save what is shown to a file",
        _export,
        lambda text, _here: starting(text, [Completion(form) for form in _FORMS]),
    ),
    _plain("quit", "Quit; asks whether to detach or to stop the run", lambda host: host.leave()),
    _plain("help", "Show all keys", lambda host: host.navigation.action_help()),
)


def command_of(line: str) -> tuple[Command, str] | None:
    """The command that a line begins with, and the text behind its name as it is typed; None while the first word is
    not complete, or no command."""
    name, blank, rest = line.lstrip().partition(" ")
    found = next((command for command in COMMANDS if command.name == name), None)
    return (found, rest.lstrip()) if found is not None and blank else None


def act_of(command: Command, text: str, here: Here) -> Act:
    """What a command with the arguments ``text`` does.

    Raises:
        TypedError: the arguments are wrong or incomplete, or the command is refused now.
    """
    if command.changes and here.refused is not None:
        raise TypedError(f"{command.name}: {here.refused}")
    return command.parse(text.strip(), here)


def act_of_line(line: str, here: Here) -> Act:
    """What a whole line does.

    Raises:
        TypedError: its first word is no command, or see ``act_of``.
    """
    found = command_of(f"{line} ")
    if found is None:
        name = line.split(maxsplit=1)[0] if line.strip() else ""
        names = [command.name for command in COMMANDS]
        raise wrong("command line", name, f"one of {', '.join(names)}", names)
    return act_of(*found, here)
