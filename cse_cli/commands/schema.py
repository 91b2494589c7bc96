"""`cse schema`: the JSON Schema of recipes, for editors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

EPILOG = (
    "Examples:  cse schema --output recipe.schema.json  ·  then put `#:schema ./recipe.schema.json` on a recipe's "
    "first line: editors with taplo or tombi complete and check it"
)


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("schema", epilog=EPILOG)(schema)


def schema(
    output: Annotated[Path | None, typer.Option(help="File to write instead of stdout.")] = None,
) -> None:
    """Write the JSON Schema of recipe files, made from the registered components."""
    import json

    from cse_cli.recipe.json_schema import json_schema

    text = json.dumps(json_schema(), ensure_ascii=False, indent=2) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        _write(output, text)


def _write(path: Path, text: str) -> None:
    from registry.errors import CseError

    draft = path.with_name(f".{path.name}.part")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise CseError(f"cannot write '{path}': {error.strerror}", "choose a folder that exists and is yours") from None
