"""Random two-layer translation models of every family, with tokenizers, written to a directory."""

import json
from pathlib import Path
from typing import Any

import torch

SENTENCES = ["the cat sleeps", "a man sees the red house", "two dogs run", "the child eats", "a woman sings in a tree"]
SMALL: dict[str, Any] = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 64,
}


def tiny_t5(folder: Path) -> Path:
    """Write a T5 and its tokenizer."""
    from transformers import T5Config, T5ForConditionalGeneration

    vocabulary = ["<pad>", "</s>", "<unk>", *_pieces()]
    settings = T5Config(
        vocab_size=len(vocabulary), d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2,
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
    )  # fmt: skip
    return _write(T5ForConditionalGeneration, settings, folder / "t5", _words(vocabulary))


def tiny_nllb(folder: Path) -> Path:
    """Write an M2M100 with NLLB's tokenizer, whose languages are tokens such as deu_Latn."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration, NllbTokenizer

    vocabulary = {token: i for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *_letters()])}
    tokenizer = NllbTokenizer(vocab=vocabulary, merges=[], src_lang="eng_Latn")
    settings = M2M100Config(
        vocab_size=len(tokenizer), pad_token_id=1, eos_token_id=2, decoder_start_token_id=2, **SMALL
    )
    return _write(M2M100ForConditionalGeneration, settings, folder / "nllb", tokenizer)


def tiny_m2m100(folder: Path) -> Path:
    """Write an M2M100, whose languages are codes such as de; needs sentencepiece."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration, M2M100Tokenizer

    pieces = _sentencepiece(folder, "m2m")
    vocabulary = folder / "vocab.json"
    names = ["<s>", "<pad>", "</s>", "<unk>", *_piece_names(pieces)]
    vocabulary.write_text(json.dumps({name: i for i, name in enumerate(dict.fromkeys(names))}))
    tokenizer = M2M100Tokenizer(str(vocabulary), str(pieces), src_lang="en")
    settings = M2M100Config(
        vocab_size=max(tokenizer.lang_code_to_id.values()) + 1, pad_token_id=1, eos_token_id=2,
        decoder_start_token_id=2, **SMALL,
    )  # fmt: skip
    return _write(M2M100ForConditionalGeneration, settings, folder / "m2m100", tokenizer)


def tiny_marian(folder: Path, source: str = "en", target: str = "de") -> Path:
    """Write a Marian model; needs sentencepiece."""
    from transformers import MarianConfig, MarianMTModel, MarianTokenizer

    pieces = _sentencepiece(folder, "marian")
    vocabulary = folder / "vocab.json"
    names = list(dict.fromkeys(["</s>", "<unk>", *_piece_names(pieces), "<pad>"]))
    vocabulary.write_text(json.dumps({name: i for i, name in enumerate(names)}))
    tokenizer = MarianTokenizer(str(pieces), str(pieces), str(vocabulary), source_lang=source, target_lang=target)
    pad = names.index("<pad>")
    settings = MarianConfig(
        vocab_size=len(names), pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad, forced_eos_token_id=0,
        **SMALL,
    )  # fmt: skip
    return _write(MarianMTModel, settings, folder / "marian", tokenizer)


def _write(cls: Any, settings: Any, folder: Path, tokenizer: Any) -> Path:
    model = cls(settings)
    with torch.random.fork_rng(devices=[]):  # other releases of transformers draw other weights
        torch.manual_seed(0)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _pieces() -> list[str]:
    return sorted({word for sentence in SENTENCES for word in sentence.split()})


def _letters() -> list[str]:
    return ["▁", *sorted({letter for sentence in SENTENCES for letter in sentence if letter != " "})]


def _words(vocabulary: list[str]) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({token: i for i, token in enumerate(vocabulary)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=64
    )


def _sentencepiece(folder: Path, name: str) -> Path:
    import sentencepiece

    corpus = folder / "corpus.txt"
    corpus.write_text("".join(f"{sentence}\n" for sentence in SENTENCES * 20))
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(folder / name), vocab_size=40, hard_vocab_limit=False, minloglevel=2
    )
    return folder / f"{name}.model"


def _piece_names(model: Path) -> list[str]:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
