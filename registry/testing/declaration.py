"""What a component says about itself: summary line, parameters, defaults."""

from __future__ import annotations

import inspect
from typing import Any

from pydantic import ValidationError

from registry.core import Entry
from registry.signature import documented
from registry.testing.materials import Materials, require


def check_declaration(entry: Entry[Any], materials: Materials) -> None:
    """Check summary line, documentation of every parameter and of no other, and that defaults validate."""
    first, _, rest = (inspect.getdoc(entry.cls) or "").partition("\n")
    require(entry, first.endswith(".") and len(first) <= 120, "the docstring's first line is one sentence, ≤ 120 long")
    require(entry, not rest or rest.startswith("\n"), "the docstring's first line stands alone")
    parameters, described = set(entry.parameters.model_fields), set(documented(entry.cls))
    require(entry, parameters <= described, f"Args does not describe {sorted(parameters - described)}")
    require(entry, described <= parameters, f"Args describes {sorted(described - parameters)}, which do not exist")
    defaults = {name: f.get_default() for name, f in entry.parameters.model_fields.items() if not f.is_required()}
    try:
        entry.parameters(**{**defaults, **materials.arguments(entry)})
    except ValidationError as error:
        require(entry, False, f"its defaults do not validate: {error}")
