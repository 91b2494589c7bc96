"""Parts of a report for running an experiment again: checked command, settings, environment and data."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import tomlkit
from pydantic import BaseModel

from cse_cli.analysis.experiments import Change, recipe_changes
from cse_cli.core.formatting import counted, date_and_time, distinct, duration, to_toml
from cse_cli.core.results import Result
from cse_cli.core.tables import Table, plain_table
from cse_cli.recipe.files import bare_name
from cse_cli.recipe.keys import setting_text
from cse_cli.recipe.load import load
from cse_cli.recipe.schema import LossPart, View
from registry import REGISTRIES
from registry.errors import CseError, UnknownNameError
from registry.paths import is_file

SAVED = "recipe.toml"
"""Name of the file in which a reader saves the resolved recipe."""
DIGEST = 16
"""Number of characters of a fingerprint in a report. `result.json` contains all of them."""
_ADDRESS = re.compile(r"[/\\]|://")
"""Pattern of values that contain a directory or a server. A report omits them because they are private."""
DEFAULTS = "default"
_TABLES: dict[str, type[BaseModel]] = {"views": View, "losses": LossPart}
"""Sections whose tables have keys of the recipe in addition to those of the component."""


@dataclass(frozen=True)
class Rerun:
    """Command that runs an experiment again.

    Args:
        changes: Differences from the recipe's current file, or None if they are unknown.
        command: Command for exactly this experiment.
        obstacle: Reason why the resolved recipe must be saved first, or why the command may differ. Empty if neither.
    """

    changes: tuple[Change, ...] | None
    command: str
    obstacle: str = ""


def rerun(result: Result, resolved: Mapping[str, Any] | None, seeds: Sequence[int]) -> Rerun:
    """Return the command that runs a recipe with these seeds again, and only if its recipe has the hash of the run."""

    def command(*words: str) -> str:
        seed_options = ["--seed", str(seeds[0])] if len(seeds) == 1 else ["--seeds", ",".join(map(str, seeds))]
        return shlex.join(["cse", "run", *words, *seed_options])

    def from_saved(reason: str) -> str:
        return f"{reason}, so save the recipe above as {SAVED} first"

    def toml(value: Any) -> str:
        array = tomlkit.array()
        array.append(value)
        return array.as_string()[1:-1]

    source = Path(result.source)
    here = is_file(source)
    file = result.source if here else result.recipe
    name = (bare_name(source) or source.name) if here else result.recipe  # without directories
    try:
        today = load(file).recipe
    except CseError as error:
        reason = "No recipe has this name" if isinstance(error, UnknownNameError) else "The recipe's file is not valid"
        return Rerun(None, command(SAVED), from_saved(reason))
    if today.hash() == result.recipe_hash:
        return Rerun((), command(name))
    if resolved is None:
        return Rerun(None, command(name), "The recipe's file has changed, and the recipe of the run is unknown")
    found = tuple(recipe_changes([today.resolved(), resolved]))
    sets = [f"{change.key}={toml(change.values[1])}" for change in found if change.values[1] is not None]
    unset = [change.key for change in found if change.values[1] is None]
    # A search range of a setting that no longer exists is an error.
    unset += [f"tune.{name}" for name in today.tune if name not in resolved.get("tune", {})]
    with suppress(CseError):
        if load(file, sets, unset).recipe.hash() == result.recipe_hash:
            options = [*(("--set", text) for text in sets), *(("--unset", key) for key in unset)]
            return Rerun(found, command(name, *(word for option in options for word in option)))
    return Rerun(found, command(SAVED), from_saved("No settings turn the recipe's file into this recipe"))


def without_directories(value: Any) -> Any:
    """Return a recipe with file names instead of absolute paths, which are private."""
    if isinstance(value, Mapping):
        return {key: without_directories(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_directories(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def changes_table(changes: Sequence[Change], headings: Sequence[str]) -> Table:
    """Return the settings that differ, one row for each."""
    rows = [
        (change.key, *(short_setting(change.key, without_directories(value)) for value in change.values))
        for change in changes
    ]
    return plain_table(["", *headings], rows)


def short_setting(key: str, value: Any) -> str:
    """Return a value of a resolved recipe as short text: of components, the parameters that are not the default."""
    if isinstance(value, list | tuple) and value and all(isinstance(one, Mapping) for one in value):
        return ", ".join(short_setting(key, one) for one in value)
    if not isinstance(value, Mapping):
        return setting_text(value)
    name = str(value.get("name", ""))
    defaults = _defaults(key, name)
    others = {inner: of for inner, of in value.items() if inner != "name" and _plain(of) != defaults.get(inner, inner)}
    shown = {inner: short_setting(f"{key}.{inner}", of) for inner, of in others.items()}
    texts = [f"{inner} = {text}" for inner, text in shown.items() if text != DEFAULTS]
    if not texts:
        return name or DEFAULTS
    return f"{name} ({', '.join(texts)})" if name else f"({', '.join(texts)})"


def _defaults(key: str, name: str) -> dict[str, Any]:
    """Return key → default of the table at a path."""
    parts = key.split(".")
    models = [_TABLES[parts[0]]] if len(parts) == 2 and parts[0] in _TABLES else []
    kinds = [registry for part in reversed(parts) for registry in REGISTRIES if registry.kind.startswith(part)]
    models += [kinds[0][name].parameters] if kinds and name in kinds[0] else []
    fields = {inner: field for model in models for inner, field in model.model_fields.items()}
    return {inner: _plain(of.get_default(call_default_factory=True)) for inner, of in fields.items()}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def recipe_text(resolved: Mapping[str, Any]) -> str:
    """Return a resolved recipe as TOML without private paths."""
    return to_toml(without_directories(resolved))


def commands(results: Sequence[Result], commands: Iterable[str]) -> str:
    """Return commands for the console, after the checkout of the commit that all results have in common."""
    commits = {result.versions.git for result in results if result.versions.git}
    checkout = [f"git checkout {commit}" for commit in commits] if len(commits) == 1 else []
    return "\n".join([*checkout, *commands])


def environment_settings(noted: Mapping[str, Any]) -> dict[str, str]:
    """Return the recorded environment variables without those that contain a directory."""
    found: Mapping[str, str] = noted.get("settings") or {}
    return {name: value for name, value in found.items() if value and not _ADDRESS.search(value)}


def environment_facts(results: Sequence[Result], noted: Mapping[str, Any]) -> dict[str, str]:
    """Return device, versions, commit and time of runs, and the machine that one of them recorded.

    Values that differ between the runs are listed.
    """
    versions = [result.versions for result in results]
    rates = [result.sentences_per_second for result in results if result.sentences_per_second]
    seconds = [result.seconds for result in results]
    times = duration(fmean(seconds))
    if len(seconds) > 1:
        times = f"{times} per run, {duration(sum(seconds))} for {counted(len(seconds), 'run')}"
    first, last = (date_and_time(end(result.finished for result in results)) for end in (min, max))
    cpus, memory = noted.get("cpus"), noted.get("memory_gb")
    machine = [noted.get("platform"), cpus and counted(int(cpus), "CPU core"), memory and f"{memory} GB memory"]
    return {
        "device": distinct(result.device for result in results),
        "CUDA devices": distinct(noted.get("cuda", ())),
        "precision": distinct(result.precision for result in results),
        "machine": ", ".join(str(part) for part in machine if part),
        "commit of the recipe": distinct((one.git or "").replace("+", " with uncommitted changes") for one in versions),
        "cse": distinct(one.cse for one in versions),
        "Python": distinct(one.python for one in versions),
        "torch": distinct(one.torch for one in versions),
        "transformers": distinct(one.transformers for one in versions),
        "settings": ", ".join(f"{name}={value}" for name, value in environment_settings(noted).items()),
        "finished": first if first == last else f"{first} to {last}",
        "training time": times,
        "throughput": f"{fmean(rates):,.0f} training sentences per second" if rates else "",
    }


def fingerprints(results: Sequence[Result]) -> dict[str, str]:
    """Return data set → its fingerprints in these runs. Several mean that the runs did not read the same data."""
    names = dict.fromkeys(name for result in results for name in result.fingerprints)
    return {name: distinct(result.fingerprints.get(name, "")[:DIGEST] for result in results) for name in names}
