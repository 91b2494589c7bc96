"""Merged tables → a complete recipe, or every reason why not: names, rules between sections, data sets and splits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cse_cli.recipe.draft import Checked, Draft, check_top_level, draft, odd_values
from cse_cli.recipe.errors import EnoughProblems, Keys, Origins, Problems, nearest
from cse_cli.recipe.paths import check_tune_paths
from cse_cli.recipe.schema import Data, EncoderPart, Evaluate, Part, Recipe, Train
from registry import catalogue, papers
from registry.catalogue.hub_sets import HubSet
from registry.errors import CseError, UnknownNameError, suggestion

if TYPE_CHECKING:
    from registry.signature import Input


def validate(tables: Mapping[str, Any], origins: Origins) -> Recipe:
    """Return the recipe that merged tables describe; signatures are read, nothing is built.

    Raises:
        RecipeError: With everything that is wrong.
    """
    problems = Problems()
    with suppress(EnoughProblems):
        for keys, what in odd_values(tables, ()):
            problems.add(keys, f"{what} is not a value a recipe can have")
        check_top_level(tables, problems)
        parts = draft(tables, origins, problems)
        _check_references(parts, problems)
        _check_rules(parts, problems)
        _check_data(parts, tables, problems)
        if not problems.found:
            recipe = _complete(tables, parts)
            check_tune_paths(recipe, problems)
    if problems.found:
        raise origins.error(problems.found)
    return recipe


def _complete(tables: Mapping[str, Any], parts: Draft) -> Recipe:
    inputs = _complete_inputs(parts)
    plain = {key: tables[key] for key in ("schema", "title", "description", "language") if key in tables}
    return Recipe(
        **plain,
        paper=parts.paper,
        data=parts.data or Data(),
        encoders={
            name: EncoderPart(name=part.table["name"], params=part.params, heads=_parts(parts.heads[name]))
            for name, part in parts.encoders.items()
        },
        views={
            name: view.model_copy(update={"augment": tuple(_part(a) for a in parts.augmenters[name])})
            for name, view in parts.views.items()
        },
        queue=None if parts.queue is None else _part(parts.queue),
        losses={name: loss.model_copy(update={"views": inputs[name]}) for name, loss in parts.losses.items()},
        train=parts.train or Train(),
        evaluate=parts.evaluate or Evaluate(),
        evaluators=_parts(parts.evaluators),
        tune=parts.tune,
    )


def _parts(parts: Mapping[str, Checked]) -> dict[str, Part]:
    return {name: _part(part) for name, part in parts.items()}


def _part(part: Checked) -> Part:
    return Part(name=part.table["name"], params=part.params)


def _check_references(draft: Draft, problems: Problems) -> None:
    """Report every encoder, view and input that a recipe names and does not have, and views that nothing uses."""
    used = _check_losses(draft, problems)
    for name, view in draft.views.items():
        _known("encoder", view.encoder, draft.encoders, ("views", name, "encoder"), problems)
    for part in draft.parts:
        used |= _check_part(part, draft, problems)
    for name in draft.views:
        if name not in used and all(part.entry is not None for part in draft.parts):
            message = "no loss, queue or augmenter uses this view: it would only cost time; remove it"
            problems.add(("views", name), message, at_key=True)


def _complete_inputs(draft: Draft) -> dict[str, dict[str, str | tuple[str, ...]]]:
    """Return loss → input → view, with the views that inputs take by default."""
    complete: dict[str, dict[str, str | tuple[str, ...]]] = {}
    for name, loss in draft.losses.items():
        entry = draft.loss_parts[name].entry
        complete[name] = {}
        for i in entry.inputs if entry else ():
            views = loss.views_of(i.name)
            if i.kind != "negatives" and draft.views.keys() >= set(views):
                complete[name][i.name] = views if i.several else views[0]
    return complete


def _check_losses(draft: Draft, problems: Problems) -> set[str]:
    used: set[str] = set()
    for name, loss in draft.losses.items():
        entry = draft.loss_parts[name].entry
        if entry is None:
            used |= {view for given in loss.views for view in loss.views_of(given)}
            continue
        inputs = {i.name: i for i in entry.inputs}
        for given in loss.views:
            if given not in inputs or inputs[given].kind == "negatives":
                _refuse_input(entry.name, given, inputs.keys(), ("losses", name, "views", given), problems)
        for i in entry.inputs:
            if i.kind != "negatives":
                used |= _check_input(name, i, draft, problems)
    return used


def _check_input(name: str, given: Input, draft: Draft, problems: Problems) -> set[str]:
    """Check the views of one input of a loss; return them."""
    loss = draft.losses[name]
    views = loss.views_of(given.name)
    if not given.several and not isinstance(loss.views.get(given.name, ""), str):
        problems.add(("losses", name, "views", given.name), f"input '{given.name}' takes one view, not an array")
    for view in views:
        if view not in draft.views and (given.name in loss.views or not given.optional):
            _missing_view(name, loss.name, given.name, view, draft, problems)
    return set(views)


def _refuse_input(loss: str, given: str, inputs: Iterable[str], keys: Keys, problems: Problems) -> None:
    if given in inputs:
        problems.add(keys, f"input '{given}' of loss '{loss}' is filled by the queue, not by a view", at_key=True)
        return
    known = f" It has: {', '.join(inputs)}."
    message = f"loss '{loss}' has no input '{given}'.{suggestion(given, inputs) or known}"
    problems.add(keys, message, at_key=True)


def _missing_view(name: str, loss: str, i: str, view: str, draft: Draft, problems: Problems) -> None:
    keys: Keys = ("losses", name, "views", i) if i in draft.losses[name].views else ("losses", name)
    hint = nearest(view, draft.views)
    advice = "" if len(keys) > 2 else f' Declare [views.{view}], or map it: views = {{ {i} = "…" }}.'
    message = f"loss '{loss}' needs a view for '{i}': unknown view '{view}'.{hint}{advice}"
    problems.add(keys, message, at_key=len(keys) == 2)


def _check_part(part: Checked, draft: Draft, problems: Problems) -> set[str]:
    """Check the parameters of one component that name encoders and views; return the views."""
    views: set[str] = set()
    for reference in part.entry.references if part.entry else ():
        value = part.params.get(reference.parameter)
        if not isinstance(value, str):
            continue
        keys = (*part.keys, reference.parameter)
        known = _earlier(part.keys, reference.kind, draft)
        if reference.kind == "view":
            views.add(value)
        everything = draft.encoders if reference.kind == "encoder" else draft.views
        if value in everything and value not in known:
            section = f"{reference.kind}s"
            problems.add(keys, f"{reference.kind} '{value}' must stand earlier in the recipe than {part.keys[1]!r}: "
                         f"move [{section}.{value}] up")  # fmt: skip
        else:
            _known(reference.kind, value, known, keys, problems)
    return views


def _earlier(keys: Keys, kind: str, draft: Draft) -> list[str]:
    """Return the encoders or views a component may name: for one inside their own section, those before it."""
    everything = list(draft.encoders if kind == "encoder" else draft.views)
    own = (keys[0] == "encoders" and kind == "encoder") or (keys[0] == "views" and kind == "view")
    return everything[: everything.index(str(keys[1]))] if own else everything


def _known(kind: str, name: str, known: Iterable[str], keys: Keys, problems: Problems) -> None:
    known = list(known)
    if name not in known:
        hint = f"{suggestion(name, known)} Known: {', '.join(known) or 'none'}."
        problems.add(keys, f"unknown {kind} '{name}'.{hint}")


_MAY_CHOOSE = ("dev", "val", "train")
"""How splits begin whose scores may choose a state."""


def _check_rules(draft: Draft, problems: Problems) -> None:
    """Report the rules between its sections that a recipe breaks."""
    _check_budget(draft, problems)
    _check_queue(draft, problems)
    _check_encoders(draft, problems)
    _check_select(draft, problems)
    _check_paper(draft, problems)


def is_test_split(params: Mapping[str, Any]) -> bool:
    """Return whether scores of an evaluator with these parameters come from test data, or may."""
    return not str(params.get("split", "test")).startswith(_MAY_CHOOSE)


def _check_budget(draft: Draft, problems: Problems) -> None:
    if draft.train is None or draft.train.steps == 0:
        return
    if not draft.loss_parts:
        problems.add(("train",), "nothing to train: declare a loss, or set steps = 0", at_key=True)
    elif all(part.entry is not None and not _views_taken(part.entry.inputs) for part in draft.loss_parts.values()):
        message = "nothing to learn from the text: declare a loss that takes a view"
        problems.add(next(iter(draft.loss_parts.values())).keys, message, at_key=True)
    for name, view in draft.views.items():
        if view.dropout is not None and draft.train.rows_at_once is not None:
            message = "cannot be with train.rows_at_once: rows are computed again when the encoder's own rate is back"
            problems.add(("views", name, "dropout"), message, at_key=True)
    _check_optimizer(draft.train, problems)


def _views_taken(inputs: Iterable[Input]) -> bool:
    return any(i.kind != "negatives" for i in inputs)


def _check_optimizer(train: Train, problems: Problems) -> None:
    milestones, rates = train.milestones or (), train.rates or ()
    if len(milestones) != len(rates):
        message = f"{len(milestones)} milestones and {len(rates)} rates: each milestone takes one rate"
        problems.add(("train", "milestones" if milestones else "rates"), message)
    elif milestones and train.schedule != "constant":
        problems.add(("train", "milestones"), 'are for schedule = "constant"', at_key=True)
    elif list(milestones) != sorted(set(milestones)):
        problems.add(("train", "milestones"), "should ascend")
    if train.bias_correction is not None and train.optimizer not in (None, "adamw"):
        problems.add(("train", "bias_correction"), f"is a choice of adamw, not of {train.optimizer}", at_key=True)
    if train.betas is not None and train.optimizer not in (None, "adamw", "adam"):
        problems.add(("train", "betas"), f"are of adamw and adam, not of {train.optimizer}", at_key=True)
    if train.epsilon is not None and train.optimizer == "sgd":
        problems.add(("train", "epsilon"), "sgd divides by nothing: remove it", at_key=True)


def _check_queue(draft: Draft, problems: Problems) -> None:
    if draft.queue is None or any(part.entry is None for part in draft.loss_parts.values()):
        return
    for name, loss in draft.losses.items():
        entry = draft.loss_parts[name].entry
        if loss.queue and entry is not None and any(i.kind == "negatives" for i in entry.inputs):
            return
    message = 'no loss reads the queue: use one that takes negatives, or remove it (`remove = ["queue"]`)'
    problems.add(("queue",), message, at_key=True)


def _check_encoders(draft: Draft, problems: Problems) -> None:
    if draft.evaluate is None:
        return
    scored = draft.evaluate.encoder
    if scored not in draft.encoders and draft.encoders:
        hint = suggestion(scored, draft.encoders)
        message = f"unknown encoder '{scored}'.{hint} Known: {', '.join(draft.encoders)}."
        problems.add(("evaluate", "encoder"), message)
    through = draft.evaluate.view
    if through is not None and through not in draft.views:
        problems.add(("evaluate", "view"), f"unknown view '{through}'.{nearest(through, draft.views)}")
    elif through is not None and draft.views[through].encoder != scored:
        message = f"view '{through}' goes through encoder '{draft.views[through].encoder}', and '{scored}' is scored"
        problems.add(("evaluate", "view"), message)
    used = {scored, *(view.encoder for view in draft.views.values())}
    for part in draft.parts:
        references = part.entry.references if part.entry else ()
        used |= {str(part.params.get(r.parameter)) for r in references if r.kind == "encoder"}
    for name in draft.encoders:
        if name not in used:
            message = "no view goes through this encoder, and it is not scored: remove it"
            problems.add(("encoders", name), message, at_key=True)


def _check_select(draft: Draft, problems: Problems) -> None:
    if draft.evaluate is None or draft.evaluate.select is None:
        return
    keys: Keys = ("evaluate", "select")
    name, _, metric = draft.evaluate.select.partition(".")
    part = draft.evaluators.get(name)
    if part is None:
        problems.add(keys, f"unknown evaluator '{name}'.{nearest(name, draft.evaluators)}")
        return
    if part.entry is None:
        return
    if metric not in part.entry.cls.metrics:
        hint = nearest(draft.evaluate.select, [f"{name}.{m}" for m in part.entry.cls.metrics])
        problems.add(keys, f"evaluator '{name}' has no metric '{metric}'.{hint}")
    if is_test_split(part.params) and not draft.evaluate.allow_test_selection:
        split = f"split '{part.params['split']}'" if "split" in part.params else "no `split` of its own"
        problems.add(keys, f"'{name}' scores {split}: choosing a state by test data makes its numbers optimistic. "
                     "Select on a dev split, or set evaluate.allow_test_selection = true to mark them so")  # fmt: skip


def _check_paper(draft: Draft, problems: Problems) -> None:
    if draft.paper is None:
        return
    try:
        tables = papers.load(draft.paper.key).tables
    except UnknownNameError as error:
        problems.add(("paper", "key"), f"{error.message} Known: {', '.join(papers.names())}.")
        return
    table = tables.get(draft.paper.table)
    if table is None:
        problems.add(
            ("paper", "table"),
            f"paper '{draft.paper.key}' has no table '{draft.paper.table}'.{nearest(draft.paper.table, tables)}",
        )
    elif draft.paper.row not in table.rows:
        problems.add(
            ("paper", "row"),
            f"table '{draft.paper.table}' has no row '{draft.paper.row}'.{nearest(draft.paper.row, table.rows)}",
        )


def _check_data(draft: Draft, tables: Mapping[str, Any], problems: Problems) -> None:
    """Report data sets, splits and columns that the catalogue does not have; no file is looked for."""
    if draft.data is not None:
        _check_choice(draft, draft.data, problems)
        _check_streaming(draft, draft.data, problems)
        for keys, name in _datasets(draft.data, tables):
            if name.startswith("hf:"):
                _check_hub_set(name, keys, problems)
            elif _check_split(name, draft.data.split, keys, ("data", "split"), problems):
                _check_columns(draft, name, draft.data.split, problems)
    _check_pair_sources(draft, tables, problems)
    for part in draft.parts:
        split = part.params.get("split")
        for keys, name in _named_datasets(part):
            _check_split(name, split if isinstance(split, str) else "all", keys, (*part.keys, "split"), problems)


def _named_datasets(part: Checked) -> Iterator[tuple[Keys, str]]:
    """Yield each data set that the parameters of a component name, and its path."""
    for parameter, resource in part.entry.resources.items() if part.entry else ():
        value, keys = part.params.get(parameter), (*part.keys, parameter)
        if resource.kind != "dataset" or value in (None, resource.evaluated):
            continue
        yield from (
            (((*keys, n), str(one)) for n, one in enumerate(value)) if isinstance(value, list) else [(keys, value)]
        )


def _check_choice(draft: Draft, data: Data, problems: Problems) -> None:
    if data.dataset and data.file:
        problems.add(("data", "file"), "give either 'dataset' or 'file', not both", at_key=True)
    elif not data.dataset and data.file is None and draft.losses:
        problems.add(("data",), "needs 'dataset' (`cse data list` shows them) or 'file', your own text", at_key=True)


def _check_streaming(draft: Draft, data: Data, problems: Problems) -> None:
    if data.streaming and draft.train is not None and draft.train.steps is None:
        message = "needs train.steps: the length of a stream is not known; n sentences are n / batch_size steps"
        problems.add(("data", "streaming"), message)
    if data.streaming and data.limit is not None:
        problems.add(("data", "limit"), "cannot limit what is streamed: train.steps does", at_key=True)
    if data.shuffle_buffer is not None and not data.streaming:
        problems.add(("data", "shuffle_buffer"), "only means something with streaming = true", at_key=True)
    if data.column is not None and data.dataset and not any(name.startswith("hf:") for name in data.dataset):
        message = "is for `file` and `hf:` data sets: the catalogue knows the columns of its own"
        problems.add(("data", "column"), message, at_key=True)


def _check_hub_set(name: str, keys: Keys, problems: Problems) -> None:
    """Report a name that is not of the form of a hub data set; the hub itself is not asked."""
    try:
        HubSet.parse(name)
    except CseError as error:
        problems.add(keys, f"{error.message}: {error.next_action}")


def _check_pair_sources(draft: Draft, tables: Mapping[str, Any], problems: Problems) -> None:
    """Report evaluators that could read a data set or a file and name both or neither."""
    written = tables.get("evaluators")
    for key, part in draft.evaluators.items():
        if part.entry is None or not {"dataset", "file"} <= set(part.entry.parameters.model_fields):
            continue
        table = written.get(key) if isinstance(written, Mapping) else None
        given = {"dataset", "file"} & set(table) if isinstance(table, Mapping) else set()
        if len(given) == 2:
            problems.add((*part.keys, "file"), "give either 'dataset' or 'file', not both", at_key=True)
        elif not given:
            message = "needs 'dataset' (`cse data list` shows them) or 'file', your own pairs"
            problems.add(part.keys, message, at_key=True)


def _datasets(data: Data, tables: Mapping[str, Any]) -> Iterator[tuple[Keys, str]]:
    """Yield each name and its path: the recipe writes one name, or an array of them."""
    written = tables.get("data")
    listed = isinstance(written, Mapping) and isinstance(written.get("dataset"), list)
    for number, name in enumerate(data.dataset):
        yield (("data", "dataset", number) if listed else ("data", "dataset")), name


def _check_split(name: str, split: str, keys: Keys, split_keys: Keys, problems: Problems) -> bool:
    try:
        about = catalogue.entry(name)
    except UnknownNameError as error:
        hint = "" if "Did you mean" in error.message else " `cse data list` shows all of them."
        problems.add(keys, f"{error.message}{hint}")
        return False
    try:
        about.split(split)
    except UnknownNameError as error:
        problems.add(split_keys, f"{error.message} {(error.next_action or '').capitalize()}.")
        return False
    return True


def _check_columns(draft: Draft, name: str, split: str, problems: Problems) -> None:
    columns = catalogue.entry(name).columns_of(split)
    for keys, column in _wanted(draft):
        if column not in columns:
            hint = suggestion(column, columns) or f" It has: {', '.join(columns)}."
            more = " `cse data translate` makes a second language." if column == "translation" else ""
            problems.add(keys, f"dataset '{name}' has no column '{column}'.{hint}{more}")


def _wanted(draft: Draft) -> Iterator[tuple[Keys, str]]:
    """Yield each column that a view, or an augmenter by its parameter `column`, reads."""
    for name, view in draft.views.items():
        yield ("views", name, "column"), view.column
    for part in (augmenter for augmenters in draft.augmenters.values() for augmenter in augmenters):
        if isinstance(part.params.get("column"), str):
            yield (*part.keys, "column"), part.params["column"]
