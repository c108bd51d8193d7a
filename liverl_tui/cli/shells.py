"""The completion scripts of bash, zsh and fish, and what is answered to them.

click's own scripts and answers are the model. What they do not do: complete each time in a zsh that has found the
script in its fpath (the second time nothing came), complete the value in ``--option=value``, values
with a colon in bash, and no blank behind a value that ends in ``=``, where more is to be typed.
"""

from __future__ import annotations

import os

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

# Readline cuts words at = and :, so that the line itself is asked about, and its last word is replaced.
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' response completion type value
    local cur="${COMP_WORDS[COMP_CWORD]}"
    case "$cur" in =|:) cur="" ;; esac

    response=$(env COMP_WORDS="${COMP_LINE:0:COMP_POINT}" COMP_CUR="$cur" %(complete_var)s=bash_complete $1)

    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"

        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("$value")
            if [[ $value == *= ]]; then compopt -o nospace; fi
        fi
    done

    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

_ZSH = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local -a plain described open response
    local type key descr
    (( ! $+commands[%(prog_name)s] )) && return 1

    local -x COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) %(complete_var)s=zsh_complete
    response=("${(@f)$(%(prog_name)s)}")

    # OPTION=VALUE: only the value is replaced.
    [[ "${words[CURRENT]}" == --*=* ]] && compset -P 1 '*='

    for type key descr in ${response}; do
        if [[ "$type" == "plain" ]]; then
            if [[ "$descr" != "_" ]]; then
                described+=("$key":"$descr")
            elif [[ "$key" == *= ]]; then
                open+=("$key")
            else
                plain+=("$key")
            fi
        elif [[ "$type" == "dir" ]]; then
            _path_files -/
        elif [[ "$type" == "file" ]]; then
            _path_files -f
        fi
    done

    (( $#described )) && _describe -V unsorted described
    (( $#open )) && compadd -S '' -V unsorted -a open
    (( $#plain )) && compadd -V unsorted -a plain
    return 0
}

if [[ "$funcstack[1]" == "_%(prog_name)s" ]]; then
    # found in fpath: this file is the function, the first time and each time after that
    %(complete_func)s "$@"
else
    # eval/source/. command, register function for later
    compdef %(complete_func)s %(prog_name)s
fi
"""

_FISH = """\
function %(complete_func)s;
    set -l token (commandline -ct);
    # OPTION=VALUE: fish compares whole words.
    set -l before (string match -r -- '^--[^=]+=' $token);
    set -l response (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp) COMP_CWORD=$token %(prog_name)s);

    for completion in $response;
        set -l metadata (string split -m 1 "," $completion);

        if test $metadata[1] = "dir";
            for found in (__fish_complete_directories $metadata[2]); echo "$before$found"; end;
        else if test $metadata[1] = "file";
            for found in (__fish_complete_path $metadata[2]); echo "$before$found"; end;
        else if test $metadata[1] = "plain";
            echo "$before$metadata[2]";
        end;
    end;
end;

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)";
"""


class _Bash(BashComplete):
    source_template = _BASH
    _typed = _held = ""  # the word that is being typed, and how much of its end readline replaces

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words of the line up to the cursor, and the one that is being typed."""
        if "COMP_CUR" not in os.environ:  # a shell with click's script, from before an upgrade
            return super().get_completion_args()
        line, self._held = os.environ["COMP_WORDS"], os.environ["COMP_CUR"]
        words = split_arg_string(line)[1:]
        if words and (not line[-1:].isspace() or line[-2:-1] == "\\"):
            self._typed = words.pop()
        return words, self._typed

    def format_completion(self, item: CompletionItem) -> str:
        """Without what readline holds for another word, as in ``crash:proxy`` and ``ui.theme=liverl-light``."""
        kept = self._typed[: -len(self._held) or None] if self._typed.endswith(self._held) else ""
        if kept.startswith("--"):  # of OPTION=KEY=VALUE, click answers KEY=VALUE
            kept = kept.partition("=")[2]
        return f"{item.type},{item.value.removeprefix(kept)}"


class _Zsh(ZshComplete):
    source_template = _ZSH


class _Fish(FishComplete):
    source_template = _FISH


SHELLS: tuple[type[ShellComplete], ...] = (_Bash, _Zsh, _Fish)


def register() -> None:
    """Let click answer with these instead of its own."""
    for each in SHELLS:
        add_completion_class(each)


def script(shell: str, cli: click.Command, program: str, variable: str) -> str:
    """What a shell evaluates. ``variable``: with which it asks for completions."""
    (kind,) = (each for each in SHELLS if each.name == shell)
    made = kind(cli, {}, program, variable)
    return (
        made.source_template % made.source_vars()
    )  # not `source()`, which starts a bash to ask for its version
