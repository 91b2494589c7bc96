"""Complete the settings of a search: the recipe, the search space and the name that the options leave out."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from cse_cli.recipe.files import real_path, shipped
from cse_cli.recipe.load import LoadedRecipe, Override, load
from cse_cli.runs.index import all_runs
from cse_cli.tuning.config import SearchConfig, dev_metric
from cse_cli.tuning.samplers import check_names
from cse_cli.tuning.space import search_space
from cse_cli.tuning.storage import address
from cse_cli.tuning.study import identity, load_study, stored_config
from registry import plugins
from registry.errors import CseError

SHIPPED = "quickstart"
"""Recipe that needs neither a network nor your own files."""
_LONGEST = 60
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,150}"


def resolve(
    given: SearchConfig,
    params: Sequence[str],
    ranges: Sequence[str] = (),
    choices: Sequence[str] = (),
    metric: str | None = None,
    chosen: Callable[[str, str], None] = lambda _recipe, _why: None,
) -> tuple[SearchConfig, LoadedRecipe]:
    """Return the complete settings of a search, and the recipe with its overrides."""
    if given.name and not re.fullmatch(_NAME, given.name):
        message = f"--name: '{given.name}' is not a valid name"
        raise CseError(message, "use letters, digits, '.', '_' and '-'", code="tune.invalid_name")
    address(given.storage, given.name)
    config, reason = given, ""
    if given.resume:
        known = stored_config(load_study(given.storage, given.name))
        config = known.model_copy(
            update={"trials": None, **{key: getattr(given, key) for key in given.model_fields_set}}
        )
        reason = "" if given.recipe else f"the recipe of search {given.name}"
    elif not given.recipe:
        recipe, reason = default_recipe()
        config = given.model_copy(update={"recipe": recipe})
    for file in config.plugins:
        plugins.add(file)
    chosen(config.recipe, reason)
    loaded = _load(config, metric)
    update: dict[str, object] = {"recipe": reference(loaded.name, loaded.path)}
    if metric is not None:
        update["overrides"] = (*given.overrides, f"evaluate.metric_for_best_model={json.dumps(metric)}")
    if params or ranges or choices or not config.parameters:
        update["parameters"] = search_space(loaded, params, ranges, choices)
    config = config.model_copy(update={**update, "seeds": config.seeds_of(loaded.recipe)})
    searched = {path for parameter in config.parameters for path in parameter.paths}
    if config.steps is not None and searched & {"train.steps", "train.epochs"}:
        message = "--steps sets the training length, which is also searched"
        raise CseError(message, "remove --steps", code="tune.exclusive_options")
    check_names(config)
    return config.model_copy(update={"name": config.name or _default_name(config, loaded)}), loaded


def _load(config: SearchConfig, metric: str | None) -> LoadedRecipe:
    """Return the recipe, which has a dev metric. Errors in the metric name the option that the user typed."""
    overrides: list[str | Override] = [*config.overrides]
    if metric is not None:
        overrides.append(replace(Override.of("evaluate.metric_for_best_model", metric), label="--metric"))
    # First without the recipe's own check: its message recommends allow_test_selection, which does not help a search.
    dev_metric(load(config.recipe, [*overrides, "evaluate.allow_test_selection=true"], config.unset).recipe)
    return load(config.recipe, overrides, config.unset)


def _default_name(config: SearchConfig, loaded: LoadedRecipe) -> str:
    """Return a name that depends only on the question, so that the same command resumes its search."""
    question = identity(loaded.recipe, config.parameters, config.seeds, config.steps)
    question["experiment"] = question["experiment"]["settings"]  # the rest is unknown before the download
    digest = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:6]
    keys = []
    for parameter in config.parameters:
        if parameter.when is None:
            keys.append(next(key for key in reversed(parameter.name.split(".")) if not key.isdigit()))
    label = "-".join(keys) if len("-".join(keys)) <= _LONGEST else f"{len(keys)}_parameters"
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"{loaded.name}-{label}-{digest}")


def default_recipe() -> tuple[str, str]:
    """Return the recipe of the newest run whose file still exists, else the shipped one, and the reason."""
    for run in all_runs():
        name, file = run.about.recipe, Path(run.about.source)
        if name and file.is_absolute() and file.is_file():
            return reference(name, file), f"the recipe of the last run, {run.about.short}"
    return SHIPPED, "the default, because there are no runs yet"


def reference(name: str, file: Path) -> str:
    """Return the name of a recipe of this installation, which is valid in every directory, else the whole path."""
    return name if real_path(file).is_relative_to(real_path(shipped())) else str(file.absolute())
