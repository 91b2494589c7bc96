"""What a command line asks for → a plan, with everything checked before the first trial.

Which recipe a command means that names none.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from cse_cli.core.paths import home, runs
from cse_cli.recipe.errors import Problem, RecipeError
from cse_cli.recipe.files import find
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.runs.request import Asked as Runs
from cse_cli.runs.request import seeds as read_seeds
from cse_cli.tuning import space
from cse_cli.tuning.config import Plan, objective
from cse_cli.tuning.samplers import check
from cse_cli.tuning.storage import address
from cse_cli.tuning.study import identity, load_study, stored_plan
from registry.errors import CseError, UnknownNameError, suggestion

_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_LONGEST = 60
_SELECT = "evaluate.select"
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,150}"


@dataclass(frozen=True)
class Wanted:
    """The options of a search; None is what nobody said.

    Args:
        recipe: File or name.
        space: Parameters and their ranges.
        metric: Dev metric instead of the recipe's.
        overrides: `--set` texts.
        unset: `--unset` keys.
        timeout: Such as "90", "30m" or "2h".
        seeds: A count, or a list with commas.
        name: Of the study.
        join: Name of a study that exists.
    """

    recipe: str | None = None
    space: space.Asked = field(default_factory=space.Asked)
    metric: str | None = None
    overrides: Sequence[str] = ()
    unset: Sequence[str] = ()
    trials: int | None = None
    timeout: str | None = None
    sampler: str | None = None
    pruner: str | None = None
    seeds: str | None = None
    steps: int | None = None
    name: str | None = None
    join: str | None = None
    storage: str | None = None
    device: str = "auto"
    workers: int | None = None

    @property
    def lists(self) -> bool:
        """Whether the list of studies is asked for; a recipe of that name is asked for as ls.toml."""
        return self.recipe == "ls"

    @property
    def said(self) -> list[str]:
        """Options given that say how to search."""
        given = {"param": self.space.names, "range": self.space.ranges, "choices": self.space.choices}
        given |= {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _NOT_SEARCHING}
        return [{"overrides": "set"}.get(name, name) for name, value in given.items() if value]


_NOT_SEARCHING = {"recipe", "space", "storage", "device"}


@dataclass(frozen=True)
class Planned:
    """A search before its first trial.

    Args:
        plan: What the workers are told.
        loaded: The recipe with what all trials have in common.
        why: Why it is this recipe, where nobody named it.
        metric: What is maximised.
    """

    plan: Plan
    loaded: LoadedRecipe
    why: str
    metric: str


def planned(wanted: Wanted) -> Planned:
    """Return the plan of a search: of a new study, or of the one to go on with.

    Raises:
        CseError: Something in it cannot be.
    """
    if wanted.join is not None and wanted.name is not None:
        raise CseError("--name and --join exclude each other", "--name begins a study, --join goes on with one")
    if wanted.name is not None and not re.fullmatch(_NAME, wanted.name):
        raise CseError(f"--name: '{wanted.name}' cannot name a file", "use letters, digits, '.', '_' and '-'")
    address(wanted.storage, wanted.join or wanted.name or "")
    known = None if wanted.join is None else stored_plan(load_study(wanted.storage, wanted.join))
    chosen = _recipe(wanted, known)
    loaded = _loaded(wanted, known, chosen.recipe)
    metric = objective(loaded.recipe)
    plan = _plan(wanted, known, loaded)
    check(plan)
    return Planned(replace(plan, name=plan.name or _name(plan, loaded)), loaded, chosen.why, metric)


def _plan(wanted: Wanted, known: Plan | None, loaded: LoadedRecipe) -> Plan:
    """Return what is asked for, and of the study to go on with what is not."""
    knobs = _knobs(wanted, known, loaded)
    return Plan(
        name=wanted.join or wanted.name or "",
        recipe=reference(loaded.name, loaded.path),
        knobs=knobs,
        overrides=_overrides(wanted, known),
        unset=_unset(wanted, known),
        trials=wanted.trials,
        timeout=None if wanted.timeout is None else seconds(wanted.timeout),
        sampler=wanted.sampler or (known.sampler if known else "tpe"),
        pruner=wanted.pruner or (known.pruner if known else "auto"),
        seeds=_seeds(wanted, known, loaded),
        steps=_steps(wanted, known, knobs),
        storage=wanted.storage,
        device=wanted.device,
        workers=wanted.workers,
        join=wanted.join is not None,
    )


def _recipe(wanted: Wanted, known: Plan | None) -> Chosen:
    if wanted.recipe is None and known is not None:
        return Chosen(known.recipe, f"study '{wanted.join}' is about it")
    return choose(wanted.recipe)


def _loaded(wanted: Wanted, known: Plan | None, recipe: str) -> LoadedRecipe:
    """Return the recipe with what all trials have in common; a test metric is refused in the words of tuning."""
    overrides, unset = _overrides(wanted, known), _unset(wanted, known)
    try:
        return load(recipe, overrides, unset)
    except RecipeError as error:
        _demand_dev(recipe, overrides, unset)
        if wanted.metric is None:
            raise
        raise RecipeError(list(map(_of_metric, error.problems))) from None


def _demand_dev(recipe: str, overrides: Sequence[str], unset: Sequence[str]) -> None:
    """Refuse a recipe at fault in nothing but selecting on test data; its own rule's way out is none for tuning."""
    with suppress(RecipeError):
        objective(load(recipe, [*overrides, "evaluate.allow_test_selection=true"], unset).recipe)


def _of_metric(problem: Problem) -> Problem:
    """Return a problem as that of the option it came with."""
    return replace(problem, where="--metric", keys="") if problem.where == f"--set {_SELECT}" else problem


def _overrides(wanted: Wanted, known: Plan | None) -> tuple[str, ...]:
    own = [] if wanted.metric is None else [f"{_SELECT}={json.dumps(wanted.metric)}"]
    return (*wanted.overrides, *own) or (known.overrides if known else ())


def _unset(wanted: Wanted, known: Plan | None) -> tuple[str, ...]:
    return tuple(wanted.unset) or (known.unset if known else ())


def _knobs(wanted: Wanted, known: Plan | None, loaded: LoadedRecipe) -> tuple[space.Knob, ...]:
    asked = wanted.space
    if known is not None and not (asked.names or asked.ranges or asked.choices):
        return known.knobs
    return space.space(loaded, asked)


def _seeds(wanted: Wanted, known: Plan | None, loaded: LoadedRecipe) -> tuple[int, ...]:
    if wanted.seeds is None:
        return known.seeds if known is not None and known.seeds else (loaded.recipe.train.seed,)
    return tuple(seed for seed in read_seeds(Runs(seeds=wanted.seeds)) if seed is not None)


def _steps(wanted: Wanted, known: Plan | None, knobs: Sequence[space.Knob]) -> int | None:
    steps = wanted.steps if wanted.steps is not None else (known.steps if known else None)
    tuned = {path for knob in knobs for path in knob.paths}
    if wanted.steps is not None and tuned & {"train.steps", "train.epochs"}:
        raise CseError("--steps: the length of training is tuned itself", "leave out one of the two")
    return steps


def seconds(text: str) -> float:
    """Return the seconds that "90", "30m", "1.5h" or "2d" mean.

    Raises:
        CseError: It is none of these.
    """
    match = re.fullmatch(r"(\d+\.?\d*)\s*(s|m|min|h|d|)", text.strip())
    if match is None or float(match[1]) == 0:
        raise CseError(f"--timeout: '{text}' is no duration", "write seconds, or such as 30m, 2h, 1.5h")
    return float(match[1]) * _UNITS[match[2]]


def _name(plan: Plan, loaded: LoadedRecipe) -> str:
    """Return a name that the same question always has, so that the same command goes on with its study."""
    asked: Any = identity(loaded.recipe, plan.knobs, plan.seeds, plan.steps)
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:6]
    short = [next(key for key in reversed(knob.name.split(".")) if not key.isdigit()) for knob in plan.knobs]
    said = "-".join(short) if len("-".join(short)) <= _LONGEST else f"{len(short)}_parameters"
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"{loaded.name}-{said}-{digest}")


SHIPPED = "quickstart"
"""Runs anywhere: no network, no files beside the package."""
_KEY = "default_recipe"


@dataclass(frozen=True)
class Chosen:
    """A recipe and why it is this one.

    Args:
        recipe: Name or path.
        why: For the person who did not name it; empty for one who did.
    """

    recipe: str
    why: str = ""


def choose(asked: str | None = None) -> Chosen:
    """Return the recipe asked for, else the configured one, else the one run last, else the shipped one.

    Raises:
        CseError: The configuration cannot be read.
    """
    if asked is not None:
        return Chosen(asked)
    file = config_file()
    if (configured := _configured(file)) is not None:
        return Chosen(configured, f"it is the {_KEY} in {file}")
    if (last := _last_run()) is not None:
        return Chosen(last, f"it is the one run last from {home()}")
    return Chosen(SHIPPED, f"none is named, configured or has been run from {home()}")


def config_file() -> Path:
    """Return the file of a person's own settings: `CSE_CONFIG`, else `config.toml` in the state directory."""
    if configured := os.environ.get("CSE_CONFIG"):
        return Path(configured).expanduser().absolute()
    return home() / "config.toml"


def _configured(file: Path) -> str | None:
    settings = _settings(file)
    for key in settings:
        if key != _KEY:
            near = suggestion(key, [_KEY]) or f" Known: {_KEY}."
            raise CseError(f"{file}: unknown setting '{key}'.{near}", "correct the file, or delete it")
    recipe = settings.get(_KEY)
    if recipe is None:
        return None
    if not isinstance(recipe, str) or not recipe:
        raise CseError(f"{file}: {_KEY} should be the name or the path of a recipe, in quotes", f'{_KEY} = "{SHIPPED}"')
    if recipe.endswith(".toml"):
        return str((file.parent / Path(recipe).expanduser()).absolute())
    try:
        find(recipe)
    except UnknownNameError as error:
        raise CseError(f"{file}: {_KEY}: {error.message}", "`cse list recipes` shows all of them") from error
    return recipe


def _settings(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if os.environ.get("CSE_CONFIG"):
            raise CseError(f"CSE_CONFIG names {file}, which is not there", "write it, or unset CSE_CONFIG") from None
        return {}
    except (OSError, ValueError) as error:
        raise CseError(f"{file}: cannot be read: {error}", f'one line such as {_KEY} = "{SHIPPED}"') from error


def _last_run() -> str | None:
    """Return the recipe of the youngest run of this state directory whose file is still there."""
    return next(filter(None, map(_recipe_of, _newest_first())), None)


def _newest_first() -> Iterator[Path]:
    found: list[tuple[float, Path]] = []
    for file in runs().glob("*/run.json"):
        with suppress(OSError):  # another process deletes it
            found.append((file.stat().st_mtime, file))
    yield from (file for _, file in sorted(found, reverse=True))


def _recipe_of(file: Path) -> str | None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        name, source = str(content["recipe"]), Path(content["source"])
    except (OSError, ValueError, KeyError, TypeError):  # half written, or by another version
        return None
    return reference(name, source) if source.is_file() else None


def reference(name: str, file: Path) -> str:
    """Return how to ask for a recipe's file from anywhere: its bare name where that means it, else the whole path."""
    with suppress(UnknownNameError):
        if find(name).resolve() == file.resolve():
            return name
    return str(file.absolute())
