"""The picture of the layers in `docs/tour.md`: the contract in `pyproject.toml` with the imports in the code."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
WIDTH, HEIGHT, GAP = 960, 58, 10


def layers() -> list[list[str]]:
    """Return the layers of the contract, highest first. A layer has one or several modules."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(one for one in settings["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def layers_svg() -> str:
    """Return the picture, with one row per layer and the purpose and imports of each module."""
    graph = grimp.build_graph("cse_cli", "registry")
    rows = [row for row in layers() if row != ["cse_cli.__main__"]]
    modules = [module for row in rows for module in row]
    for module in modules:
        if graph.find_children(module):
            graph.squash_module(module)
    height = len(rows) * (HEIGHT + GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, row in enumerate(rows):
        width = (WIDTH - GAP * (len(row) + 1)) / len(row)
        for place, module in enumerate(row):
            imported = graph.find_modules_directly_imported_by(module) - {module}
            uses = [name for name in modules if name in imported]
            parts += _box(GAP + place * (width + GAP), GAP + number * (HEIGHT + GAP), width, module, uses)
    return "\n".join([*parts, "</svg>", ""])


def _box(left: float, top: float, width: float, module: str, uses: list[str]) -> Iterator[str]:
    about = (importlib.import_module(module).__doc__ or "").strip().partition("\n")[0].replace("`", "")
    shown = ", ".join(name.removeprefix("cse_cli.") for name in uses)
    limit = int(width / 6.6)
    about = about if len(about) <= limit else about[: limit - 1] + "…"
    yield f'<rect x="{left:g}" y="{top}" width="{width:g}" height="{HEIGHT}" rx="4" fill="#eef3f8" stroke="#30506b"/>'
    yield f'<text x="{left + 10:g}" y="{top + 18}" font-size="14" font-weight="bold">{escape(module)}</text>'
    yield f'<text x="{left + 10:g}" y="{top + 35}" font-size="12">{escape(about)}</text>'
    if shown:
        yield f'<text x="{left + 10:g}" y="{top + 51}" font-size="12" fill="#52616e">imports {escape(shown)}</text>'
