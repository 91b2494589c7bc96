"""The resolved recipe: every key with its type, unit and default.

Only `cse_cli.recipe.load` creates a `Recipe` from text. A `Recipe` is complete: it contains every default.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, StrictBool
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from cse_cli.recipe.keys import Keys, dotted
from registry import AUGMENTERS, ENCODERS, EVALUATORS, GENERATORS, HEADS, LOSSES, OPTIMIZERS, QUEUES, SCHEDULES
from registry.machinery.core import Entry, Registry
from registry.machinery.parameters import Parameters, UnvalidatedParameters

if TYPE_CHECKING:
    from registry.types import Tune

PROSE = frozenset({"title", "description", "paper", "tune"})
"""Top-level keys of a recipe that do not change any result."""


def settings(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a resolved recipe on which its results depend.

    Prose, tuning ranges, the seed and `train.compile` are left out. Files of data have no directory, because the
    identity of an experiment contains a digest of the text.
    """
    kept = {key: value for key, value in resolved.items() if key not in PROSE}
    kept["train"] = {key: value for key, value in kept.get("train", {}).items() if key not in ("seed", "compile")}
    kept["data"] = dict(kept.get("data", {}))
    if (file := kept["data"].get("file")) is not None:
        kept["data"]["file"] = Path(file).name if isinstance(file, str) else [Path(each).name for each in file]
    return kept


def _without_directory(value: Any, kind: Literal["model", "file"]) -> Any:
    """Return the bare name of a path. Hub IDs `owner/name` are unchanged.

    A directory called `model`, as in every run, keeps the name of its parent.
    """
    if isinstance(value, list | tuple):
        return [_without_directory(each, kind) for each in value]
    if not isinstance(value, str) or value.startswith("hf:"):
        return value
    if kind == "model" and not value.startswith((".", "/", "~")) and value.count("/") < 2:
        return value
    return "/".join(Path(value).parts[-2:]) if Path(value).name == "model" else Path(value).name or value


PositiveInt = Annotated[int, Field(gt=0, strict=True)]
NonNegativeInt = Annotated[int, Field(ge=0, strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
PositiveNumber = Annotated[Number, Field(gt=0)]
NonNegativeNumber = Annotated[Number, Field(ge=0)]
UnitInterval = Annotated[Number, Field(ge=0, lt=1)]
MaxLength = Annotated[int, Field(ge=3, le=131072, strict=True)]
String = Annotated[str, Field(min_length=1)]


DEFAULT_OPTIMIZER = "adamw"


@dataclass(frozen=True, eq=False)
class Registered:
    """Mark of a key that contains the name of a component."""

    registry: Registry[Any]

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema with the names of all components."""
        return {**handler(core), "enum": self.registry.names()}


class Section(BaseModel):
    """Base class of a recipe's tables. Unknown keys are errors, and values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class Part(Section):
    """A component.

    Args:
        name: Name in the registry.
        params: Value of every parameter, as the component's signature declares them.
    """

    name: str
    params: Parameters = UnvalidatedParameters()

    @property
    def own(self) -> dict[str, Any]:
        """Keys of the table that belong to the recipe and not to the component."""
        return {key: value for key, value in self if key not in ("name", "params", "heads")}

    def table(self) -> dict[str, Any]:
        """Return the part as a recipe contains it, with the name and the parameters in one table."""
        own = self.model_dump(mode="json", exclude={"name", "params", "heads"}, exclude_none=True)
        return {"name": self.name, **{k: v for k, v in self.params if v is not None}, **own}


P = TypeVar("P", bound=Part)


class EncoderPart(Part):
    """An encoder.

    Args:
        heads: Name → head. Heads are applied after pooling, in this order.
    """

    heads: dict[str, Part] = Field(default_factory=dict)

    def table(self) -> dict[str, Any]:
        """Return the encoder as a recipe contains it, with one table for each head."""
        heads = {"heads": {key: head.table() for key, head in self.heads.items()}}
        return {**super().table(), **(heads if self.heads else {})}


class WeightSchedule(Section):
    """Schedule of a loss's weight w: w + (end − w)·r(u) with u = min(1, step / (share · steps)).

    Args:
        end: Weight from u = 1 on.
        shape: Function r(u): "linear" is u, "cosine" is (1 − cos πu)/2, "quarter_cosine" is 1 − cos(πu/2). With
            "exponential", the weight is w·(end/w)^u instead: it changes by the same factor in every step.
        share: Share of the training after which the weight is constant.
    """

    end: Number
    shape: Literal["linear", "cosine", "quarter_cosine", "exponential"] = "linear"
    share: Annotated[Number, Field(gt=0, le=1)] = 1.0

    def at(self, start: float, step: int, total: int) -> float:
        """Return the weight at a step, counted from 0."""
        u = min(1.0, step / (self.share * total))
        if self.shape == "exponential":
            return float(start * (self.end / start) ** u)
        if self.shape == "cosine":
            u = (1 - math.cos(math.pi * u)) / 2
        elif self.shape == "quarter_cosine":
            u = 1 - math.cos(math.pi * u / 2)
        return start + (self.end - start) * u


class LossPart(Part):
    """A loss, one term of the objective.

    Args:
        weight: Factor of the loss in the objective.
        weight_schedule: Change of the weight during training. Default: the weight is constant.
        views: Input of the loss's `forward` → name of a view, or an array of names if the input takes several views.
            Default: the view with the name of the input.
        queue: Whether a loss that takes negatives also uses those in the queue.
    """

    weight: Number = 1.0
    weight_schedule: WeightSchedule | None = None
    views: dict[str, str | tuple[str, ...]] = Field(default_factory=dict)
    queue: StrictBool = True

    def views_of(self, name: str) -> tuple[str, ...]:
        """Return the views of an input. The default is the view with the name of the input."""
        found = self.views.get(name, name)
        return (found,) if isinstance(found, str) else found


class View(Section):
    """A view of a sentence.

    Args:
        encoder: Name of its encoder.
        column: Column of the data set that contains its sentences.
        augment: Augmenters in the order of application.
        template: Text around each sentence, with the placeholders "{text}" and "{mask}". If it is only text before
            the sentence, it is a prompt of the saved model with the name of the view. Default: that of the encoder.
        dropout: Rate of all dropout layers while the encoder encodes this view. Default: the rates of the encoder.
    """

    encoder: str = "online"
    column: String = "text"
    augment: tuple[Part, ...] = ()
    template: String | None = None
    dropout: UnitInterval | None = None


class Paper(Section):
    """The reported result that the recipe reproduces.

    Args:
        key: File name in `registry/papers/`, without its suffix.
        table: Identifier of the table.
        row: Name of the row.
    """

    key: str
    table: str
    row: str


class Data(Section):
    """The training data.

    Args:
        dataset: Names in the catalog, or `hf:owner/name[:config][@revision]` for a data set on the Hugging Face Hub.
            Several data sets are concatenated in this order.
        file: Your own data instead of `dataset`: paths, directories or glob patterns. Formats: .txt (one sentence per
            line), .tsv (with a header), .csv, .jsonl, .json (all also as .gz) and .parquet.
        split: Split of the data sets.
        column: Column of `file` or of an `hf:` data set that contains the sentences. Default: "text".
        max_length: Maximum number of tokens per sentence, including special tokens. Longer sentences are truncated.
        limit: Maximum number of sentences. Default: all.
        unique_in_batch: Whether a text occurs in at most one row of a batch, in any column that is read. Default:
            false.
        columns: Name → generator of a column that the data does not contain, such as a translation of its sentences.
            Views and augmenters read it like the columns of the data. A run makes it before it trains.
    """

    dataset: tuple[str, ...] = ()
    file: String | Annotated[tuple[String, ...], Field(min_length=1)] | None = None
    split: String = "train"
    column: String | None = None
    max_length: MaxLength = 32
    limit: PositiveInt | None = None
    unique_in_batch: StrictBool | None = None
    columns: dict[str, Part] = Field(default_factory=dict)

    @property
    def files(self) -> tuple[str, ...]:
        """Paths, directories and glob patterns of `file`."""
        return (self.file,) if isinstance(self.file, str) else self.file or ()

    @property
    def named(self) -> str:
        """Name of the data in messages and records."""
        return ", ".join(self.files) or "+".join(self.dataset)


class Train(Section):
    """The training loop: steps, optimizer, learning rate, evaluation and precision.

    Args:
        seed: Seed of initialization, dropout and the order of the data.
        steps: Number of optimizer steps. 0 disables training. Default: computed from `epochs`.
        epochs: Number of passes over the data. Cannot be combined with `steps`.
        batch_size: Number of sentences per step on all devices together.
        optimizer: Name of the optimizer. Default: "adamw".
        optimizer_settings: Parameters of the optimizer that are not keys of [train].
        epsilon: Term in the denominator of the update, for all optimizers except "sgd". Default: 1e-8.
        betas: Decay rates of the running means of the gradient and of its square, for "adamw" and "adam".
            Default: [0.9, 0.999].
        bias_correction: Whether "adamw" corrects the bias of its running means towards 0. Default: true. The optimizer
            of BERT, and sentence-transformers before version 1, used false.
        epsilon_before_correction: Whether "adamw" adds ε before the bias correction of the second moment. Default:
            false. transformers before version 5, which most papers used, used true.
        learning_rate: Peak learning rate.
        head_learning_rate: Peak learning rate of the heads. Default: `learning_rate`.
        schedule: Name of the schedule of the learning rate after the warm-up. "linear" decays it to 0. "constant"
            changes it only at `milestones`.
        schedule_settings: Parameters of the schedule that are not keys of [train].
        milestones: Steps after which the next of `learning_rates` is used, ascending. Requires "constant".
        learning_rates: Learning rate from each milestone on.
        warmup_steps: Number of steps in which the learning rate rises linearly from 0 to its peak.
        weight_decay: Weight decay of all weights except biases and norms. Decoupled in "adamw", a quadratic
            penalty in the other optimizers.
        clip_norm: Maximum norm of the gradient. 0 disables clipping.
        evaluate_every: Number of steps between evaluations on the dev split. 0 evaluates only at the end.
        patience: Number of evaluations in a row without a better `evaluate.metric_for_best_model` after which the
            training stops. The schedule of the learning rate still counts all steps. Default: all steps are trained.
        checkpoint_every: Number of steps between checkpoints. 0 writes one every `evaluate_every` steps and about
            every five minutes.
        precision: "fp32", "bf16", "fp16" or "auto". "auto" is bf16 on GPUs that support it, else fp32.
        portable: Whether to compute the same bits on every x86-64 processor with AVX2, with the same torch: on the CPU,
            in fp32, with one thread, in a separate process. Default: false.
        compile: Whether to compile the encoder's blocks: "on", "off" or "auto": on a GPU, for runs of at least 500
            steps. Compilation takes about a minute.
        mini_batch_size: Number of sentences whose activations are in memory. The backward pass computes those of the
            others again, with the same dropout. Each value draws other dropout masks, so it is another experiment;
            without dropout, loss and gradient are the same. Default: `batch_size`.
        collapse_cosine: Mean cosine between the sentences of a batch above which the run warns of a collapse.
    """

    seed: Annotated[NonNegativeInt, Field(lt=2**32)] = 42
    steps: NonNegativeInt | None = None
    epochs: PositiveInt = 1
    batch_size: Annotated[int, Field(ge=2, strict=True)] = 64
    optimizer: Annotated[str, Registered(OPTIMIZERS)] | None = None
    optimizer_settings: dict[str, Any] | None = None
    epsilon: PositiveNumber | None = None
    betas: tuple[UnitInterval, UnitInterval] | None = None
    bias_correction: StrictBool | None = None
    epsilon_before_correction: StrictBool | None = None
    learning_rate: PositiveNumber = 3e-5
    head_learning_rate: PositiveNumber | None = None
    schedule: Annotated[str, Registered(SCHEDULES)] = "linear"
    schedule_settings: dict[str, Any] | None = None
    milestones: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] | None = None
    learning_rates: Annotated[tuple[PositiveNumber, ...], Field(min_length=1)] | None = None
    warmup_steps: NonNegativeInt = 0
    weight_decay: NonNegativeNumber = 0.0
    clip_norm: NonNegativeNumber = 1.0
    evaluate_every: NonNegativeInt = 125
    patience: PositiveInt | None = None
    checkpoint_every: NonNegativeInt = 0
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    portable: StrictBool | None = None
    compile: Literal["auto", "on", "off"] = "auto"
    mini_batch_size: PositiveInt | None = None
    collapse_cosine: Annotated[Number, Field(gt=0, le=1)] = 0.98


class Evaluate(Section):
    """The evaluation: which encoder is scored, how, and which score selects the best checkpoint.

    Args:
        metric_for_best_model: "evaluator.metric" on a dev split. It selects the best checkpoint, and `cse tune`
            maximizes it. Default: the last state is the result.
        encoder: Name of the encoder that is scored and saved.
        selection_encoder: Name of the encoder whose `metric_for_best_model` selects the best checkpoint.
            Default: `encoder`.
        view: View whose augmenters are also applied to the sentences that are scored, as in the code of MoCoSE.
            Default: no augmenters.
        batch_tokens: Maximum number of tokens per batch, including padding. Default: chosen for the device.
        max_length: Maximum number of tokens per sentence. The limit of the model also applies.
        width: Number of leading dimensions of the embeddings that are scored. Default: all.
        limit: Maximum number of pairs or rows per evaluator, evenly spaced in its data. Such scores are not comparable
            with others, so leaderboards leave these runs out. Default: all.
        eval_on_start: Whether all evaluators score the untrained encoder. Default: only the one that selects does.
        select_untrained: Whether the untrained encoder can be selected, too. Default: only trained ones can.
        allow_test_selection: Whether `metric_for_best_model` may use a test split. All results of such a run are
            marked.
    """

    metric_for_best_model: str | None = None
    encoder: str = "online"
    selection_encoder: str | None = None
    view: str | None = None
    batch_tokens: PositiveInt | None = None
    max_length: MaxLength = 512
    width: PositiveInt | None = None
    limit: Annotated[int, Field(ge=2, strict=True)] | None = None
    eval_on_start: StrictBool = False
    select_untrained: StrictBool | None = None
    allow_test_selection: StrictBool = False


Choice = str | int | float | bool | dict[str, Any] | tuple[dict[str, Any], ...]


class TuneRange(Section):
    """A parameter of `cse tune`.

    Args:
        paths: Dotted paths that are set to the same value.
        low: Smallest value.
        high: Largest value.
        log: Whether the scale is logarithmic.
        step: Difference between neighboring values.
        choices: Values instead of a range. For a component: names, tables, arrays of tables for the augmenters of a
            view, or false for none.
    """

    paths: tuple[str, ...] = ()
    low: Number | None = None
    high: Number | None = None
    log: StrictBool = False
    step: PositiveNumber | None = None
    choices: Annotated[tuple[Choice, ...], Field(min_length=1)] | None = None


NAMING = ("column", "split", "pooling", "eval_pooling", "random_weights")
"""Parameters without a declaration that name something, or decide whether a named model is read."""


@dataclass(frozen=True)
class PlacedPart:
    """A component of a recipe with its path, such as ("losses", "info_nce"), and the registry of its kind."""

    keys: Keys
    part: Part
    registry: Registry[Any]

    @property
    def place(self) -> str:
        """Dotted path in the recipe."""
        return dotted(self.keys)

    @property
    def entry(self) -> Entry[Any]:
        """Entry in the registry."""
        return self.registry[self.part.name]


class Recipe(Section):
    """A complete experiment: method, data, training and evaluation.

    Args:
        schema: Version of the format.
        title: One line for lists and reports.
        description: Further text.
        language: Language of the data, such as "en".
    """

    schema_version: Annotated[int, Field(ge=1, le=1, strict=True)] = Field(1, alias="schema")
    title: String
    description: str = ""
    language: String = "en"
    paper: Paper | None = None
    data: Data
    encoders: dict[str, EncoderPart]
    views: dict[str, View] = Field(default_factory=dict)
    queue: Part | None = None
    losses: dict[str, LossPart] = Field(default_factory=dict)
    train: Train = Train()
    evaluate: Evaluate = Evaluate()
    evaluators: dict[str, Part] = Field(default_factory=dict)
    tune: dict[str, TuneRange] = Field(default_factory=dict)

    def parts(self) -> Iterator[PlacedPart]:
        """Yield every component with its place."""
        yield from (PlacedPart(("data", "columns", name), part, GENERATORS) for name, part in self.data.columns.items())
        for name, encoder in self.encoders.items():
            yield PlacedPart(("encoders", name), encoder, ENCODERS)
            for head, part in encoder.heads.items():
                yield PlacedPart(("encoders", name, "heads", head), part, HEADS)
        for name, view in self.views.items():
            for position, augmenter in enumerate(view.augment):
                yield PlacedPart(("views", name, "augment", position), augmenter, AUGMENTERS)
        if self.queue is not None:
            yield PlacedPart(("queue",), self.queue, QUEUES)
        for name, loss in self.losses.items():
            yield PlacedPart(("losses", name), loss, LOSSES)
        for name, evaluator in self.evaluators.items():
            yield PlacedPart(("evaluators", name), evaluator, EVALUATORS)

    def values(self) -> dict[str, Any]:
        """Return dotted path → value of everything in the recipe that can be set, including defaults."""
        found: dict[str, Any] = {}
        for section in ("data", "train", "evaluate"):
            found |= {f"{section}.{key}": value for key, value in getattr(self, section)}
        for placed in self.parts():
            for key, value in {**dict(placed.part.params), **placed.part.own}.items():
                path = dotted((*placed.keys, key))
                found[path] = value
                if isinstance(value, Mapping):
                    found |= {f"{path}.{dotted((inner,))}": each for inner, each in value.items()}
        for name, view in self.views.items():
            found |= {f"views.{name}.encoder": view.encoder, f"views.{name}.column": view.column}
        return found

    def setting(self, path: str) -> Any:
        """Return the value at a dotted path, which may be the name of a component, or None if it does not exist.

        A component in an array is identified by its position or its name, as in `--set`.
        """
        found: Any = self.resolved()
        for key in path.split("."):
            if isinstance(found, list | tuple):
                by_name = {part["name"]: part for part in found if isinstance(part, Mapping) and "name" in part}
                found = {str(position): part for position, part in enumerate(found)} | by_name
            found = found.get(key) if isinstance(found, Mapping) else None
        return found

    def is_place(self, path: str) -> bool:
        """Return whether a dotted path is the place of a component, or of the augmenters of a view."""
        match path.split("."):
            case ["queue"]:
                return True
            case ["losses", name]:
                return name in self.losses
            case ["encoders", name]:
                return name in self.encoders
            case ["encoders", name, "heads", head]:
                return name in self.encoders and head in self.encoders[name].heads
            case ["views", name, "augment"]:
                return name in self.views
        return False

    def wiring(self) -> Recipe:
        """Return the recipe with only those parameters of components that name something.

        These are the names of encoders, views, losses, columns, poolings, models, data sets, splits and files, and
        whether a model is read. Rules between the sections and requirements read names, never values. Generators of
        columns and evaluators are complete.
        """

        def names(part: P, registry: Registry[Any]) -> P:
            if part.name not in registry:
                return part
            entry = registry[part.name]
            kept = {*NAMING, *entry.resources, *(reference.parameter for reference in entry.references)}
            return part.model_copy(
                update={"params": UnvalidatedParameters(**{k: v for k, v in part.params if k in kept})}
            )

        def each(parts: dict[str, P], registry: Registry[Any]) -> dict[str, P]:
            return {name: names(part, registry) for name, part in parts.items()}

        encoders = each(self.encoders, ENCODERS)
        encoders = {name: one.model_copy(update={"heads": each(one.heads, HEADS)}) for name, one in encoders.items()}
        augment = {name: tuple(names(part, AUGMENTERS) for part in view.augment) for name, view in self.views.items()}
        sections = {
            "encoders": encoders,
            "views": {name: view.model_copy(update={"augment": augment[name]}) for name, view in self.views.items()},
            "queue": None if self.queue is None else names(self.queue, QUEUES),
            "losses": each(self.losses, LOSSES),
        }
        return self.model_copy(update=sections)

    @property
    def model(self) -> str:
        """Model that the scored encoder, or the innermost encoder that it wraps, starts from. Empty without one."""
        part = self.encoders[self.evaluate.encoder]
        while "model" not in part.params:
            inner = [part.params[r.parameter] for r in ENCODERS[part.name].references if r.kind == "encoder"]
            if not inner:
                return ""
            part = self.encoders[str(inner[0])]
        return str(part.params["model"])

    @property
    def wrapped(self) -> dict[str, str]:
        """Wrapper → loss that it computes, by their names in the recipe."""
        return {
            label: str(loss.params.get(reference.parameter))
            for label, loss in self.losses.items()
            for reference in (LOSSES[loss.name].references if loss.name in LOSSES else ())
            if reference.kind == "loss"
        }

    def innermost(self, label: str) -> str:
        """Return the loss that a wrapper computes, through all wrappers, or the loss itself."""
        of = self.wrapped
        for _ in of:
            label = of.get(label, label)
        return label

    def resolved(self) -> dict[str, Any]:
        """Return the recipe as tables for TOML, with every default and without `extends`."""
        components = ("encoders", "losses", "evaluators")
        plain = self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={*components, "views", "queue"})
        del plain["data"]["columns"]
        if self.data.columns:
            plain["data"]["columns"] = {key: part.table() for key, part in self.data.columns.items()}
        if self.train.steps is not None:
            del plain["train"]["epochs"]
        plain["encoders"] = {key: part.table() for key, part in self.encoders.items()}
        plain["views"] = {
            key: {**view.model_dump(exclude_none=True), "augment": [part.table() for part in view.augment]}
            for key, view in self.views.items()
        }
        if self.queue is not None:
            plain["queue"] = self.queue.table()
        plain["losses"] = {key: part.table() for key, part in self.losses.items()}
        plain["evaluators"] = {key: part.table() for key, part in self.evaluators.items()}
        return plain

    def hash(self) -> str:
        """Return a digest of the settings on which the results depend.

        It excludes directories of models and files, because the identity of an experiment contains digests of their
        contents. The files of evaluators keep theirs, because no other part of the identity distinguishes them.
        """
        identity = settings(self.resolved())
        identity["train"] = {"epochs": self.train.epochs, **identity["train"]}
        for placed in self.parts():
            if placed.registry is not EVALUATORS:
                table: Any = identity
                for key in placed.keys:
                    table = table[key]
                for key, mark in placed.entry.resources.items():
                    if mark.kind != "dataset" and key in table:
                        table[key] = _without_directory(table[key], mark.kind)
        text = json.dumps(identity, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


TRAIN_PARTS: dict[str, Registry[Any]] = {"optimizer": OPTIMIZERS, "schedule": SCHEDULES}
"""Key of [train] → registry of the component that it names. "<key>_settings" contains its own parameters."""


def name_of_part(train: Train, key: str) -> str:
    """Return the name of the optimizer or schedule."""
    return str(getattr(train, key) or DEFAULT_OPTIMIZER)


def entry_of(train: Train, key: str) -> Entry[Any]:
    """Return the entry of the optimizer or schedule."""
    return TRAIN_PARTS[key][name_of_part(train, key)]


def train_entries(train: Train) -> Iterator[Entry[Any]]:
    """Yield the entries of the optimizer and of the schedule, if the recipe trains."""
    for key in TRAIN_PARTS if train.steps != 0 else ():
        yield entry_of(train, key)


def parameters_of(train: Train, key: str) -> dict[str, Any]:
    """Return the parameters of the optimizer or schedule: keys of [train] with their names, and its own settings."""
    shared = train.model_dump(mode="json", include={*shared_keys(entry_of(train, key))}, exclude_none=True)
    return {**shared, **(getattr(train, f"{key}_settings") or {})}


def shared_keys(entry: Entry[Any]) -> list[str]:
    """Return the parameters of a component that are keys of [train]."""
    return [name for name in entry.parameters.model_fields if name in Train.model_fields]


def build_part(train: Train, key: str) -> Any:
    """Return the optimizer or schedule."""
    return entry_of(train, key).build(parameters_of(train, key))


def tune_of(field: FieldInfo) -> Tune | None:
    """Return the tuning range of a parameter's type, or of one type of a union, or None."""
    from registry.types import Tune  # imports torch, which `cse leaderboard` does not need

    hints: list[Any] = [field]
    while hints:
        hint, *hints = hints
        for mark in (*getattr(hint, "metadata", ()), *getattr(hint, "__metadata__", ())):
            if isinstance(mark, Tune):
                return mark
        hints = [*get_args(hint.annotation if isinstance(hint, FieldInfo) else hint), *hints]
    return None
