"""Components, recipes and their checks as tables, and problems as lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from cse_cli.core.console import stdout_console
from cse_cli.core.tables import as_rich, plain_table


def print_components(kinds: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Print one table a kind; a column for plug-ins only where there are some."""
    with stdout_console() as console:
        for kind, lines in kinds.items():
            columns = {"name": "l", **({"acts on": "l"} if kind == "augmenters" else {}), "summary": "p"}
            if any(line["distribution"] != "cse" for line in lines):
                columns["from"] = "l"
            texts = {"name": "name", "summary": "summary", "from": "distribution"}
            rows = [[line[texts[c]] if c in texts else ", ".join(line["levels"]) for c in columns] for line in lines]
            _print_table(console, kind, columns, rows)
            console.print()


def print_recipes(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print name, title and paper row of recipes."""
    columns = {"name": "l", "title": "p", "paper's row": "p"}
    with stdout_console() as console:
        _print_table(console, "recipes", columns, [(x["name"], x["title"], x["paper"] or "") for x in lines])


def print_studies(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print name, title, table and size of studies."""
    columns = {"name": "l", "title": "p", "paper's table": "p", "rows": "r", "seeds": "r"}
    rows = [(x["name"], x["title"], x["paper"] or "", str(x["rows"]), str(len(x["seeds"]))) for x in lines]
    with stdout_console() as console:
        _print_table(console, "studies", columns, rows)


def _print_table(console: Console, what: str, columns: Mapping[str, str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below their count; `columns` is heading → alignment."""
    console.print(Text(f"{what} ({len(rows)})", "bold"))
    console.print(as_rich(plain_table(list(columns), rows, align="".join(columns.values()))))


def print_component(about: Mapping[str, Any]) -> None:
    """Print all of one component."""
    with stdout_console() as console:
        console.print(Text.assemble((about["name"], "bold"), f"  ({about['kind']}, {about['distribution']})"))
        console.print(Text(f"{about['file']}:{about['line']}", "dim"))
        console.print(Text(f"\n{about['doc']}\n"))
        for line in _facts(about):
            console.print(Text(line))
        if not about["parameters"]:
            console.print("no parameters")
            return
        headings = ("parameter", "type", "default", "bounds", "tune")
        rows = [
            (p["name"], p["type"], "required" if p["required"] else _toml(p["default"]), p.get("bounds", ""), _range(p))
            for p in about["parameters"]
        ]
        console.print(as_rich(plain_table(headings, rows, align="lpppp")))


_SOURCES = {"sentences": "a view's sentence vectors", "encoded": "a view", "negatives": "the queue"}


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
    counts = [f"{recipes} recipe{'' if recipes == 1 else 's'}"] if recipes or not studies else []
    counts += [f"{studies} {'study' if studies == 1 else 'studies'}"] if studies else []
    sys.stdout.write(f"{' and '.join(counts)} checked: {f'{wrong} with problems' if wrong else 'all valid'}\n")


def warn_of_plugins(broken: Mapping[str, str]) -> None:
    """Name, on stderr, plug-ins that could not be imported."""
    for plugin, why in broken.items():
        sys.stderr.write(f"warning: plug-in {plugin} could not be imported: {why}\n")
