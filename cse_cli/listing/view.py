"""Output of `cse list`: an overview, or a table for each kind."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.filesize import decimal
from rich.text import Text

from cse_cli.core.console import Console, stdout_console
from cse_cli.core.tables import as_rich, plain_table
from cse_cli.data.requirements import Availability
from cse_cli.listing.inventory import Listing
from cse_cli.recipe.files import shipped_name

WIDE = 110
"""Width of a terminal that has space for the checks of recipes."""

SMALL = 10_000_000
"""Size in bytes below which a data set is only mentioned if nothing else is missing."""


def print_overview(found: Listing) -> None:
    """Print the names of the small recipes, your recipes and all components, and the number of the others."""
    recipes, studies = found.recipes or [], found.studies or []
    with stdout_console() as console:
        console.print(Text(f"recipes ({len(recipes)}). Small ones, and yours:", "bold"))
        folders: dict[str, list[str]] = {}
        for line in recipes:
            folder, _, name = line.name.rpartition("/")
            if folder or shipped_name(line.path) is None:
                folders.setdefault(folder, []).append(name)
        for folder, names in sorted(folders.items()):
            console.print(Text(f"{folder and f'{folder}/: '}{', '.join(names)}"))
        console.print(
            Text(
                "first run: cse run quickstart. All recipes: cse list recipes. What they need: cse list recipes --all",
                "dim",
            )
        )
        console.print(Text(f"\nstudies ({len(studies)}): the cells of papers' tables", "bold"))
        console.print(Text("all studies: cse list studies", "dim"))
        console.print(Text(f"\ncomponents ({sum(map(len, found.components.values()))})", "bold"))
        rows = [(kind, ", ".join(line["name"] for line in lines)) for kind, lines in found.components.items()]
        console.print(as_rich(plain_table(("kind", "names"), rows, align="lp")))
        console.print(Text("summaries: cse list KIND. Details: cse show NAME. Data sets: cse data list.", "dim"))


def print_listing(found: Listing, *, in_full: bool) -> None:
    """Print a table for each kind. `in_full` adds papers' rows and tables, needs, checks, and sizes of studies."""
    with stdout_console() as console:
        for kind, lines in found.components.items():
            names = [(line["name"], line["summary"], line["distribution"]) for line in lines]
            shown = 3 if any(origin != "cse" for *_, origin in names) else 2
            _print_table(console, f"{kind} ({len(names)})", ("name", "summary", "from")[:shown], "lpl", names)
        if (recipes := found.recipes) is not None:
            texts = [(line.name, line.title, line.paper or "", needs(line.lacks), line.checks) for line in recipes]
            columns = ("name", "title", "paper's row", "needs", "checks")
            shown = 2 if not in_full else 5 if console.width >= WIDE else 4
            _print_table(console, f"recipes ({len(texts)}): cse run NAME", columns[:shown], "lpppp", texts)
        if (studies := found.studies) is not None:
            rows = [(one["name"], one["title"], *(_size_of_study(one) if in_full else ())) for one in studies]
            columns = ("name", "title", "paper's table", "rows", "seeds")[: 5 if in_full else 2]
            _print_table(console, f"studies ({len(rows)}): cse run NAME", columns, "lpprr", rows)


def _size_of_study(study: Mapping[str, Any]) -> tuple[str, str, str]:
    return study["paper"] or "", str(study["rows"]), str(len(study["seeds"]))


def _print_table(
    console: Console, heading: str, columns: Sequence[str], align: str, rows: Sequence[Sequence[str]]
) -> None:
    """Print a table with a heading. The rows and `align` may have more columns, which are not shown."""
    count = len(columns)
    console.print(Text(heading, "bold"))
    console.print(as_rich(plain_table(columns, [row[:count] for row in rows], align=align[:count])))
    console.print()


def needs(lacks: Sequence[Availability]) -> str:
    """Return a short list of missing requirements: files and large downloads, else the size of all downloads."""
    texts: list[str] = []
    sizes: dict[tuple[str, str], int] = {}
    for one in lacks:
        name = one.requirement.name
        if one.state == "missing":
            reasons = {"file": "your file", "package": "not installed"}
            texts.append(f"{name} ({reasons.get(one.requirement.kind, 'no download')})")
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


def warn_of_plugins(broken: Mapping[str, str]) -> None:
    """Print a warning for each plug-in that cannot be imported."""
    for plugin, why in broken.items():
        sys.stderr.write(f"warning: plug-in {plugin} cannot be imported: {why}\n")
