"""`cse data`: data sets listed, checked, downloaded, packed, translated; `cse check`: recipes and what they need."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cse_cli.recipe.completion import complete_recipe_or_study

if TYPE_CHECKING:  # imports torch, which `cse data list` and the help do without
    from cse_cli.data.pack import Packed

SCHEMA_VERSION = 2
"""Of this command's JSON documents."""

LIST_EPILOG = "Examples:  cse data list  ·  CSE_DATA=~/data cse data list  ·  cse data list --json"
CHECK_EPILOG = "Examples:  cse data check  ·  cse data check stsb sickr  ·  cse data check wiki1m --json"
DOWNLOAD_EPILOG = (
    "Examples:  cse data download stsb sickr  ·  cse data download --for simcse_en --for studies/ifcl_queue_length  ·  "
    "cse data download bert-base-uncased --force  ·  cse data download hf:owner/name"
)
PACK_EPILOG = "Examples:  cse data pack simcse_en  ·  cse data pack ifcl_en mocose_en --output /media/stick/ifcl.tar"
UNPACK_EPILOG = "Examples:  cse data unpack simcse_en.tar"
TRANSLATE_EPILOG = (
    "Examples:  cse data translate wiki1m --model Helsinki-NLP/opus-mt-en-de  ·  "
    "cse data translate wiki1m --model t5-base --to de --shard 1/4  ·  "
    "cse data translate mine.txt --model facebook/nllb-200-distilled-600M --from en --to yue"
)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def list_datasets(json_: AsJson = False) -> None:
    """List the catalogue: kind, language, rows of each split, and where they are found."""
    from cse_cli.data.inventory import datasets
    from cse_cli.data.view import print_datasets

    states = datasets()
    if json_:
        _write_json({"datasets": [asdict(state) for state in states]})
    else:
        print_datasets(states)


def check(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets; default: all that are on this machine.")] = None,
    json_: AsJson = False,
) -> None:
    """Read data sets from end to end: row counts, columns, scores, digests. Exit 2 if one is wrong, 3 if missing."""
    from cse_cli.data.inventory import check_datasets
    from cse_cli.data.view import print_checked

    checked = check_datasets(names or [])
    if json_:
        _write_json({"splits": [asdict(one) for one in checked]})
    else:
        print_checked(checked)
    codes = {one.exit_code for one in checked} - {0}
    if codes:
        raise typer.Exit(min(codes))


def download(
    names: Annotated[
        list[str] | None, typer.Argument(help="Data sets, NAME or NAME/SPLIT; models; hf:OWNER/NAME.")
    ] = None,
    for_: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            help="All that a recipe or a study needs; may be repeated.",
            autocompletion=complete_recipe_or_study,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch again what is here, and check its content.")] = False,
    json_: AsJson = False,
) -> None:
    """Download data sets and models from where the catalogue says, and check them; what is here already stays.

    A download that was stopped goes on with the same command.
    """
    from cse_cli.core.console import Screen
    from cse_cli.data.check import requirements_of
    from cse_cli.data.requirements import availability, fetch, parse_requirements
    from cse_cli.data.view import print_availability, print_plan
    from registry.errors import CseError

    if not names and not for_:
        raise CseError("nothing to download", "name data sets or models, or give --for RECIPE")
    wanted = [*parse_requirements(names or []), *requirements_of(for_ or [])]
    print_plan([availability(one) for one in wanted])
    with Screen() as screen:
        got = fetch(wanted, screen.downloading, force=force)
    if json_:
        _write_json({"requirements": [asdict(one) for one in got]})
    else:
        print_availability(got)


def pack(
    recipes: Annotated[list[str], typer.Argument(help="Recipes and studies, whose models and data are packed.")],
    output: Annotated[str | None, typer.Option("--output", "-o", help="Archive to write; default: RECIPE.tar.")] = None,
    json_: AsJson = False,
) -> None:
    """Write one archive of all that recipes need, for a machine without internet; `cse data unpack` reads it there."""
    from cse_cli.core.console import Screen
    from cse_cli.data.check import requirements_of
    from cse_cli.data.pack import archive_names, write_archive
    from cse_cli.data.requirements import fetch
    from registry.catalogue.find import PACKAGE
    from registry.paths import expand_user

    archive = expand_user(Path(output or f"{Path(recipes[0]).absolute().stem}.tar"))
    with Screen() as screen:
        here = fetch(requirements_of(recipes), screen.downloading)
        installed = [one.requirement for one in here if one.requirement.name.startswith(PACKAGE)]
        files = archive_names([path for one in here if one.requirement not in installed for path in one.paths])
        for one in installed:
            screen.warned(f"{one.name} is left out, a file of a Python package: install it there ({one.command})")
        packed = write_archive(files, recipes, archive, screen.downloading)
    _show_packed(packed, f"cse data unpack {archive.name}", as_json=json_)


def unpack(
    archive: Annotated[str, typer.Argument(help="Archive that `cse data pack` wrote.")], json_: AsJson = False
) -> None:
    """Put the models and data of an archive where runs find them; each file is checked."""
    from cse_cli.core.console import Screen
    from cse_cli.data.pack import unpack_archive
    from registry.paths import expand_user

    with Screen() as screen:
        packed = unpack_archive(expand_user(Path(archive)), screen.downloading)
    _show_packed(packed, f"cse run {packed.recipes[0]}" if packed.recipes else "", as_json=json_)


def _show_packed(packed: Packed, next_command: str, *, as_json: bool) -> None:
    from cse_cli.data.view import print_packed

    if as_json:
        _write_json(asdict(packed))
    else:
        print_packed(packed, next_command)


def translate(
    source: Annotated[str, typer.Argument(help="A data set's name, hf:owner/name, or a file, folder or glob.")],
    model: Annotated[str, typer.Option(help="T5, Marian, M2M100 or NLLB: directory, name under $CSE_MODELS, hub id.")],
    target_language: Annotated[
        str | None, typer.Option("--to", help="Language translated into: de; for NLLB also deu_Latn.")
    ] = None,
    source_language: Annotated[
        str | None, typer.Option("--from", help="Language of the sentences; default: the data set's, else English.")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(help="Text before every sentence, in place of a T5's own; '' for a fine-tuned one.")
    ] = None,
    output: Annotated[str | None, typer.Option("--output", "-o", help="File to write; must not exist yet.")] = None,
    split: Annotated[str, typer.Option(help="Split of the data set.")] = "train",
    column: Annotated[str, typer.Option(help="Column that is translated.")] = "text",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many rows.")] = None,
    shard: Annotated[str | None, typer.Option(help="i/n: only the i-th of n equal parts of the rows.")] = None,
    beams: Annotated[int, typer.Option(min=1, help="Width of the beam search; 1 is greedy.")] = 1,
    max_length: Annotated[int, typer.Option(min=8, help="Tokens a sentence is cut to.")] = 128,
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="Size of a batch: sentences x beams x tokens; default: fits the device.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto (every CUDA device, else the CPU), cpu, cuda or cuda:N.")] = "auto",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: one a device.")] = None,
    json_: AsJson = False,
) -> None:
    """Translate a column and write a .tsv with columns `text` and `translation`; killed, it goes on."""
    from cse_cli.core.console import Screen
    from cse_cli.data.languages import Pair
    from cse_cli.data.translate import Request, parse_shard, translate_text
    from cse_cli.data.translator import Settings
    from cse_cli.data.view import print_translation

    settings = Settings(model, prefix, Pair(source_language, target_language), beams, max_length)
    request = Request(source, settings, output, split, column, limit, parse_shard(shard), batch_tokens, device, workers)
    with Screen() as screen:
        try:
            made = translate_text(
                request, lambda done, rows: screen.preparing("translating", done, rows), screen.warned
            )
        except KeyboardInterrupt:
            sys.stderr.write("stopped; the same command goes on from here\n")
            raise typer.Exit(130) from None
    if json_:
        _write_json(asdict(made))
    else:
        print_translation(made)


def _write_json(document: Mapping[str, Any]) -> None:
    from cse_cli.core.console import write_json

    write_json(document, SCHEMA_VERSION)


CHECK_RECIPES_EPILOG = (
    "Examples:  cse check  ·  cse check recipes/  ·  cse check my.toml ifcl_en --json  ·  "
    "cse check studies/ifcl_fig4c  ·  cse check --data simcse_en  ·  "
    "cse check ifcl_en --set queue.length=320"
)


def check_recipes(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="Recipes, studies, names or folders; all known if left out.", autocompletion=complete_recipe_or_study
        ),
    ] = None,
    data: Annotated[
        bool, typer.Option("--data", help="List the models, data sets and files they need; exit 3 if one is missing.")
    ] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Check it with dotted.key=value.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Validate recipes, and studies cell by cell: names, types, ranges, references. Needs no model, data or network."""
    from cse_cli.core.console import write_json
    from cse_cli.data.check import check_file, recipe_files
    from cse_cli.recipe.view import print_checks

    files = recipe_files(paths or [])
    checks = [check_file(path, set_ or ()) for path in files]
    wrong = sum(not one["valid"] for one in checks)
    if data and not wrong:
        raise typer.Exit(_show_requirements(files, set_ or (), as_json=json_))
    if json_:
        kinds = {kind: [one for one in checks if one["kind"] == kind] for kind in ("recipe", "study")}
        write_json({"checked": len(checks), "invalid": wrong, "recipes": kinds["recipe"], "studies": kinds["study"]})
    else:
        print_checks(checks)
    if wrong:
        raise typer.Exit(2)


def _show_requirements(files: list[Path], overrides: Sequence[str], *, as_json: bool) -> int:
    """List what recipes need on this machine; return the exit code."""
    from cse_cli.data.check import requirements_of
    from cse_cli.data.requirements import availability
    from cse_cli.data.view import print_requirements

    found = [availability(one) for one in requirements_of(files, overrides)]
    if as_json:
        _write_json({"requirements": [asdict(one) for one in found]})
    else:
        print_requirements(found)
    return 3 if any(one.state == "missing" for one in found) else 0


app = typer.Typer(help="List, check, download, translate and pack data sets.", no_args_is_help=True)
app.command("list", epilog=LIST_EPILOG)(list_datasets)
app.command("check", epilog=CHECK_EPILOG)(check)
app.command("download", epilog=DOWNLOAD_EPILOG)(download)
app.command("pack", epilog=PACK_EPILOG)(pack)
app.command("unpack", epilog=UNPACK_EPILOG)(unpack)
app.command("translate", epilog=TRANSLATE_EPILOG)(translate)
