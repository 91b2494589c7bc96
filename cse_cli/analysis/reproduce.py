"""What was run, with what, and the command that runs it again: sections of a report."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from cse_cli.analysis.pages import Code, Facts, Part, Section, Words, word_table
from cse_cli.analysis.reported import ReportedRun
from cse_cli.analysis.runs import Change, recipe_changes
from cse_cli.analysis.settings import short_setting
from cse_cli.core.formatting import counted, date_and_time, distinct, duration, seed_list, to_toml
from cse_cli.core.results import Result
from cse_cli.core.tables import Table
from cse_cli.recipe.files import bare_name
from cse_cli.recipe.load import load
from registry.catalogue.pairs import ROWS
from registry.errors import CseError, UnknownNameError
from registry.paths import is_file

SAVED = "recipe.toml"
"""File in which a reader saves a recipe that no file describes."""
DIGEST = 16
"""Characters of a fingerprint that are shown; result.json has all."""
_ADDRESS = re.compile(r"[/\\]|://")
"""In values that name a folder or a server: these are private, so a report leaves them out."""


@dataclass(frozen=True)
class Reproduction:
    """How to run an experiment again.

    Args:
        changes: How it differs from the recipe's file today; None where that is not known.
        command: Does exactly this experiment.
        before: What has to be done first, and why.
    """

    changes: tuple[Change, ...] | None
    command: str
    before: str = ""


def reproduce(result: Result, resolved: Mapping[str, Any] | None, seeds: Sequence[int]) -> Reproduction:
    """Return how to run a recipe with these seeds again; every command is tried out as far as its recipe's hash."""
    seed_options = ["--seed", str(seeds[0])] if len(seeds) == 1 else ["--seeds", ",".join(map(str, seeds))]

    def command(*words: str) -> str:
        return shlex.join(["cse", "run", *words, *seed_options])

    file, name = _file_and_name(result)
    try:
        today = load(file).recipe
    except CseError as error:
        missing = isinstance(error, UnknownNameError)
        why = "no recipe of this name is found" if missing else "the recipe's file has mistakes"
        return Reproduction(None, command(SAVED), f"{why}: save the recipe above as {SAVED}")
    if today.hash() == result.recipe_hash:
        return Reproduction((), command(name))
    if resolved is None:
        return Reproduction(None, command(name), "the recipe's file has changed, and what ran is not known")
    found = tuple(recipe_changes([today.resolved(), resolved]))
    sets = [f"{change.key}={_toml(change.values[1])}" for change in found if change.values[1] is not None]
    unset = [change.key for change in found if change.values[1] is None]
    # A search's range over what is not there any more is a mistake, so it goes too.
    unset += [f"tune.{name}" for name in today.tune if name not in resolved.get("tune", {})]
    if _hash(file, sets, unset) == result.recipe_hash:
        options = [word for text in sets for word in ("--set", text)] + [w for key in unset for w in ("--unset", key)]
        return Reproduction(found, command(name, *options))
    why = "no settings lead from the recipe's file to it"
    return Reproduction(found, command(SAVED), f"{why}: save the recipe above as {SAVED}")


def _file_and_name(result: Result) -> tuple[str, str]:
    """Return a run's recipe as `load` finds it, and as a reader names it: folders say nothing to others."""
    source = Path(result.source)
    if not is_file(source):
        return result.recipe, result.recipe
    return result.source, bare_name(source) or source.name


def _hash(recipe: str, overrides: Sequence[str], unset: Sequence[str]) -> str | None:
    try:
        return load(recipe, overrides, unset).recipe.hash()
    except CseError:
        return None


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(key)} = {_toml(inner)}' for key, inner in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[\w-]+", key, re.ASCII) else json.dumps(key, ensure_ascii=False)


def without_folders(value: Any) -> Any:
    """Return a recipe with the names of files alone: their folders on this machine say nothing to others."""
    if isinstance(value, Mapping):
        return {key: without_folders(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def changes_table(changes: Sequence[Change], headings: Sequence[str]) -> Table:
    """Return the settings that are not the same, a line each."""
    rows = [
        (change.key, *(short_setting(change.key, without_folders(value)) for value in change.values))
        for change in changes
    ]
    return word_table("Settings that differ", headings, rows)


def recipe_code(resolved: Mapping[str, Any], title: str) -> Code:
    """Return a resolved recipe as TOML, folded."""
    return Code(to_toml(without_folders(resolved)), "toml", f"{title}, every default written in")


def recipe_section(run: ReportedRun, how: Reproduction) -> Section:
    """Return the recipe: what it is, what was changed, and all of it."""
    result, resolved, paper = run.result, run.resolved, run.result.paper
    facts = {
        "recipe": result.recipe,
        "description": str((resolved or {}).get("description", "")),
        "answers": f"{paper.row} of {paper.key}, table {paper.table}" if paper else "",
        "recipe's hash": result.recipe_hash,
        "model": result.model,
        "language": result.language,
        "seed": str(result.seed),
        "seeds of the same recipe": seed_list(list(run.seeds)) if len(run.seeds) > 1 else "",
        "steps": f"{result.steps:,}",
        "state kept": f"step {result.selected_step} of {result.steps}, by {result.select}"
        if result.selected_step
        else "",
        "run": result.run_id or "",
    }
    parts: list[Part] = [Facts(facts)]
    if how.changes:
        parts.append(
            Words("What ran is not the recipe as its file stands today: it changed since, or the run had --set.")
        )
        parts.append(changes_table(how.changes, ("the file today", "this run")))
    elif how.changes is not None:
        parts.append(Words("This is the recipe as its file stands today."))
    missing = Words("The recipe as it ran was not recorded, or cannot be read.")
    parts.append(recipe_code(resolved, "The recipe as it ran") if resolved else missing)
    return Section("What was run", tuple(parts))


_UNCOMMITTED = "The commit is the one that the recipe's repository was at; what was not committed is not in it."


def rerun_section(run: ReportedRun, one: Reproduction, every: Reproduction) -> Section:
    """Return the commands.

    Args:
        run: The run.
        one: How to run it alone.
        every: How to run all its seeds.
    """
    commit = run.result.versions.git or ""
    prefix = "".join(f"{name}={quote(value)} " for name, value in _settings(run.environment).items())
    commands = [one.command, *([every.command] if len(run.seeds) > 1 else [])]
    parts: list[Part] = [_commands(commit, [f"{prefix}{command}" for command in commands])]
    if one.before:
        parts.append(Words(f"{one.before[0].upper()}{one.before[1:]}."))
    noted = run.environment.get("settings") or {}
    if folders := [name for name in ("CSE_DATA", "CSE_MODELS") if noted.get(name)]:
        parts.append(Words(f"{' and '.join(folders)} named the folders of data sets and models."))
    if commit:
        parts.append(Words(_UNCOMMITTED))
    return Section("Run it again", tuple(parts))


def study_rerun_section(results: Sequence[Result], name: str) -> Section:
    """Return the command that runs a study again."""
    commits = {result.versions.git or "" for result in results} - {""}
    parts: list[Part] = [_commands(next(iter(commits)) if len(commits) == 1 else "", [f"cse run {name}"])]
    parts.append(Words("Finished cells are not run again in the same state directory."))
    if commits:
        parts.append(Words(_UNCOMMITTED))
    return Section("Run it again", tuple(parts))


def _commands(commit: str, commands: Sequence[str]) -> Code:
    return Code("\n".join([*([f"git checkout {commit}"] if commit else []), *commands]), "console")


def environment_section(results: Sequence[Result], noted: Mapping[str, Any]) -> Section:
    """Return device, versions, commit and time.

    Args:
        results: Of several runs, what they do not have in common is listed.
        noted: What one run noted of machine and packages; empty where that cannot be read.
    """
    if not results:
        return Section("Environment", ())
    versions = [result.versions for result in results]
    rates = [result.sentences_per_second for result in results if result.sentences_per_second]
    seconds = [result.seconds for result in results]
    first, last = (date_and_time(end(result.finished for result in results)) for end in (min, max))
    mean = sum(seconds) / len(seconds)
    cpus, memory = noted.get("cpus"), noted.get("memory_gb")
    machine = (noted.get("platform"), cpus and counted(int(cpus), "CPU core"), memory and f"{memory} GB memory")
    facts = {
        "device": distinct(result.device for result in results),
        "CUDA devices": distinct(noted.get("cuda", ())),
        "precision": distinct(result.precision for result in results),
        "machine": ", ".join(str(part) for part in machine if part),
        "commit of the recipe": distinct(
            re.sub(r"\+$", " with uncommitted changes", one.git or "") for one in versions
        ),
        "cse": distinct(one.cse for one in versions),
        "Python": distinct(one.python for one in versions),
        "torch": distinct(one.torch for one in versions),
        "transformers": distinct(one.transformers for one in versions),
        "settings": ", ".join(f"{name}={value}" for name, value in _settings(noted).items()),
        "finished": first if first == last else f"{first} to {last}",
        "training time": duration(mean)
        if len(seconds) == 1
        else f"{duration(mean)} a run, {duration(sum(seconds))} for {counted(len(seconds), 'run')}",
        "throughput": f"{sum(rates) / len(rates):,.0f} sentences a second while training" if rates else "",
    }
    packages = noted.get("packages") or ()
    folded = Code("\n".join(packages), "text", f"{counted(len(packages), 'installed package')}")
    return Section("Environment", (Facts(facts), folded) if packages else (Facts(facts),))


def _settings(noted: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables that change what a run does; those that name a folder are left out."""
    found: Mapping[str, str] = noted.get("settings") or {}
    return {name: value for name, value in found.items() if value and not _ADDRESS.search(value)}


def data_section(results: Sequence[Result]) -> Section:
    """Return the fingerprint of every data set; with a note if runs read other data under one name."""
    known = dict.fromkeys(name for result in results for name in result.fingerprints)
    rows = [(name, distinct(r.fingerprints.get(name, "")[:DIGEST] for r in results)) for name in known]
    if not rows:
        return Section("Data", ())
    parts: list[Part] = [word_table("Fingerprints of the data", ("fingerprint",), rows)]
    parts.append(Words("Equal fingerprints mean the same sentences, pairs and scores, in the same order."))
    if any(_contradict(result.fingerprints.get(name, "") for result in results) for name in known):
        parts.append(Words("Several fingerprints in one line: the runs did not all read the same data."))
    return Section("Data", tuple(parts))


def _contradict(digests: Iterable[str]) -> bool:
    """Return whether data differ: digests of files, which earlier versions recorded, say nothing of those of rows."""
    kinds = Counter(digest.startswith(ROWS) for digest in set(digests) - {""})
    return any(several > 1 for several in kinds.values())
