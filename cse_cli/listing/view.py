"""Output of `cse list`: an overview, or a table for each kind."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.filesize import decimal
from rich.text import Text

from cse_cli.core.console import Console, stdout_console
from cse_cli.core.tables import as_rich, plain_table
from cse_cli.data.requirements import Availability
from cse_cli.listing.inventory import Listing, RecipeLine

GROUPS = {
    "here": ("recipes ready to run", "cse run NAME", "title"),
    "fetchable": ("recipes that need a download", "cse run NAME", "needs"),
    "missing": ("recipes that need your data", "cse check --data NAME", "needs"),
    "invalid": ("recipes that are not valid", "cse check NAME", "title"),
}
"""State of a recipe → heading of its group, command, and content of the second column."""

WIDE = 110
"""Width of a terminal that has space for the checks of recipes."""

SMALL = 10_000_000
"""Size in bytes below which a data set is only mentioned if nothing else is missing."""


def print_overview(found: Listing) -> None:
    """Print the recipes that are ready to run, the number of others, and the names of all components."""
    recipes, studies = found.recipes or [], found.studies or []
    with stdout_console() as console:
        console.print(Text(f"recipes ({len(recipes)}). Ready to run:", "bold"))
        for folder, names in _by_folder(line.name for line in recipes if line.state == "here"):
            console.print(Text(f"{folder and f'{folder}/: '}{', '.join(names)}"))
        console.print(Text("all recipes and what they need: cse list recipes", "dim"))
        console.print(Text(f"\nstudies ({len(studies)}): the cells of papers' tables", "bold"))
        console.print(Text("all studies: cse list studies", "dim"))
        console.print(Text(f"\ncomponents ({sum(map(len, found.components.values()))})", "bold"))
        rows = [(kind, ", ".join(line["name"] for line in lines)) for kind, lines in found.components.items()]
        console.print(as_rich(plain_table(("kind", "names"), rows, align="lp")))
        console.print(Text("summaries: cse list KIND. Details: cse show NAME. Data sets: cse data list.", "dim"))


def _by_folder(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Return directory → names in it, sorted by directory."""
    found: dict[str, list[str]] = {}
    for folder, _, name in (name.rpartition("/") for name in names):
        found.setdefault(folder, []).append(name)
    return sorted(found.items())


def print_listing(found: Listing, *, in_full: bool) -> None:
    """Print a table for each kind. `in_full` adds titles, papers' rows and tables, checks, and sizes of studies."""
    with stdout_console() as console:
        for kind, lines in found.components.items():
            _print_components(console, kind, lines)
        if found.recipes is not None:
            (_print_recipes_in_full if in_full else _print_recipes)(console, found.recipes)
        if found.studies is not None:
            _print_studies(console, found.studies, in_full)


def _print_components(console: Console, kind: str, lines: Sequence[Mapping[str, Any]]) -> None:
    """Print the components of one kind, with their distribution if one is a plug-in."""
    columns = {"name": "l", **({"acts on": "l"} if kind == "augmenters" else {}), "summary": "p"}
    if any(line["distribution"] != "cse" for line in lines):
        columns["from"] = "l"
    texts = {"name": "name", "summary": "summary", "from": "distribution"}
    rows = [[line[texts[c]] if c in texts else ", ".join(line["levels"]) for c in columns] for line in lines]
    _print_table(console, f"{kind} ({len(rows)})", columns, rows)


def _print_recipes(console: Console, recipes: Sequence[RecipeLine]) -> None:
    """Print the recipes by state."""
    for state, (heading, command, second) in GROUPS.items():
        lines = [line for line in recipes if line.state == state]
        if lines:
            rows = [(line.name, needs(line.lacks) if line.lacks else line.title) for line in lines]
            _print_table(console, f"{heading} ({len(rows)}): {command}", {"name": "l", second: "p"}, rows)


def _print_recipes_in_full(console: Console, recipes: Sequence[RecipeLine]) -> None:
    """Print all columns. A terminal that is not wide has no space for the checks."""
    columns = {"name": "l", "title": "p", "paper's row": "p", "needs": "p"}
    rows = [[line.name, line.title, line.paper or "", needs(line.lacks or ())] for line in recipes]
    if console.width >= WIDE:
        columns |= {"checks": "p"}
        rows = [[*row, line.checks] for row, line in zip(rows, recipes, strict=True)]
    _print_table(console, f"recipes ({len(rows)})", columns, rows)


def _print_studies(console: Console, studies: Sequence[Mapping[str, Any]], in_full: bool) -> None:
    columns = {"name": "l", "title": "p"}
    rows = [[study["name"], study["title"]] for study in studies]
    if in_full:
        columns |= {"paper's table": "p", "rows": "r", "seeds": "r"}
        more = [(study["paper"] or "", str(study["rows"]), str(len(study["seeds"]))) for study in studies]
        rows = [[*row, *cells] for row, cells in zip(rows, more, strict=True)]
    _print_table(console, f"studies ({len(rows)}): cse run NAME", columns, rows)


def needs(lacks: Sequence[Availability]) -> str:
    """Return a short list of missing requirements: files and large downloads, else the size of all downloads."""
    texts: list[str] = []
    sizes: dict[tuple[str, str], int] = {}
    for one in lacks:
        name = one.requirement.name
        if one.state == "missing":
            texts.append(f"{name} ({'your file' if one.requirement.kind == 'file' else 'not published'})")
        else:
            sizes[one.requirement.kind, name] = sizes.get((one.requirement.kind, name), 0) + (one.bytes or 0)
    named = {key: size for key, size in sizes.items() if key[0] == "model" or size >= SMALL}
    texts += [f"{name} ({_size(size)})" if size else name for (_, name), size in named.items()]
    small = {name: size for (kind, name), size in sizes.items() if (kind, name) not in named}
    if small and not texts:
        what = next(iter(small)) if len(small) == 1 else f"{len(small)} small data sets"
        texts.append(f"{what} ({_size(sum(small.values()))})")
    return ", ".join(dict.fromkeys(texts))


def _size(count: int) -> str:
    rounded = 10_000 <= count < 1_000_000 or SMALL <= count < 1_000_000_000
    return decimal(count, precision=0 if rounded else 1)


def _print_table(console: Console, heading: str, columns: Mapping[str, str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with a heading. `columns` contains the alignment of each column."""
    console.print(Text(heading, "bold"))
    console.print(as_rich(plain_table(list(columns), rows, align="".join(columns.values()))))
    console.print()


def warn_of_plugins(broken: Mapping[str, str]) -> None:
    """Print a warning for each plug-in that cannot be imported."""
    for plugin, why in broken.items():
        sys.stderr.write(f"warning: plug-in {plugin} cannot be imported: {why}\n")
