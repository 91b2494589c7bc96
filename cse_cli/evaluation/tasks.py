"""`cse evaluate --tasks`: words and names → evaluators, by the suites and names that evaluators declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cse_cli.recipe.draft import check_part
from cse_cli.recipe.errors import EnoughProblems, Problems, dotted
from cse_cli.recipe.load import toml_value
from registry import EVALUATORS, catalogue
from registry.core import Entry
from registry.errors import CseError, UnknownNameError, suggestion
from registry.types import Evaluator


@dataclass(frozen=True)
class Task:
    """One evaluator to score with.

    Args:
        component: Its registered name.
        params: All of its parameters.
        changed: Those that an assignment gave.
        evaluator: It, made.
    """

    component: str
    params: dict[str, Any]
    changed: tuple[str, ...]
    evaluator: Evaluator


@dataclass(frozen=True)
class _Named:
    """A component, and the parameters that the task's name stands for."""

    entry: Entry[Evaluator]
    given: Mapping[str, Any]


@dataclass(frozen=True)
class _Setting:
    """One `--set`: of a task, or of all tasks of a component."""

    label: str
    of: str
    parameter: str
    value: Any


def parse_tasks(words: str, assignments: Sequence[str] = ()) -> dict[str, Task]:
    """Return name → task, in the order given; what is named twice is there once.

    Args:
        words: Words, data sets, files of pairs and evaluators, separated by commas.
        assignments: "task.parameter=value", or "component.parameter=value" for all of its tasks.

    Raises:
        UnknownNameError: Nothing has that name.
        CseError: A task needs what is not given, or a parameter is unknown or wrong.
    """
    found: dict[str, _Named] = {}
    for word in words.split(","):
        for name, one in _tasks_of(word.strip()):
            if found.setdefault(name, one).entry.name != one.entry.name:
                raise CseError(
                    f"two evaluators have a task called '{name}': {found[name].entry.name} (from "
                    f"{found[name].entry.distribution}) and {one.entry.name} (from {one.entry.distribution})",
                    "rename it in one of them, or remove the plug-in",
                )
    settings = _settings(found, assignments)
    return {name: _made(name, one, settings) for name, one in found.items()}


def _tasks_of(word: str) -> list[tuple[str, _Named]]:
    """Return the tasks of a suite, those of the component with the most first; or the one task of that name."""
    members = {entry.name: entry.cls.suites[word] for entry in EVALUATORS if word in entry.cls.suites}
    if not members:
        return [(word, _single(word))]
    first = sorted(members, key=lambda component: -len(members[component]))
    return [(name, _member(EVALUATORS[component], name)) for component in first for name in members[component]]


def _member(entry: Entry[Evaluator], name: str) -> _Named:
    given = {} if name == entry.name else entry.cls.parameters_for(name)
    if given is None:
        raise CseError(
            f"evaluator '{entry.name}' (from {entry.distribution}) lists the task '{name}', of which it knows nothing",
            "let its `parameters_for` answer to each name in its `suites`",
        )
    return _Named(entry, given)


def _single(name: str) -> _Named:
    if name in EVALUATORS:
        return _Named(EVALUATORS[name], {})
    for entry in EVALUATORS:
        given = entry.cls.parameters_for(name)
        if given is not None:
            return _Named(entry, given)
    raise _unknown(name)


def _unknown(name: str) -> CseError:
    """Return why there is no such task."""
    dataset, _, split = name.partition("/")
    scored = [each for each in catalogue.names() if catalogue.entry(each).kind == "pairs"]
    if dataset in catalogue.names():
        if split:
            catalogue.entry(dataset).split(split)
        return CseError(f"'{name}' has no scored pairs", f"data sets that have: {', '.join(scored)}")
    words = list(dict.fromkeys(word for entry in EVALUATORS for word in entry.cls.suites))
    members = [task for entry in EVALUATORS for suite in entry.cls.suites.values() for task in suite]
    known = dict.fromkeys([*words, *members, *scored, *EVALUATORS.names()])
    return UnknownNameError(
        f"unknown task '{name}'.{suggestion(name, known)}",
        f"use {', '.join(sorted(words))}; a data set, such as stsb/dev; a file of pairs, such as pairs.tsv; or an "
        "evaluator that `cse list evaluators` shows",
    )


def _settings(found: Mapping[str, _Named], assignments: Sequence[str]) -> list[_Setting]:
    """Return what the assignments say, those of components first, so that those of single tasks win."""
    components = {one.entry.name for one in found.values()}
    settings = []
    for assignment in assignments:
        path, equals, value = assignment.partition("=")
        of, _, parameter = path.strip().rpartition(".")
        label = f"--set {path.strip()}"
        if not equals or not of:
            raise CseError(f"{label}: should be task.parameter=value", "for example --set sts.bootstrap=1000")
        if of not in components and of not in found:
            known = list(dict.fromkeys([*components, *found]))
            raise UnknownNameError(
                f"{label}: none of the tasks is '{of}', and none is scored by an evaluator of that name."
                f"{suggestion(of, known)}",
                f"there are {', '.join(known)}",
            )
        settings.append(_Setting(label, of, parameter, toml_value(value.strip())))
    return sorted(settings, key=lambda setting: setting.of not in components)


def _made(name: str, one: _Named, settings: Sequence[_Setting]) -> Task:
    entry = one.entry
    if entry.references:
        kinds = " and ".join(sorted({f"{reference.kind}s" for reference in entry.references}))
        raise CseError(
            f"evaluator '{entry.name}' looks through the {kinds} of a recipe, and a finished model has none",
            f"put [evaluators.{entry.name}] into a recipe and run it",
        )
    own = [setting for setting in settings if setting.of in (name, entry.name)]
    for setting in own:
        if setting.parameter in one.given:
            raise CseError(
                f"{setting.label}: the task's name '{name}' says that already", "put another name into --tasks"
            )
    changed = {setting.parameter: setting.value for setting in own}
    params = _checked(name, entry, {**one.given, **changed})
    return Task(entry.name, params, tuple(changed), entry.build(params))


def _checked(name: str, entry: Entry[Evaluator], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters.

    Raises:
        CseError: One is missing, unknown or wrong.
    """
    problems = Problems()
    with suppress(EnoughProblems):
        checked = check_part({**given, "name": entry.name}, EVALUATORS, (name,), frozenset(), problems)
    if problems.found:
        raise CseError(
            "\n".join(f"{dotted(problem.keys)}: {problem.message}" for problem in problems.found),
            f"`cse show {entry.name}` prints its parameters; give them by --set {name}.parameter=value",
        )
    return checked.params
