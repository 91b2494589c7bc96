"""Makes the content of the fake hub from the real data and small models beside the checkout.

    python -m tests.fake_hub.content FOLDER [--rows 1000000] [--shared ../shared]

Layouts are those that the hub's pages show. Models are this project's small ones under the names that recipes use, or
random ones where the architecture is another; widths agree where recipes bring two models together (192 for "base", 256
for "large"). `senteval.tar` holds the files of SentEval, made from our tables by undoing what reads them.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import itertools
import json
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

SHARED = Path(__file__).parents[3] / "shared"

ALIASES = {  # names the hub redirects (307)
    "bert-base-uncased": "google-bert/bert-base-uncased",
    "bert-large-uncased": "google-bert/bert-large-uncased",
    "bert-base-multilingual-uncased": "google-bert/bert-base-multilingual-uncased",
    "bert-base-chinese": "google-bert/bert-base-chinese",
    "distilbert-base-uncased": "distilbert/distilbert-base-uncased",
    "roberta-base": "FacebookAI/roberta-base",
    "roberta-large": "FacebookAI/roberta-large",
    "t5-base": "google-t5/t5-base",
    "t5-small": "google-t5/t5-small",
}
BASE, LARGE = 192, 256
"""Widths of the models that stand for base and large ones; `BASE` is that of the shipped models."""

SIMCSE = "datasets/princeton-nlp/datasets-for-simcse"


def make(out: Path, *, rows: int = 1_000_000, shared: Path = SHARED, models: bool = True) -> Path:
    """Write the content folder.

    Args:
        out: Where it goes.
        rows: Lines of wiki1m_for_simcse.txt.
        shared: Folder that holds data/ and models/.
        models: Leave them out if False: data alone takes a few seconds.
    """
    data = Data(shared / "data", out)
    data.sts()
    data.cstsb()
    data.simcse(rows)
    if models:
        Models(shared, out).make()
    (out / "aliases.json").write_text(json.dumps(ALIASES))
    return out


# --- data sets --------------------------------------------------------------------------------------------------------


class Data:
    """Data sets from `source`, as repositories below `out`."""

    def __init__(self, source: Path, out: Path) -> None:
        self.source, self.out = source, out

    def rows(self, name: str) -> list[dict[str, str]]:
        """Return a table of ours by its header's names."""
        path = self.source / name
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        lines = [line.split("\t") for line in text.removesuffix("\n").split("\n")]
        return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]

    def sts(self) -> None:
        """mteb/…: gzipped JSON lines, columns split, sentence1, sentence2 and score, a float."""
        for year in range(12, 17):
            pairs = self.rows(f"sts/sts{year}/test.tsv")
            _json_lines(self.out / f"datasets/mteb/sts{year}-sts/test.jsonl.gz", _pairs(pairs, "test"))
        for ours, theirs in (("train", "train"), ("dev", "validation"), ("test", "test")):
            records = list(_pairs(self.rows(f"sts/stsb/{ours}.tsv"), theirs))
            for number, record in enumerate(records):
                record |= {"genre": "main-captions", "dataset": "MSRvid", "year": "2012test", "sid": f"{number:04}"}
            _json_lines(self.out / f"datasets/mteb/stsbenchmark-sts/{theirs}.jsonl.gz", records)
            # What the repository's first commit had; later ones have all pairs in one file.
            sick = self.rows(f"sts/sickr/{ours}.tsv")
            _json_lines(self.out / f"datasets/mteb/sickr-sts/{theirs}.json.gz", _pairs(sick, theirs))
        every = [row for split in ("train", "dev", "test") for row in self.rows(f"sts/sickr/{split}.tsv")]
        _json_lines(self.out / "datasets/mteb/sickr-sts/test.jsonl.gz", _pairs(every, "test"))
        for folder in (self.out / "datasets/mteb").iterdir():
            (folder / "README.md").write_text("---\nlanguage:\n- en\n---\n")

    def cstsb(self) -> None:
        """C-MTEB/STSB and its copy mteb/STSB: Parquet below data/, score is an int32."""
        import pyarrow as pa
        from pyarrow import parquet

        tags = {"train": "7d9f45e146afdbd0", "validation": "f26577b4869b4653", "test": "8599d9428e96fe39"}
        for ours, theirs in (("train", "train"), ("dev", "validation"), ("test", "test")):
            pairs = self.rows(f"sts_zh/cstsb/{ours}.tsv")
            columns: dict[str, Any] = {name: [pair[name] for pair in pairs] for name in ("sentence1", "sentence2")}
            columns["score"] = pa.array([int(pair["score"]) for pair in pairs], pa.int32())
            for repository in ("C-MTEB/STSB", "mteb/STSB"):
                place = self.out / f"datasets/{repository}/data/{theirs}-00000-of-00001-{tags[theirs]}.parquet"
                place.parent.mkdir(parents=True, exist_ok=True)
                parquet.write_table(pa.table(columns), place)
                (place.parents[1] / "README.md").write_text(_CSTSB_CARD)

    def simcse(self, wanted: int) -> None:
        """princeton-nlp/datasets-for-simcse: wiki1m_for_simcse.txt, nli_for_simcse.csv, senteval.tar."""
        folder = self.out / SIMCSE
        folder.mkdir(parents=True, exist_ok=True)
        with gzip.open(self.source / "train/wiki_en_1m.txt.gz", "rb") as file:
            (folder / "wiki1m_for_simcse.txt").write_bytes(b"".join(itertools.islice(file, wanted)))
        pairs = itertools.cycle(self.rows("transfer/mrpc/train.tsv"))
        with (folder / "nli_for_simcse.csv").open("w", newline="", encoding="utf-8") as text:
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(["sent0", "sent1", "hard_neg"])
            for number, row in zip(range(275_601), pairs, strict=False):
                writer.writerow([row["sentence1"], row["sentence2"], f'No. {number}, "not" that.'])
        with tarfile.open(folder / "senteval.tar", "w") as tar:
            for name, content in self.senteval():
                about = tarfile.TarInfo(name)
                about.size = len(content)
                tar.addfile(about, io.BytesIO(content))

    def senteval(self) -> Iterator[tuple[str, bytes]]:
        """Names and bytes of SentEval's own files."""
        binary = {
            "mr": ("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
            "cr": ("CR/custrev.pos", "CR/custrev.neg"),
            "subj": ("SUBJ/subj.objective", "SUBJ/subj.subjective"),
            "mpqa": ("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
        }
        for task, files in binary.items():
            for label, name in zip("10", files, strict=True):
                texts = [row["text"] for row in self.rows(f"transfer/{task}/all.tsv") if row["label"] == label]
                yield name, "".join(f"{text} \n" for text in texts).encode("latin-1")
        for split in ("train.tsv.gz", "dev.tsv", "test.tsv"):
            lines = (f"{row['text']} \t{row['label']}\n" for row in self.rows(f"transfer/sst2/{split}"))
            yield f"SST/binary/sentiment-{split.partition('.')[0]}", "".join(lines).encode()
        for split, name in (("train", "train_5500.label"), ("test", "TREC_10.label")):
            lines = (f"{row['label']}:other {row['text']}\n" for row in self.rows(f"transfer/trec/{split}.tsv"))
            yield f"TREC/{name}", "".join(lines).encode("latin-1")
        for split in ("train", "test"):
            yield f"MRPC/msr_paraphrase_{split}.txt", "".join(_mrpc(self.rows(f"transfer/mrpc/{split}.tsv"))).encode()
        for ours, theirs in (("train", "train"), ("dev", "trial"), ("test", "test_annotated")):
            yield f"SICK/SICK_{theirs}.txt", "".join(_sick(self.rows(f"sts/sickr/{ours}.tsv"))).encode()


_CSTSB_CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*
  - split: validation
    path: data/validation-*
  - split: test
    path: data/test-*
---
"""


def _pairs(rows: Iterable[dict[str, str]], split: str) -> Iterator[dict[str, Any]]:
    for row in rows:
        texts = {"sentence1": row["sentence1"], "sentence2": row["sentence2"]}
        yield {"split": split, **texts, "score": float(row["score"])}


def _mrpc(rows: Sequence[dict[str, str]]) -> Iterator[str]:
    yield "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    for number, row in enumerate(rows):
        yield f"{row['label']}\t{2 * number}\t{2 * number + 1}\t{row['sentence1']}\t{row['sentence2']}\n"


def _sick(rows: Sequence[dict[str, str]]) -> Iterator[str]:
    """SentEval's copy, whose punctuation is split off."""
    yield "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    for number, row in enumerate(rows, start=1):
        split = [re.sub(r"\s*([',.;:])\s*", r" \1 ", row[name]).strip() for name in ("sentence1", "sentence2")]
        yield f"{number}\t{split[0]}\t{split[1]}\t{row['score']}\t{row['subset']}\n"


def _json_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    path.write_bytes(gzip.compress(text.encode(), compresslevel=3, mtime=0))


# --- models -----------------------------------------------------------------------------------------------------------


class Models:
    """Models below `out`, from the small ones in `shared`."""

    def __init__(self, shared: Path, out: Path) -> None:
        self.small, self.out = shared / "models", out / "models"
        with gzip.open(shared / "data/train/multi30k_en_de.tsv.gz", "rt", encoding="utf-8") as file:
            self.pairs = [line.rstrip("\n").split("\t") for line in itertools.islice(file, 5000)]

    def make(self) -> None:
        """Write all of them."""
        import torch
        from transformers.utils import logging

        logging.disable_progress_bar()
        state = torch.random.get_rng_state()
        torch.manual_seed(0)
        self.copy("mini_en", "google-bert/bert-base-uncased")
        self.copy("mini_de", "google-bert/bert-base-multilingual-uncased")
        self.copy("mini_zh", "google-bert/bert-base-chinese")
        self.copy("mini_zh", "denpa92/bert-base-cantonese", weights="bin", files=(), heads=False)
        self.copy("mini_zh", "peterchou/simbert-chinese-base", weights="bin", files=("vocab.txt",), heads=False)
        self.change("peterchou/simbert-chinese-base", model_type=None)
        slow = ("tokenizer_config.json", "vocab.txt")
        self.copy("mini_en", "princeton-nlp/unsup-simcse-bert-base-uncased", weights="bin", files=slow)
        self.sentence_transformer("sentence-transformers/stsb-bert-base")
        self.large("google-bert/bert-large-uncased")
        self.large("princeton-nlp/unsup-simcse-bert-large-uncased", weights="bin", files=slow)
        self.distilbert("distilbert/distilbert-base-uncased")
        self.large("deepset/gbert-large", weights="bin", files=slow)
        self.albert("stefan-it/albert-large-german-cased")
        self.roberta("FacebookAI/roberta-base", BASE)
        self.roberta("FacebookAI/roberta-large", LARGE)
        self.roberta("princeton-nlp/unsup-simcse-roberta-base", BASE, weights="bin")
        self.roberta("princeton-nlp/unsup-simcse-roberta-large", LARGE, weights="bin")
        self.t5("google-t5/t5-base")
        self.t5("google-t5/t5-small")
        self.marian("Helsinki-NLP/opus-mt-en-de", "en", "de")
        self.marian("Helsinki-NLP/opus-mt-de-en", "de", "en")
        self.nllb("facebook/nllb-200-distilled-600M")
        torch.random.set_rng_state(state)

    def copy(
        self,
        ours: str,
        theirs: str,
        *,
        weights: str = "safetensors",
        files: Sequence[str] = ("tokenizer.json", "tokenizer_config.json", "vocab.txt"),
        heads: bool = True,
    ) -> Path:
        """One of our BERTs under another name; `weights` is "bin" where a repository has no safetensors."""
        folder, source = self.folder(theirs), self.small / ours
        for name in ("config.json", *files):
            shutil.copyfile(source / name, folder / name)
        if not heads:
            import torch
            from safetensors.torch import load_file

            torch.save(load_file(source / "model.safetensors"), folder / "pytorch_model.bin")
            return folder
        from transformers import BertForPreTraining

        # The released checkpoints have a pooler and prediction heads, which recipes ask for; ours have none.
        return self.save(BertForPreTraining.from_pretrained(source, dtype="float32"), theirs, weights)

    def change(self, name: str, **settings: Any) -> None:
        """Change values of a config.json; None takes them away."""
        place = self.out / name / "config.json"
        config = json.loads(place.read_text()) | settings
        place.write_text(json.dumps({key: value for key, value in config.items() if value is not None}, indent=1))

    def sentence_transformer(self, theirs: str) -> None:
        """A BERT with the modules of sentence-transformers."""
        folder = self.copy("mini_en", theirs)
        kinds = ("", "Transformer"), ("1_Pooling", "Pooling")
        modules = [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for number, (path, kind) in enumerate(kinds)
        ]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 128}')
        (folder / "1_Pooling").mkdir(exist_ok=True)
        pooling = {"word_embedding_dimension": BASE, "pooling_mode_mean_tokens": True}
        (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))

    def large(self, theirs: str, *, weights: str = "safetensors", files: Sequence[str] = ()) -> None:
        """A random BERT of width `LARGE` with mini_en's vocabulary."""
        from transformers import BertConfig, BertForPreTraining

        files = files or ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
        config = BertConfig(
            vocab_size=8192,
            hidden_size=LARGE,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=2 * LARGE,
            max_position_embeddings=128,
        )
        folder = self.save(BertForPreTraining(config), theirs, weights)
        for name in files:
            shutil.copyfile(self.small / "mini_en" / name, folder / name)

    def distilbert(self, theirs: str) -> None:
        """A random DistilBERT with mini_en's vocabulary and a prediction head."""
        from transformers import DistilBertConfig, DistilBertForMaskedLM

        config = DistilBertConfig(
            vocab_size=8192, dim=BASE, n_layers=2, n_heads=3, hidden_dim=2 * BASE, max_position_embeddings=128
        )
        folder = self.save(DistilBertForMaskedLM(config), theirs)
        for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
            shutil.copyfile(self.small / "mini_en" / name, folder / name)

    def albert(self, theirs: str) -> None:
        """A random ALBERT whose embedding layer is narrower than its hidden states, with mini_de's vocabulary."""
        from transformers import AlbertConfig, AlbertModel

        vocabulary = json.loads((self.small / "mini_de/config.json").read_text())["vocab_size"]
        config = AlbertConfig(
            vocab_size=vocabulary,
            embedding_size=64,
            hidden_size=LARGE,
            num_hidden_layers=1,
            num_attention_heads=4,
            intermediate_size=LARGE,
            max_position_embeddings=128,
        )
        folder = self.save(AlbertModel(config), theirs)
        for name in ("tokenizer.json", "vocab.txt"):
            shutil.copyfile(self.small / "mini_de" / name, folder / name)
        settings = json.loads((self.small / "mini_de/tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": "TokenizersBackend"}))

    def roberta(self, theirs: str, width: int, *, weights: str = "safetensors") -> None:
        """A random RoBERTa with a byte-level BPE vocabulary; the ones in "bin" have no tokenizer.json."""
        from transformers import RobertaConfig, RobertaForMaskedLM, RobertaTokenizerFast
        from transformers.models.roberta.modeling_roberta import RobertaPooler

        folder = self.folder(theirs)
        self.bpe.save_model(str(folder))
        config = RobertaConfig(
            vocab_size=self.bpe.get_vocab_size(),
            hidden_size=width,
            num_hidden_layers=2,
            num_attention_heads=width // 64,
            intermediate_size=2 * width,
            max_position_embeddings=130,
            type_vocab_size=1,
        )
        model = RobertaForMaskedLM(config)
        model.roberta.pooler = RobertaPooler(config)  # the released checkpoints have both
        self.save(model, theirs, weights)
        (folder / "tokenizer_config.json").write_text('{"model_max_length": 512}')
        if weights == "safetensors":
            RobertaTokenizerFast.from_pretrained(folder).backend_tokenizer.save(str(folder / "tokenizer.json"))

    @cached_property
    def bpe(self) -> Any:
        """A byte-level BPE vocabulary of 2000 pieces."""
        from tokenizers import ByteLevelBPETokenizer

        bpe = ByteLevelBPETokenizer()
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        texts = (pair[0] for pair in self.pairs)
        bpe.train_from_iterator(texts, vocab_size=2000, special_tokens=special, show_progress=False)
        return bpe

    def t5(self, theirs: str) -> None:
        """A random T5 of width 32 with a Unigram tokenizer.json and the prefixes of the released one."""
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
        from transformers import GenerationConfig, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        special = ["<pad>", "</s>", "<unk>"]
        trainer = trainers.UnigramTrainer(vocab_size=2000, special_tokens=special, unk_token="<unk>")
        tokenizer.train_from_iterator(itertools.chain.from_iterable(self.pairs), trainer)
        tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
        fast = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
        )
        config = T5Config(
            vocab_size=len(fast),
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=1,
            num_decoder_layers=1,
            num_heads=4,
            decoder_start_token_id=0,
            pad_token_id=0,
            eos_token_id=1,
        )
        model = T5ForConditionalGeneration(config)
        model.generation_config = GenerationConfig(  # a random model would repeat one token, or none, to the end
            decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, suppress_tokens=[0, 2], min_new_tokens=2,
            repetition_penalty=5.0, exponential_decay_length_penalty=(4, 1.5),
        )  # fmt: skip
        folder = self.save(model, theirs)
        fast.save_pretrained(folder)
        languages = {"de": "German", "fr": "French", "ro": "Romanian"}
        prefixes = {
            f"translation_en_to_{code}": {
                "early_stopping": True,
                "max_length": 300,
                "num_beams": 4,
                "prefix": f"translate English to {name}: ",
            }
            for code, name in languages.items()
        }
        self.change(theirs, task_specific_params=prefixes)

    def marian(self, theirs: str, source: str, target: str) -> None:
        """A random Marian: source.spm, target.spm, vocab.json, pytorch_model.bin; no tokenizer.json."""
        import sentencepiece
        import torch
        from transformers import MarianConfig, MarianMTModel

        folder = self.folder(theirs)
        pieces: dict[str, None] = {"</s>": None, "<unk>": None}
        sides = {"en": 0, "de": 1}
        for side, name in ((sides[source], "source"), (sides[target], "target")):
            made = io.BytesIO()
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(pair[side] for pair in self.pairs),
                model_writer=made,
                vocab_size=1000,
                minloglevel=2,
            )
            (folder / f"{name}.spm").write_bytes(made.getvalue())
            model = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
            pieces |= dict.fromkeys(model.id_to_piece(number) for number in range(model.get_piece_size()))
        vocabulary = {piece: number for number, piece in enumerate([*pieces, "<pad>"])}
        (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps({"target_lang": target, "source_lang": source}))
        pad = vocabulary["<pad>"]
        config = MarianConfig(
            vocab_size=len(vocabulary),
            d_model=32,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_position_embeddings=512,
            pad_token_id=pad,
            decoder_start_token_id=pad,
            eos_token_id=0,
            forced_eos_token_id=0,
        )
        config.architectures = ["MarianMTModel"]
        (folder / "config.json").write_text(json.dumps(config.to_dict(), default=str))
        generation = {
            "bad_words_ids": [[pad]],
            "num_beams": 4,
            "max_length": 512,
            "decoder_start_token_id": pad,
            "eos_token_id": 0,
            "pad_token_id": pad,
            "suppress_tokens": [1, pad],
            "min_new_tokens": 2,
            "repetition_penalty": 5.0,
            "exponential_decay_length_penalty": [4, 1.5],
        }
        (folder / "generation_config.json").write_text(json.dumps(generation))
        torch.save(MarianMTModel(config).state_dict(), folder / "pytorch_model.bin")

    def nllb(self, theirs: str) -> None:
        """A random M2M100 with NLLB's languages, and a vocabulary of Chinese characters."""
        from transformers import GenerationConfig, M2M100Config, M2M100ForConditionalGeneration, NllbTokenizer

        characters = sorted({chr(code) for code in range(0x4E00, 0x4F00)})
        vocabulary = {token: i for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", "▁", *characters])}
        tokenizer = NllbTokenizer(vocab=vocabulary, merges=[], src_lang="eng_Latn")
        config = M2M100Config(
            vocab_size=len(tokenizer), d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=512,
            pad_token_id=1, eos_token_id=2, decoder_start_token_id=2,
        )  # fmt: skip
        model = M2M100ForConditionalGeneration(config)
        model.generation_config = GenerationConfig(
            decoder_start_token_id=2, pad_token_id=1, eos_token_id=2, suppress_tokens=[0, 1, 3], min_new_tokens=3,
            repetition_penalty=5.0, exponential_decay_length_penalty=(4, 1.5),
        )  # fmt: skip
        tokenizer.save_pretrained(self.save(model, theirs))

    def folder(self, name: str) -> Path:
        """Return the folder of a repository, made."""
        folder = self.out / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
        return folder

    def save(self, model: Any, name: str, weights: str = "safetensors") -> Path:
        """Write configuration and weights."""
        folder = self.folder(name)
        model.save_pretrained(folder)
        if weights == "bin":
            import torch

            (folder / "model.safetensors").unlink()
            torch.save(model.state_dict(), folder / "pytorch_model.bin")
        return folder


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the folder that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000, help="lines of wiki1m_for_simcse.txt")
    parser.add_argument("--shared", type=Path, default=SHARED, help="folder that holds data/ and models/")
    asked = parser.parse_args(arguments)
    make(asked.folder, rows=asked.rows, shared=asked.shared)


if __name__ == "__main__":
    main()
