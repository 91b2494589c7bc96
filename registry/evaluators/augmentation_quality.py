"""How much of its meaning a sentence keeps under a view's augmenters: IFCL's test of Figure 4a."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Literal

from torch import Tensor

from registry import EVALUATORS
from registry.catalogue import File, Pair, Source
from registry.catalogue.find import require_own_file
from registry.catalogue.pairs import ROWS
from registry.errors import CseError, MissingError
from registry.evaluators.pairs import PairEvaluator, cosines, one_line, similarities
from registry.statistics import aggregates
from registry.types import DatasetName, Encode, FileName, ViewName


@EVALUATORS.register("augmentation_quality")
class AugmentationQuality(PairEvaluator):
    """Correlate cosines with gold scores, × 100, where the sentences first went through a view's augmenters.

    With a the view's augmenters and f a supervised encoder, s(f(a(x)), f(a(x′))) takes the place of s(f(x), f(x′)) in
    the STS score. The less an augmenter distorts, the closer `spearman` comes to `spearman_plain`; `spearman_change` is
    the first minus the second, and so for Pearson.

    Each occurrence of a sentence is augmented by itself, with draws that are the same in every call. The encoder is in
    evaluation mode: its own dropout is off, so an identical twin is the view whose augmenter `embedding_dropout` drops
    with the encoder's rate; a fraternal twin is the view with `fuse_embeddings`.

    Source: IFCL (Xiao et al. 2023, section 4.4 and Figure 4a, whose values are printed as bars only).
    Doubtful: "we augment the test data" does not say whether both sentences of a pair are changed, the default, or one
    (`sides`); nor how dropout is applied to a finished encoder (methods/ifcl.md A23).

    Args:
        dataset: Name in the data catalogue, scored pairs.
        view: The view of the recipe whose augmenters are judged; no loss needs it.
        split: Split of the data set; "all" joins its splits.
        sides: Which sentence of each pair is augmented.
        translations: A `.tsv` with a header, as `cse data translate` writes it, for augmenters that read a second
            column: each sentence of the pairs in column `text`, its translation in `column`. A relative path counts
            from the current folder, then from $CSE_DATA.
        column: The second column, as the view's augmenters call it.
        aggregate: How subsets are put together, as in `sts`.
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
        self.translations = None if translations is None else Translations(translations, column)

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
        """Return "dataset/split" → content digest, of the translations too."""
        return super().fingerprints() | ({} if self.translations is None else self.translations.fingerprints())

    def _correlations(self, pairs: Sequence[Pair], predicted: Sequence[float]) -> dict[str, float]:
        values = aggregates([pair.subset for pair in pairs], [pair.score for pair in pairs], predicted)
        return {name: values[f"{name}_{self.aggregate}"] for name in ("spearman", "pearson")}

    def _augmented(self, pairs: Sequence[Pair], encode: Encode) -> tuple[Tensor, Tensor]:
        """Return (n, D) vectors of the first and of the second sentences."""
        first, second = [one_line(pair.first) for pair in pairs], [one_line(pair.second) for pair in pairs]
        if self.sides == "first":
            return self._through(first, encode), encode(second)
        together = self._through([*first, *second], encode)
        return together[: len(pairs)], together[len(pairs) :]

    def _through(self, sentences: Sequence[str], encode: Encode) -> Tensor:
        columns = {"text": sentences}
        if self.translations is not None:
            return encode.encode_view(self.view, columns | {self.column: self.translations.of(sentences)})
        try:
            return encode.encode_view(self.view, columns)
        except MissingError as error:
            raise CseError(
                f"augmentation_quality, {self.dataset}/{self.split}, view '{self.view}': {error.message}",
                "translate the sentences with `cse data translate`, and name its output in `translations`",
            ) from error


class Translations:
    """Sentence → translation, from a `.tsv` with a header.

    Args:
        file: Path; a relative one counts from the current folder, then from $CSE_DATA.
        column: The column that holds the translations; sentences stand in `text`.

    Raises:
        MissingError: There is no such file.
    """

    def __init__(self, file: str, column: str) -> None:
        action = "make the file with `cse data translate`: a .tsv with columns text and translation"
        path = require_own_file(file, "translations for augmentation_quality", action)
        self.source = Source(("text", column), (File(path),))

    def of(self, sentences: Sequence[str]) -> list[str]:
        """Return the translation of each sentence, whose white space is single blanks.

        Raises:
            CseError: A sentence has none.
        """
        missing = [sentence for sentence in dict.fromkeys(sentences) if sentence not in self._table]
        if missing:
            raise CseError(
                f"{self.source.where}: no translation of {len(missing)} of {len(set(sentences))} sentences, the first "
                f"of them {missing[0]!r}",
                "translate those too: `cse data translate` writes such a file from a .txt with one sentence a line",
            )
        return [self._table[sentence] for sentence in sentences]

    def fingerprints(self) -> dict[str, str]:
        """Return "file/column" → digest of its content."""
        return {f"{self.source.paths[0].name}/{self.source.columns[1]}": ROWS + self.source.digest}

    @cached_property
    def _table(self) -> dict[str, str]:
        return {" ".join(text.split()): other for text, other in self.source.rows()}
