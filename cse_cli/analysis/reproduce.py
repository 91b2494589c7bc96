"""What was run, and how to run it again.

How what ran differs from its recipe's file, and the command that runs it again.

Where runs computed, with what, and on which data.
"""

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

from cse_cli.analysis.compare import Change, changes
from cse_cli.analysis.pages import Code, Facts, Part, Section, Words, plain_table
from cse_cli.analysis.runs import Subject
from cse_cli.core.formatting import alike, counted, day, duration, seed_list, setting, to_toml
from cse_cli.core.results import Result
from cse_cli.recipe.load import load
from registry.catalogue.pairs import ROWS
from registry.errors import CseError, UnknownNameError


def about(subject: Subject, how: Again) -> Section:
    """Return the recipe: what it is, what was changed, and all of it."""
    result, resolved = subject.result, subject.resolved or {}
    chosen = f"step {result.selected_step} of {result.steps}, by {result.select}" if result.selected_step else ""
    paper = result.paper
    pairs = {
        "recipe": result.recipe,
        "description": str(resolved.get("description", "")),
        "answers": f"{paper.row} of {paper.key}, table {paper.table}" if paper else "",
        "recipe's hash": result.recipe_hash,
        "model": result.model,
        "language": result.language,
        "seed": str(result.seed),
        "seeds of the same recipe": seed_list(list(subject.sisters)) if len(subject.sisters) > 1 else "",
        "steps": f"{result.steps:,}",
        "state kept": chosen,
        "run": result.run_id or "",
    }
    parts: list[Part] = [Facts(tuple((name, value) for name, value in pairs.items() if value)), *_changes(how)]
    if resolved:
        text = to_toml(without_folders(resolved))
        parts.append(Code(text, "toml", "The recipe as it ran, every default written in"))
    else:
        parts.append(Words("The recipe as it ran was not recorded, or cannot be read."))
    return Section("What was run", tuple(parts))


def _changes(how: Again) -> tuple[Part, ...]:
    if how.differs is None:
        return ()
    if not how.differs:
        return (Words("This is the recipe as its file stands today."),)
    words = Words("What ran is not the recipe as its file stands today: it changed since, or the run had --set.")
    return words, changed(how.differs, ("the file today", "this run"))


def changed(differs: tuple[Change, ...], headings: tuple[str, ...]) -> Part:
    """Return the settings that are not the same, a line each."""
    rows = [(change.key, *(setting(without_folders(value)) for value in change.values)) for change in differs]
    return plain_table("Settings that differ", headings, rows)


def again(subject: Subject, one: Again, every: Again) -> Section:
    """Return the commands.

    Args:
        subject: The run.
        one: It alone.
        every: All its seeds.
    """
    result, lines = subject.result, []
    prefix = "".join(f"{name}={quote(value)} " for name, value in settings(subject.environment).items())
    if commit := (result.versions.git or "").removesuffix("+"):
        lines.append(f"git checkout {commit}")
    lines.append(f"{prefix}{one.command}")
    if len(subject.sisters) > 1:
        lines.append(f"{prefix}{every.command}")
    parts: list[Part] = [Code("\n".join(lines), "console")]
    parts += [Words(f"{one.told[0].upper()}{one.told[1:]}.")] if one.told else []
    if named := places(subject.environment):
        parts.append(Words(f"{' and '.join(named)} named the folders of data sets and models."))
    if (result.versions.git or "").endswith("+"):
        parts.append(
            Words("Something in the repository was not committed when it ran: the commit alone may not be it.")
        )
    return Section("Run it again", tuple(parts))


SAVED = "recipe.toml"
"""Where a reader is told to save a recipe that no file describes."""


@dataclass(frozen=True)
class Again:
    """How to run something again.

    Args:
        differs: How it differs from the recipe's file today; None where that is not known.
        command: Does exactly this experiment.
        told: What has to be done before, and why.
    """

    differs: tuple[Change, ...] | None
    command: str
    told: str = ""


def reproduce(result: Result, resolved: Mapping[str, Any] | None, seeds: Sequence[int]) -> Again:
    """Return how to run a recipe with these seeds again; every command is tried out as far as its recipe's hash."""
    chosen = ["--seed", str(seeds[0])] if len(seeds) == 1 else ["--seeds", ",".join(map(str, seeds))]
    try:
        today = load(result.recipe).recipe
    except CseError as error:
        why = (
            "no recipe of this name is found"
            if isinstance(error, UnknownNameError)
            else "the recipe's file has mistakes"
        )
        return Again(None, _command([SAVED, *chosen]), f"{why}: save the recipe above as {SAVED}")
    if today.hash() == result.recipe_hash:
        return Again((), _command([result.recipe, *chosen]))
    if resolved is None:
        return Again(
            None, _command([result.recipe, *chosen]), "the recipe's file has changed, and what ran is not known"
        )
    found = tuple(changes([today.resolved(), resolved]))
    sets = [f"{change.key}={_toml(change.values[1])}" for change in found if change.values[1] is not None]
    unset = [change.key for change in found if change.values[1] is None]
    # A search's range over what is not there any more is a mistake, so it goes too.
    unset += [f"tune.{name}" for name in today.tune if name not in resolved.get("tune", {})]
    if _hash(result.recipe, sets, unset) == result.recipe_hash:
        options = [word for text in sets for word in ("--set", text)] + [w for key in unset for w in ("--unset", key)]
        return Again(found, _command([result.recipe, *options, *chosen]))
    return Again(
        found,
        _command([SAVED, *chosen]),
        f"no settings lead from the recipe's file to it: save the recipe above as {SAVED}",
    )


def without_folders(value: Any) -> Any:
    """Return a recipe with the names of files alone: where they lay says nothing to others."""
    if isinstance(value, Mapping):
        return {key: without_folders(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _command(words: Sequence[str]) -> str:
    return shlex.join(["cse", "run", *words])


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


DIGEST = 16
"""Characters of a fingerprint that are shown; result.json has all."""
_PLACE = re.compile(r"[/\\]|://")
"""In what names a folder or a server: that is nobody else's business."""


def environment(results: Sequence[Result], noted: Mapping[str, Any]) -> Section:
    """Return device, versions, commit and time.

    Args:
        results: Of several runs, what they do not have in common is listed.
        noted: What one run noted of its surroundings; empty where that cannot be read.
    """
    versions = [result.versions for result in results]
    rates = [result.sentences_per_second for result in results if result.sentences_per_second]
    pairs = {
        "device": alike(result.device for result in results),
        "CUDA devices": alike(noted.get("cuda", ())),
        "precision": alike(result.precision for result in results),
        "machine": _machine(noted),
        "commit of the recipe": alike(map(_commit, versions)),
        "cse": alike(one.cse for one in versions),
        "Python": alike(one.python for one in versions),
        "torch": alike(one.torch for one in versions),
        "transformers": alike(one.transformers for one in versions),
        "settings": ", ".join(f"{name}={value}" for name, value in settings(noted).items()),
        "finished": _when(results),
        "training time": _time(results),
        "throughput": f"{sum(rates) / len(rates):,.0f} sentences a second while training" if rates else "",
    }
    facts = Facts(tuple((name, value) for name, value in pairs.items() if value))
    packages = noted.get("packages") or ()
    folded = Code("\n".join(packages), "text", f"{counted(len(packages), 'installed package')}")
    return Section("Environment", (facts, folded) if packages else (facts,))


def settings(noted: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables that change what a run does; those that name a place are left out."""
    found: Mapping[str, str] = noted.get("settings") or {}
    return {name: value for name, value in found.items() if value and not _PLACE.search(value)}


def places(noted: Mapping[str, Any]) -> list[str]:
    """Return the variables that name where data and models lie."""
    found: Mapping[str, str] = noted.get("settings") or {}
    return [name for name in ("CSE_DATA", "CSE_MODELS") if found.get(name)]


def data(results: Sequence[Result]) -> Section:
    """Return the fingerprint of every data set; runs that read other data under one name are told."""
    known = dict.fromkeys(name for result in results for name in result.fingerprints)
    rows = [(name, alike(r.fingerprints.get(name, "")[:DIGEST] for r in results)) for name in known]
    if not rows:
        return Section("Data", ())
    parts: list[Part] = [plain_table("Fingerprints of the data", ("fingerprint",), rows)]
    parts.append(Words("Equal fingerprints mean the same sentences, pairs and scores, in the same order."))
    if any(_contradict(result.fingerprints.get(name, "") for result in results) for name in known):
        parts.append(Words("Several fingerprints in one line: the runs did not all read the same data."))
    return Section("Data", tuple(parts))


def _contradict(digests: Iterable[str]) -> bool:
    """Tell whether data differ: digests of files, which earlier versions recorded, say nothing of those of rows."""
    kinds = Counter(digest.startswith(ROWS) for digest in set(digests) - {""})
    return any(several > 1 for several in kinds.values())


def _machine(noted: Mapping[str, Any]) -> str:
    parts = [str(noted.get("platform") or "")]
    if cpus := noted.get("cpus"):
        parts.append(counted(int(cpus), "CPU core"))
    if memory := noted.get("memory_gb"):
        parts.append(f"{memory} GB memory")
    return ", ".join(part for part in parts if part)


def _commit(versions: Any) -> str:
    commit = versions.git or ""
    return f"{commit[:-1]} with uncommitted changes" if commit.endswith("+") else commit


def _when(results: Sequence[Result]) -> str:
    first, last = (end(result.finished for result in results) for end in (min, max))
    return day(first) if first == last else f"{day(first)} to {day(last)}"


def _time(results: Sequence[Result]) -> str:
    seconds = [result.seconds for result in results]
    if len(seconds) == 1:
        return duration(seconds[0])
    return f"{duration(sum(seconds) / len(seconds))} a run, {duration(sum(seconds))} for {counted(len(seconds), 'run')}"
