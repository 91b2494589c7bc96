"""Commands `cse data …` (list, check, download and inspect texts) and `cse check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from cse_cli.cli.options import AsJson, Plugin, Set, Unset
from cse_cli.recipe.completion import complete_recipe, complete_recipe_or_study

SCHEMA_VERSION = 2
"""Version of the JSON documents."""

LIST_EPILOG = "Examples:  cse data list  ·  CSE_DATA=~/data cse data list  ·  cse data list --json"
CHECK_EPILOG = "Examples:  cse data check  ·  cse data check stsb sickr  ·  cse data check wiki1m --json"
DOWNLOAD_EPILOG = (
    "Examples:  cse data download stsb sickr  ·  cse data download --for simcse_en --for studies/ifcl_queue_length  ·  "
    "cse data download bert-base-uncased --force  ·  cse data download hf:owner/name"
)


def list_datasets(json_: AsJson = False) -> None:
    """List all data sets: kind, language, rows of each split, and location."""
    from cse_cli.data.view import dataset_states, print_datasets

    states = dataset_states()
    if json_:
        _write_json({"datasets": states})
    else:
        print_datasets(states)


def check(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets. Default: all on this machine.")] = None,
    json_: AsJson = False,
) -> None:
    """Verify the rows, columns, scores and digests of data sets. Exit code 2: wrong, 3: missing."""
    from cse_cli.data.view import check_datasets, print_checked

    checked = check_datasets(names or [])
    if json_:
        _write_json({"splits": checked})
    else:
        print_checked(checked)
    codes = {one["exit_code"] for one in checked} - {0}
    if codes:
        raise typer.Exit(min(codes))


def download(
    names: Annotated[
        list[str] | None, typer.Argument(help="Data sets (NAME or NAME/SPLIT), models, or hf:OWNER/NAME.")
    ] = None,
    for_: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            help="Download everything that a recipe or a study requires. Repeatable.",
            autocompletion=complete_recipe_or_study,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Download existing files again and verify them.")] = False,
    json_: AsJson = False,
) -> None:
    """Download and verify data sets and models. Existing files are kept.

    To resume a stopped download, run the same command again.
    """
    from cse_cli.core.console import Screen
    from cse_cli.data.requirements import availability, fetch, parse_requirements
    from cse_cli.data.view import print_availability, print_downloads
    from cse_cli.recipe.check import requirements_of
    from registry.errors import CseError

    if not names and not for_:
        raise CseError(
            "no data set or model is given", "cse data download NAME, or --for RECIPE", code="data.nothing_to_download"
        )
    requirements = [*parse_requirements(names or []), *requirements_of(for_ or [])]
    print_downloads([availability(one) for one in requirements])
    with Screen() as screen:
        found = fetch(requirements, screen.downloading, force=force)
    if json_:
        _write_json({"requirements": [asdict(one) for one in found]})
    else:
        print_availability(found)


def _write_json(document: Mapping[str, Any]) -> None:
    from cse_cli.core.console import write_json

    write_json(document, SCHEMA_VERSION)


INSPECT_EPILOG = (
    "Examples:  cse data inspect sentences.txt  ·  cse data inspect wiki1m  ·  cse data inspect simcse_en --json  ·  "
    "cse data inspect pairs.tsv --set data.column=sentence"
)


def inspect(
    text: Annotated[
        str,
        typer.Argument(
            help="File, directory or glob, data set (NAME, NAME/SPLIT or hf:OWNER/NAME), or recipe.",
            autocompletion=complete_recipe,
        ),
    ],
    set_: Set = None,
    unset: Unset = None,
    json_: AsJson = False,
) -> None:
    """Inspect a training text: lengths and what is cut, duplicates, near-duplicates, and evaluation sentences.

    A file or a data set is inspected with the settings of the recipe `quickstart`.
    """
    from cse_cli.core.console import Screen, write_json
    from cse_cli.inspection.inspect import inspect_text, print_inspection

    with Screen() as screen:
        document = inspect_text(text, set_ or [], unset or [], screen)
    if json_:
        write_json(document, 2)
    else:
        print_inspection(document)


CHECK_RECIPES_EPILOG = (
    "Examples:  cse check  ·  cse check recipes/  ·  cse check my.toml ifcl_en --json  ·  "
    "cse check studies/ifcl_fig4c  ·  cse check --data simcse_en  ·  "
    "cse check ifcl_en --set queue.length=320"
)


def check_recipes(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="Recipes, studies, names or directories. Default: all known ones.",
            autocompletion=complete_recipe_or_study,
        ),
    ] = None,
    data: Annotated[
        bool, typer.Option("--data", help="List required models, data sets and files. Exit code 3: one is missing.")
    ] = False,
    set_: Set = None,
    unset: Unset = None,
    plugin: Plugin = None,  # noqa: ARG001 - its callback loads the files
    json_: AsJson = False,
) -> None:
    """Validate names, types, ranges and references of recipes and of all cells of studies.

    Requires no model, data or network.
    """
    from cse_cli.core.console import write_json
    from cse_cli.recipe.check import check_file, recipe_files
    from cse_cli.recipe.view import print_checks

    files = recipe_files(paths or [])
    checks = [check_file(path, set_ or (), unset or ()) for path in files]
    wrong = sum(not one["valid"] for one in checks)
    if data and not wrong:
        raise typer.Exit(_show_requirements(files, set_ or (), unset or (), as_json=json_))
    if json_:
        kinds = {kind: [one for one in checks if one["kind"] == kind] for kind in ("recipe", "study")}
        write_json({"checked": len(checks), "invalid": wrong, "recipes": kinds["recipe"], "studies": kinds["study"]})
    else:
        print_checks(checks)
    if wrong:
        raise typer.Exit(2)


def _show_requirements(files: list[Path], overrides: Sequence[str], unset: Sequence[str], *, as_json: bool) -> int:
    """Print the requirements of recipes. Return the exit code."""
    from cse_cli.data.requirements import availability
    from cse_cli.data.view import print_requirements
    from cse_cli.recipe.check import requirements_of

    found = [availability(one) for one in requirements_of(files, overrides, unset)]
    if as_json:
        _write_json({"requirements": [asdict(one) for one in found]})
    else:
        print_requirements(found)
    return 3 if any(one.state == "missing" for one in found) else 0


app = typer.Typer(help="List, check, inspect and download data sets.", no_args_is_help=True)
app.command("list", epilog=LIST_EPILOG)(list_datasets)
app.command("check", epilog=CHECK_EPILOG)(check)
app.command("download", epilog=DOWNLOAD_EPILOG)(download)
app.command("inspect", epilog=INSPECT_EPILOG)(inspect)
