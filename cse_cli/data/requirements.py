"""What a recipe needs on this machine: its models, data sets and files; what is here, and what can be downloaded.

All that is missing is reported together, with sizes and commands, before the first download.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rich.filesize import decimal

from cse_cli.data.files import find_files
from cse_cli.data.languages import language
from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.requirements import HUB, Requirement
from registry import catalogue, hub, models, transfer
from registry.catalogue.find import own_file
from registry.catalogue.hub_sets import HubSet
from registry.errors import CseError, MissingError, UnknownNameError

DownloadProgress = Callable[[str, int, int | None], None]
"""Called with what is being downloaded, bytes done, and bytes in all where they are known."""


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


def parse_requirements(names: Sequence[str]) -> list[Requirement]:
    """Return what words of a command line mean: data sets, NAME or NAME/SPLIT, `hf:` data sets, else models.

    Raises:
        UnknownNameError: A data set has no such split, or a recipe is named.
    """
    found = []
    for name in names:
        dataset, _, split = name.partition("/")
        if name.startswith("hf:"):
            found.append(Requirement("dataset", name, "train"))
        elif dataset in catalogue.names():
            splits = [split] if split else catalogue.entry(dataset).splits
            found += [Requirement("dataset", dataset, each) for each in splits]
        elif name in all_recipes():
            raise UnknownNameError(f"'{name}' is a recipe, no data set and no model", f"cse data download --for {name}")
        else:
            found.append(Requirement("model", name))
    return found


def availability(wanted: Requirement, *, ask_hub: bool = False) -> Availability:
    """Return whether a requirement is met, from where it can be had, or why not.

    Args:
        wanted: What is asked for.
        ask_hub: Whether the hub may be asked for what no catalogue knows; otherwise nothing goes over the network.
    """
    try:
        return _LOOK[wanted.kind](wanted, ask_hub)
    except CseError as error:
        return Availability(wanted, "missing", problem=error.message, action=error.next_action or "")


def _model(wanted: Requirement, ask_hub: bool) -> Availability:
    state = models.model_state(wanted.name, ask_hub=ask_hub and models.known(wanted.name) is None)
    licence = state.licence or ""
    if state.path is not None:
        return Availability(wanted, "here", _origin(state.path), (state.path,), 0, licence)
    if state.repository is None:
        models.locate(wanted.name)  # raises what is wrong with the path
    assert state.repository is not None
    return Availability(wanted, "fetchable", _hub_name(state.repository), (), state.bytes, licence)


def _dataset(wanted: Requirement, ask_hub: bool) -> Availability:
    if wanted.name.startswith(HUB):
        return _hub_set(wanted, ask_hub)
    found = catalogue.find(wanted.name, wanted.split)
    licence = catalogue.entry(wanted.name).licence
    if found is not None:
        origin, source = found
        return Availability(wanted, "here", origin, source.paths, 0, licence)
    states = [catalogue.state(*root) for root in catalogue.roots(wanted.name, wanted.split)]
    lacking = [state for state in states if state.origin is None]
    for state in lacking:
        if not state.sources:
            catalogue.locate(state.name, state.split)  # raises what to do
    files = {(state.sources[0], state.files): state.bytes for state in lacking}
    size = sum(size or 0 for size in files.values()) if all(files.values()) else None
    origins = dict.fromkeys(state.sources[0] for state in lacking)
    return Availability(wanted, "fetchable", ", ".join(origins), (), size, licence)


def _hub_set(wanted: Requirement, ask_hub: bool) -> Availability:
    dataset = HubSet.parse(wanted.name)
    if ask_hub:
        hub.remote_files(dataset.repository)  # raises where there is no such repository
    state = dataset.state(wanted.split)
    if state.path is not None:
        return Availability(wanted, "here", "cache", (state.path,), 0)
    return Availability(wanted, "fetchable", _hub_name(dataset.repository), (), state.bytes)


def _file(wanted: Requirement, _: bool) -> Availability:
    try:
        if wanted.wanted_by[:1] == ("data.file",):
            paths = find_files([wanted.name])
        elif (path := own_file(wanted.name)) is not None:
            paths = (path,)
        else:
            raise MissingError(f"no file {wanted.name}", "put it into the current folder, or below $CSE_DATA")
    except MissingError as error:
        return Availability(
            wanted, "missing", problem=error.message, action=_once(wanted.command) or error.next_action or ""
        )
    return Availability(wanted, "here", str(paths[0].parent), paths, 0)


def _once(command: str) -> str:
    """Return what a command does for a recipe, and the command; nothing where there is none."""
    words = command.split()
    if "translate" not in words:
        return command and f"fetch it once: {command}"
    target = language(words[words.index("--to") + 1]) if "--to" in words[:-1] else None
    return f"make {f'the {target.name} side' if target else 'it'} once: {command}"


_LOOK = {"model": _model, "dataset": _dataset, "file": _file}


def _origin(model: Path) -> str:
    """Return in a word where the directory of a model lies."""
    folders = {"package": models.PRETRAINED, "CSE_MODELS": models.own_folder(), "cache": hub.cache_folder()}
    return next((name for name, folder in folders.items() if model.is_relative_to(folder.absolute())), str(model))


def _hub_name(repository: hub.Repository) -> str:
    return f"hf:{repository.id}@{repository.revision[:12]}"


def fetch(wanted: Sequence[Requirement], progress: DownloadProgress, *, force: bool = False) -> list[Availability]:
    """Return everything wanted, all of it here: what is not is downloaded.

    Args:
        wanted: Requirements.
        progress: Called as bytes arrive.
        force: Download again what was downloaded before, and check its content.

    Raises:
        MissingError: Something can be had from nowhere; raised before the first download, with all that is missing.
    """
    found = [availability(one) for one in wanted]
    if not force and all(one.state == "here" for one in found):
        return found
    if any(_is_on_hub(one) for one in found):
        reason = hub.unreachable()
        found = [_from_hub(one, reason) if _is_on_hub(one) else one for one in found]
    if missing := [one for one in found if one.state == "missing"]:
        raise MissingError(*_missing_message(missing, [one for one in found if one.state == "fetchable"]))

    def report(label: str, done: int, total: int | None, note: str) -> None:
        progress(f"{label} {note}".rstrip(), done, total)

    with transfer.reporting(report):
        for one in found:
            if one.state == "fetchable" or force:
                _download(one.requirement, force=force)
    return [availability(one) for one in wanted]


def _download(wanted: Requirement, *, force: bool) -> None:
    if wanted.kind == "model":
        models.locate(wanted.name, force=force)
    elif wanted.name.startswith(HUB):
        HubSet.parse(wanted.name).files(wanted.split)
    elif wanted.kind == "dataset" and force:
        catalogue.fetch(wanted.name, wanted.split, force=True)
    elif wanted.kind == "dataset":
        catalogue.locate(wanted.name, wanted.split)


def _is_on_hub(one: Availability) -> bool:
    return one.state == "fetchable" and one.origin.startswith(HUB)


def _from_hub(one: Availability, unreachable: str | None) -> Availability:
    """Return what the hub says of something it should have, or that it cannot be asked."""
    if unreachable is None:
        return availability(one.requirement, ask_hub=True)
    action = "`cse data pack` on a machine that reaches the network makes an archive of what a recipe needs"
    if unreachable.startswith(hub.OFFLINE):
        action = f"unset {hub.OFFLINE}; where there is no network, {action}"
    return replace(one, state="missing", problem=f"not on this machine, and {unreachable}", action=action)


def _missing_message(missing: Sequence[Availability], fetchable: Sequence[Availability]) -> tuple[str, str]:
    """Return message and next action for all that is missing; what is missing for one reason stands together."""
    if len(missing) == 1 and not fetchable:
        one = missing[0]
        return f"{one.requirement.title}: {one.problem}", one.action
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in missing:
        size = f" ({decimal(one.bytes)})" if one.bytes else ""
        reasons.setdefault((one.problem, one.action), []).append(f"{one.requirement.title}{size}")
    lines = [f"\n  {', '.join(told)}: {why}\n      → {action}" for (why, action), told in reasons.items()]
    noun = "1 thing" if len(missing) == 1 else f"{len(missing)} things"
    also = f"\n  ({download_size(fetchable)} would be downloaded)" if fetchable else ""
    message = f"{noun} that the run needs cannot be had:{''.join(lines)}{also}"
    return message, "`cse list recipes` shows what runs here now; nothing was downloaded"


def download_size(found: Sequence[Availability]) -> str:
    """Return how much there is to download, in words; archives that several data sets share count once."""
    sizes = {(one.origin, one.bytes): one.bytes for one in found if one.state == "fetchable"}
    known = sum(size for size in sizes.values() if size is not None)
    unknown = "what has no known size" if any(size is None for size in sizes.values()) else ""
    return " and ".join(filter(None, (decimal(known) if known or not unknown else "", unknown)))
