"""Availability of what recipes require (models, data sets and files), and its download.

All missing requirements are reported together, with sizes and commands, before the first download.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rich.filesize import decimal

from cse_cli.data.files import find_files
from cse_cli.recipe.files import bare_file
from cse_cli.recipe.requirements import HUB, NOT_INSTALLED, Requirement, merged_requirements
from cse_cli.recipe.schema import Recipe
from registry.errors import CseError, MissingError, UnknownNameError, suggestion
from registry.resources import catalog, hub, models
from registry.resources.catalog import own_file, require_own_file
from registry.resources.download import known_files, reporting
from registry.resources.hub_sets import HubSet

DownloadProgress = Callable[[str, int, int | None], None]
"""Called with the name of a download, the bytes done and the total bytes, or None if the total is unknown."""


@dataclass(frozen=True)
class Availability:
    """Availability of a requirement.

    `origin` is the location, or the source of the download. Its size may be unknown. `problem` and `action` are for
    missing ones.
    """

    requirement: Requirement
    state: Literal["here", "fetchable", "missing"]
    origin: str = ""
    paths: tuple[Path, ...] = ()
    bytes: int | None = None
    license: str = ""
    problem: str = ""
    action: str = ""


def parse_requirements(names: Sequence[str]) -> list[Requirement]:
    """Return the requirements for arguments of a command: NAME or NAME/SPLIT of a data set, `hf:…`, or a model."""
    found = []
    for name in names:
        dataset, _, split = name.partition("/")
        if name.startswith(HUB):
            found.append(Requirement("dataset", name, "train"))
        elif dataset in catalog.names():
            splits = [split] if split else catalog.entry(dataset).splits
            found += [Requirement("dataset", dataset, each) for each in splits]
        elif bare_file(name, study=False):
            raise UnknownNameError(
                f"'{name}' is a recipe, not a data set or a model",
                f"cse data download --for {name}",
                code="data.recipe_as_data_set",
            )
        elif "/" in name or models.known(name) or models.find(name) or models.similar(name):
            found.append(Requirement("model", name))
        elif hint := suggestion(name, catalog.names()):
            raise UnknownNameError(
                f"'{name}' is not a data set or a model of the catalog.{hint}",
                "run `cse data list` to see all data sets. For a model of the Hub, give OWNER/NAME",
                code="data.unknown_dataset",
            )
        else:
            found.append(Requirement("model", name))
    return found


def availability(requirement: Requirement, *, ask_hub: bool = False) -> Availability:
    """Return the availability of a requirement.

    With `ask_hub`, the Hub is queried about names that are in no catalog. Otherwise the network is not used.
    """
    try:
        match requirement.kind:
            case "model":
                return _model(requirement, ask_hub)
            case "dataset" if requirement.name.startswith(HUB):
                return _hub_set(requirement, ask_hub)
            case "dataset":
                return _dataset(requirement)
            case "file":
                return _file(requirement)
    except CseError as error:
        return Availability(requirement, "missing", problem=error.message, action=error.next_action or "")
    if (action := requirement.installation) is None:
        return Availability(requirement, "here", "Python")
    return Availability(requirement, "missing", problem=NOT_INSTALLED, action=action)


def availabilities(recipes: Iterable[Recipe]) -> list[Availability]:
    """Return the availability of everything that recipes require, without the network."""
    return [availability(one) for one in merged_requirements(recipes)]


def _model(requirement: Requirement, ask_hub: bool) -> Availability:
    state = models.model_state(requirement.name, ask_hub=ask_hub and models.known(requirement.name) is None)
    if (path := state.path) is not None:
        folders = {"package": models.PRETRAINED, "CSE_MODELS": models.own_folder(), "cache": hub.cache_folder()}
        origin = next((name for name, folder in folders.items() if path.is_relative_to(folder.absolute())), str(path))
        return Availability(requirement, "here", origin, (path,), 0, state.license)
    assert state.repository is not None
    return Availability(requirement, "fetchable", _hub_name(state.repository), (), state.bytes, state.license)


def _dataset(requirement: Requirement) -> Availability:
    found = catalog.find(requirement.name, requirement.split)
    license = catalog.entry(requirement.name).license
    if found is not None:
        origin, source = found
        return Availability(requirement, "here", origin, source.paths, 0, license)
    states = [catalog.state(*root) for root in catalog.roots(requirement.name, requirement.split)]
    lacking = [state for state in states if state.origin is None]
    for state in lacking:
        if not state.sources:
            catalog.locate(state.name, state.split)  # raises an error with the next action
    files = {(state.sources[0], state.files): state.bytes for state in lacking}
    size = sum(size or 0 for size in files.values()) if all(files.values()) else None
    origins = dict.fromkeys(state.sources[0] for state in lacking)
    return Availability(requirement, "fetchable", ", ".join(origins), (), size, license)


def _hub_set(requirement: Requirement, ask_hub: bool) -> Availability:
    dataset = HubSet.parse(requirement.name)
    if ask_hub:
        hub.look_up(dataset.repository)  # raises an error if the repository does not exist
    path, size = dataset.state(requirement.split)
    if path is not None:
        return Availability(requirement, "here", "cache", (path,), 0)
    return Availability(requirement, "fetchable", _hub_name(dataset.repository), (), size)


def _file(requirement: Requirement) -> Availability:
    if requirement.wanted_by[:1] == ("data.file",):
        paths = find_files([requirement.name])
    elif own_file(requirement.name) is None and (known := known_files().get(requirement.name)) is not None:
        return Availability(requirement, "fetchable", known.url, (), known.bytes, known.license)
    else:
        action = "give an existing path, absolute or relative to the current directory or to $CSE_DATA"
        paths = (require_own_file(requirement.name, "file", action),)
    return Availability(requirement, "here", str(paths[0].parent), paths, 0)


def _hub_name(repository: hub.Repository) -> str:
    return f"hf:{repository.id}@{repository.revision[:12]}"


def fetch(
    requirements: Sequence[Requirement], progress: DownloadProgress, *, force: bool = False
) -> list[Availability]:
    """Download the requirements that are not on this machine, and return the availability of all.

    With `force`, existing files are verified and wrong ones are downloaded again.
    """
    found = [availability(one) for one in requirements]
    if not force and all(one.state == "here" for one in found):
        return found
    on_hub = [one.state == "fetchable" and one.origin.startswith(HUB) for one in found]
    if any(on_hub):
        reason = hub.unreachable()
        found = [_checked_on_hub(one, reason) if asks else one for one, asks in zip(found, on_hub, strict=True)]
    if missing := [one for one in found if one.state == "missing"]:
        raise _missing_error(missing, [one for one in found if one.state == "fetchable"])

    def report(label: str, done: int, total: int | None, note: str) -> None:
        progress(f"{label} {note}".rstrip(), done, total)

    with reporting(report):
        for one in found:
            if one.state == "fetchable" or force:
                _download(one.requirement, force=force)
    return [availability(one) for one in requirements]


def _download(requirement: Requirement, *, force: bool) -> None:
    if requirement.kind == "model":
        models.locate(requirement.name, force=force)
    elif requirement.name.startswith(HUB):
        HubSet.parse(requirement.name).files(requirement.split)
    elif requirement.kind == "file":
        known_files()[requirement.name].fetch()
    elif requirement.kind == "dataset" and force:
        catalog.fetch(requirement.name, requirement.split, force=True)
    elif requirement.kind == "dataset":
        catalog.locate(requirement.name, requirement.split)


def _checked_on_hub(one: Availability, unreachable: str | None) -> Availability:
    """Return the availability according to the Hub. It is missing if the Hub is unreachable."""
    if unreachable is None:
        return availability(one.requirement, ask_hub=True)
    action = "run `cse data download` on a machine with internet, and copy its caches: docs/data.md"
    if unreachable.startswith(hub.OFFLINE):
        action = f"unset {hub.OFFLINE}, or {action}"
    hint = models.similar(one.requirement.name) if one.requirement.kind == "model" else ""
    problem = f"not on this machine, and {unreachable}{hint and f'.{hint}'}"
    return replace(one, state="missing", problem=problem, action=action)


def _missing_error(missing: Sequence[Availability], fetchable: Sequence[Availability]) -> MissingError:
    """Return the error for missing requirements, grouped by reason."""
    if len(missing) == 1 and not fetchable:
        one = missing[0]
        return MissingError(f"{one.requirement.title}: {one.problem}", one.action, code="data.missing_requirement")
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in missing:
        size = f" ({decimal(one.bytes)})" if one.bytes else ""
        reasons.setdefault((one.problem, one.action), []).append(f"{one.requirement.title}{size}")
    lines = [f"\n  {', '.join(titles)}: {why}\n      → {action}" for (why, action), titles in reasons.items()]
    also = f"\n  (download size of the others: {download_size(fetchable)})" if fetchable else ""
    message = f"requirements not found: {len(missing)}{''.join(lines)}{also}"
    action = "`cse list recipes --all` and `cse data list` show what is ready; nothing was downloaded"
    return MissingError(message, action, code="data.missing_requirement")


def download_size(found: Sequence[Availability]) -> str:
    """Return the total download size, or "" without downloads. Archives that several data sets share count once."""
    sizes = {(one.origin, one.bytes): one.bytes for one in found if one.state == "fetchable"}
    known = sum(size for size in sizes.values() if size is not None)
    if all(size is not None for size in sizes.values()):
        return decimal(known) if sizes else ""
    return f"{decimal(known)} and files of unknown size" if known else "files of unknown size"
