"""Averages of word vectors from a file: GloVe, word2vec, or any other of their form."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from registry.encoders.word_vectors.average import WordAverage
from registry.encoders.word_vectors.files import locate_words, read_words
from registry.registries import ENCODERS
from registry.types import FileName


@ENCODERS.register("word_vectors")
class WordVectors(WordAverage):
    """Average the vectors of a sentence's known words.

    s = Σₜ vₜ / n over the n words that the file knows; 0 where it knows none. There are no special tokens and no
    dropout. How a sentence is cut into words is told in methods/glove.md.

    Shapes: ids (B, L) → (B, L, D) → (B, D).

    Source: GloVe (Pennington et al. 2014); the baseline of Reimers and Gurevych 2019 (Table 1). Doubtful and settled in
    methods/glove.md: which vectors (G1, `file`), case (G2, `lower`), how sentences are cut (G3).

    Args:
        file: Text file, plain or `.gz`, a line for each word: the word, then its numbers. A path, or below $CSE_DATA.
        lower: Lower-case sentences first: for files whose words are, such as glove.6B; glove.840B keeps case.
        limit: Words read at most, the first of the file, which are the frequent ones; all if left out.
        frozen: Keep the vectors as they are; otherwise they are trained.
    """

    def __init__(
        self, file: FileName, lower: bool = False, limit: Annotated[int, Field(ge=1)] | None = None, frozen: bool = True
    ) -> None:
        super().__init__(*read_words(locate_words(file), limit), lower, frozen)
