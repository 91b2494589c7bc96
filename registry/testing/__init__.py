"""Contract checks that any component must pass, ours and a plug-in's alike.

    from registry import LOSSES
    from registry.testing import Materials, check

    def test_contract():
        check(LOSSES["my_loss"], Materials(values={"losses/my_loss": {"size": 3}}))

They say that a component fits in, not that its numbers are right: that takes a value test of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from registry.core import Entry
from registry.signature import documented
from registry.testing.data import check_evaluator, check_generator
from registry.testing.materials import ContractError, Materials, require
from registry.testing.training import check_augmenter, check_encoder, check_head, check_loss, check_queue
from registry.validation import describe

__all__ = ["CHECKS", "ContractError", "Materials", "check"]

CHECKS: dict[str, Callable[[Entry[Any], Materials], None]] = {
    "augmenters": check_augmenter,
    "encoders": check_encoder,
    "evaluators": check_evaluator,
    "generators": check_generator,
    "heads": check_head,
    "losses": check_loss,
    "queues": check_queue,
}
"""Kind → what its components must satisfy beyond their declaration."""


def check(entry: Entry[Any], materials: Materials | None = None) -> None:
    """Check one registered component against the contract of its kind.

    Args:
        entry: As a registry returns it.
        materials: What to build it from; needed where a parameter has no default or a model is loaded.

    Raises:
        ContractError: The first promise that is broken.
    """
    materials = materials or Materials()
    check_declaration(entry, materials)
    CHECKS[entry.kind](entry, materials)


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
        require(entry, False, f"its defaults do not validate: {describe(error)}")
