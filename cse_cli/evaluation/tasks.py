"""Tasks of `cse evaluate --tasks`, from the suites and names that evaluators declare."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cse_cli.recipe.overrides import parse_value
from cse_cli.recipe.parse import check_parameters
from cse_cli.recipe.problems import Problems
from registry import EVALUATORS
from registry.errors import CseError, UnknownNameError, suggestion
from registry.machinery.core import Entry
from registry.machinery.parameters import Parameters
from registry.resources import catalog
from registry.types import Evaluator


@dataclass(frozen=True)
class Task:
    """An evaluator with its parameters.

    `changed` are the names of the parameters that `--set` changed.
    """

    component: str
    params: Parameters
    changed: tuple[str, ...]
    evaluator: Evaluator


class _Named(NamedTuple):
    """A component, and the parameters that follow from the task's name."""

    entry: Entry[Evaluator]
    given: Mapping[str, Any]


class _Setting(NamedTuple):
    """One `--set` for a task, or for all tasks of a component."""

    label: str
    of: str
    parameter: str
    value: Any


def parse_tasks(words: str, assignments: Sequence[str] = ()) -> dict[str, Task]:
    """Return name → task in the given order, without duplicates.

    `words` are suites, data sets, files of pairs and evaluators, separated by commas outside parentheses. An assignment
    is "task.parameter=value", or "component.parameter=value" for all tasks of a component.
    """
    found: dict[str, _Named] = {}
    for word in re.split(r",(?![^()]*\))", words):
        for name, one in _tasks_of(word.strip()):
            if found.setdefault(name, one) != one:
                meanings = " and ".join(
                    f"{each.entry.name} (from {each.entry.distribution}) with {dict(each.given)}"
                    for each in (found[name], one)
                )
                raise CseError(
                    f"the task '{name}' has two meanings: {meanings}",
                    "score them in two commands, or rename the task of a plug-in",
                    code="evaluate.ambiguous_task",
                )
    settings = _settings(found, assignments)
    return {name: _made(name, one, settings) for name, one in found.items()}


def _tasks_of(word: str) -> list[tuple[str, _Named]]:
    """Return the tasks of a suite, or the one task with this name. The component with the most tasks is first."""
    for entry in EVALUATORS:
        if made := entry.cls.tasks_of(word):
            return [(name, _Named(entry, given)) for name, given in made.items()]
    members = [(entry, entry.cls.suites[word]) for entry in EVALUATORS if word in entry.cls.suites]
    if not members and word in EVALUATORS:
        return [(word, _Named(EVALUATORS[word], {}))]
    if not members:
        for entry in EVALUATORS:
            if (given := entry.cls.parameters_for(word)) is not None:
                return [(word, _Named(entry, given))]
        raise _unknown(word)
    found = []
    for entry, names in sorted(members, key=lambda member: -len(member[1])):
        for name in names:
            given = {} if name == entry.name else entry.cls.parameters_for(name)
            if given is None:
                raise CseError(
                    f"evaluator '{entry.name}' (from {entry.distribution}) has no parameters for its task '{name}'",
                    "return parameters for each task of `suites` in `parameters_for`",
                    code="evaluate.task_without_parameters",
                )
            found.append((name, _Named(entry, given)))
    return found


def _unknown(name: str) -> CseError:
    dataset, _, split = name.partition("/")
    scored = [each for each in catalog.names() if catalog.entry(each).kind == "pairs"]
    if dataset in catalog.names():
        if split:
            catalog.entry(dataset).split(split)
        return CseError(
            f"data set '{name}' has no gold scores",
            f"use one of {', '.join(scored[:5])}",
            code="evaluate.no_gold_scores",
        )
    words = list(dict.fromkeys(word for entry in EVALUATORS for word in entry.cls.suites))
    members = [task for entry in EVALUATORS for suite in entry.cls.suites.values() for task in suite]
    known = dict.fromkeys([*words, *members, *scored, *EVALUATORS.names()])
    return UnknownNameError(
        f"unknown task '{name}'.{suggestion(name, known)}",
        f"use {', '.join(sorted(words))}, a data set (stsb/dev), a file of pairs (pairs.tsv), or an evaluator: "
        "cse list evaluators",
        code="evaluate.unknown_task",
    )


def _settings(found: Mapping[str, _Named], assignments: Sequence[str]) -> list[_Setting]:
    """Return the assignments. Those of components are first, so those of single tasks override them."""
    components = {one.entry.name for one in found.values()}
    settings = []
    for assignment in assignments:
        path, equals, value = assignment.partition("=")
        of, _, parameter = path.strip().rpartition(".")
        label = f"--set {path.strip()}"
        if not equals or not of:
            raise CseError(
                f"'{label}' is not task.parameter=value",
                "for example: --set sts.bootstrap=1000",
                code="evaluate.bad_set",
            )
        if of not in components and of not in found:
            known = list(dict.fromkeys([*components, *found]))
            raise UnknownNameError(
                f"{label}: '{of}' is neither a task of this command nor its evaluator.{suggestion(of, known)}",
                f"use one of {', '.join(known[:5])}",
                code="evaluate.unknown_task",
            )
        settings.append(_Setting(label, of, parameter, parse_value(value.strip())))
    return sorted(settings, key=lambda setting: setting.of not in components)


def _made(name: str, one: _Named, settings: Sequence[_Setting]) -> Task:
    entry = one.entry
    if entry.references:
        kinds = " and ".join(sorted({f"{reference.kind}s" for reference in entry.references}))
        raise CseError(
            f"evaluator '{entry.name}' needs the {kinds} of a recipe, which a finished model does not have",
            f"add [evaluators.{entry.name}] to a recipe and run it",
            code="evaluate.needs_recipe",
        )
    own = [setting for setting in settings if setting.of in (name, entry.name)]
    for setting in own:
        if setting.parameter in one.given:
            raise CseError(
                f"{setting.label}: the task '{name}' already determines this parameter",
                "choose another task with --tasks",
                code="evaluate.fixed_parameter",
            )
    changed = {setting.parameter: setting.value for setting in own}
    problems = Problems()
    params = check_parameters(f"evaluator '{entry.name}'", entry, {**one.given, **changed}, (name,), problems)
    if problems.found:
        raise CseError(
            "\n".join(str(problem) for problem in problems.found),
            f"set them with --set {name}.parameter=value. List them: cse show {entry.name}",
            code="evaluate.bad_parameter",
        )
    return Task(entry.name, params, tuple(changed), entry.build(params))
