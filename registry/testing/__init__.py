"""Contract checks that every component must pass, also those of plug-ins.

    from registry import LOSSES
    from registry.testing import Materials, check

    def test_contract():
        check(LOSSES["my_loss"], Materials(values={"losses/my_loss": {"size": 3}}))

They check that a component is compatible, not that its numbers are correct. Write a separate test of its values.
"""

from __future__ import annotations

import inspect
from typing import Any

from pydantic import ValidationError

from registry.machinery.core import Entry
from registry.machinery.signature import documented
from registry.machinery.validation import describe
from registry.testing.contracts import CHECKS
from registry.testing.materials import ContractError, Materials, require

__all__ = ["CHECKS", "ContractError", "Materials", "check"]


def check(entry: Entry[Any], materials: Materials | None = None) -> None:
    """Check one registered component against the contract of its kind.

    Args:
        entry: Entry in the registry.
        materials: Values of its parameters. Required if a parameter has no default, or the component loads a model.

    Raises:
        ContractError: If a check fails. The message names component, file and check.
    """
    materials = materials or Materials()
    check_declaration(entry, materials)
    CHECKS[entry.kind](entry, materials)


def check_declaration(entry: Entry[Any], materials: Materials) -> None:
    """Check that the docstring has a summary and describes all parameters, and that defaults are valid."""
    first, _, rest = (inspect.getdoc(entry.cls) or "").partition("\n")
    require(entry, first.endswith(".") and len(first) <= 120, "the docstring's first line is one sentence, ≤ 120 long")
    require(entry, not rest or rest.startswith("\n"), "the docstring's first line is followed by an empty line")
    parameters, described = set(entry.parameters.model_fields), set(documented(entry.cls))
    require(
        entry,
        parameters <= described,
        f"describes all parameters in Args, not only some: add {sorted(parameters - described)}",
    )
    require(entry, described <= parameters, f"Args describes {sorted(described - parameters)}, which do not exist")
    defaults = {name: f.get_default() for name, f in entry.parameters.model_fields.items() if not f.is_required()}
    try:
        entry.parameters(**{**defaults, **materials.arguments(entry)})
    except ValidationError as error:
        require(entry, False, f"its defaults are valid: {describe(error)}")
