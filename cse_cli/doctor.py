"""`cse doctor`: checks of everything a run depends on, on a screen or as a report to paste into an issue."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table as RichTable
from rich.text import Text

from cse_cli.core.console import stdout_console, write_json
from cse_cli.core.environment import environment, name_clash, without_password
from cse_cli.core.formatting import counted
from cse_cli.core.paths import home, require_home, runs

State = Literal["ok", "note", "problem"]
_MARKS: dict[State, tuple[str, str]] = {"ok": ("✓", "green"), "note": ("–", "dim"), "problem": ("✗", "red")}
_LOW_DISK_GB = 2.0


EPILOG = "Examples:  cse doctor  ·  cse doctor --md > report.md  ·  cse doctor --json > report.json"


@dataclass(frozen=True)
class Check:
    """What was found about one thing.

    Args:
        state: "note" is something missing that only some runs need.
    """

    about: str
    state: State
    says: str


def doctor(
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Make the tracking database whole: from its last copy and the runs' folders."),
    ] = False,
    md: Annotated[bool, typer.Option("--md", help="Markdown, to paste into an issue.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Report versions, devices, store, models and data; exit 1 where something is broken."""
    if clash := name_clash():
        # Nothing below can be imported then, our own errors included.
        typer.echo(f"error: {clash}", err=True)
        raise typer.Exit(1)

    if repair:
        _repair()
        return
    checks = examine()
    if json_:
        write_json({"environment": environment(), "checks": [asdict(check) for check in checks]})
    else:
        (print_markdown if md else print_report)(environment(), checks)
    raise typer.Exit(1 if any(check.state == "problem" for check in checks) else 0)


def _repair() -> None:
    from cse_cli.tracking.repair import repair
    from cse_cli.tracking.store import answering

    require_home()
    with answering():
        for line in repair():
            sys.stdout.write(f"{line}\n")


def examine() -> list[Check]:
    """Run every check; one that raises is a problem and does not end the others."""
    return [found for check in _CHECKS for found in _guarded(check)]


def _guarded(check: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    about = check.__name__.strip("_").replace("_", " ")
    try:
        yield from check()
    except Exception as error:  # the report must reach its end, whatever is broken
        yield Check(about, "problem", f"{type(error).__name__}: {error}")


def _state_directory() -> Iterator[Check]:
    folder = home()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not existing.is_dir():
        yield Check("state directory", "problem", f"{existing} is a file; set CSE_HOME to a folder")
        return
    if not os.access(existing, os.W_OK):
        yield Check("state directory", "problem", f"{folder} cannot be written; set CSE_HOME to another folder")
        return
    free = shutil.disk_usage(existing).free / 2**30
    made = "" if folder.exists() else ", not created yet"
    yield Check("state directory", "ok" if free > _LOW_DISK_GB else "problem", f"{folder}{made}; {free:.1f} GB free")


def _tracking_store() -> Iterator[Check]:
    from cse_cli.tracking import location
    from registry.errors import TrackingError

    address = location.uri()
    shown = without_password(address)
    own = location.database(address) == location.own_database()
    if not location.exists(address):
        if own and (lost := len([*runs().glob("*/run.json")])):
            there = f"the folders of {counted(lost, 'run')} are there"
            says = f"{shown} is gone; {there}; `cse doctor --repair` records them again"
            yield Check("tracking store", "problem", says)
            return
        yield Check("tracking store", "ok", f"{shown}, created by the first run")
        return
    from cse_cli.tracking.reader import list_names
    from cse_cli.tracking.repair import damage, lost_runs
    from cse_cli.tracking.store import open_store
    from cse_cli.tracking.unsent import waiting

    try:
        if own and (wrong := damage(location.own_database())):
            says = f"{shown} is damaged: {wrong}; `cse doctor --repair` makes it again from the folders of its runs"
            yield Check("tracking store", "problem", says)
            return
        recorded = list_names()
    except TrackingError as error:
        yield Check("tracking store", "problem", str(error))
        return
    yield Check("tracking store", "ok", f"{shown}; {len(recorded)} runs")
    if own and (lost := len(lost_runs(open_store()))):
        yield Check(
            "runs not recorded",
            "problem",
            f"the folders of {counted(lost, 'run')} alone are there; `cse doctor --repair`",
        )
    if gone := [run.run_id[:8] for run in recorded if run.status == "GONE"]:
        ids = ", ".join(gone[:5])
        yield Check("gone runs", "note", f"{len(gone)} runs say RUNNING but are gone: {ids}; `cse runs close RUN`")
    if kept := waiting():
        yield Check("records waiting", "note", f"{len(kept)} runs have records not sent yet; `cse runs sync`")


def _threads() -> Iterator[Check]:
    import torch

    from cse_cli.core import devices

    usual, cpus, limit = torch.get_num_threads(), devices.schedulable_cores(), devices.core_quota()
    room = f"{cpus} cores may be used" + ("" if limit is None else f", the time of {limit:g} is given")
    if chosen := devices.thread_setting():
        state: State = "note" if usual > devices.usable_threads() else "ok"
        yield Check("threads", state, f"{usual}, set by {chosen}; {room}")
    else:
        yield Check(
            "threads", "ok", f"{min(usual, devices.usable_threads())}; {room}; OMP_NUM_THREADS sets another number"
        )


def _components() -> Iterator[Check]:
    from registry import REGISTRIES

    counts = ", ".join(f"{len(registry.names())} {registry.kind}" for registry in REGISTRIES)
    yield Check("components", "ok", counts)
    for registry in REGISTRIES:
        for plugin, why in registry.broken.items():
            yield Check(f"plug-in {plugin}", "problem", why)


def _models() -> Iterator[Check]:
    from registry.hub import repositories
    from registry.models import PRETRAINED
    from registry.paths import expand_user

    if configured := os.environ.get("CSE_MODELS"):
        names = _model_names(expand_user(Path(configured)))
        found = f"{configured}: {', '.join(names) or 'no folder with a config.json'}"
        yield Check("CSE_MODELS", "ok" if names else "problem", found)
    else:
        yield Check("CSE_MODELS", "note", "not set")
    shipped = _model_names(PRETRAINED)
    yield Check("shipped models", "ok" if shipped else "problem", ", ".join(shipped) or f"none in {PRETRAINED}")
    yield Check("hub cache", "ok", ", ".join(sorted(repositories())) or "empty")


def _model_names(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("*/config.json"))


def _data_sets() -> Iterator[Check]:
    from registry import catalogue
    from registry.paths import expand_user

    configured = os.environ.get("CSE_DATA")
    if configured is None:
        yield Check("CSE_DATA", "note", "not set")
    else:
        there = expand_user(Path(configured)).is_dir()
        yield Check("CSE_DATA", "ok" if there else "problem", configured if there else f"{configured} is no folder")
    places: dict[str, list[str]] = {}
    for name in catalogue.names():
        splits = catalogue.entry(name).splits
        found = {split: _place(name, split) for split in splits}
        for place in dict.fromkeys(found.values()):
            lying = [split for split in splits if found[split] == place]
            which = [name] if len(lying) == len(splits) else [f"{name}/{split}" for split in lying]
            places.setdefault(place, []).extend(which)
    for place, names in sorted(places.items()):
        yield Check(f"data: {place}", "note" if place == "not on this machine" else "ok", ", ".join(names))


def _place(name: str, split: str) -> str:
    from registry.catalogue.find import find
    from registry.errors import CseError

    try:
        found = find(name, split)
    except CseError as error:
        return f"cannot be looked up ({error.message})"
    return "not on this machine" if found is None else found[0]


def _hub() -> Iterator[Check]:
    from registry.hub import unreachable

    reason = unreachable()
    yield Check("model hub", "ok" if reason is None else "note", reason or "answers")


_CHECKS = (_state_directory, _tracking_store, _threads, _components, _models, _data_sets, _hub)


_VERSIONS = ("cse", "python", "torch", "transformers", "tokenizers", "datasets", "mlflow", "optuna", "numpy")


def print_report(environment: Mapping[str, Any], checks: Sequence[Check]) -> None:
    """Print what was found for a person: a mark and a line or two about each thing, what is wrong at the end."""
    with stdout_console() as out:
        for about, says in _about(environment).items():
            out.print(Text(f"{about}: {says}", "dim"))
        table = RichTable.grid(padding=(0, 2, 0, 0))
        for check in checks:
            mark, style = _MARKS[check.state]
            table.add_row(Text(mark, style), Text(check.about, style), Text(" ".join(check.says.split())))
        out.print(table)
        out.print(Text(_verdict(checks), "bold"))


def print_markdown(environment: Mapping[str, Any], checks: Sequence[Check]) -> None:
    """Print the report as Markdown: its lines stay readable without rendering."""
    lines = [
        "## cse doctor",
        "",
        *(f"- {about}: {says}" for about, says in _about(environment).items()),
        "",
        *(
            f"- {'**problem**' if check.state == 'problem' else check.state}, {check.about}: "
            f"{' '.join(check.says.split())}"
            for check in checks
        ),
        "",
        _verdict(checks),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def _about(environment: Mapping[str, Any]) -> dict[str, str]:
    processors = f"{environment['cpus']} CPUs, {environment['memory_gb']} GB"
    return {
        "versions": ", ".join(f"{name} {environment[name] or None}" for name in _VERSIONS),
        "machine": f"{environment['platform']}, {processors}, CUDA: {'; '.join(environment['cuda']) or 'none'}",
        "working directory's commit": environment["git"] or "none",
        "settings": ", ".join(f"{key}={value}" for key, value in environment["settings"].items()) or "none",
    }


def _verdict(checks: Sequence[Check]) -> str:
    problems = [check.about for check in checks if check.state == "problem"]
    return f"problems: {', '.join(problems)}" if problems else "no problem found"
