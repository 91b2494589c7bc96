"""The registries, one a kind of component."""

from __future__ import annotations

from typing import Any

from registry.core import Registry
from registry.types import Augmenter, Encoder, Evaluator, Generator, Head, Loss, Queue

AUGMENTERS: Registry[Augmenter] = Registry("augmenters", Augmenter)
ENCODERS: Registry[Encoder] = Registry("encoders", Encoder)
EVALUATORS: Registry[Evaluator] = Registry("evaluators", Evaluator)
GENERATORS: Registry[Generator] = Registry("generators", Generator)
HEADS: Registry[Head] = Registry("heads", Head)
LOSSES: Registry[Loss] = Registry("losses", Loss)
QUEUES: Registry[Queue] = Registry("queues", Queue)

REGISTRIES: tuple[Registry[Any], ...] = (AUGMENTERS, ENCODERS, EVALUATORS, GENERATORS, HEADS, LOSSES, QUEUES)
