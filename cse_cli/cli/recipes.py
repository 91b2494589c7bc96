"""`cse list`, `cse show`, `cse cite`, `cse cp` and `cse schema`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cse_cli.cli.options import SET, UNSET, AsJson, Plugin
from cse_cli.recipe.completion import complete_anything, complete_kind, complete_recipe

SHOW_EPILOG = (
    "Examples:  cse show info_nce  ·  cse show ifcl_en  ·  cse show stsb_open  ·  "
    "cse show recipes/ifcl_en.toml --resolved  ·  cse show ifcl_en --resolved --set queue.length=512"
)


def show(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of a component, recipe or data set, or path of a recipe.", autocompletion=complete_anything
        ),
    ],
    resolved: Annotated[
        bool, typer.Option("--resolved", help="Show the recipe with everything it inherits and with all defaults.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help=f"{SET} Implies --resolved."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="KEY", help=f"{UNSET} Implies --resolved."),
    ] = None,
    plugin: Plugin = None,  # noqa: ARG001 - its callback loads the files
    json_: AsJson = False,
) -> None:
    """Show a component's documentation, a recipe's text and its checks, or a data set's license and splits."""
    from cse_cli.core.console import write_json
    from cse_cli.core.formatting import to_toml
    from cse_cli.recipe import view
    from cse_cli.recipe.files import find
    from cse_cli.recipe.load import load
    from cse_cli.recipe.sources import read_source

    changed = bool(set_ or unset)
    components = [] if resolved or changed else view.component_documents(name)
    dataset = None if components else view.dataset_document(name)
    if json_ and components:
        write_json({"components": components})
    elif json_ and dataset is not None:
        write_json({"dataset": dataset})
    elif json_:
        write_json(view.recipe_document(name, set_ or [], unset or []))
    elif components:
        for about in components:
            view.print_component(about)
    elif dataset is not None:
        view.print_dataset(dataset)
    elif resolved or changed:
        sys.stdout.write(to_toml(load(name, set_ or [], unset or []).recipe.resolved()))
    else:
        sys.stdout.write(read_source(find(name)).text)
    if not (json_ or components or dataset or changed) and (badge := view.recipe_badge(name)) is not None:
        view.print_badge(badge)


CITE_EPILOG = (
    "Examples:  cse cite  ·  cse cite ifcl_en  ·  cse cite ifcl_en diffcse_en > references.bib  ·  cse cite 3f2a"
)


def cite(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Names of recipes, data sets and models, paths of recipes, IDs or names of runs. Default: only cse.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    plugin: Plugin = None,  # noqa: ARG001 - its callback loads the files
    json_: AsJson = False,
) -> None:
    """Print BibTeX entries of cse, and of the methods, data and models of recipes and runs."""
    from cse_cli.core.console import write_json
    from cse_cli.listing.citations import citations

    found = citations(names or [])
    if json_:
        write_json({"references": [vars(one) for one in found.references], "without": list(found.without)})
        return
    sys.stdout.write(f"{found.bibtex}\n")
    if found.without:
        sys.stderr.write(f"note: cse has no entry for {', '.join(found.without)}\n")


COPY_EPILOG = "Examples:  cse cp quickstart my.toml  ·  cse cp ifcl_en my_ifcl.toml"


def copy(
    recipe: Annotated[str, typer.Argument(help="Name or path of a recipe.", autocompletion=complete_recipe)],
    target: Annotated[Path, typer.Argument(help="New file, which ends in .toml.")],
    plugin: Plugin = None,  # noqa: ARG001 - its callback loads the files
    json_: AsJson = False,
) -> None:
    """Copy a recipe, with everything it inherits, to a new file that you can edit."""
    from cse_cli.core.console import write_json
    from cse_cli.recipe.copy import write_copy

    write_copy(recipe, target)
    sys.stderr.write(f"next: edit the file, then run  cse check {target}  and  cse run {target}\n")
    if json_:
        write_json({"path": str(target)})
    else:
        sys.stdout.write(f"{target}\n")


SCHEMA_EPILOG = "Examples:  cse schema --output recipe.schema.json"


def schema(
    output: Annotated[Path | None, typer.Option(help="File to write. Default: stdout.")] = None,
) -> None:
    """Write a JSON Schema of recipes for editors. It contains all registered components.

    Start a recipe with `#:schema ./recipe.schema.json` for completion and checks in editors with taplo or tombi.
    """
    import json

    from cse_cli.recipe.json_schema import json_schema
    from registry.errors import CseError

    text = json.dumps(json_schema(), ensure_ascii=False, indent=2) + "\n"
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"--output: cannot write '{output}': {error.strerror}"
        action = "choose an existing directory with write permission"
        raise CseError(message, action, code="schema.not_writable") from None


LIST_EPILOG = (
    "Examples:  cse list  ·  cse list recipes  ·  cse list recipes --all  ·  cse list losses  ·  cse list studies  ·  "
    "cse list augmenters --json"
)


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="augmenters, encoders, evaluators, generators, heads, losses, queues, recipes, studies. Default: all.",
            autocompletion=complete_kind,
        ),
    ] = None,
    all_: Annotated[
        bool,
        typer.Option("--all", help="Load every recipe. Print what it needs, the row that it reproduces, and checks."),
    ] = False,
    json_: AsJson = False,
) -> None:
    """List components, recipes and studies. With --all, list what each recipe needs to run on this machine."""
    from cse_cli.core.console import write_json
    from cse_cli.listing import view
    from cse_cli.listing.inventory import broken_plugins, listing, overview

    found = overview() if kind is None and not all_ and not json_ else listing(kind, in_full=all_)
    broken = broken_plugins()
    view.warn_of_plugins(broken)
    if json_:
        write_json({**found, "broken_plugins": broken})
    elif kind is None and not all_:
        view.print_overview(found)
    else:
        view.print_listing(found, in_full=all_)
