"""Pairs are what transformers' own tokenizers make of them, and are cut where methods/conisi.md says."""

from __future__ import annotations

import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import RobertaConfig, RobertaTokenizer

from registry.tokens import Sample
from registry.vocabulary import HubVocabulary
from tests.support.tiny import tiny_bert, tiny_roberta

LONG = "the cat sees a dog under the tree and the dog sees the cat on the house " * 4
PAIRS = [
    ("the cat runs", "a dog"),
    ("a dog", "the cat runs in the house"),
    ("The Dog.", "the dog , not the cat"),
    ("unknown words !", "the"),
]


def byte_level_roberta(folder):
    """Write a tokenizer of RoBERTa's own class: byte-level, every byte one piece."""
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocabulary = {token: number for number, token in enumerate([*specials, *sorted(ByteLevel.alphabet())])}
    RobertaConfig(vocab_size=len(vocabulary)).save_pretrained(folder)
    RobertaTokenizer(vocab=vocabulary, merges=[]).save_pretrained(folder)
    return folder


@pytest.fixture(params=["mini_en", "bert", "roberta", "byte_level_roberta"])
def vocabulary(request, tmp_path):
    made = {"bert": tiny_bert, "roberta": tiny_roberta, "byte_level_roberta": byte_level_roberta}
    return HubVocabulary(str(made[request.param](tmp_path)) if request.param in made else request.param)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_ids_segments_and_mask_are_the_tokenizers_own(vocabulary, first, second):
    tokens = vocabulary.tokens([Sample(first, second)], 64)
    own = vocabulary.tokenizer(first, second, return_tensors="pt")
    assert torch.equal(tokens.ids, own["input_ids"])
    assert torch.equal(tokens.mask, own["attention_mask"])
    assert torch.equal(tokens.types, own.get("token_type_ids", torch.zeros_like(tokens.ids)))


def test_a_shipped_bert_puts_the_second_side_into_segment_one():
    tokens = HubVocabulary("mini_en").tokens([Sample("a", "b"), Sample("a b", "b a b")], 32)
    assert tokens.ids.tolist() == [[2, 35, 3, 36, 3, 0, 0, 0], [2, 35, 36, 3, 36, 35, 36, 3]]
    assert tokens.types.tolist() == [[0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]]
    assert tokens.mask.tolist() == [[1, 1, 1, 1, 1, 0, 0, 0], [1] * 8]


def test_robertas_own_class_has_two_separators_and_one_segment(tmp_path):
    vocabulary = HubVocabulary(str(byte_level_roberta(tmp_path)))
    a, b = (vocabulary.tokenizer.convert_tokens_to_ids(each) for each in "ab")
    tokens = vocabulary.tokens([Sample("a", "b")], 32)
    assert tokens.ids.tolist() == [[0, a, 2, 2, b, 2]]
    assert tokens.types.tolist() == [[0] * 6]


def test_a_sentence_paired_with_itself_is_truncated_equally(vocabulary):
    [single] = vocabulary.pieces([Sample(LONG)], 32)
    [pair] = vocabulary.pieces([Sample(LONG, LONG)], 32)
    assert len(single.first) == 30
    assert pair.first == pair.second == single.first
    assert vocabulary.tokens([Sample(LONG)], 32).length == 32
    specials = vocabulary.tokenizer.num_special_tokens_to_add(pair=True)
    assert vocabulary.tokens([Sample(LONG, LONG)], 32).length == 60 + specials


def test_cut_after_pairing_the_halves_of_a_bert_pair_differ():
    vocabulary = HubVocabulary("mini_en")
    [pair] = vocabulary.pieces([Sample(LONG, LONG, joint=True)], 32)
    assert (len(pair.first), len(pair.second)) == (31, 30)
    assert vocabulary.tokens([Sample(LONG, LONG, joint=True)], 32).length == 64


@pytest.mark.parametrize(("first", "second"), [(20, 45), (45, 20), (29, 45), (45, 29), (45, 33), (30, 31), (31, 30)])
def test_cut_after_pairing_follows_the_tokenizers_longest_first(first, second):
    vocabulary = HubVocabulary("mini_en")
    words = LONG.split()
    left, right = " ".join(words[:first]), " ".join(words[-second:])
    own = vocabulary.tokenizer(left, right, truncation="longest_first", max_length=64)["input_ids"]
    assert vocabulary.tokens([Sample(left, right, joint=True)], 32).ids.tolist() == [own]
