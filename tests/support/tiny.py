"""Random two-layer models of width 16, written to a directory with a WordPiece tokenizer: for everyone's tests."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

WORDS = """
    a the cat dog man woman child red green big small runs eats sees sleeps sings in on under house tree street
    not two three ein eine der die katze hund mann frau rot haus baum laeuft isst sieht ##s ##e ##n ##er . ,
""".split()  # noqa: SIM905
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_MADE: dict[Any, dict[str, bytes]] = {}
"""What a model is made from → its files. Each model is made once in a process."""


def sentences(count: int = 8, seed: int = 0) -> list[str]:
    """Return `count` different sentences of three to seven known words."""
    generator = torch.Generator().manual_seed(seed)
    words = [word for word in WORDS if word.isalpha()]
    made: list[str] = []
    while len(made) < count:
        length = int(torch.randint(3, 8, (1,), generator=generator))
        text = " ".join(words[i] for i in torch.randint(len(words), (length,), generator=generator).tolist())
        if text not in made:
            made.append(text)
    return made


def _shape(width: int, layers: int = 2, heads: int = 2, positions: int = 64) -> dict[str, int]:
    return {
        "vocab_size": len(SPECIALS) + len(WORDS),
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 2 * width,
        "max_position_embeddings": positions,
    }


def tiny_bert(
    folder: Path, *, name: str = "tiny", width: int = 16, layers: int = 2, seed: int = 0, **config: Any
) -> Path:
    """Write a random BERT and its tokenizer below `folder`; return the directory, to be given as `model`."""
    from transformers import BertConfig, BertModel

    return _write(BertModel, BertConfig(**_shape(width, layers), **config), folder / name, seed)


def tiny_roberta(folder: Path, *, name: str = "roberta", width: int = 16, seed: int = 0) -> Path:
    """Write a random RoBERTa (positions from padding_idx + 1, one segment type) and its tokenizer."""
    from transformers import RobertaConfig, RobertaModel

    special = {"type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    settings = RobertaConfig(**_shape(width, positions=66), **special)
    return _write(RobertaModel, settings, folder / name, seed, _roberta_tokenizer())


def with_prediction_head(model: Path, *, seed: int = 0) -> Path:
    """Give a BERT, RoBERTa or Llama written here the random language-model head that published ones have."""
    from transformers import AutoModel, BertForPreTraining, LlamaForCausalLM, RobertaForMaskedLM

    given = frozenset(_content(model).items()), seed
    if given not in _MADE:
        encoder = AutoModel.from_pretrained(model)
        kinds = {"bert": BertForPreTraining, "roberta": RobertaForMaskedLM, "llama": LlamaForCausalLM}
        cls = kinds[encoder.config.model_type]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            whole = cls(encoder.config)
            for parameter in whole.parameters():
                torch.nn.init.normal_(parameter, std=0.3)
        # The encoder keeps its weights, the pooler with them; the output embedding is its input embedding.
        whole.base_model.load_state_dict(encoder.state_dict(), strict=False)
        whole.tie_weights()
        kept = {f"{cls.base_model_prefix}.{key}": value for key, value in encoder.state_dict().items()}
        whole.save_pretrained(model, state_dict={**whole.state_dict(), **kept})
        _MADE[given] = _content(model)
    return _put(model, _MADE[given])


def tiny_albert(folder: Path, *, name: str = "albert", width: int = 16, embedding: int = 8, seed: int = 0) -> Path:
    """Write a random ALBERT, whose token vectors are narrower than its states, and its tokenizer."""
    from transformers import AlbertConfig, AlbertModel

    settings = AlbertConfig(**_shape(width, layers=3), embedding_size=embedding, bos_token_id=2, eos_token_id=3)
    return _write(AlbertModel, settings, folder / name, seed)


def tiny_electra(folder: Path, *, name: str = "electra", width: int = 16, embedding: int = 8, seed: int = 0) -> Path:
    """Write a random ELECTRA, which projects its token vectors before the first block, and its tokenizer."""
    from transformers import ElectraConfig, ElectraModel

    return _write(ElectraModel, ElectraConfig(**_shape(width), embedding_size=embedding), folder / name, seed)


def tiny_llama(
    folder: Path, *, name: str = "llama", width: int = 16, layers: int = 3, positions: int = 64, seed: int = 0
) -> Path:
    """Write a random Llama (rotary positions, grouped heads, no dropout) and its tokenizer, which begins with <s>."""
    from transformers import LlamaConfig, LlamaModel

    settings = LlamaConfig(**_shape(width, layers, heads=4, positions=positions), num_key_value_heads=2)
    return _write(LlamaModel, settings, folder / name, seed, _decoder_tokenizer("<s>"))


def tiny_gpt2(folder: Path, *, name: str = "gpt2", width: int = 16, layers: int = 3, seed: int = 0) -> Path:
    """Write a random GPT-2 (learned positions, dropout) and its tokenizer, which adds no token and has no padding."""
    from transformers import GPT2Config, GPT2Model

    settings = GPT2Config(vocab_size=len(SPECIALS) + len(WORDS), n_embd=width, n_layer=layers, n_head=2, n_positions=64)
    return _write(GPT2Model, settings, folder / name, seed, _decoder_tokenizer(None))


def tiny_opt(folder: Path, *, name: str = "opt", width: int = 16, layers: int = 3, seed: int = 0) -> Path:
    """Write a random OPT (learned positions after the second, dropout) and its tokenizer, which begins with </s>."""
    from transformers import OPTConfig, OPTModel

    settings = OPTConfig(**_shape(width, layers), word_embed_proj_dim=width, ffn_dim=2 * width)
    return _write(OPTModel, settings, folder / name, seed, _decoder_tokenizer("</s>"))


def tiny_modernbert(folder: Path, *, name: str = "modernbert", width: int = 16, seed: int = 0) -> Path:
    """Write a random ModernBERT (rotary positions, windows of four tokens in two of three blocks) and its tokenizer."""
    from transformers import ModernBertConfig, ModernBertModel

    settings = ModernBertConfig(**_shape(width, layers=3), local_attention=4, pad_token_id=0)
    return _write(ModernBertModel, settings, folder / name, seed)


def _write(cls: Any, settings: Any, folder: Path, seed: int, tokenizer: Any = None) -> Path:
    tokenizer = tokenizer or _bert_tokenizer()
    key = cls, settings.to_json_string(), seed, id(tokenizer)
    if key not in _MADE:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = cls(settings)
            # Standard deviation 0.02 would leave every sentence alike; here differences show.
            for parameter in model.parameters():
                torch.nn.init.normal_(parameter, std=0.3)
        with TemporaryDirectory() as made:
            model.save_pretrained(made)
            tokenizer.save_pretrained(made)
            _MADE[key] = _content(Path(made))
    return _put(folder, _MADE[key])


def _content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _put(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def _backend(specials: list[str], unknown: str) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    vocabulary = {token: index for index, token in enumerate([*specials, *WORDS])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return backend


@cache
def _bert_tokenizer() -> Any:
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    backend = _backend(SPECIALS, "[UNK]")
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


@cache
def _roberta_tokenizer() -> Any:
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    backend = _backend(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], "<unk>")
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        unk_token="<unk>",
        cls_token="<s>",
        sep_token="</s>",
        mask_token="<mask>",
        model_input_names=["input_ids", "attention_mask"],
    )


@cache
def _decoder_tokenizer(first: str | None) -> Any:
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    specials = ["<unk>", "<s>", "</s>", "_", '"']
    backend = _backend(specials, "<unk>")
    if first is not None:
        place = (first, specials.index(first))
        backend.post_processor = processors.TemplateProcessing(single=f"{first} $A", special_tokens=[place])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        model_input_names=["input_ids", "attention_mask"],
    )


def word_vectors(file: Path, *, width: int = 16, seed: int = 0) -> Path:
    """Write random vectors of every word, in GloVe's text format; return the file."""
    generator = torch.Generator().manual_seed(seed)
    words = [word for word in WORDS if not word.startswith("##")]
    rows = torch.randn((len(words), width), generator=generator).tolist()
    lines = [f"{word} {' '.join(f'{value:.4f}' for value in row)}\n" for word, row in zip(words, rows, strict=True)]
    file.write_text("".join(lines), encoding="utf-8")
    return file
