"""Meaning that a sentence keeps after a view's augmenters: the test of IFCL's Figure 4a."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Literal

from torch import Tensor

from registry import EVALUATORS
from registry.errors import CseError, MissingError
from registry.evaluators.pairs import PairEvaluator, cosines, one_line, similarities
from registry.resources.catalog import ROWS, Pair, require_own_file
from registry.resources.rows import File, Source
from registry.statistics import aggregates
from registry.types import DatasetName, Encode, FileName, ViewName


@EVALUATORS.register("augmentation_quality")
class AugmentationQuality(PairEvaluator):
    """Correlate cosines with gold scores after a view's augmenters changed the sentences, × 100.

    With the view's augmenters a and a supervised encoder f, s(f(a(x)), f(a(x′))) replaces s(f(x), f(x′)) in the STS
    score. The less the augmenters distort, the closer `spearman` is to `spearman_plain`. `spearman_change` is the first
    minus the second. `pearson` has the same three metrics.

    Each occurrence of a sentence is augmented separately, with the same random numbers in every call. The encoder is in
    evaluation mode without its own dropout. For an identical twin, use a view with the augmenter `embedding_dropout`
    and the encoder's rate. For a fraternal twin, use a view with `fuse_embeddings`.

    Source: IFCL (Xiao et al. 2023, section 4.4 and Figure 4a, which shows the values only as bars).
    Doubtful: "we augment the test data" does not specify whether both sentences of a pair are changed, the default, or
    one (`sides`), and how dropout is applied to a trained encoder (methods/ifcl.md A23).

    Args:
        dataset: Data set of scored pairs in the catalog.
        view: View of the recipe whose augmenters are evaluated. The losses do not have to use it.
        split: Split of the data set. "all" joins its splits.
        sides: Sentences of each pair that are augmented.
        translations: `.tsv` file with a header, for augmenters that read a second column: the sentences of the pairs in
            column `text`, and their translations in `column`. A relative path is resolved against the current
            directory, then against $CSE_DATA. Default: the generator of `[data.columns]` makes them.
        column: Name of the second column in the view's augmenters.
        aggregate: Aggregate of the subsets, as in `sts`.

    Example:
        [evaluators.fraternal_twin]
        name = "augmentation_quality"
        dataset = "stsb"
        view = "fraternal"
    """

    metric: ClassVar[str] = "spearman"
    metrics: ClassVar[tuple[str, ...]] = tuple(
        f"{name}{what}" for what in ("", "_plain", "_change") for name in ("spearman", "pearson")
    )

    def __init__(
        self,
        dataset: DatasetName,
        view: ViewName,
        split: str = "test",
        sides: Literal["both", "first"] = "both",
        translations: FileName | None = None,
        column: str = "translation",
        aggregate: Literal["all", "mean", "wmean"] = "all",
    ) -> None:
        self.dataset, self.view, self.split, self.sides = dataset, view, split, sides
        self.column, self.aggregate = column, aggregate
        self.translations: Source | None = None
        if translations is not None:
            action = "create it: a .tsv file with the columns text and translation"
            path = require_own_file(translations, "translations for augmentation_quality", action)
            self.translations = Source(("text", column), (File(path),))

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return the correlations with and without the view's augmenters, and their difference."""
        pairs = self.pairs()
        augmented = self._correlations(pairs, cosines(*self._augmented(pairs, encode)))
        plain = self._correlations(pairs, similarities(pairs, encode))
        return {
            **augmented,
            **{f"{name}_plain": value for name, value in plain.items()},
            **{f"{name}_change": value - plain[name] for name, value in augmented.items()},
        }

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split" → content digest, and the digest of the translations."""
        found = super().fingerprints()
        if (source := self.translations) is not None:
            found |= {f"{source.paths[0].name}/{self.column}": ROWS + source.digest}
        return found

    def _correlations(self, pairs: Sequence[Pair], predicted: Sequence[float]) -> dict[str, float]:
        values = aggregates([pair.subset for pair in pairs], [pair.score for pair in pairs], predicted)
        return {name: values[f"{name}_{self.aggregate}"] for name in ("spearman", "pearson")}

    def _augmented(self, pairs: Sequence[Pair], encode: Encode) -> tuple[Tensor, Tensor]:
        """Return (n, D) embeddings of the first and of the second sentences."""
        first, second = [one_line(pair.first) for pair in pairs], [one_line(pair.second) for pair in pairs]
        if self.sides == "first":
            return self._through(first, encode), encode(second)
        together = self._through([*first, *second], encode)
        return together[: len(pairs)], together[len(pairs) :]

    def _through(self, sentences: Sequence[str], encode: Encode) -> Tensor:
        columns = {"text": sentences}
        if self.translations is not None:
            missing = [sentence for sentence in dict.fromkeys(sentences) if sentence not in self._translated]
            if missing:
                raise CseError(
                    f"{self.translations.where}: no translation of {len(missing)} of {len(set(sentences))} sentences, "
                    f"for example {missing[0]!r}",
                    "add a row for each of these sentences to the file",
                    code="evaluators.no_translations",
                )
            translated = [self._translated[sentence] for sentence in sentences]
            return encode.encode_view(self.view, columns | {self.column: translated})
        try:
            return encode.encode_view(self.view, columns)
        except MissingError as error:
            raise CseError(
                f"augmentation_quality on '{self.dataset}/{self.split}': {error.message}",
                "add [data.columns.translation] to the recipe, which translates them: cse show translate",
                code="evaluators.no_translations",
            ) from error

    @cached_property
    def _translated(self) -> dict[str, str]:
        """Sentence → translation. White space of sentences is reduced to single spaces."""
        rows = () if self.translations is None else self.translations.rows()
        return {one_line(text): other for text, other in rows}
