"""Validate merged tables: each table on its own, then names, rules between sections, data sets and columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cse_cli.recipe.keys import Keys, dotted
from cse_cli.recipe.parse import check_parameters, parse_recipe
from cse_cli.recipe.problems import Problems, nearest
from cse_cli.recipe.schema import (
    TRAIN_PARTS,
    LossPart,
    PlacedPart,
    Recipe,
    Train,
    name_of_part,
    parameters_of,
    shared_keys,
)
from cse_cli.recipe.sources import Origins
from registry import GENERATORS, LOSSES, papers
from registry.errors import CseError, UnknownNameError
from registry.machinery.core import Entry
from registry.machinery.parameters import Parameters
from registry.resources import catalog
from registry.resources.hub_sets import HubSet

if TYPE_CHECKING:
    from registry.machinery.signature import Input


_ONE_OF = "needs 'dataset' (`cse data list` shows the names) or 'file', the path of your data"
_MAY_SELECT = ("dev", "val", "train")
"""Prefixes of splits whose scores may select a checkpoint."""


def validate(tables: Mapping[str, Any], origins: Origins) -> Recipe:
    """Return the recipe that merged tables describe. Only signatures of components are read, nothing is built."""
    problems = Problems(origins.where, origins.is_inherited)
    recipe = parse_recipe(tables, origins, problems)
    train = tables.get("train")
    if isinstance(train, Mapping) and train.keys() >= {"steps", "epochs"}:  # in one file: a later one removes the other
        steps = origins.where(("train", "steps"), at_key=True)
        problems.conflict(("train", "epochs"), f"cannot be combined with train.steps ({steps}). Remove one of them")
    _check_values(recipe, problems)
    wiring = recipe.wiring()
    _Rules(wiring, problems).check()
    _check_data(wiring, _written_keys(tables), problems)
    problems.raise_if_any()
    losses = {}
    for name, loss in recipe.losses.items():  # with their default views
        of_inputs = [(i, loss.views_of(i.name)) for i in _view_inputs(LOSSES[loss.name])]
        known = [(i, views) for i, views in of_inputs if recipe.views.keys() >= {*views}]
        complete = {i.name: views if i.several else views[0] for i, views in known}
        losses[name] = loss.model_copy(update={"views": complete})
    recipe = recipe.model_copy(update={"losses": losses})
    _check_tune_paths(recipe, problems)
    problems.raise_if_any()
    return recipe


def _written_keys(tables: Mapping[str, Any]) -> dict[Keys, set[str]]:
    """Return path → keys of [data] and of each evaluator as they are written, and that of an array of data sets."""
    data, evaluators = tables.get("data", {}), tables.get("evaluators", {})
    data = data if isinstance(data, Mapping) else {"dataset": None}  # a wrong value has its own problem
    found: dict[Keys, set[str]] = {("data",): {*data}}
    if isinstance(data.get("dataset"), list):
        found["data", "dataset"] = set()
    evaluators = evaluators if isinstance(evaluators, Mapping) else {}
    return found | {("evaluators", name): {*table} for name, table in evaluators.items() if isinstance(table, Mapping)}


def is_test_split(params: Parameters) -> bool:
    """Return whether an evaluator with these parameters scores test data, or may do so."""
    return not str(params.get("split", "test")).startswith(_MAY_SELECT)


def _check_values(recipe: Recipe, problems: Problems) -> None:
    """Report parameters of a component that do not fit together, and a template that is only for evaluation."""
    for placed in recipe.parts():
        try:
            if placed.part.name in placed.registry:
                placed.entry.cls.check_settings(dict(placed.part.params))
        except CseError as error:
            action = error.next_action or ""
            problems.conflict(placed.keys, f"{error.message}. {action[:1].upper()}{action[1:]}")
    trained = {view.encoder for view in recipe.views.values()} if recipe.train.steps != 0 else set()
    for name in trained & recipe.encoders.keys():
        if recipe.encoders[name].params.get("template_joined"):
            message = "is only for evaluation, but a view trains this encoder. Remove it, or set train.steps = 0"
            problems.conflict(("encoders", name, "template_joined"), message)


def _check_tune_paths(recipe: Recipe, problems: Problems) -> None:
    """Report tuning ranges whose paths do not exist, or that have neither two ends nor choices.

    A path below the place of a component may belong to another choice for this component.
    """
    known = recipe.values()
    places = tuple(f"{path}." for tuned in recipe.tune.values() for path in tuned.paths if recipe.is_place(path))
    for name, tuned in recipe.tune.items():
        for number, path in enumerate(tuned.paths):
            keys = ("tune", name, "paths", number)
            if path not in known and not recipe.is_place(path) and not path.startswith(places):
                problems.add("recipe.unknown_path", keys, f"the recipe has no '{path}'.{nearest(path, known)}")
            if recipe.is_place(path) and (len(tuned.paths) > 1 or tuned.choices is None):
                message = f"'{path}' is a component. Give 'choices', in a separate [tune] table"
                problems.add("recipe.conflict", keys, message)
        if tuned.low is not None and tuned.high is not None and tuned.low >= tuned.high:
            message = f"should be greater than low, {tuned.low:g}, not {tuned.high:g}"
            problems.add("recipe.invalid_value", ("tune", name, "high"), message)
        if tuned.choices is not None and (tuned.low is not None or tuned.high is not None):
            problems.conflict(("tune", name, "choices"), "give either choices or low and high, not both")
        if tuned.log and tuned.low is not None and tuned.low <= 0:
            message = f"should be greater than 0 on a logarithmic scale, not {tuned.low:g}"
            problems.add("recipe.invalid_value", ("tune", name, "low"), message)


def _view_inputs(entry: Entry[Any]) -> list[Input]:
    """Return the inputs of a loss that are views. The queue and columns of the data fill the others."""
    return [i for i in entry.inputs if i.is_view]


class _Rules:
    """Rules between the sections of a recipe."""

    def __init__(self, recipe: Recipe, problems: Problems) -> None:
        self.recipe, self.problems, placed = recipe, problems, list(recipe.parts())
        self.entries = {one.keys: one.entry for one in placed if one.part.name in one.registry}
        self.losses = {str(keys[1]): entry for keys, entry in self.entries.items() if keys[0] == "losses"}
        self.all_known = len(self.entries) == len(placed)
        """Whether every component is registered, so that the uses of views and of the queue are known."""

    def check(self) -> None:
        used = self.views_of_losses() | self.referenced("view")
        for name, view in self.recipe.views.items():
            self.problems.known("encoder", view.encoder, self.recipe.encoders, ("views", name, "encoder"))
            if name not in used and self.all_known:
                message = "no loss, queue or augmenter uses this view. Remove it"
                self.problems.add("recipe.unused_view", ("views", name), message, at_key=True)
        self.heads()
        self.templates()
        self.order_of_references()
        self.train()
        self.wrapped_losses()
        self.optimizer(self.recipe.train)
        self.queue()
        self.evaluated_encoder()
        self.unused_encoders()
        self.metric_for_best_model()
        self.paper()

    def views_of_losses(self) -> set[str]:
        used: set[str] = set()
        for name, loss in self.recipe.losses.items():
            if name not in self.losses:
                used |= {view for given in loss.views for view in loss.views_of(given)}
                continue
            inputs = {i.name: i for i in self.losses[name].inputs}
            for given in loss.views:
                keys: Keys = ("losses", name, "views", given)
                exists = self.problems.known("input", given, inputs, keys, owner=f"loss '{loss.name}'", at_key=True)
                if exists and not inputs[given].is_view:
                    source = "the queue" if inputs[given].kind == "negatives" else "the parameter `column`"
                    message = f"input '{given}' of loss '{loss.name}' comes from {source}. Remove it"
                    self.problems.add("recipe.input_of_queue", keys, message, at_key=True)
            for i in _view_inputs(self.losses[name]):
                used |= {*loss.views_of(i.name)}
                self.views_of_input(name, loss, i)
        return used

    def views_of_input(self, name: str, loss: LossPart, i: Input) -> None:
        views, keys = loss.views_of(i.name), ("losses", name, "views", i.name)
        if not i.several and len(views) != 1:
            self.problems.add("recipe.invalid_value", keys, f"input '{i.name}' takes one view, not an array")
        for view in views:
            if i.name in loss.views:
                self.problems.known("view", view, self.recipe.views, keys)
            elif view not in self.recipe.views and not i.optional:
                hint = f'Add [views.{view}], or set views = {{ {i.name} = "…" }}'
                message = f"loss '{loss.name}' requires a view for its input '{i.name}'. {hint}"
                self.problems.add("recipe.missing_view", keys[:2], message, at_key=True)

    def references(self) -> Iterator[tuple[str, str, Keys]]:
        """Yield kind and name of each encoder and view that a parameter of a component names, and its path."""
        for placed in self.recipe.parts():
            entry = self.entries.get(placed.keys)
            for reference in entry.references if entry else ():
                name = placed.part.params.get(reference.parameter)
                if isinstance(name, str):
                    yield reference.kind, name, (*placed.keys, reference.parameter)

    def referenced(self, kind: str) -> set[str]:
        return {name for found, name, _ in self.references() if found == kind}

    def order_of_references(self) -> None:
        """Report names that do not exist, or that exist only later in the same section."""
        for kind, name, keys in self.references():
            section = {"encoder": "encoders", "view": "views", "loss": "losses"}[kind]
            names = list(getattr(self.recipe, section))
            if not self.problems.known(kind, name, names, keys) or keys[0] != section:
                continue
            owner = str(keys[1])
            if names.index(name) >= names.index(owner):
                message = f"{kind} '{name}' must precede '{owner}'. Move [{section}.{name}] up"
                self.problems.add("recipe.wrong_order", keys, message)

    def heads(self) -> None:
        from registry.types import Encoder

        for name, encoder in self.recipe.encoders.items():
            entry = self.entries.get(("encoders", name))
            if encoder.heads and entry is not None and entry.cls.attach is Encoder.attach:
                message = f"encoder '{encoder.name}' has no heads. Remove: {', '.join(encoder.heads)}"
                self.problems.add("recipe.unsupported_heads", ("encoders", name, "heads"), message, at_key=True)

    def templates(self) -> None:
        """Report templates of views whose encoder has no parameter `template`, nor one that it wraps."""
        have = {name for name in self.recipe.encoders if self._has_template(name)}
        for name, view in self.recipe.views.items():
            if view.template is not None and view.encoder not in have and self.all_known:
                part = self.recipe.encoders.get(view.encoder)
                message = f"encoder '{part.name if part else view.encoder}' has no template. Remove this one"
                self.problems.add("recipe.unsupported_template", ("views", name, "template"), message, at_key=True)

    def _has_template(self, encoder: str) -> bool:
        entry = self.entries.get(("encoders", encoder))
        wrapped = {name for kind, name, keys in self.references() if kind == "encoder" and keys[1] == encoder}
        own = entry is not None and "template" in entry.parameters.model_fields
        return own or any(self._has_template(name) for name in wrapped - {encoder})

    def train(self) -> None:
        if self.recipe.train.steps == 0:
            return
        if not self.recipe.losses:
            message = "no loss to train with. Add a loss, or set steps = 0"
            self.problems.add("recipe.no_loss", ("train",), message, at_key=True)
        elif self.all_known and not any(_view_inputs(entry) for entry in self.losses.values()):
            message = "no loss takes a view, so the data is not used. Add a loss that takes a view"
            self.problems.add("recipe.no_loss", ("losses", next(iter(self.recipe.losses))), message, at_key=True)
        for name, view in self.recipe.views.items():
            if view.dropout is not None and self.recipe.train.mini_batch_size is not None:
                message = "cannot be combined with train.mini_batch_size. Remove one of them"
                self.problems.conflict(("views", name, "dropout"), message)
        if self.recipe.train.patience is not None and self.recipe.evaluate.metric_for_best_model is None:
            message = 'requires evaluate.metric_for_best_model. Set it to a dev score, such as "dev.spearman"'
            self.problems.conflict(("train", "patience"), message)
        elif self.recipe.train.patience is not None and self.recipe.train.evaluate_every == 0:
            message = "requires evaluations during training. Set train.evaluate_every to a number of steps above 0"
            self.problems.conflict(("train", "patience"), message)
        for name, loss in self.recipe.losses.items():
            schedule = loss.weight_schedule
            if schedule is not None and schedule.shape == "exponential" and loss.weight * schedule.end <= 0:
                message = 'shape "exponential" requires weight and end above 0, or both below 0'
                self.problems.add("recipe.conflict", ("losses", name, "weight_schedule"), message)

    def wrapped_losses(self) -> None:
        """Report settings that a wrapper does not use, and losses that it cannot compute."""
        for kind, name, keys in self.references():
            if kind != "loss" or name not in self.losses:
                continue
            wrapper, wrapped = str(keys[1]), self.recipe.losses[name]
            if wrapped.weight != 1 or wrapped.weight_schedule is not None:
                key = "weight" if wrapped.weight != 1 else "weight_schedule"
                message = f"has no effect, because '{wrapper}' computes this loss. Set the weight of '{wrapper}'"
                self.problems.conflict(("losses", name, key), f"{message} instead")
            if not self.recipe.losses[wrapper].queue:
                self.problems.conflict(("losses", wrapper, "queue"), f"has no effect. Set the key of '{name}' instead")
            entry = self.losses.get(self.recipe.innermost(name))
            if entry and any(one.kind == "encoder" for one in entry.references):
                message = f"loss '{entry.name}' uses an encoder, which has only one width and one last layer"
                self.problems.add("recipe.conflict", keys, message)
            elif entry and self.losses[wrapper].cls.reads_layers and any(i.kind == "encoded" for i in entry.inputs):
                message = f"loss '{entry.name}' reads the states of tokens, which only the last layer has"
                self.problems.add("recipe.conflict", keys, message)

    def optimizer(self, train: Train) -> None:
        if train.portable and train.precision not in ("auto", "fp32"):
            self.problems.add("recipe.invalid_value", ("train", "portable"), 'needs fp32: precision = "fp32"')
        milestones, rates = train.milestones or (), train.learning_rates or ()
        if len(milestones) != len(rates):
            message = f"{len(milestones)} milestones and {len(rates)} learning rates. Give one rate for each milestone"
            key = "milestones" if milestones else "learning_rates"
            self.problems.add("recipe.conflict", ("train", key), message)
        elif list(milestones) != sorted(set(milestones)):
            self.problems.add("recipe.invalid_value", ("train", "milestones"), "should be ascending")
        for part, registry in TRAIN_PARTS.items():
            name = name_of_part(train, part)
            if name not in registry:
                message = f"unknown {registry.singular} '{name}'.{nearest(name, registry.names())}"
                self.problems.add("recipe.unknown_component", ("train", part), message)
                continue
            own, owners = registry[name], dict[str, list[str]]()
            for entry in registry:
                for key in shared_keys(entry):
                    owners.setdefault(key, []).append(entry.name)
            for key in owners.keys() - {*shared_keys(own)}:  # parameters of another optimizer or schedule
                if Train.model_fields[key].default is None and getattr(train, key) is not None:
                    message = f"has no effect on {part} '{name}', only on {', '.join(owners[key])}. Remove it"
                    self.problems.conflict(("train", key), message)
            keys = ("train", f"{part}_settings")
            for key in (getattr(train, keys[1]) or {}).keys() & Train.model_fields.keys():
                self.problems.conflict((*keys, key), f"set train.{key} instead")
            check_parameters(f"{part} '{name}'", own, parameters_of(train, part), keys, self.problems)

    def queue(self) -> None:
        if self.recipe.queue is None or not self.all_known:
            return
        for name, entry in self.losses.items():
            if self.recipe.losses[name].queue and any(i.kind == "negatives" for i in entry.inputs):
                return
        message = 'no loss uses the queue. Add a loss that takes negatives, or remove = ["queue"]'
        self.problems.add("recipe.unused_queue", ("queue",), message, at_key=True)

    def evaluated_encoder(self) -> None:
        scored, through = self.recipe.evaluate.encoder, self.recipe.evaluate.view
        if self.recipe.encoders:
            self.problems.known("encoder", scored, self.recipe.encoders, ("evaluate", "encoder"))
            if (selecting := self.recipe.evaluate.selection_encoder) is not None:
                self.problems.known("encoder", selecting, self.recipe.encoders, ("evaluate", "selection_encoder"))
        keys: Keys = ("evaluate", "view")
        if through is None or not self.problems.known("view", through, self.recipe.views, keys):
            return
        encoder = self.recipe.views[through].encoder
        if encoder != scored:
            message = f"view '{through}' uses encoder '{encoder}', but evaluate.encoder is '{scored}'"
            self.problems.add("recipe.conflict", keys, message)

    def unused_encoders(self) -> None:
        evaluated = self.recipe.evaluate
        used = {evaluated.encoder, evaluated.selection_encoder, *(view.encoder for view in self.recipe.views.values())}
        used |= self.referenced("encoder")
        for name in self.recipe.encoders:
            if name not in used and self.all_known:
                message = "no view uses this encoder, and it is not evaluated. Remove it"
                self.problems.add("recipe.unused_encoder", ("encoders", name), message, at_key=True)

    def metric_for_best_model(self) -> None:
        selected = self.recipe.evaluate.metric_for_best_model
        if selected is None:
            return
        keys: Keys = ("evaluate", "metric_for_best_model")
        name, _, metric = selected.partition(".")
        entry = self.entries.get(("evaluators", name))
        if not self.problems.known("evaluator", name, self.recipe.evaluators, keys) or entry is None:
            return
        if metric not in entry.cls.metrics:
            hint = nearest(selected, [f"{name}.{each}" for each in entry.cls.metrics])
            self.problems.add("recipe.unknown_metric", keys, f"evaluator '{name}' has no metric '{metric}'.{hint}")
        params = self.recipe.evaluators[name].params
        if is_test_split(params) and not self.recipe.evaluate.allow_test_selection:
            split = f"split '{params['split']}'" if "split" in params else "test data"
            message = (
                f"evaluator '{name}' scores {split}, and selection on test data makes its results optimistic. "
                "Use a dev split, or set evaluate.allow_test_selection = true to mark the results"
            )
            self.problems.add("recipe.test_selection", keys, message)

    def paper(self) -> None:
        paper = self.recipe.paper
        if paper is None or len(paper.model_fields_set) < len(type(paper).model_fields):
            return
        if not self.problems.known("paper", paper.key, papers.names(), ("paper", "key")):
            return
        tables, owner = papers.load(paper.key).tables, f"paper '{paper.key}'"
        if self.problems.known("table", paper.table, tables, ("paper", "table"), owner=owner):
            owner = f"table '{paper.table}' of {owner}"
            self.problems.known("row", paper.row, tables[paper.table].rows, ("paper", "row"), owner=owner)


def _check_data(recipe: Recipe, written: Mapping[Keys, set[str]], problems: Problems) -> None:
    """Report data sets, splits and columns that the catalog does not contain."""
    data = recipe.data
    if data.dataset and data.file:
        _report_both(("data",), problems)
    elif not {"dataset", "file"} & written["data",] and recipe.losses:
        problems.add("recipe.missing_key", ("data",), _ONE_OF, at_key=True)
    if data.column is not None and data.dataset and not any(name.startswith("hf:") for name in data.dataset):
        message = "has an effect only on 'file' and on 'hf:' data sets. Set the 'column' of a view instead"
        problems.conflict(("data", "column"), message)
    _check_made(recipe, problems)
    listed = ("data", "dataset") in written
    for number, name in enumerate(data.dataset):
        keys: Keys = ("data", "dataset", number) if listed else ("data", "dataset")
        if name.startswith("hf:"):
            try:
                HubSet.parse(name)
            except CseError as error:
                problems.add("recipe.unknown_dataset", keys, f"{error.message}: {error.next_action}")
        elif _check_split(name, data.split, keys, ("data", "split"), problems):
            _check_columns(recipe, name, problems)
    for placed in recipe.parts():
        if placed.part.name in placed.registry:
            _check_part(placed, written.get(placed.keys, set()), problems)


def _check_made(recipe: Recipe, problems: Problems) -> None:
    """Check that each generator of a column makes columns, that a view reads it, and that no column needs itself."""
    made = recipe.data.columns
    if not made:
        return
    from registry.types import ColumnGenerator  # imports torch

    for name, part in made.items():
        keys: Keys = ("data", "columns", name)
        if part.name in GENERATORS and not issubclass(GENERATORS[part.name].cls, ColumnGenerator):
            message = f"generator '{part.name}' makes the rows of a data set, not a column. `cse list generators`"
            problems.add("recipe.invalid_value", keys, message, at_key=True)
        above = [name]
        while (source := made[above[-1]].params.get("column")) in made and source not in above:
            above.append(str(source))
        if source in above:
            problems.add("recipe.conflict", (*keys, "column"), f"column '{name}' is made from itself")
    read = {column for _, column in _columns_read(recipe)} | {part.params.get("column") for part in made.values()}
    for name in made.keys() - read:
        message = "no view or augmenter reads this column. Remove it"
        problems.add("recipe.unused_column", ("data", "columns", name), message, at_key=True)


def _check_part(placed: PlacedPart, written: set[str], problems: Problems) -> None:
    """Check the data sets that the parameters of a component name."""
    params, keys = placed.part.params, placed.keys
    split = params.get("split")
    for parameter, resource in placed.entry.resources.items():
        value = params.get(parameter)
        if resource.kind != "dataset" or value in (None, resource.evaluated):
            continue
        names: list[tuple[Keys, Any]] = [((*keys, parameter), value)]
        if isinstance(value, list | tuple):
            names = [((*keys, parameter, number), each) for number, each in enumerate(value)]
        for path, name in names:
            _check_split(str(name), split if isinstance(split, str) else "all", path, (*keys, "split"), problems)
    if keys[0] == "evaluators" and {"dataset", "file"} <= placed.entry.parameters.model_fields.keys():
        if written >= {"dataset", "file"}:
            _report_both(keys, problems)
        elif not {"dataset", "file"} & written:
            problems.add("recipe.missing_key", keys, _ONE_OF, at_key=True)


def _report_both(keys: Keys, problems: Problems) -> None:
    dataset = dotted((*keys, "dataset"))
    how = f"delete 'dataset', or if it is inherited, add remove = [\"{dataset}\"]"
    if problems.where((*keys, "file"), at_key=True).startswith("--"):
        how = f"add --unset {dataset}"
    problems.conflict((*keys, "file"), f"give either 'dataset' or 'file', not both. For the file, {how}")


def _check_split(name: str, split: str, keys: Keys, split_keys: Keys, problems: Problems) -> bool:
    try:
        entry = catalog.entry(name)
    except UnknownNameError:
        return problems.known("dataset", name, catalog.names(), keys)
    try:
        entry.split(split)
    except UnknownNameError as error:
        action = error.next_action or ""
        problems.add("recipe.unknown_split", split_keys, f"{error.message} {action[:1].upper()}{action[1:]}")
        return False
    return True


def _check_columns(recipe: Recipe, name: str, problems: Problems) -> None:
    columns = catalog.entry(name).columns_of(recipe.data.split)
    made = recipe.data.columns
    for own in made.keys() & {*columns}:
        message = f"dataset '{name}' has a column '{own}'. Give the made column another name"
        problems.conflict(("data", "columns", own), message)
    for keys, column in _columns_read(recipe):
        if column not in columns and column not in made:
            more = " [data.columns.translation] makes one (`cse show translate`)" if column == "translation" else ""
            message = f"dataset '{name}' has no column '{column}'.{nearest(column, columns)}{more}"
            problems.add("recipe.unknown_column", keys, message)


def _columns_read(recipe: Recipe) -> Iterator[tuple[Keys, str]]:
    """Yield each column that a view, a generator, or the parameter `column` of an augmenter or a loss reads."""
    for name, column in recipe.data.columns.items():
        if isinstance(column.params.get("column"), str):
            yield ("data", "columns", name, "column"), column.params["column"]
    for name, view in recipe.views.items():
        yield ("views", name, "column"), view.column
        for number, part in enumerate(view.augment):
            if isinstance(part.params.get("column"), str):
                yield ("views", name, "augment", number, "column"), part.params["column"]
    for name, loss in recipe.losses.items():
        if loss.name in LOSSES and any(i.kind == "labels" for i in LOSSES[loss.name].inputs):
            yield ("losses", name, "column"), loss.params.get("column", LOSSES[loss.name].cls.column)
