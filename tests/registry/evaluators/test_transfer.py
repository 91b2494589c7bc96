import random
from itertools import pairwise

import pytest
import torch

from registry.evaluators.classifiers import read_labeled
from registry.evaluators.transfer import Transfer
from registry.resources import catalog
from tests.support import labeled
from tests.support.errors import refuses

TASKS = {"mr": ["all"], "sst2": ["train", "dev", "test"], "trec": ["train", "test"], "mrpc": ["train", "test"]}
BOTH = pytest.mark.parametrize("classifier", ["senteval", "logistic"])


@pytest.fixture
def data(monkeypatch):
    """Serve these rows instead of a data set's; return what is asked for."""

    def serve(splits):
        asked = []
        monkeypatch.setattr(catalog, "open_text", lambda name, split: asked.append((name, split)) or splits[split])
        return asked

    return serve


def opinions(right, wrong):
    """Return rows that praise or blame, `wrong` of which have the other label; half of each sort."""
    texts = [("good", "1"), ("bad", "0")] * (right // 2) + [("good", "0"), ("bad", "1")] * (wrong // 2)
    return [{"label": label, "text": f"{word} film {place}"} for place, (word, label) in enumerate(texts)]


def praise(sentences):
    """Return vectors that know the first word only."""
    signs = torch.tensor([1.0 if text.startswith("good") else -1.0 for text in sentences])
    return signs.unsqueeze(1).expand(-1, 16).mul(4.0).contiguous()


def noisy(sentences):
    """Return vectors that know the first word, and noise."""
    seeds = [sum((place + 1) * ord(letter) for place, letter in enumerate(text)) for text in sentences]
    noise = [torch.randn(16, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    return praise(sentences) / 8 + torch.stack(noise)


@BOTH
@pytest.mark.slow
def test_value_by_hand(data, classifier):
    """The vectors tell the word, the word tells 190 of 200 labels: 95 % whatever the folds, held out or tested."""
    asked = data({"all": opinions(190, 10)})
    found = Transfer("mr", classifier)(praise)
    assert found == pytest.approx({"accuracy": 95.0, "dev_accuracy": 95.0})
    assert asked == [("mr", "all")]


@pytest.mark.slow
@BOTH
def test_given_splits_and_folds_of_the_training_split_by_hand(data, classifier):
    """Of dev, 3 in 4 labels are the word's; of the test, 9 in 10."""
    asked = data({"train": opinions(200, 0), "dev": opinions(30, 10), "test": opinions(18, 2)})
    assert Transfer("sst2", classifier)(praise) == pytest.approx({"accuracy": 90.0, "dev_accuracy": 75.0})
    assert asked == [("sst2", "train"), ("sst2", "dev"), ("sst2", "test")]
    data({"train": opinions(150, 50), "test": opinions(18, 2)})
    assert Transfer("trec", classifier)(praise) == pytest.approx({"accuracy": 90.0, "dev_accuracy": 75.0})


@pytest.mark.slow
@BOTH
def test_pairs_are_told_by_difference_and_product(data, classifier):
    """Same or other word: only u ∘ v tells, which is 16 or −16, and |u − v|, which is 0 or 8."""
    words = [("good", "good"), ("bad", "bad"), ("good", "bad"), ("bad", "good")] * 30
    rows = [
        {"label": str(int(a == b)), "sentence1": f"{a} {i}", "sentence2": f"{b} {i}"} for i, (a, b) in enumerate(words)
    ]
    data({"train": rows, "test": rows[:40]})
    assert Transfer("mrpc", classifier)(praise) == pytest.approx({"accuracy": 100.0, "dev_accuracy": 100.0})


def test_pair_features_by_hand_and_the_order_of_rows(data):
    test = [{"label": "1", "sentence1": "u", "sentence2": "w"}, {"label": "0", "sentence1": "u", "sentence2": "v"}]
    data({"train": [{"label": label, "sentence1": "u", "sentence2": "v"} for label in "01"], "test": test})
    vectors = {"u": [1.0, 2.0], "v": [3.0, -1.0], "w": [float("nan"), 5.0]}
    features = read_labeled("mrpc").features(lambda texts: torch.tensor([vectors[text] for text in texts]))
    assert features.tolist() == [[2, 3, 3, -2], [2, 3, 3, -2], [2, 3, 3, -2], [1, 3, 0, 10]]  # NaN counts as 0
    read = [("1", "b"), ("1", "a"), ("0", "one  two\tthree"), ("0", "z"), ("1", ""), ("0", "y y")]
    data({"all": [{"label": label, "text": text} for label, text in read]})
    rows = read_labeled("subj")
    assert rows.texts == [("",), ("z",), ("b",), ("a",), ("y y",), ("one two three",)]
    assert list(rows.labels) == ["1", "0", "1", "1", "0", "0"]


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_one_call_encodes_all_and_empty_texts_stay(monkeypatch, task):
    labeled.serve(monkeypatch)
    served = catalog.open_text

    def with_an_empty_one(name, split):
        rows = list(served(name, split))
        return [{column: "" if column != "label" else cell for column, cell in rows[0].items()}, *rows[1:]]

    monkeypatch.setattr(catalog, "open_text", with_an_empty_one)
    calls = []

    @torch.inference_mode()
    def encode(sentences):
        calls.append(list(sentences))
        return noisy(sentences)

    found = Transfer(task)(encode)
    rows = [row for split in TASKS[task] for row in with_an_empty_one(task, split)]
    (asked,) = calls
    assert sorted(asked) == sorted(cell for row in rows for column, cell in row.items() if column != "label")
    assert asked.count("") == len(TASKS[task]) * (2 if task == "mrpc" else 1)
    assert all(0 <= value <= 100 for value in found.values())


@pytest.mark.slow
@BOTH
def test_the_order_of_rows_of_different_length_is_nothing(data, classifier):
    rows = [{**row, "text": row["text"] + " word" * place} for place, row in enumerate(opinions(50, 10))]
    data({"all": rows})
    wanted = Transfer("cr", classifier, folds=3)(noisy)
    assert wanted["accuracy"] < 100
    data({"all": random.Random(1).sample(rows, len(rows))})
    assert Transfer("cr", classifier, folds=3)(noisy) == wanted


@pytest.mark.slow
def test_other_seeds_make_other_folds(data):
    data({"all": opinions(40, 20)})
    assert len({Transfer("mr", "logistic", seed=seed, folds=3)(noisy)["accuracy"] for seed in range(3)}) > 1


@pytest.mark.parametrize("split", ["train", "test"])
def test_one_class_is_refused(data, split):
    data({"train": opinions(20, 4), "test": opinions(20, 4)} | {split: [{"label": "1", "text": "good"}] * 20})
    with refuses("evaluators.too_few_rows", f"trec/{split}", 20, "'1'"):
        Transfer("trec", "logistic")(praise)


def test_no_rows_and_a_gpu_that_is_not_there_are_refused(data, monkeypatch):
    data({"all": []})
    with refuses("evaluators.too_few_rows", "mr/all", "no rows"):
        Transfer("mr")(praise)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with refuses("evaluators.no_cuda_device", "device = 'cpu'"):
        Transfer("mr", device="cuda")


@pytest.mark.parametrize("task", ["mr", "trec"])
def test_fewer_rows_of_a_label_than_folds_are_refused(data, task):
    rows = [{"label": label, "text": f"good {place}"} for place, label in enumerate("0" * 30 + "1" * 4)]
    data({"all": rows, "train": rows, "test": rows})
    with refuses("evaluators.too_few_rows", f"'{task}'", "'1'", "5 folds", "set folds = 4 or less"):
        Transfer(task, folds=5)(praise)
    assert Transfer(task, folds=4)(praise)["accuracy"] == pytest.approx(100 * 30 / 34, abs=0.2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@BOTH
def test_a_gpu_says_the_same(data, classifier):
    data({"all": opinions(190, 10)})
    assert Transfer("mr", classifier, device="cuda")(praise) == pytest.approx({"accuracy": 95.0, "dev_accuracy": 95.0})


def test_fingerprints_and_texts_are_of_all_splits(monkeypatch):
    labeled.serve(monkeypatch)
    assert Transfer("sst2").fingerprints() == {f"sst2/{split}": f"sst2-{split}" for split in ("train", "dev", "test")}
    rows = [row for split in ("train", "test") for row in labeled.rows("mrpc", split)]
    texts = Transfer("mrpc").texts()
    assert set(texts) == {row[side] for row in rows for side in ("sentence1", "sentence2")}
    assert len(texts) == len(set(texts))


@pytest.mark.data
@pytest.mark.parametrize(("task", "counts", "empty"), [
    ("mr", [10662], 0), ("cr", [3775], 4), ("subj", [10000], 0), ("mpqa", [10606], 3),
    ("sst2", [67349, 872, 1821], 0), ("trec", [5452, 500], 0), ("mrpc", [4076, 1725], 0),
])  # fmt: skip
def test_real_rows_are_all_there_in_senteval_s_order(task, counts, empty):
    rows = read_labeled(task)
    assert [len(split) for split in rows.splits.values()] == counts
    assert sum(text == "" for row in rows.texts for text in row) == empty
    for split in rows.splits.values():
        keys = [([len(text.split()) for text in rows.texts[row]], rows.labels[row]) for row in split]
        assert all(one <= other for one, other in pairwise(keys))
