"""Memory of a training step of a decoder: `python -m benchmarks.backbone_memory`.

A random model of the shape of Qwen2-0.5B (494 million weights) takes one SimCSE step for each setting, in separate
processes: all weights in fp32, LoRA in fp32, LoRA next to weights in bf16, and that with checkpointed activations.
"""

from __future__ import annotations

import argparse
import resource
import subprocess  # nosec B404
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SHAPE = {
    "vocab_size": 151936,
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "tie_word_embeddings": True,
}
LORA = ("lora_rank=16",)
SETTINGS = {
    "fp32, all weights": (),
    "fp32, LoRA": LORA,
    "bf16, LoRA": (*LORA, 'dtype="bf16"'),
    "bf16, LoRA, checkpointing": (*LORA, 'dtype="bf16"', "checkpointing=true"),
}


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print the table and return 0."""
    parser = argparse.ArgumentParser(description="Measure the memory of a step of a decoder.")
    parser.add_argument("--batch", type=int, default=16, help="Number of sentences, in two views.")
    parser.add_argument("--length", type=int, default=128, help="Number of tokens of each sentence.")
    parser.add_argument("--step", help="Model directory, for the process of one setting.")
    parser.add_argument("--set", nargs="*", default=[], help="Encoder parameters of that process.")
    asked = parser.parse_args(given)
    if asked.step:
        return step(asked)
    print("| weights | peak of the process, MB |\n| --- | ---: |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        for name, settings in SETTINGS.items():
            shape = ["--batch", str(asked.batch), "--length", str(asked.length)]
            command = [sys.executable, "-m", "benchmarks.backbone_memory", "--step", folder, *shape, "--set", *settings]
            peak = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # nosec B603
            print(f"| {name} | {int(peak.split()[-1]):,} |", flush=True)
    return 0


def write(folder: Path) -> None:
    """Write the random model in bf16, and a tokenizer of one word."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaModel, PreTrainedTokenizerFast

    torch.set_default_dtype(torch.bfloat16)
    LlamaModel(LlamaConfig(**SHAPE)).save_pretrained(folder)
    backend = Tokenizer(models.WordLevel({"<unk>": 0, "</s>": 1, "word": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="</s>").save_pretrained(folder)


def step(asked: argparse.Namespace) -> int:
    """Take one step with AdamW and print the peak memory of the process in MB."""
    import tomllib

    import torch

    from registry.encoders.transformer import TransformerEncoder
    from registry.losses.info_nce import InfoNCE
    from registry.types import Negatives

    parameters = tomllib.loads("\n".join(asked.set))
    encoder = TransformerEncoder(asked.step, pooling="last", **parameters)
    trained = [weight for weight in encoder.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, fused=True)
    ids = encoder.vocabulary.ids([" ".join(["word"] * asked.length)] * 2 * asked.batch, asked.length)
    tokens = encoder.vocabulary.pad(ids)
    vectors = encoder.encode(tokens, encoder.embed(tokens)).sentence
    anchor, positive = vectors.chunk(2)
    InfoNCE(temperature=0.05)(anchor, positive, negatives=Negatives.none(anchor)).backward()
    optimizer.step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
    return 0


if __name__ == "__main__":
    sys.exit(main())
