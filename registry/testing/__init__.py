"""Contract checks that any component must pass, ours and a plug-in's alike.

    from registry import LOSSES
    from registry.testing import Materials, check

    def test_contract():
        check(LOSSES["my_loss"], Materials(values={"losses/my_loss": {"size": 3}}))

They say that a component fits in, not that its numbers are right: that takes a value test of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from registry.core import Entry
from registry.testing.augmenters import check_augmenter
from registry.testing.declaration import check_declaration
from registry.testing.encoders import check_encoder
from registry.testing.evaluators import check_evaluator
from registry.testing.generators import check_generator
from registry.testing.heads import check_head
from registry.testing.losses import check_loss
from registry.testing.materials import ContractError, Materials
from registry.testing.queues import check_queue

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


__all__ = ["CHECKS", "ContractError", "Materials", "check"]
