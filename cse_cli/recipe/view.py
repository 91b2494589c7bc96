"""Print components, data sets and checks of recipes."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from cse_cli.core.console import Console, stdout_console
from cse_cli.core.tables import as_rich, plain_table
from registry.papers import Badge


def print_component(about: Mapping[str, Any]) -> None:
    """Print the documentation and parameters of a component."""
    with stdout_console() as console:
        console.print(Text.assemble((about["name"], "bold"), f"  ({about['kind']}, {about['distribution']})"))
        console.print(Text(f"{about['file']}:{about['line']}", "dim"))
        console.print(Text(f"\n{about['doc']}\n"))
        for line in _facts(about):
            console.print(Text(line))
        if about["parameters"]:
            _print_parameters(console, about["parameters"])
        else:
            console.print("no parameters")
        if about["toml"]:
            console.print(Text(f"\nin a recipe:\n\n{about['toml']}"), soft_wrap=True)


def _print_parameters(console: Console, parameters: Sequence[Mapping[str, Any]]) -> None:
    headings = ("parameter", "type", "default", "bounds", "tune")
    rows = []
    for p in parameters:
        value = p.get("default")
        default = "–" if value is None else json.dumps(value, ensure_ascii=False, default=str)
        default = "required" if p["required"] else default
        rows.append((p["name"], p["type"], default, p.get("bounds", ""), _range(p)))
    console.print(as_rich(plain_table(headings, rows, align="lpppp"), gap=1))


def print_dataset(about: Mapping[str, Any]) -> None:
    """Print the license, sources and splits of a data set."""
    with stdout_console() as console:
        console.print(Text.assemble((about["name"], "bold"), f"  ({about['kind']}, {about['language']})"))
        console.print(Text(f"\n{about['title']}. {about['note']}".rstrip()))
        console.print(Text(f"\nlicense: {about['license']}\nsource: {about['citation']}"))
        for place in filter(None, (about["url"], *about["sources"])):
            console.print(Text(f"        {place}"))
        rows = [(x["name"], f"{x['rows']:,}", x["where"], ", ".join(x["columns"])) for x in about["splits"]]
        console.print()
        console.print(as_rich(plain_table(("split", "rows", "where", "columns"), rows, align="lrlp")))


_SOURCES = {
    "sentences": "sentence embeddings of a view",
    "pooled": "sentence embeddings of a view, before the heads",
    "encoded": "hidden states of a view",
    "negatives": "the queue",
    "labels": "numbers of the data's column `column`",
}


def _facts(about: Mapping[str, Any]) -> list[str]:
    lines = []
    if "inputs" in about:
        inputs = (
            f"{i['name']}{' (optional)' if i['optional'] else ''} ← {_SOURCES[i['kind']]}"
            f"{', each of several' if i['several'] else ''}"
            for i in about["inputs"]
        )
        lines.append(f"inputs: {' · '.join(inputs)}")
    if "levels" in about:
        lines.append(f"acts on: {', '.join(about['levels']) or 'nothing'}")
    if "metrics" in about:
        lines.append(f"metrics: {', '.join(about['metrics'])}; in tables: {about['metric']}")
    return [*lines, ""] if lines else []


def _range(parameter: Mapping[str, Any]) -> str:
    if "tune" not in parameter:
        return ""
    tune = parameter["tune"]
    step = f", step {tune['step']:g}" if tune["step"] else ""
    return f"{tune['low']:g} … {tune['high']:g}{', log' if tune['log'] else ''}{step}"


def print_badge(badge: Badge) -> None:
    """Print the checks of a recipe on stderr, because stdout is the recipe. Lines have at most 80 columns."""
    lines = badge.lines if badge else ("none. A recipe has no part in the checks of the recipe that it extends",)
    sys.stderr.write(f"checks of {badge.recipe}, explained in docs/fidelity.md:\n")
    for line in lines:
        wrapped = textwrap.wrap(line, 76, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        sys.stderr.writelines(f"  {part}\n" for part in wrapped)


def print_checks(checks: Sequence[Mapping[str, Any]]) -> None:
    """Print all problems, and the number of recipes and studies."""
    for check in checks:
        for problem in check["problems"]:
            sys.stdout.write(f"{problem['text']}\n")
        for warning in check.get("warnings", ()):
            sys.stderr.write(f"warning: {check['path']}: {warning}\n")
    wrong = sum(not check["valid"] for check in checks)
    studies = sum(check["kind"] == "study" for check in checks)
    recipes = len(checks) - studies
    counts = [f"{recipes} recipe{'' if recipes == 1 else 's'}"] if recipes or not studies else []
    counts += [f"{studies} {'study' if studies == 1 else 'studies'}"] if studies else []
    sys.stdout.write(f"{' and '.join(counts)} checked: {f'{wrong} with problems' if wrong else 'all valid'}\n")
