"""`cse doctor`: check everything that a run depends on, and print a report that you can paste into an issue."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table as RichTable
from rich.text import Text

from cse_cli.cli.options import AsJson
from cse_cli.core.console import stdout_console, write_json
from cse_cli.core.environment import differing_versions, environment
from cse_cli.core.formatting import counted
from cse_cli.core.paths import home

State = Literal["ok", "note", "problem"]
_MARKS: dict[State, tuple[str, str]] = {"ok": ("✓", "green"), "note": ("–", "dim"), "problem": ("✗", "red")}
_LOW_DISK_GB = 2.0
_SHOWN = 4
"""Number of packages that the report names."""


EPILOG = "Examples:  cse doctor  ·  cse doctor --md > report.md  ·  cse doctor --json > report.json"


@dataclass(frozen=True)
class Check:
    """Result of one check.

    The state "note" means that something is missing that only some runs need.
    """

    about: str
    state: State
    text: str


def doctor(
    md: Annotated[bool, typer.Option("--md", help="Markdown, to paste into an issue.")] = False,
    json_: AsJson = False,
) -> None:
    """Report versions, devices, runs, models and data. The exit code is 1 if a check fails."""
    checks, about = examine(), environment()
    if json_:
        write_json({"environment": about, "differing": differing_versions(), "checks": [asdict(one) for one in checks]})
    else:
        print_report(about, checks, md=md)
    raise typer.Exit(1 if any(check.state == "problem" for check in checks) else 0)


def examine() -> list[Check]:
    """Run every check. An exception counts as a problem and does not end the other checks."""
    found: list[Check] = []
    for check in _CHECKS:
        try:
            found += check()
        except Exception as error:  # the report must be complete
            about = check.__name__.strip("_").replace("_", " ")
            found.append(Check(about, "problem", f"{type(error).__name__}: {error}"))
    return found


def _state_directory() -> Iterator[Check]:
    folder = home()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not existing.is_dir():
        yield Check("state directory", "problem", f"{existing} is a file: set CSE_HOME to a directory")
        return
    if not os.access(existing, os.W_OK):
        yield Check("state directory", "problem", f"{folder} is not writable: set CSE_HOME to another directory")
        return
    free = shutil.disk_usage(existing).free / 2**30
    made = "" if folder.exists() else ", not created yet"
    yield Check("state directory", "ok" if free > _LOW_DISK_GB else "problem", f"{folder}{made}, {free:.1f} GB free")


def _packages() -> Iterator[Check]:
    differing = differing_versions()
    first = sorted(differing, key=lambda name: (name not in _VERSIONS, name))[:_SHOWN]
    texts = [f"{name} {differing[name]['here']} (figures: {differing[name]['figures']})" for name in first]
    if more := len(differing) - len(first):
        texts.append(f"and {more} more (--json)")
    yield Check("packages", "note" if differing else "ok", ", ".join(texts) or "those of the published figures")


def _runs() -> Iterator[Check]:
    from cse_cli.runs.index import STATES, read_index

    runs, damaged = read_index()
    counts = Counter(run.state for run in runs)
    yield Check("runs", "ok", ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) or "none yet")
    for run_id, why in damaged.items():
        yield Check(f"run {run_id[:8]}", "problem", why)
    for run in runs:
        if run.unreadable:
            yield Check(f"run {run.about.short}", "problem", run.unreadable)
        elif run.damaged:
            yield Check(f"run {run.about.short}", "note", f"{counted(run.damaged, 'damaged line')} in events.jsonl")


def _threads() -> Iterator[Check]:
    import torch

    from cse_cli.core import threads

    usual, cpus, limit = torch.get_num_threads(), threads.schedulable_cores(), threads.core_quota()
    cores = f"{cpus} cores available" + ("" if limit is None else f", CPU quota of {limit:g} cores")
    if chosen := threads.thread_setting():
        state: State = "note" if usual > threads.usable_cores() else "ok"
        yield Check("threads", state, f"{usual}, set by {chosen}, {cores}")
    else:
        number = min(usual, threads.usable_threads())
        yield Check("threads", "ok", f"{number}, {cores}. To change the number, set OMP_NUM_THREADS")
    waiting = [f"{name}={os.environ[name]}" for name in threads.WAITING_VARIABLES if name in os.environ]
    yield Check("waiting of threads", "ok", ", ".join(waiting) or "OpenMP's default")


def _precision() -> Iterator[Check]:
    from cse_cli.core.devices import choose

    compute = choose()
    yield Check("precision", "ok", f"{compute.precision}. {compute.hint}" if compute.hint else compute.precision)


def _components() -> Iterator[Check]:
    from registry import REGISTRIES

    counts = ", ".join(f"{len(registry.names())} {registry.kind}" for registry in REGISTRIES)
    yield Check("components", "ok", counts)
    for registry in REGISTRIES:
        for plugin, why in registry.broken.items():
            yield Check(f"plug-in {plugin}", "problem", why)


def _models() -> Iterator[Check]:
    from registry.paths import expand_user
    from registry.resources.hub import repositories
    from registry.resources.models import PRETRAINED

    if configured := os.environ.get("CSE_MODELS"):
        names = _model_names(expand_user(Path(configured)))
        found = f"{configured}: {', '.join(names) or 'no directory with a config.json'}"
        yield Check("CSE_MODELS", "ok" if names else "problem", found)
    else:
        yield Check("CSE_MODELS", "note", "not set")
    shipped = _model_names(PRETRAINED)
    yield Check("shipped models", "ok" if shipped else "problem", ", ".join(shipped) or f"none in {PRETRAINED}")
    yield Check("hub cache", "ok", ", ".join(sorted(repositories())) or "empty")


def _model_names(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("*/config.json"))


def _data_sets() -> Iterator[Check]:
    from registry.errors import CseError
    from registry.paths import expand_user
    from registry.resources import catalog
    from registry.resources.catalog import find

    if configured := os.environ.get("CSE_DATA"):
        there = expand_user(Path(configured)).is_dir()
        found = configured if there else f"{configured} is not a directory"
        yield Check("CSE_DATA", "ok" if there else "problem", found)
    else:
        yield Check("CSE_DATA", "note", "not set")
    places: dict[str, dict[str, None]] = {}
    for name in catalog.names():
        for split in catalog.entry(name).splits:
            try:
                place = (find(name, split) or ["not on this machine"])[0]
            except CseError as error:
                place = f"unknown ({error.message})"
            places.setdefault(place, {})[name] = None
    for place, names in sorted(places.items()):
        yield Check(f"data: {place}", "note" if place == "not on this machine" else "ok", ", ".join(names))


def _hub() -> Iterator[Check]:
    from registry.resources.hub import unreachable

    reason = unreachable()
    yield Check("Hugging Face Hub", "ok" if reason is None else "note", reason or "reachable")


_CHECKS = (_packages, _state_directory, _runs, _threads, _precision, _components, _models, _data_sets, _hub)
_VERSIONS = ("cse", "python", "torch", "transformers", "tokenizers", "datasets", "mlflow-skinny", "optuna", "numpy")


def print_report(environment: Mapping[str, Any], checks: Sequence[Check], *, md: bool = False) -> None:
    """Print the report for a terminal, with a mark for each check, or as Markdown. The last line names the problems."""
    processors = f"{environment['cpus']} CPUs, {environment['memory_gb']} GB"
    lines = [
        f"versions: {', '.join(f'{name} {environment[name] or None}' for name in _VERSIONS)}",
        f"machine: {environment['platform']}, {processors}, CUDA: {'; '.join(environment['cuda']) or 'none'}",
        f"working directory's commit: {environment['git'] or 'none'}",
        f"settings: {', '.join(f'{key}={value}' for key, value in environment['settings'].items()) or 'none'}",
    ]
    problems = [check.about for check in checks if check.state == "problem"]
    verdict = f"problems: {', '.join(problems)}" if problems else "no problems found"
    if md:
        found = [f"{check.state}, {check.about}: {' '.join(check.text.split())}" for check in checks]
        sys.stdout.write("\n- ".join(["## cse doctor\n", *lines, *found]) + f"\n\n{verdict}\n")
        return
    table = RichTable.grid(padding=(0, 2, 0, 0))
    for check in checks:
        mark, style = _MARKS[check.state]
        table.add_row(Text(mark, style), Text(check.about, style), Text(" ".join(check.text.split())))
    with stdout_console() as out:
        out.print(Text("\n".join(lines), "dim"), table, Text(verdict, "bold"))
