"""Output of `cse list`: an overview, or a table for each kind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

from rich.filesize import decimal
from rich.text import Text

from cse_cli.core.console import stdout_console
from cse_cli.core.tables import as_rich, plain_table
from cse_cli.listing.inventory import RECIPES, STUDIES, Line
from cse_cli.recipe.files import shipped_name

WIDE = 110
"""Width of a terminal that has space for the checks of recipes."""

SMALL = 10_000_000
"""Size in bytes below which a data set is only mentioned if nothing else is missing."""
Column = tuple[str, str, Callable[[Line], str]]
"""Heading, alignment, and text of a line."""
COLUMNS: dict[str, list[Column]] = {
    RECIPES: [
        ("paper's row", "p", lambda line: line["paper"] or ""),
        ("needs", "p", lambda line: needs(line["needs"])),
        ("checks", "p", itemgetter("checks")),
    ],
    STUDIES: [
        ("paper's table", "p", lambda line: line["paper"] or ""),
        ("rows", "r", lambda line: str(line["rows"])),
        ("seeds", "r", lambda line: str(len(line["seeds"]))),
    ],
}
"""Columns of recipes and studies that are listed in full."""


def print_overview(found: Mapping[str, Sequence[Line]]) -> None:
    """Print the names of the small recipes, your recipes and all components, and the number of the others."""
    components = {kind: lines for kind, lines in found.items() if kind not in (RECIPES, STUDIES)}
    folders: dict[str, list[str]] = {}
    for line in found[RECIPES]:
        folder, _, name = line["name"].rpartition("/")
        if folder or shipped_name(Path(line["path"])) is None:
            folders.setdefault(folder, []).append(name)
    hint = "first run: cse run quickstart. All recipes: cse list recipes. What they need: cse list recipes --all"
    with stdout_console() as console:
        console.print(Text(f"recipes ({len(found[RECIPES])}). Small ones, and yours:", "bold"))
        for folder, names in sorted(folders.items()):
            console.print(Text(f"{folder and f'{folder}/: '}{', '.join(names)}"))
        console.print(Text(hint, "dim"))
        console.print(Text(f"\nstudies ({len(found[STUDIES])}): the cells of papers' tables", "bold"))
        console.print(Text("all studies: cse list studies", "dim"))
        console.print(Text(f"\ncomponents ({sum(map(len, components.values()))})", "bold"))
        rows = [(kind, ", ".join(line["name"] for line in lines)) for kind, lines in components.items()]
        console.print(as_rich(plain_table(("kind", "names"), rows, align="lp")))
        console.print(Text("summaries: cse list KIND. Details: cse show NAME. Data sets: cse data list.", "dim"))


def print_listing(found: Mapping[str, Sequence[Line]], *, in_full: bool) -> None:
    """Print a table for each kind. `in_full` adds papers' rows and tables, needs, checks, and sizes of studies."""
    with stdout_console() as console:
        for kind, lines in found.items():
            columns: list[Column] = [("name", "l", itemgetter("name"))]
            if kind in COLUMNS:
                columns += [("title", "p", itemgetter("title")), *(COLUMNS[kind] if in_full else ())]
                if console.width < WIDE:  # no space for the checks of recipes
                    columns = [column for column in columns if column[0] != "checks"]
            else:
                columns.append(("summary", "p", itemgetter("summary")))
                if any(line["distribution"] != "cse" for line in lines):
                    columns.append(("from", "l", itemgetter("distribution")))
            headings, align, texts = zip(*columns, strict=True)
            rows = [[text(line) for text in texts] for line in lines]
            console.print(Text(f"{kind} ({len(lines)}){': cse run NAME' if kind in COLUMNS else ''}", "bold"))
            console.print(as_rich(plain_table(headings, rows, align="".join(align))))
            console.print()


def needs(lacks: Sequence[Line]) -> str:
    """Return a short list of missing requirements: files and large downloads, else the size of all downloads."""
    texts: list[str] = []
    sizes: dict[tuple[str, str], int] = {}
    for one in lacks:
        kind, name = one["kind"], one["name"]
        if one["state"] == "missing":
            reasons = {"file": "your file", "package": "not installed"}
            texts.append(f"{name} ({reasons.get(kind, 'no download')})")
        else:
            sizes[kind, name] = sizes.get((kind, name), 0) + (one["bytes"] or 0)
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


def warn_of_plugins(broken: Mapping[str, str]) -> None:
    """Print a warning for each plug-in that cannot be imported."""
    for plugin, why in broken.items():
        sys.stderr.write(f"warning: plug-in {plugin} cannot be imported: {why}\n")
