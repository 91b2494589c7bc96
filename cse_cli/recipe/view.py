"""Components, recipes and their checks, as tables on a terminal and plain lines elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

SCHEMA_VERSION = 1
_HEADINGS = {
    "augmenters": ("name", "acts on", "summary"),
    "recipes": ("name", "title", "paper's row"),
    "studies": ("name", "title", "paper's table", "rows", "seeds"),
}  # fmt: skip


def write_json(document: Mapping[str, Any]) -> None:
    """Write one JSON document."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **document}, ensure_ascii=False, indent=2, default=str)
    sys.stdout.write(text + "\n")


def print_components(kinds: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Print one table a kind; a column for plug-ins only where there are some."""
    console = _console()
    for kind, lines in kinds.items():
        table = _table(f"{kind} ({len(lines)})")
        headings = _HEADINGS.get(kind, ("name", "summary"))
        from_plugin = any(line["distribution"] != "cse" for line in lines)
        for heading in (*headings, *(["from"] if from_plugin else [])):
            table.add_column(heading, no_wrap=heading != "summary")
        for line in lines:
            middle = [", ".join(line["levels"])] if "levels" in line else []
            end = [line["distribution"]] if from_plugin else []
            table.add_row(*(escape(cell) for cell in (line["name"], *middle, line["summary"], *end)))
        console.print(table)
        console.print()


def print_recipes(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print name, title and paper row of recipes."""
    table = _table(f"recipes ({len(lines)})")
    for heading in _HEADINGS["recipes"]:
        table.add_column(heading, no_wrap=heading == "name")
    for line in lines:
        table.add_row(*(escape(str(line[key] or "")) for key in ("name", "title", "paper")))
    _console().print(table)


def print_studies(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print name, title, table and size of studies."""
    table = _table(f"studies ({len(lines)})")
    for heading in _HEADINGS["studies"]:
        number = heading in ("rows", "seeds")
        table.add_column(heading, no_wrap=heading == "name", justify="right" if number else "left")
    for line in lines:
        shown = (line["name"], line["title"], line["paper"] or "", str(line["rows"]), str(len(line["seeds"])))
        table.add_row(*(escape(cell) for cell in shown))
    _console().print(table)


def print_component(about: Mapping[str, Any]) -> None:
    """Print all of one component."""
    console = _console()
    console.print(f"[bold]{escape(about['name'])}[/bold]  ({about['kind']}, {about['distribution']})")
    console.print(escape(f"{about['file']}:{about['line']}"), style="dim")
    console.print()
    console.print(escape(about["doc"]))
    console.print()
    for line in _facts(about):
        console.print(escape(line))
    if about["parameters"]:
        console.print(_parameters(about["parameters"]))
    else:
        console.print("no parameters")


def _facts(about: Mapping[str, Any]) -> list[str]:
    lines = []
    if "inputs" in about:
        inputs = (
            f"{i['name']}{' (optional)' if i['optional'] else ''} ← {_SOURCES[i['kind']]}" for i in about["inputs"]
        )
        lines.append(f"inputs: {' · '.join(inputs)}")
    if "levels" in about:
        lines.append(f"acts on: {', '.join(about['levels']) or 'nothing'}")
    if "metrics" in about:
        lines.append(f"metrics: {', '.join(about['metrics'])}; shown: {about['metric']}")
    return [*lines, ""] if lines else []


_SOURCES = {"sentences": "a view's sentence vectors", "encoded": "a view", "negatives": "the queue"}


def _parameters(parameters: Sequence[Mapping[str, Any]]) -> Table:
    table = _table(None)
    for heading in ("parameter", "type", "default", "bounds", "tune"):
        table.add_column(heading, no_wrap=heading == "parameter")
    for p in parameters:
        default = "required" if p["required"] else _toml(p["default"])
        table.add_row(*(escape(cell) for cell in (p["name"], p["type"], default, p.get("bounds", ""), _range(p))))
    return table


def _range(parameter: Mapping[str, Any]) -> str:
    if "tune" not in parameter:
        return ""
    tune = parameter["tune"]
    step = f", step {tune['step']:g}" if tune["step"] else ""
    return f"{tune['low']:g} … {tune['high']:g}{', log' if tune['log'] else ''}{step}"


def _toml(value: Any) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def print_checks(checks: Sequence[Mapping[str, Any]]) -> None:
    """Print what is wrong, then how many recipes and studies were checked."""
    for check in checks:
        for problem in check["problems"]:
            sys.stdout.write(f"{problem['text']}\n")
    wrong = sum(not check["valid"] for check in checks)
    studies = sum(check["kind"] == "study" for check in checks)
    recipes = len(checks) - studies
    told = [f"{recipes} recipe{'' if recipes == 1 else 's'}"] if recipes or not studies else []
    told += [f"{studies} {'study' if studies == 1 else 'studies'}"] if studies else []
    sys.stdout.write(f"{' and '.join(told)} checked: {f'{wrong} with problems' if wrong else 'all valid'}\n")


def warn_of_plugins(broken: Mapping[str, str]) -> None:
    """Name, on stderr, plug-ins that could not be imported."""
    for plugin, why in broken.items():
        sys.stderr.write(f"warning: plug-in {plugin} could not be imported: {why}\n")


def _table(title: str | None) -> Table:
    heading = None if title is None else escape(title)
    return Table(
        title=heading, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )


def _console() -> Console:
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = 400
    return console
