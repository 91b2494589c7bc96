"""What a recipe needs on this machine: its models, data sets and files; what is here, and what can be fetched.

Told before the first download and the first token: one list of all that is missing, with sizes and commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from rich.filesize import decimal

from cse_cli.recipe.load import load
from cse_cli.recipe.schema import Part, Recipe
from registry import AUGMENTERS, ENCODERS, EVALUATORS, HEADS, LOSSES, QUEUES, catalogue, hub, models
from registry.catalogue.entries import ALL
from registry.core import Registry
from registry.errors import CseError, MissingError

Kind = Literal["model", "dataset", "file"]

EVALUATED = ""
"""Name of a requirement that stands for the evaluators' own data sets."""

Told = Callable[[str, int, int | None], None]
"""Hears what is being downloaded, bytes done, and bytes in all where they are known."""


@dataclass(frozen=True)
class Requirement:
    """One thing a recipe names.

    Args:
        kind: What it is.
        name: As the recipe writes it.
        split: Of a data set.
        wanted_by: Dotted places of the recipe that name it.
        command: What makes it, where it is a file that a command makes.
    """

    kind: Kind
    name: str
    split: str = ""
    wanted_by: tuple[str, ...] = ()
    command: str = ""

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{self.kind} {self.name}{f'/{self.split}' if self.split else ''}"


@dataclass(frozen=True)
class Availability:
    """Whether a requirement is met.

    Args:
        state: "here", "fetchable" (it can be downloaded), or "missing".
        origin: Where it lies or comes from.
        paths: Its files and folders, where it is here.
        bytes: What is still to be downloaded; None where that is not known.
        licence: Its terms, where they are known.
        problem: Why it is missing.
        action: What to do about it.
    """

    requirement: Requirement
    state: Literal["here", "fetchable", "missing"]
    origin: str = ""
    paths: tuple[Path, ...] = ()
    bytes: int | None = None
    licence: str = ""
    problem: str = ""
    action: str = ""


def requirements(recipe: Recipe) -> list[Requirement]:
    """Return everything a recipe names, each once, in the order of the recipe."""
    found: dict[tuple[Kind, str, str], list[str]] = {}
    wanted = list(_of_parts(recipe))
    if any(one.name == EVALUATED for one in wanted):  # an encoder is fitted to whole data sets of the evaluators
        wanted = [_whole(one) for one in wanted if one.name != EVALUATED]
    for one in chain(_of_training(recipe), wanted):
        found.setdefault((one.kind, one.name, one.split), []).extend(one.wanted_by)
    return [Requirement(*key, tuple(dict.fromkeys(places))) for key, places in found.items()]


def _whole(one: Requirement) -> Requirement:
    evaluated = one.kind == "dataset" and one.wanted_by[0].startswith("evaluators.")
    return Requirement(one.kind, one.name, ALL, one.wanted_by) if evaluated else one


def _of_training(recipe: Recipe) -> Iterator[Requirement]:
    if recipe.train.steps == 0:
        return
    for name in recipe.data.dataset:
        yield Requirement("dataset", name, recipe.data.split, ("data.dataset",))
    if recipe.data.file is not None:
        yield Requirement("file", recipe.data.file, "", ("data.file",))


def _of_parts(recipe: Recipe) -> Iterator[Requirement]:
    for place, registry, part in _parts(recipe):
        parameters: dict[str, Any] = part.params
        for parameter, mark in registry[part.name].resources.items():
            value = parameters.get(parameter)
            for name in value if isinstance(value, list | tuple) else [value] if value is not None else []:
                named = EVALUATED if name == mark.evaluated else str(name)
                split = str(parameters.get("split", ALL)) if mark.kind == "dataset" else ""
                yield Requirement(mark.kind, named, split, (f"{place}.{parameter}",))


def _parts(recipe: Recipe) -> Iterator[tuple[str, Registry[Any], Part]]:
    """Yield every part with its dotted place and the registry it is filed in."""
    for key, encoder in recipe.encoders.items():
        yield f"encoders.{key}", ENCODERS, encoder
        for name, head in encoder.heads.items():
            yield f"encoders.{key}.heads.{name}", HEADS, head
    for key, view in recipe.views.items():
        for number, augmenter in enumerate(view.augment):
            yield f"views.{key}.augment[{number}]", AUGMENTERS, augmenter
    if recipe.queue is not None:
        yield "queue", QUEUES, recipe.queue
    for key, loss in recipe.losses.items():
        yield f"losses.{key}", LOSSES, loss
    for key, evaluator in recipe.evaluators.items():
        yield f"evaluators.{key}", EVALUATORS, evaluator


def of_recipes(names: Sequence[str]) -> list[Requirement]:
    """Return what recipes need, each once.

    Raises:
        CseError: One of them is not valid.
    """
    found: dict[tuple[Kind, str, str], Requirement] = {}
    for name in names:
        for one in requirements(load(name).recipe):
            found.setdefault((one.kind, one.name, one.split), one)
    return list(found.values())


def named(names: Sequence[str]) -> list[Requirement]:
    """Return what words of a command line mean: data sets, NAME or NAME/SPLIT, `hf:` data sets, else models.

    Raises:
        UnknownNameError: A data set has no such split.
    """
    found = []
    for name in names:
        dataset, _, split = name.partition("/")
        if name.startswith("hf:"):
            found.append(Requirement("dataset", name, "train"))
        elif dataset in catalogue.names():
            found += [Requirement("dataset", dataset, part) for part in ([split] if split else catalogue.entry(dataset).splits)]
        else:
            found.append(Requirement("model", name))
    return found


def fetch(wanted: Sequence[Requirement], told: Told, *, force: bool = False) -> list[Availability]:
    """Return everything wanted, all of it here: what is not is downloaded.

    Args:
        wanted: Requirements.
        told: Hears of the bytes that arrive.
        force: Download again what was downloaded before, and check its content.

    Raises:
        MissingError: Something can be had from nowhere; told, with everything else that is missing, before the first
            download.
    """
    found = [availability(one) for one in wanted]
    if any(one.state == "fetchable" for one in found) and (reason := hub.unreachable()):
        found = [_refused(one, reason) for one in found]
    if missing := [one for one in found if one.state == "missing"]:
        raise MissingError(*_told_missing(missing, [one for one in found if one.state == "fetchable"]))
    with transfer.reporting(lambda label, done, total, note="": told(f"{label}{note}", done, total)):
        for one in found:
            if one.state == "fetchable" or force:
                _download(one.requirement, force)
    return [availability(one) for one in wanted]
