"""The options of `cse tune` → a `SearchConfig`, with everything checked before the first trial.

Also which recipe is meant where none is named: the configured one, the one run last, else `quickstart`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cse_cli.core.formatting import parse_duration
from cse_cli.core.paths import home
from cse_cli.jobs.request import RunRequest, parse_seeds, parse_tags
from cse_cli.recipe.errors import RecipeError
from cse_cli.recipe.files import find
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.runs.index import all_runs
from cse_cli.tuning.config import SearchConfig, dev_metric
from cse_cli.tuning.samplers import check_names
from cse_cli.tuning.space import search_space
from cse_cli.tuning.storage import address
from cse_cli.tuning.study import identity, load_study, stored_config
from registry.errors import CseError, UnknownNameError, suggestion
from registry.paths import expand_user

SHIPPED = "quickstart"
"""Runs anywhere: no network, no files beside the package."""
_KEY = "default_recipe"
_LONGEST = 60
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,150}"


@dataclass(frozen=True)
class SearchOptions:
    """What the command line says; None and empty where an option is left out.

    Args:
        recipe: File or name.
        params: `--param` names.
        ranges: `--range` texts.
        choices: `--choices` texts.
        metric: Dev metric instead of the recipe's.
        overrides: `--set` texts.
        unset: `--unset` keys.
        timeout: Such as "90", "30m" or "2h".
        seeds: A count, or a list with commas.
        name: Of the study.
        join: Name of a study that exists.
        on: A Ray cluster.
        patience: Such as "2h".
        save_best: File for a recipe with the best values.
        confirm: With how many fresh seeds the best values are compared with the recipe's own.
        as_json: Print one JSON document.
        quiet: Show results and errors alone.
        tags: `key=value` texts.
        experiment: Group in which runs are recorded, the experiment in MLflow.
        accept_changed: Keep trials that other code made.
    """

    recipe: str | None = None
    params: Sequence[str] = ()
    ranges: Sequence[str] = ()
    choices: Sequence[str] = ()
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
    on: str | None = None
    patience: str = "2h"
    save_best: Path | None = None
    confirm: int | None = None
    as_json: bool = False
    quiet: bool = False
    tags: Sequence[str] = ()
    experiment: str | None = None
    accept_changed: bool = False

    def request(self) -> RunRequest:
        """Return where runs are done.

        Raises:
            CseError: The patience is no duration.
        """
        patience = parse_duration("--patience", self.patience)
        return RunRequest(device=self.device, workers=self.workers, on=self.on, patience=patience)

    def demand_no_search(self, form: str, *allowed: str) -> None:
        """Refuse options that say what or how to search, for forms that only look.

        Args:
            form: Of the command, for the message.
            allowed: Options that this form takes.

        Raises:
            CseError: Naming the first of them.
        """
        searching = {
            "param": self.params, "range": self.ranges, "choices": self.choices, "metric": self.metric,
            "set": self.overrides, "unset": self.unset, "trials": self.trials, "timeout": self.timeout,
            "sampler": self.sampler, "pruner": self.pruner, "seeds": self.seeds, "steps": self.steps,
            "name": self.name, "join": self.join, "workers": self.workers, "on": self.on, "tag": self.tags,
            "experiment": self.experiment, "accept-changed": self.accept_changed,
        }  # fmt: skip
        for option, value in searching.items():
            if value and option not in allowed:
                raise CseError(
                    f"{form} and --{option} exclude each other: nothing is searched", f"leave out --{option}"
                )


def resolve_options(
    options: SearchOptions, chosen: Callable[[str, str], None] = lambda _recipe, _why: None
) -> tuple[SearchConfig, LoadedRecipe]:
    """Return the config of a search, and the recipe with what all trials have in common.

    What the options leave out comes from the study that is to be joined, where there is one.

    Args:
        options: Of the command.
        chosen: Told which recipe it is, and why where none was named, before anything about it can be wrong.

    Raises:
        CseError: Something in it is not possible.
    """
    if options.join is not None and options.name is not None:
        raise CseError("--name and --join exclude each other", "--name begins a study, --join goes on with one")
    if options.name is not None and not re.fullmatch(_NAME, options.name):
        raise CseError(f"--name: '{options.name}' cannot name a file", "use letters, digits, '.', '_' and '-'")
    address(options.storage, options.join or options.name or "")
    known = None if options.join is None else stored_config(load_study(options.storage, options.join))
    recipe, why = _choose_recipe(options, known)
    chosen(recipe, why)
    own = [] if options.metric is None else [f"evaluate.select={json.dumps(options.metric)}"]
    overrides = (*options.overrides, *own) or (known.overrides if known else ())
    unset = tuple(options.unset) or (known.unset if known else ())
    loaded = _load(recipe, overrides, unset, options.metric)
    dev_metric(loaded.recipe)
    if known is not None and not (options.params or options.ranges or options.choices):
        parameters = known.parameters
    else:
        parameters = search_space(loaded, options.params, options.ranges, options.choices)
    if options.steps is not None and any({"train.steps", "train.epochs"} & set(one.paths) for one in parameters):
        raise CseError("--steps: the length of training is tuned itself", "leave out one of the two")
    defaults = known or SearchConfig(name="", recipe="", parameters=())
    config = SearchConfig(
        name=options.join or options.name or "",
        recipe=reference(loaded.name, loaded.path),
        parameters=parameters,
        overrides=overrides,
        unset=unset,
        trials=options.trials,
        timeout=None if options.timeout is None else parse_duration("--timeout", options.timeout),
        sampler=options.sampler or defaults.sampler,
        pruner=options.pruner or defaults.pruner,
        seeds=_seeds(options.seeds) or defaults.seeds or (loaded.recipe.train.seed,),
        steps=options.steps if options.steps is not None else defaults.steps,
        storage=options.storage,
        device=options.device,
        workers=options.workers,
        on=options.on,
        patience=options.request().patience,
        join=options.join is not None,
        tags=parse_tags(options.tags) or defaults.tags,
        experiment=options.experiment or defaults.experiment,
        accept_changed=options.accept_changed,
    )
    check_names(config)
    return (config if config.name else config.model_copy(update={"name": _name(config, loaded)})), loaded


def _choose_recipe(options: SearchOptions, known: SearchConfig | None) -> tuple[str, str]:
    if options.recipe is None and known is not None:
        return known.recipe, f"study '{options.join}' is about it"
    return choose_recipe(options.recipe)


def _load(recipe: str, overrides: Sequence[str], unset: Sequence[str], metric: str | None) -> LoadedRecipe:
    """Return the recipe; what is wrong with the metric is reported in terms of tuning."""
    try:
        return load(recipe, overrides, unset)
    except RecipeError as error:
        # A recipe whose only fault is to select on test data: the way out that its own rule names is none for tuning.
        with suppress(RecipeError):
            dev_metric(load(recipe, [*overrides, "evaluate.allow_test_selection=true"], unset).recipe)
        if metric is None:
            raise
        raise RecipeError(
            [
                replace(problem, where="--metric", keys="") if problem.where == "--set evaluate.select" else problem
                for problem in error.problems
            ]
        ) from None


def _seeds(text: str | None) -> tuple[int, ...]:
    return () if text is None else tuple(parse_seeds(text))


def _name(config: SearchConfig, loaded: LoadedRecipe) -> str:
    """Return a name that the same question always has, so that the same command goes on with its study."""
    asked: Any = identity(loaded.recipe, config.parameters, config.seeds, config.steps)
    asked["experiment"] = asked["experiment"]["settings"]  # the rest is not known before the text is downloaded
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:6]
    always = [one for one in config.parameters if one.when is None]
    keys = [next(key for key in reversed(one.name.split(".")) if not key.isdigit()) for one in always]
    said = "-".join(keys) if len("-".join(keys)) <= _LONGEST else f"{len(keys)}_parameters"
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"{loaded.name}-{said}-{digest}")


def choose_recipe(named: str | None = None) -> tuple[str, str]:
    """Return the recipe named, else the configured one, else the one run last, else the shipped one; and why.

    Raises:
        CseError: The configuration cannot be read.
    """
    if named is not None:
        return named, ""
    file = config_file()
    if (configured := _configured(file)) is not None:
        return configured, f"it is the {_KEY} in {file}"
    if (last := _last_run()) is not None:
        return last, f"it is the one run last from {home()}"
    return SHIPPED, f"none is named, configured or has been run from {home()}"


def config_file() -> Path:
    """Return the file of a person's own settings: `CSE_CONFIG`, else `config.toml` in the state directory."""
    if configured := os.environ.get("CSE_CONFIG"):
        return expand_user(Path(configured)).absolute()
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
        return str((file.parent / expand_user(Path(recipe))).absolute())
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
    """Return the recipe of the newest run of this state directory whose file still exists."""
    for run in all_runs():
        name, source = run.about.recipe, Path(run.about.source)
        if name and source.is_absolute() and source.is_file():
            return reference(name, source)
    return None


def reference(name: str, file: Path) -> str:
    """Return how to name a recipe's file from anywhere: its bare name where that means it, else the whole path."""
    with suppress(UnknownNameError):
        if find(name).resolve() == file.resolve():
            return name
    return str(file.absolute())
