"""Short texts for a recipe's settings. A component is its name and the parameters that are not the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from cse_cli.core.formatting import setting_text
from cse_cli.recipe.schema import LossPart, View
from registry import REGISTRIES

DEFAULTS = "default"
_TABLES: dict[str, type[BaseModel]] = {"views": View, "losses": LossPart}
"""Sections whose tables have keys of the recipe in addition to those of the component."""


def short_setting(key: str, value: Any) -> str:
    """Return a value as short text.

    Args:
        key: Dotted path in the resolved recipe.
        value: Value of the key, or None if it is not set.
    """
    if isinstance(value, list | tuple) and value and all(isinstance(one, Mapping) for one in value):
        return ", ".join(short_setting(key, one) for one in value)
    if not isinstance(value, Mapping):
        return setting_text(value)
    name = str(value.get("name", ""))
    defaults = _defaults(key, name)
    others = {inner: of for inner, of in value.items() if inner != "name" and _plain(of) != defaults.get(inner, inner)}
    shown = {inner: short_setting(f"{key}.{inner}", of) for inner, of in others.items()}
    texts = [f"{inner} = {text}" for inner, text in shown.items() if text != DEFAULTS]
    if not texts:
        return name or DEFAULTS
    return f"{name} ({', '.join(texts)})" if name else f"({', '.join(texts)})"


def _defaults(key: str, name: str) -> dict[str, Any]:
    """Return key → default of the table at a path."""
    parts = key.split(".")
    models = [_TABLES[parts[0]]] if len(parts) == 2 and parts[0] in _TABLES else []
    kinds = [registry for part in reversed(parts) for registry in REGISTRIES if registry.kind.startswith(part)]
    models += [kinds[0][name].parameters] if kinds and name in kinds[0] else []
    fields = {inner: field for model in models for inner, field in model.model_fields.items()}
    return {inner: _plain(of.get_default(call_default_factory=True)) for inner, of in fields.items()}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
