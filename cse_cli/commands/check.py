"""`cse check`: recipes and studies validated without building anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cse_cli.completion import complete_recipe_or_study

EPILOG = (
    "Examples:  cse check  ·  cse check recipes/  ·  cse check my.toml ifcl_en --json  ·  "
    "cse check studies/ifcl_fig4c  ·  cse check --data simcse_en"
)


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check", epilog=EPILOG)(check)


def check(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="Recipes, studies, names or folders; all known if left out.", autocompletion=complete_recipe_or_study
        ),
    ] = None,
    data: Annotated[
        bool, typer.Option("--data", help="List the models, data sets and files they need; exit 3 if one is missing.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Validate recipes, and studies cell by cell: names, types, ranges, references. Needs no model, data or network."""
    from cse_cli.checking import check as check_one
    from cse_cli.checking import recipe_files
    from cse_cli.completion import remember
    from cse_cli.render.registry import print_checks, write_json

    checks = [check_one(path) for path in recipe_files(paths or [])]
    wrong = sum(not one["valid"] for one in checks)
    if data and not wrong:
        raise typer.Exit(_look_for_data(recipe_files(paths or []), as_json=json_))
    if json_:
        kinds = {kind: [one for one in checks if one["kind"] == kind] for kind in ("recipe", "study")}
        write_json({"checked": len(checks), "invalid": wrong, "recipes": kinds["recipe"], "studies": kinds["study"]})
    else:
        print_checks(checks)
    if wrong:
        raise typer.Exit(2)
    remember()


def _look_for_data(files: list[Path], *, as_json: bool) -> int:
    """List what recipes need on this machine; return the exit code."""
    from cse_cli.checking import requirements_of
    from cse_cli.data.view import print_requirements, write_availability

    found = requirements_of(files)
    (write_availability if as_json else print_requirements)(found)
    return 3 if any(one.state == "missing" for one in found) else 0
