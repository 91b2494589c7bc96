"""The shape of a resolved recipe. Component tables are already checked against their components' signatures.

Text becomes a `Recipe` in `cse_cli.recipe.load`, nowhere else; a `Recipe` is complete: every default is written in it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from registry.core import Entry

SCHEMA_VERSION = 1

Count = Annotated[int, Field(gt=0, strict=True)]
Whole = Annotated[int, Field(ge=0, strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[Number, Field(gt=0)]
Kept = Annotated[Number, Field(ge=0, lt=1)]
Text = Annotated[str, Field(min_length=1)]
Flag = Annotated[bool, Field(strict=True)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_\-]*$")]


class Section(BaseModel):
    """A table of a recipe: unknown keys refused, nothing changes after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class Part(Section):
    """One component: its registered name and every parameter, defaults included."""

    name: str
    params: dict[str, Any] = Field(default_factory=dict)

    def table(self) -> dict[str, Any]:
        """Return the part as a recipe writes it: name and parameters side by side."""
        extra = self.model_dump(mode="json", exclude={"name", "params"}, exclude_none=True)
        return {"name": self.name, **{k: v for k, v in self.params.items() if v is not None}, **extra}


class EncoderPart(Part):
    """One encoder.

    Args:
        heads: Name → what stands between its pooling and the losses, in this order.
    """

    heads: dict[Name, Part] = Field(default_factory=dict)

    def table(self) -> dict[str, Any]:
        """Return the part as a recipe writes it, heads as tables of their own."""
        plain = {key: value for key, value in super().table().items() if key != "heads"}
        return {**plain, "heads": {k: head.table() for k, head in self.heads.items()}} if self.heads else plain


class WeightSchedule(Section):
    """How a loss's weight w moves over training: to w + (end − w)·r(u), u = step / (share · steps), at most 1.

    Args:
        end: Weight from u = 1 on.
        shape: r: "linear" is u, "cosine" (1 − cos πu)/2, "quarter_cosine" 1 − cos(πu/2).
        share: Of the training, after which the weight stays.
    """

    end: Number
    shape: Literal["linear", "cosine", "quarter_cosine"] = "linear"
    share: Annotated[Number, Field(gt=0, le=1)] = 1.0

    def at(self, start: float, step: int, total: int) -> float:
        """Return the weight at a step, counted from 0."""
        u = min(1.0, step / (self.share * total))
        if self.shape == "cosine":
            u = (1 - math.cos(math.pi * u)) / 2
        elif self.shape == "quarter_cosine":
            u = 1 - math.cos(math.pi * u / 2)
        return start + (self.end - start) * u


class LossPart(Part):
    """One term of the objective.

    Args:
        weight: Factor in the sum.
        weight_schedule: How it moves over training; left out, it stays.
        views: Input of the loss's `forward` → view name, or an array of them where it takes several; complete after
            validation.
        queue: Whether the queue's negatives reach this loss, where it asks for them.
    """

    weight: Number = 1.0
    weight_schedule: WeightSchedule | None = None
    views: dict[str, str | tuple[str, ...]] = Field(default_factory=dict)
    queue: Flag = True

    def views_of(self, name: str) -> tuple[str, ...]:
        """Return the views of an input; one that the recipe leaves out is called like its view."""
        found = self.views.get(name, name)
        return (found,) if isinstance(found, str) else found


class View(Section):
    """One way to look at a sentence.

    Args:
        encoder: Name of the encoder it goes through.
        column: Column of the data it reads.
        augment: Augmenters in order.
        template: Instead of the encoder's own, as the encoder describes it.
        dropout: Rate of all dropout in the encoder when it encodes this view; left out are the encoder's own rates.
    """

    encoder: str = "online"
    column: Text = "text"
    augment: tuple[Part, ...] = ()
    template: Text | None = None
    dropout: Annotated[Number, Field(ge=0, lt=1)] | None = None


class Paper(Section):
    """The printed row our number stands beside.

    Args:
        key: File name under `registry/papers/`.
        table: Table of that paper.
        row: Row of that table.
    """

    key: str
    table: str
    row: str


class Data(Section):
    """What is trained on.

    Args:
        dataset: Catalogue names, or `hf:owner/name[:config][@revision]` for any data set of the hub; several are
            concatenated in order.
        file: Your own text instead: a path, a folder or a glob, or several: .txt (one sentence a line), .tsv with a
            header, .csv, .jsonl or .json (plain or .gz), or .parquet.
        make: Command that makes or fetches `file`, or without one the file that a component names; told where it is
            missing.
        split: Split of the data sets.
        column: Column of the file or of an `hf:` data set that is read as `text`; left out is "text".
        max_length: Tokens a sentence is cut to, special tokens included.
        limit: Use only the first so many sentences.
        streaming: Read shards on the way instead of tokenising all before the first step; left out is false.
        shuffle_buffer: Rows read ahead and shuffled where the data is streamed; left out is 10,000.
    """

    dataset: tuple[str, ...] = ()
    file: Text | Annotated[tuple[Text, ...], Field(min_length=1)] | None = None
    make: Text | None = None
    split: Text = "train"
    column: Text | None = None
    max_length: Annotated[int, Field(ge=3, le=512, strict=True)] = 32
    limit: Count | None = None
    streaming: Flag | None = None
    shuffle_buffer: Annotated[int, Field(ge=2, strict=True)] | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The paths, folders and globs of `file`."""
        return (self.file,) if isinstance(self.file, str) else self.file or ()

    @property
    def named(self) -> str:
        """What to call it in messages and records."""
        return ", ".join(self.files) or "+".join(self.dataset)


PROSE = frozenset({"title", "description", "paper", "tune"})
"""Top-level keys of a recipe that change no number."""


def data_identity(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a `[data]` table makes the experiment: the same text in another folder is the same.

    Its content is fingerprinted in the result.
    """
    kept = {key: value for key, value in table.items() if key != "make" and not (key == "streaming" and not value)}
    if "file" in kept:
        file = kept["file"]
        kept["file"] = Path(file).name if isinstance(file, str) else [Path(each).name for each in file]
    return kept


def part_identity(table: Mapping[str, Any], entry: Entry[Any]) -> dict[str, Any]:
    """Return what of a component's table makes the experiment: a model or file in another folder is the same.

    Its weights or its content are digested in the identity of the experiment.
    """
    named = {key: mark.kind for key, mark in entry.resources.items() if mark.kind != "dataset"}
    return {key: _without_folder(value, named[key]) if key in named else value for key, value in table.items()}


def _without_folder(value: Any, kind: Literal["model", "file"]) -> Any:
    """Return the bare name of a path. Hub ids, `owner/name`, and `package:name/path` stay whole.

    A directory called `model`, as in every run, keeps the name of the directory above it.
    """
    if isinstance(value, list | tuple):
        return [_without_folder(each, kind) for each in value]
    if not isinstance(value, str):
        return value
    path = value.startswith((".", "/", "~")) or value.count("/") > 1
    if kind == "file":
        path = not value.startswith(("package:", "hf:"))
    if not path:
        return value
    return "/".join(Path(value).parts[-2:]) if Path(value).name == "model" else Path(value).name or value


class Train(Section):
    """How the objective is minimised: optimiser, schedule, clipping.

    Args:
        seed: Seed of initialisation, dropout and order.
        steps: Optimiser steps; 0 for methods without training; leave out for `epochs`.
        epochs: Passes over the data, where `steps` is not given.
        batch_size: Sentences a step, over all devices together.
        optimizer: "adamw", "adam", "rmsprop" or "sgd", with torch's settings; left out is "adamw".
        epsilon: Added to the denominator by all of them but "sgd"; left out is 1e-8.
        betas: How much of their running means "adamw" and "adam" keep at a step; left out are 0.9 and 0.999.
        bias_correction: Whether "adamw" corrects its running means for their start at 0; left out is true. BERT's own
            optimiser, and sentence-transformers before version 1, did not.
        learning_rate: Peak of the schedule.
        head_learning_rate: That of the training heads; left out is `learning_rate`.
        schedule: "linear" decays to 0, "constant" changes at `milestones` alone.
        milestones: Steps done when the rate becomes the next of `rates`, ascending; left out is none.
        rates: Learning rate from each milestone on.
        warmup_steps: Linear rise from 0 to the peak.
        weight_decay: On every weight that is not a bias or a norm; decoupled in "adamw", else added to the gradient.
        clip_norm: Largest gradient norm; 0 switches clipping off.
        evaluate_every: Steps between dev evaluations; 0 evaluates only at the end.
        checkpoint_every: Steps between resumable checkpoints; 0 follows `evaluate_every`.
        precision: "auto" is fp32 on CPU and bf16 on CUDA devices that have it.
        compile: Whether the blocks are compiled: "on", "off", or "auto" where it pays; left out is "off".
        rows_at_once: Rows of a batch whose states an encoder's blocks hold at a time; the others are computed again in
            the backward pass, with the same loss and gradient. Left out is all.
        collapse_cosine: Alarm when the mean cosine between different sentences of a batch exceeds this.
    """

    seed: Annotated[Whole, Field(lt=2**32)] = 42
    steps: Whole | None = None
    epochs: Count = 1
    batch_size: Annotated[int, Field(ge=2, strict=True)] = 64
    optimizer: Literal["adamw", "adam", "rmsprop", "sgd"] | None = None
    epsilon: Positive | None = None
    betas: tuple[Kept, Kept] | None = None
    bias_correction: Flag | None = None
    learning_rate: Positive = 3e-5
    head_learning_rate: Positive | None = None
    schedule: Literal["linear", "constant"] = "linear"
    milestones: Annotated[tuple[Count, ...], Field(min_length=1)] | None = None
    rates: Annotated[tuple[Positive, ...], Field(min_length=1)] | None = None
    warmup_steps: Whole = 0
    weight_decay: Annotated[Number, Field(ge=0)] = 0.0
    clip_norm: Annotated[Number, Field(ge=0)] = 1.0
    evaluate_every: Whole = 125
    checkpoint_every: Whole = 0
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    compile: Literal["auto", "on", "off"] | None = None
    rows_at_once: Count | None = None
    collapse_cosine: Annotated[Number, Field(gt=0, le=1)] = 0.98


class Evaluate(Section):
    """How states are scored and chosen.

    Args:
        select: "evaluator.metric" that picks the best state and that tuning maximises; a dev split.
        encoder: Encoder that is scored and saved.
        view: View whose augmenters change sentences when they are scored, too, as in MoCoSE's code; left out, none do.
        batch_tokens: Most tokens an encoding batch, padding included; leave out for what suits the device.
        max_length: Tokens a sentence is cut to when scored; the model's own limit at most.
        untrained: Score every evaluator before the first step too, not only the one that selects.
        allow_test_selection: Permit a test split in `select`; every number that comes from it is marked.
    """

    select: str | None = None
    encoder: str = "online"
    view: str | None = None
    batch_tokens: Count | None = None
    max_length: Annotated[int, Field(ge=3, le=512, strict=True)] = 512
    untrained: Flag = False
    allow_test_selection: Flag = False


Choice = str | int | float | bool | dict[str, Any] | tuple[dict[str, Any], ...]


class TuneRange(Section):
    """A named knob for `cse tune`.

    Args:
        paths: Dotted paths that all take the value tried.
        low: Smallest value.
        high: Largest value.
        log: Logarithmic scale.
        step: Spacing.
        choices: Values to choose from, instead of a range. Where a part stands: names of components, tables, arrays of
            tables for a view's augmenters, or false to leave it out.
    """

    paths: tuple[str, ...] = ()
    low: Number | None = None
    high: Number | None = None
    log: Flag = False
    step: Positive | None = None
    choices: Annotated[tuple[Choice, ...], Field(min_length=1)] | None = None


class Recipe(Section):
    """A complete experiment: method × data × training × evaluation."""

    schema_version: Literal[1] = Field(1, alias="schema")
    title: Text
    description: str = ""
    language: Text = "en"
    paper: Paper | None = None
    data: Data
    encoders: dict[Name, EncoderPart]
    views: dict[Name, View] = Field(default_factory=dict)
    queue: Part | None = None
    losses: dict[Name, LossPart] = Field(default_factory=dict)
    train: Train = Train()
    evaluate: Evaluate = Evaluate()
    evaluators: dict[Name, Part] = Field(default_factory=dict)
    tune: dict[Name, TuneRange] = Field(default_factory=dict)

    def resolved(self) -> dict[str, Any]:
        """Return the recipe as TOML-ready tables with every default written in and nothing inherited."""
        plain = self.model_dump(
            mode="json",
            by_alias=True,
            exclude_none=True,
            exclude={"encoders", "views", "queue", "losses", "evaluators"},
        )
        plain["encoders"] = {key: part.table() for key, part in self.encoders.items()}
        plain["views"] = {
            key: {**v.model_dump(exclude_none=True), "augment": [part.table() for part in v.augment]}
            for key, v in self.views.items()
        }
        if self.queue is not None:
            plain["queue"] = self.queue.table()
        plain["losses"] = {key: part.table() for key, part in self.losses.items()}
        plain["evaluators"] = {key: part.table() for key, part in self.evaluators.items()}
        return plain

    def hash(self) -> str:
        """Return the identity of the experiment: a digest of `resolved()` without seed, prose and tuning ranges.

        How a step is computed, where its outcome does not depend on it, is no part of it either. Folders of models and
        of files are not, because the identity of an experiment digests their content. Evaluators keep theirs: nothing
        else in the identity tells their files apart.
        """
        from cse_cli.recipe.paths import entry, parts

        identity = {k: v for k, v in self.resolved().items() if k not in PROSE}
        identity["train"] = {k: v for k, v in identity["train"].items() if k not in {"seed", "compile", "rows_at_once"}}
        identity["data"] = data_identity(identity["data"])
        for keys, part in parts(self):
            if keys[0] != "evaluators":
                table: Any = identity
                for key in keys:
                    table = table[key]
                table.update(part_identity(table, entry(keys, part)))
        text = json.dumps(identity, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
