"""Compare the speed of the generator `translate` with the translation pipeline of transformers.

    CSE_DATA=../shared/data python -m benchmarks.translation [--sentences 512] [--repeats 3] [--batches 1 8 32]

transformers 5 has no translation pipeline, so this file contains the loop of the one in transformers 4.57: batches in
the order of the sentences, padded to the longest, decoded together until all have ended. Its default batch is one
sentence. Both sides use the same process, threads, greedy decoding and model, alternating: a T5 with the shape of
t5-small and random weights, which ends each translation at the length of its source, as trained models nearly do. The
sentences are those of `wiki_en_1m`, of mixed length. The translations must be equal. Prints sentences per second.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from registry.generators.translate import Translate
from registry.resources import catalog
from tests.fake_hub.content import Models

PREFIX = "translate English to German: "


class EndAt:
    """Logits processor that ends each row at a number of tokens."""

    def __init__(self, lengths: torch.Tensor, end: int) -> None:
        self.lengths, self.end = lengths, end

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Allow only the end of the text for rows that are long enough, and forbid it for the others."""
        full = (ids.shape[1] >= self.lengths).to(scores.device)
        scores[:, self.end] = torch.where(full, torch.inf, -torch.inf)
        return scores


def with_known_lengths(model: Any) -> None:
    """Let a model end each translation at the length of its source."""
    generate = model.generate

    def ended(**inputs: Any) -> Any:
        lengths = inputs["attention_mask"].sum(dim=1)
        return generate(**inputs, logits_processor=[EndAt(lengths, model.config.eos_token_id)])

    model.generate = ended


def model_of_size(folder: Path) -> Path:
    """Write a random T5 with the shape of t5-small and a tokenizer."""
    from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration

    from tests.fake_hub.content import SHARED

    made = Models(SHARED, folder)
    made.t5("small")
    path = folder / "models" / "small"
    vocabulary = len(AutoTokenizer.from_pretrained(path))
    config = T5Config(vocab_size=vocabulary, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)  # t5-small
    torch.manual_seed(0)
    T5ForConditionalGeneration(config).save_pretrained(path)
    return path


@torch.inference_mode()
def pipeline(made: Translate, sentences: Sequence[str], batch: int) -> list[str]:
    """Translate like the pipeline of transformers 4.57."""
    lines = []
    for start in range(0, len(sentences), batch):
        texts = [PREFIX + sentence for sentence in sentences[start : start + batch]]
        inputs = made._tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")
        ids = made._model.generate(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], num_beams=1, do_sample=False,
            max_length=None, max_new_tokens=128,
        )  # fmt: skip
        lines += [" ".join(line.split()) for line in made._tokenizer.batch_decode(ids, skip_special_tokens=True)]
    return lines


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    asked = parser.parse_args()
    sentences = [row["text"] for row in islice(catalog.open_text("wiki_en_1m"), asked.sentences)]
    with tempfile.TemporaryDirectory() as folder:
        made = Translate(str(model_of_size(Path(folder))), prefix=PREFIX)
        with_known_lengths(made._model)
        sides: dict[str, Callable[[], list[str]]] = {"cse": lambda: made.make(sentences)}
        for batch in asked.batches:
            sides[f"pipeline, batch {batch}"] = lambda batch=batch: pipeline(made, sentences, batch)
        rates: dict[str, list[float]] = {name: [] for name in sides}
        expected: list[str] = []
        for _ in range(asked.repeats):
            for name, translate in sides.items():
                began = time.perf_counter()
                lines = translate()
                rates[name].append(len(sentences) / (time.perf_counter() - began))
                expected = expected or lines
                different = sum(a != b for a, b in zip(lines, expected, strict=True))
                if different:
                    print(f"{name}: {different} of {len(lines)} translations differ")
    own = statistics.median(rates["cse"])
    for name, found in rates.items():
        rate = statistics.median(found)
        print(f"{name:24} {rate:8.1f} sentences/s   cse is {own / rate:.2f} times as fast")


if __name__ == "__main__":
    main()
