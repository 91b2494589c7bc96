import math

import pytest
import torch

from registry import EVALUATORS
from registry.errors import MissingError
from registry.evaluators.mutual_information import MutualInformation, mutual_information
from registry.resources import catalog
from tests.registry.losses.literal import cosine
from tests.support.errors import refuses


class Views:
    """An `Encode` that turns numbers into vectors, view by view, and remembers what it was asked."""

    def __init__(self, **views):
        self.views = views
        self.asked = []

    def encode_view(self, view, columns, training=False):
        self.asked.append((view, {name: list(cells) for name, cells in columns.items()}, training))
        return torch.stack([self.views[view](int(cell)) for cell in columns["text"]])


def one_hot(place, width=4):
    return torch.eye(width)[place % width]


@pytest.fixture
def numbers(tmp_path):
    """Write `count` numbers, a line each; return the path."""

    def write(count):
        path = tmp_path / "numbers.txt"
        path.write_text("".join(f"{number}\n" for number in range(count)), encoding="utf-8")
        return str(path)

    return write


def literal(first, second, size, temperature):
    """Return equation 10, chunk by chunk, row by row."""

    found = []
    for start in range(0, len(first) - size + 1, size):
        one, other = first[start : start + size].tolist(), second[start : start + size].tolist()
        logs = []
        for i in range(size):
            logits = [cosine(one[i], other[j]) / temperature for j in range(size)]
            top = max(logits)
            logs.append(logits[i] - top - math.log(sum(math.exp(logit - top) for logit in logits)))
        found.append(math.log(size) + sum(logs) / size)
    return sum(found) / len(found)


def test_value_by_hand(numbers):
    """Two orthogonal sentences that both views give alike: log 2 + log(e / (e + 1)) at temperature 1."""
    encode = Views(anchor=one_hot, positive=one_hot)
    evaluator = MutualInformation("anchor", "positive", file=numbers(2), mi_n=2, temperature=1.0)
    found = evaluator(encode)
    assert found["mutual_information"] == pytest.approx(math.log(2) + 1 - math.log(math.e + 1))
    assert found["mutual_information"] == pytest.approx(0.379885, abs=1e-6)
    assert found["bound"] == math.log(2)


@pytest.mark.parametrize(("rows", "size", "temperature"), [(2, 2, 0.5), (7, 3, 0.05), (40, 40, 3.0), (41, 8, 0.05)])
def test_equals_the_equation_written_out(rows, size, temperature):
    generator = torch.Generator().manual_seed(rows)
    first = torch.randn(rows, 5, generator=generator)
    second = first + torch.randn(rows, 5, generator=generator)
    found = mutual_information(first, second, size, temperature)
    assert found["mutual_information"] == pytest.approx(literal(first, second, size, temperature), abs=1e-9)
    assert found["mutual_information"] <= found["bound"] == math.log(size)


def test_another_sentence_that_is_closer_makes_it_negative_and_too_few_are_told(numbers):
    first = torch.eye(2)
    found = mutual_information(first, first.flip(0), 2, 1.0)["mutual_information"]
    assert found == pytest.approx(math.log(2) - math.log(math.e + 1))
    assert found < 0
    path = numbers(5)
    with refuses("evaluators.too_few_rows", "numbers.txt/train", 128, "set mi_n = 5 or less"):
        MutualInformation("anchor", "positive", file=path)(Views(anchor=one_hot, positive=one_hot))


@pytest.mark.parametrize("vector", [[0.0, 0.0], [0.6, 0.8], [math.nan, 1.0]])
def test_collapsed_vectors_tell_nothing(vector):
    rows = torch.tensor([vector] * 6)
    assert mutual_information(rows, rows, 3, 0.05)["mutual_information"] == pytest.approx(0.0, abs=1e-12)


def test_both_views_get_every_column_and_the_rows_asked_for_in_training_mode_unless_told(numbers, tmp_path):
    encode = Views(anchor=one_hot, positive=one_hot)
    MutualInformation("anchor", "positive", file=numbers(3), mi_n=2)(encode)
    rows = {"text": ["0", "1", "2"]}
    assert encode.asked == [("anchor", rows, True), ("positive", rows, True)]
    encode.asked.clear()
    MutualInformation("anchor", "positive", file=numbers(3), mi_n=2, training=False)(encode)
    assert [training for *_, training in encode.asked] == [False, False]
    path = tmp_path / "x.tsv"
    path.write_text("translation\ttext\nnull\t0\neins\t1\nzwei\t2\n", encoding="utf-8")
    encode = Views(anchor=one_hot, fraternal=one_hot)
    MutualInformation("anchor", "fraternal", file=str(path), limit=2, mi_n=2)(encode)
    assert encode.asked[1][1] == {"translation": ["null", "eins"], "text": ["0", "1"]}


def test_a_data_set_of_the_catalog():
    class Words(Views):
        def encode_view(self, view, columns, training=False):
            cells = columns["text"]
            assert len(cells) == 8
            return torch.stack([torch.tensor([len(cell), cell.count("e")]).float() for cell in cells])

    evaluator = MutualInformation("anchor", "positive", dataset="tatoeba_open", limit=8, mi_n=4)
    assert math.isfinite(evaluator(Words())["mutual_information"])
    assert evaluator.fingerprints() == {"tatoeba_open/train": catalog.fingerprint("tatoeba_open", "train")}


def test_wrong_sources_and_one_view_twice_are_told_before_anything_is_scored(tmp_path, monkeypatch):
    monkeypatch.setenv("CSE_DATA", str(tmp_path))
    with refuses("data.dataset_or_file", "neither"):
        MutualInformation("a", "b")
    with refuses("data.dataset_or_file", "'stsb'", "'x.txt'"):
        MutualInformation("a", "b", dataset="stsb", file="x.txt")
    with refuses("data.missing_file", "mutual_information", "x.txt"):
        MutualInformation("a", "b", file="x.txt")
    (tmp_path / "x.jsonl").write_text('{"text": "a"}\n', encoding="utf-8")
    with refuses("data.unsupported_format", "x.jsonl", ".tsv"):
        MutualInformation("a", "b", file="x.jsonl")
    with refuses("evaluators.same_view", "'anchor'"):
        EVALUATORS["mutual_information"].build({"first": "anchor", "second": "anchor", "dataset": "tatoeba_open"})


def test_a_file_below_the_data_folder_is_found_and_named(numbers, tmp_path, monkeypatch):
    numbers(4)
    monkeypatch.setenv("CSE_DATA", str(tmp_path))
    evaluator = MutualInformation("anchor", "positive", file="numbers.txt", split="dev", mi_n=4)
    assert evaluator(Views(anchor=one_hot, positive=one_hot))["mutual_information"] == pytest.approx(math.log(4))
    assert list(evaluator.fingerprints()) == ["numbers.txt/dev"]
    before = evaluator.fingerprints()
    numbers(5)
    again = MutualInformation("anchor", "positive", file="numbers.txt", split="dev", mi_n=4)
    assert again.fingerprints() != before


def test_a_view_that_reads_more_than_there_is_says_where(numbers):
    class Needs(Views):
        def encode_view(self, view, columns, training=False):
            raise MissingError("no column translation", "add it to the data", code="data.missing_column")

    with refuses("data.missing_column", "numbers.txt/train: no column translation"):
        MutualInformation("anchor", "fraternal", file=numbers(3), mi_n=2)(Needs())
