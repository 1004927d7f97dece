"""The verb `completion`: a shell script that completes verbs and options without starting Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import typer
from typer import Argument

from diptych.cli.app import app
from diptych.cli.importing import SYSTEM
from diptych.cli.verbs import TaskVerb
from diptych.runtime.plugins import plugins
from diptych.runtime.verbs import OWN_SYSTEMS, SHARED_OPTIONS, TASK_VERBS

BASH = """_diptych() {{
  local path= i word=${{COMP_WORDS[COMP_CWORD]}}
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path/${{COMP_WORDS[i]}}" in
      {paths}) path="$path/${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$path" in
{cases}
  esac
}}
complete -o default -F _diptych diptych
"""


def completed(group: Any, path: str = "") -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield for each command its path, such as `/storybook/write`, the names of its subcommands, and its options."""
    added = [name for plugin in plugins() for name in plugin.adds.get("systems", ())]
    context = typer.Context(group, info_name="diptych", help_option_names=["-h", "--help"])
    if isinstance(group, TaskVerb):
        yield path, [], [*SHARED_OPTIONS, *TASK_VERBS[path[1:]].options]
        return
    options = [name for option in group.get_params(context) for name in (*option.opts, *option.secondary_opts)]
    listed = group.list_commands(context) if hasattr(group, "list_commands") else []
    names = [name for one in listed for name in ([*OWN_SYSTEMS, *added] if one == SYSTEM else [one])]
    yield path, names, [name for name in options if name.startswith("-")]
    for name in names:
        yield from completed(group.get_command(context, name), f"{path}/{name}")


def completion(
    shell: Literal["bash", "zsh", "fish"] = Argument(help="Shell to write the script for: bash, zsh or fish."),
) -> None:
    """Print a script that completes verbs and options, as in `source <(diptych completion bash)`."""
    entries = list(completed(typer.main.get_command(app)))
    if shell == "fish":
        print("\n".join(line for one in entries for line in _fish(*one)))
        return
    cases = (f'    "{path}") {_offered(names, options)} ;;' for path, names, options in entries)
    script = BASH.format(paths="|".join(path for path, *_ in entries if path), cases="\n".join(cases))
    print(("autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else "") + script, end="")


def _offered(names: list[str], options: list[str]) -> str:
    given = f'COMPREPLY=($(compgen -W "{" ".join([*names, *options])}" -- "$word"))'
    return given if names else f"[[ $word == -* ]] && {given}"  # an empty result lets the shell complete file names


def _fish(path: str, names: list[str], options: list[str]) -> Iterator[str]:
    seen = [f"__fish_seen_subcommand_from {part}" for part in path.split("/")[1:]]
    unseen = [f"not __fish_seen_subcommand_from {' '.join(names)}"] if names else []
    where = f'complete -c diptych -n "{"; and ".join([*seen, *unseen]) or "true"}"'
    if names:
        yield f'{where} -f -a "{" ".join(names)}"'
    yield from (f"{where} {'-l ' if name.startswith('--') else '-s '}{name.lstrip('-')}" for name in options)
