"""Write `docs/reference/`, the leaderboard and the checks on pages: from registries, schema, catalog, papers, commands.

python docs/generate.py            write the pages that changed
python docs/generate.py --check    exit 1 and name the pages that are not current
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal, get_args, get_origin

import typer
from checked_pages import checked_pages
from docstrings import link_points, paragraph
from layers import layers_svg
from leaderboard_page import leaderboard
from markdown_table import cell, table
from notebook import notebook
from paper_pages import paper_tables
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from cse_cli.app import app
from cse_cli.recipe import schema
from registry import REGISTRIES, Entry, Registry, Tune
from registry.machinery.parameters import Parameters
from registry.machinery.signature import documented
from registry.papers.bibliography import TOOL, reference
from registry.resources import catalog
from registry.resources.models import known_models

PAGES = Path(__file__).parent
_NOTE = "<!-- Written by docs/generate.py: change the source it names, then run `python docs/generate.py`. -->"
_BOUNDS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}


def pages() -> dict[str, str]:
    """Return file name → Markdown of every generated page."""
    made = {f"reference/{registry.kind}.md": link_points(components(registry)) for registry in REGISTRIES}
    made |= {
        "reference/recipe.md": recipe_keys(),
        "reference/commands.md": commands(),
        "reference/datasets.md": datasets(),
        "reference/models.md": models(),
        "reference/papers.md": link_points(paper_tables()),
        "results/leaderboard.md": leaderboard(),
    }
    noted = {name: _noted(text) for name, text in made.items()}
    return (
        noted
        | checked_pages()
        | {
            "../CITATION.cff": citation_file(),
            "llms.txt": (PAGES / "scripting.md").read_text(encoding="utf-8"),
            "reference/layers.svg": layers_svg(),
            "reference/python.ipynb": notebook(PAGES / "python.md"),
            "reference/first_run.ipynb": notebook(PAGES / "tutorials" / "notebook.md"),
        }
    )


def _noted(text: str) -> str:
    """Return a page with the note after its settings for the site."""
    settings, end, rest = text.partition("\n---\n") if text.startswith("---\n") else ("", "", text)
    return f"{settings}{end}{_NOTE}\n\n{rest.strip()}\n"


def components(registry: Registry[Any]) -> str:
    """Return the page of one kind of component, without installed plug-ins."""
    out = [f"# {registry.kind.capitalize()}"]
    for entry in registry:
        if entry.distribution == "cse":
            out += [f"## {entry.name}", *_prose(entry.cls), _parameters(entry), *_inputs(entry)]
            out.append(f"Written in `{_module(entry)}`.")
    return "\n\n".join(out)


def _module(entry: Entry[Any]) -> str:
    return entry.cls.__module__.replace(".", "/") + ".py"


def _prose(cls: type) -> Iterator[str]:
    """Yield the paragraphs of a docstring without its `Args:` block, with its example as a block of code."""
    text = inspect.getdoc(cls) or ""
    text = re.sub(r"(?m)^Args:\n(?:(?: +.*)?\n)*", "", text + "\n")
    text, _, example = text.replace("\nExamples:\n", "\nExample:\n").partition("\nExample:\n")
    for part in re.split(r"\n{2,}", text.strip()):
        yield re.sub(r"(?m)^(Source|Shapes|Doubtful|Raises):\s+", r"\n**\1.** ", paragraph(part)).strip()
    if example:
        recipe, prompt, python = dedent(example).partition(">>>")
        blocks = {"toml": recipe.strip(), "pycon": f"{prompt}{python}".strip()}
        yield "\n\n".join(["**Example.**", *(f"```{kind}\n{code}\n```" for kind, code in blocks.items() if code)])


def _parameters(entry: Entry[Any]) -> str:
    fields = entry.parameters.model_fields
    if not fields:
        return "It has no parameters."
    references = {reference.parameter: reference.kind for reference in entry.references}
    rows = [
        [
            f"`{name}`",
            cell(_type(field, references.get(name))),
            _default(field),
            _tune(field),
            cell(field.description or ""),
        ]
        for name, field in fields.items()
    ]
    return table(["parameter", "value", "default", "tuned over", "meaning"], rows)


def _inputs(entry: Entry[Any]) -> Iterator[str]:
    if entry.inputs:
        words = {
            "sentences": "sentence vectors of a view",
            "pooled": "sentence vectors of a view before the heads",
            "encoded": "an encoded view",
            "negatives": "the queue's negatives",
            "labels": "numbers of the data's column `column`",
        }
        listed = [f"`{i.name}`: {words[i.kind]}{', optional' if i.optional else ''}" for i in entry.inputs]
        yield f"Its `forward` takes {'; '.join(listed)}."


def _type(field: FieldInfo, refers: str | None = None) -> str:
    if refers:
        return f"name of a recipe's {refers}"
    text = next(_named(field.metadata), _annotation(field.annotation))
    return " ".join([text, _bounds(field.metadata)]).strip()


def _named(marks: Iterable[Any]) -> Iterator[str]:
    """Yield a link to the kind of component that a key names."""
    for mark in marks:
        if isinstance(mark, schema.Registered):
            yield f"[{mark.registry.singular}]({mark.registry.kind}.md)"


def _bounds(marks: list[Any]) -> str:
    return ", ".join(
        f"{sign} {getattr(mark, key)}" for mark in marks for key, sign in _BOUNDS.items() if hasattr(mark, key)
    )


def _annotation(annotation: Any) -> str:
    if annotation is type(None):
        return "nothing"
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{_plain(value)}`" for value in get_args(annotation))
    if annotation is Parameters:
        return "table"
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return f"table [{annotation.__name__}](#{annotation.__name__.lower()})"
    if arguments := [a for a in get_args(annotation) if a is not Ellipsis]:
        origin = get_origin(annotation)
        if origin is dict:
            return "table" if arguments[1] is Any else f"tables by name: {_annotation(arguments[1])}"
        if origin in (list, tuple):
            return f"list of {_annotation(arguments[0])}"
        if hasattr(annotation, "__metadata__"):
            marks = [mark for extra in annotation.__metadata__ for mark in getattr(extra, "metadata", [])]
            named = next(_named(annotation.__metadata__), _annotation(arguments[0]))
            return " ".join([named, _bounds(marks)]).strip()
        return " or ".join(_annotation(a) for a in arguments if a is not type(None))
    return {"str": "text", "bool": "true or false", "Any": "any"}.get(annotation.__name__, annotation.__name__)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default if field.default is not PydanticUndefined else field.default_factory()  # type: ignore[misc,call-arg]
    if value is None or value in ({}, ()) or isinstance(value, BaseModel):
        return ""
    return f"`{_plain(value)}`"


def _plain(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def _tune(field: FieldInfo) -> str:
    ranges = [m for m in field.metadata if isinstance(m, Tune)]
    return f"{ranges[0].low:g} … {ranges[0].high:g}{', log' if ranges[0].log else ''}" if ranges else ""


def recipe_keys() -> str:
    """Return the page of every key a recipe's own sections have."""
    found = (obj for _, obj in inspect.getmembers(schema, inspect.isclass) if issubclass(obj, schema.Section))
    sections = sorted(found, key=lambda cls: (cls is not schema.Recipe, inspect.getsourcelines(cls)[1]))
    out = [
        "# Keys of a recipe",
        "[Recipes](../recipes.md) explains the sections. The table of a component contains its `name` and its "
        "parameters, which the page of the component lists. The top level also supports `extends` and `remove`.",
    ]
    for cls in sections:
        if cls is not schema.Section:
            out += [f"## {cls.__name__}", *_prose(cls), _keys(cls)]
    return "\n\n".join(out)


def _keys(cls: type[BaseModel]) -> str:
    texts = {key: text for base in reversed(cls.__mro__) for key, text in documented(base).items()}
    rows = []
    for name, field in cls.model_fields.items():
        part = inspect.isclass(cls) and issubclass(cls, schema.Part) and name == "params"
        text = "parameters of the component, in the same table as `name`" if part else texts.get(name, "")
        rows.append([f"`{field.alias or name}`", cell(_type(field)), _default(field), cell(text)])
    return table(["key", "value", "default", "meaning"], rows)


def commands() -> str:
    """Return the page of every command and option."""
    root = typer.main.get_command(app)
    return "\n\n".join(filter(None, ["# Commands", root.help, *_command(root, "cse")]))


def _command(command: Any, name: str) -> Iterator[str]:
    for child_name, child in getattr(command, "commands", {}).items():
        full = f"{name} {child_name}"
        yield f"## {full}"
        yield inspect.cleandoc(child.help or "")
        if rows := [_option(p) for p in child.params if not getattr(p, "hidden", False) and p.name != "help"]:
            yield table(["", "", "default"], rows)
        lines = "\n".join(f"$ {line}" for line in (child.epilog or "").splitlines()[1:])
        yield f"```console\n{lines}\n```" if lines else ""
        yield from _command(child, full)


def _option(parameter: Any) -> list[str]:
    argument = parameter.param_type_name == "argument"
    names = [parameter.name.upper()] if argument else [*parameter.opts, *parameter.secondary_opts]
    default, text = parameter.default, parameter.help or ""
    if isinstance(default, Enum):
        text += f" One of {', '.join(str(choice.value) for choice in type(default))}."
        default = default.value
    shown = "required" if parameter.required else "" if default in (None, (), [], False, "") else f"`{default}`"
    return [" ".join(f"`{name}`" for name in names), cell(text), shown]


def datasets() -> str:
    """Return the page of the data catalog."""
    out = [
        "# Data sets",
        "[Data](../data.md) explains how `cse` finds, downloads and verifies them. It tries the sources in this order "
        "and uses the first one whose rows have the known digest.",
    ]
    for name in catalog.names():
        entry = catalog.entry(name)
        about = [
            f"{entry.kind}, {entry.language}; columns {', '.join(f'`{column}`' for column in entry.columns)}.",
            entry.note,
            f"{entry.citation}. License: {entry.license}.",
        ]
        out += [
            f"## {name}",
            f"{entry.title}. " + " ".join(filter(None, about)),
            table(["split", "rows", "below `$CSE_DATA`", "digest"], [_split(entry, split) for split in entry.splits]),
        ]
        if entry.sources:
            out += [table(["fetched from", "files"], [_fetched(entry, key) for key in entry.sources])]
        if entry.generator is not None:
            made = ", ".join(f"`{name}/{split}`" for name, split in entry.generator.sources)
            out += [f"Made by the generator `{entry.generator.name}`{f' from {made}' if made else ''}."]
    return "\n\n".join(out)


def models() -> str:
    """Return the page of the models that recipes and pages name."""
    rows = [
        [
            f"`{about.id}`" + "".join(f"<br>`{name}`" for name in about.names),
            f"`{about.revision[:12]}`" if about.revision else "newest" if about.downloadable else "no download",
            "" if about.bytes is None else _size(about.bytes),
            about.license or "",
            cell(" ".join(filter(None, [about.note, about.tokenizer and f"tokenizer of `{about.tokenizer}`"]))),
        ]
        for about in known_models().values()
    ]
    return "\n\n".join(
        [
            "# Models",
            "Models that recipes and pages name, with the commits that `cse` downloads. You can use any other model of "
            "the Hub, or a directory. [Data and models](../data.md) explains how `cse` finds and verifies them.",
            table(["model", "commit", "fetched", "license", "note"], rows),
        ]
    )


def _split(entry: catalog.DatasetEntry, name: str) -> list[str]:
    split = entry.splits[name]
    path = f"`{split.path}`" if split.path else "comes with cse" if split.shipped else ""
    return [f"`{name}`", f"{split.rows:,}", path, f"`{split.sha256[:12]}…`" if split.sha256 else ""]


def _fetched(entry: catalog.DatasetEntry, key: str) -> list[str]:
    remote = entry.sources[key]
    splits = [split for split in entry.splits.values() if key in split.files]
    names = dict.fromkeys(part.file for split in splits for part in split.files[key])
    sizes = {split.bytes.get(key, 0) for split in splits}
    size = max(sizes) if remote.archive else sum(sizes) if all(sizes) else 0
    files = ", ".join(f"`{name}`" for name in names)
    files += f" in `{remote.archive}`" if remote.archive else ""
    where = f"hub, `{remote.hub}` @ `{remote.revision[:12]}`" if remote.hub else f"<{remote.url}>"
    return [where, files + (f" ({_size(size)})" if size else "")]


def _size(count: int) -> str:
    return f"{count / 1e6:,.0f} MB" if count >= 1e6 else f"{max(1, round(count / 1e3))} kB"


def citation_file() -> str:
    """Return CITATION.cff, from the entry of this project in `registry/papers/references.bib`."""
    cse = {field: value.replace("{", "").replace("}", "") for field, value in reference(TOOL).fields.items()}
    return f"""\
# Written by docs/generate.py from registry/papers/references.bib: do not edit.
cff-version: 1.2.0
message: If you use cse, cite it, and cite the works that your recipes build on. `cse cite NAME` prints both.
type: software
title: "{cse["title"]}"
authors:
  - name: {cse["author"]}
version: {cse["version"]}
date-released: {cse["date"]}
license: Apache-2.0
keywords:
  - sentence embeddings
  - contrastive learning
  - SimCSE
  - reproducibility
"""


def main() -> int:
    """Write or check the pages, and return the exit code."""
    made = pages()
    stale = [
        n for n, text in made.items() if not (PAGES / n).is_file() or (PAGES / n).read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        sys.stdout.write("".join(f"not current: docs/{name}\n" for name in stale))
        return 1 if stale else 0
    for name in stale:
        (PAGES / name).write_text(made[name], encoding="utf-8")
        sys.stdout.write(f"wrote docs/{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
