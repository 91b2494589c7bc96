"""Results made elsewhere: CSV files, mteb's folders, sentence-transformers' CSV files, compared and listed."""

from __future__ import annotations

import csv
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cse_cli.analysis.elsewhere import EVALUATORS, is_elsewhere, read_elsewhere
from cse_cli.core.results import STS_TASKS
from tests.cse_cli.analysis.recorded import record
from tests.support.command import cse, refused
from tests.support.command import document as json_of

HEAD = "method,seed,task,score\n"
SIMCSE, IFCL = (70.1, 70.6, 69.8, 70.3), (71.0, 71.9, 70.7, 71.6)
REVISION = "a0d554a64d88156834ff5ae9920b964011b16384"


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def written(lines: str, heading: str = HEAD) -> str:
    Path("r.csv").write_text(heading + lines, encoding="utf-8")
    return "r.csv"


def two(task: str = "sts-b") -> str:
    return "".join(
        f"{method},{seed},{task},{score}\n"
        for method, scores in (("simcse", SIMCSE), ("ifcl", IFCL))
        for seed, score in enumerate(scores)
    )


def document(capsys, *arguments: str) -> dict:
    return json_of(capsys, "compare", *arguments)


def mteb_result(folder: str, task: str, scores: dict[str, float], *, revision: str = REVISION, split="test") -> None:
    """Write a result as mteb 2.26 does, below the folders of a model and its revision."""
    place = Path(folder, "results", "my__model", "no_revision_available")
    place.mkdir(parents=True, exist_ok=True)
    subsets = [{"main_score": score, "hf_subset": name, "languages": ["eng-Latn"]} for name, score in scores.items()]
    about = {"dataset_revision": revision, "task_name": task, "mteb_version": "2.26.24", "scores": {split: subsets}}
    (place / f"{task}.json").write_text(json.dumps(about), encoding="utf-8")
    (place / "model_meta.json").write_text('{"name": "my/model"}', encoding="utf-8")


def evaluator_file(folder: str, name: str, heading: str, *lines: str) -> None:
    place = Path(folder, "eval")
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text("\n".join([heading, *lines]) + "\n", encoding="utf-8")


def test_a_csv_file_stands_for_its_methods_in_order(capsys):
    found = document(capsys, written(two()), "--planned", "4")
    sides = [(side["name"], side["seeds"], side["made_from"]) for side in found["sides"]]
    assert sides == [("simcse", [0, 1, 2, 3], "r.csv"), ("ifcl", [0, 1, 2, 3], "r.csv")]
    (comparison,) = found["comparisons"]
    (metric,) = comparison["metrics"]
    over = metric["over_seeds"]
    differences = np.subtract(IFCL, SIMCSE)
    t = differences.mean() / (differences.std(ddof=1) / 2)
    assert (metric["metric"], over["difference"]) == ("sts-b.score", pytest.approx(1.1))
    assert t == pytest.approx(5.5 * 3**0.5)  # differences 0.9, 1.3, 0.9, 1.3: mean 1.1, standard deviation 0.4 / √3
    p = 1 - 2 / math.pi * (5.5 / (1 + 5.5**2) + math.atan(5.5))  # Student's t with 3 degrees of freedom
    assert over["p_adjusted"] == pytest.approx(p)
    said = "sts-b.score, compared with simcse: ifcl is better by 1.10 ± 0.37 (4 seeds"
    assert comparison["headline"].startswith(said)


def test_the_screen_names_the_file_and_how_to_say_that_the_seeds_were_planned(capsys):
    _, out, _ = cse("compare", written(two()), capsys=capsys)
    assert "A: simcse, 4 runs, seeds 0–3, from r.csv" in out
    assert "A plan needs fewer seeds: --planned N, if you fixed N before the first run" in out
    assert "recipes" not in out


def test_the_mean_of_the_tasks_that_all_methods_have_judges(capsys):
    found = document(capsys, written(two() + two("sick") + "simcse,0,only-one,1\n"))
    (comparison,) = found["comparisons"]
    assert comparison["primary"] == "mean.score"
    assert comparison["metrics"][0]["over_seeds"]["first"] == pytest.approx(SIMCSE)
    assert "mean: of 2 of 3 tasks, which all methods scored on the same data" in found["notes"]


@pytest.mark.slow
def test_records_written_as_csv_give_the_same_verdicts_and_digits(capsys):
    for seed in range(3):
        record("simcse_en", seed, noise=1.5)
        record("ifcl_en", seed, noise=1.0)
    here = document(capsys, "simcse_en", "ifcl_en", "--bootstrap", "100")
    with Path("records.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["method", "seed", "task", "metric", "score"])
        for side, one in (("simcse_en", "first"), ("ifcl_en", "second")):
            for metric in here["comparisons"][0]["metrics"]:
                task, _, name = metric["metric"].rpartition(".")
                seeds = zip(metric["over_seeds"]["seeds"], metric["over_seeds"][one], strict=True)
                writer.writerows([side, seed, task, name, score] for seed, score in seeds if task)
    there = document(capsys, "records.csv")
    ours, theirs = here["comparisons"][0]["metrics"], there["comparisons"][0]["metrics"]
    assert there["comparisons"][0]["primary"] == "avg"
    assert [one["metric"] for one in theirs] == [one["metric"] for one in ours]
    for own, other in zip(ours, theirs, strict=True):
        if not own["selecting"]:  # a CSV file does not say what selected the states
            assert other["over_seeds"] == own["over_seeds"]
            said = re.sub("; .*(pairs|trained).*", "", own["verdict"])
            assert (other["finding"], other["verdict"]) == (own["finding"], said)


def test_mteb_folders_one_for_each_seed(capsys):
    for method, scores in (("simcse", SIMCSE), ("ifcl", IFCL)):
        for seed, score in enumerate(scores):
            mteb_result(f"lab/{method}/seed{seed}", "STS12", {"default": score / 100})
            mteb_result(f"lab/{method}/seed{seed}", "STS22.v2", {"en": 0.5, "de": score / 50 - 0.5})
    found = document(capsys, "lab/simcse", "lab/ifcl")
    (comparison,) = found["comparisons"]
    assert [one["metric"] for one in comparison["metrics"]] == ["mean.score", "STS12.score", "STS22.v2.score"]
    for one in comparison["metrics"]:  # a task is the mean of its subsets
        assert one["over_seeds"]["second"] == pytest.approx(IFCL)
    assert document(capsys, "simcse=lab/simcse/*", "ifcl=lab/ifcl/seed[0-3]")["comparisons"] == [comparison]


def test_other_versions_of_a_task_are_not_compared():
    for seed in range(2):
        mteb_result(f"a/{seed}", "STS12", {"default": 0.7 + seed / 100})
        mteb_result(f"b/{seed}", "STS12", {"default": 0.8}, revision="b" * 40)
        mteb_result(f"b/{seed}", "STS13", {"default": 0.8})
    assert "the data of 'STS12' differ, a scored STS12/test/default (a0d554a6)" in refused("compare", "a", "b").message
    mteb_result("b/1", "STS12", {"default": 0.8})
    assert "the seeds of b scored different data for STS12" in refused("compare", "a", "b").message


def test_another_version_of_mteb_is_named(capsys):
    for method, version in (("a", "2.26.24"), ("b", "2.27.0")):
        mteb_result(f"{method}/1", "STS12", {"default": 0.7})
        file = Path(method, "1", "results", "my__model", "no_revision_available", "STS12.json")
        file.write_text(file.read_text(encoding="utf-8").replace("2.26.24", version), encoding="utf-8")
    found = document(capsys, "a", "b")
    assert found["circumstances"] == [{"key": "software", "values": ["mteb 2.26.24", "mteb 2.27.0"]}]


def test_a_split_that_is_not_the_test_split_is_named(capsys):
    for method in ("a", "b"):
        mteb_result(f"{method}/1", "MSMARCO", {"default": 0.3}, split="dev")
    (comparison,) = document(capsys, "a", "b")["comparisons"]
    assert [one["metric"] for one in comparison["metrics"]] == ["MSMARCO (dev).score"]


def test_the_last_line_of_a_sentence_transformers_file_counts(capsys):
    name, heading = "similarity_evaluation_sts-test_results.csv", "epoch,steps,cosine_pearson,cosine_spearman"
    for seed in range(2):
        evaluator_file(f"out/simcse-seed{seed}", name, heading, "0.5,100,0.1,0.2", f"1.0,200,0.3,{0.7 + seed / 100}")
        evaluator_file(f"out/ifcl-seed{seed}", name, heading, f"1.0,200,0.3,{0.8 + seed / 100}")
    (comparison,) = document(capsys, "simcse=out/simcse-*", "ifcl=out/ifcl-*")["comparisons"]
    (metric,) = comparison["metrics"]
    assert metric["metric"] == "sts-test.score"
    assert metric["over_seeds"]["first"] == pytest.approx([70, 71])
    assert metric["over_seeds"]["second"] == pytest.approx([80, 81])


@pytest.mark.slow
def test_the_files_of_every_evaluator_are_known():
    evaluators = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    texts = ["a", "b"]
    made = [
        evaluators.EmbeddingSimilarityEvaluator(texts, texts, [0.0, 1.0], name="x", similarity_fn_names=["cosine"]),
        evaluators.BinaryClassificationEvaluator(texts, texts, [0, 1], name="x", similarity_fn_names=["cosine"]),
        evaluators.TripletEvaluator(texts, texts, texts, name="x", similarity_fn_names=["cosine"]),
        evaluators.InformationRetrievalEvaluator(
            {"q": "a"}, {"d": "b"}, {"q": {"d"}}, name="x", score_functions={"cosine": lambda a, b: a @ b.T}
        ),
        evaluators.ParaphraseMiningEvaluator({"1": "a", "2": "b"}, [("1", "2")], name="x"),
        evaluators.RerankingEvaluator([{"query": "a", "positive": ["b"], "negative": ["c"]}], name="x"),
    ]
    for one in made:
        (metric,) = (metric for pattern, metric in EVALUATORS if re.fullmatch(pattern, one.csv_file))
        assert any(re.fullmatch(metric, column) for column in one.csv_headers), one.csv_headers


def test_the_leaderboard_shows_them_next_to_a_papers_rows(capsys):
    lines = "".join(
        f"mine,{seed},{task},{70 + seed}.5,spearman,bert-base-uncased\n" for task in STS_TASKS for seed in range(3)
    )
    file = written(lines, "method,seed,task,score,metric,model\n")
    code, out, _ = cse("leaderboard", "--results", file, "--format", "json", capsys=capsys)
    assert code == 0
    table = next(one for one in json.loads(out)["tables"] if one["encoder"] == "bert-base")
    (row,) = (row for row in table["rows"] if row["source"] == "measured" and row["scores"])
    assert (row["name"], row["seeds"]) == ("mine", [0, 1, 2])
    assert (row["scores"]["Avg"]["mean"], row["scores"]["Avg"]["std"]) == (pytest.approx(71.5), pytest.approx(1))
    assert any(row["source"] == "paper" for row in table["rows"])


def test_methods_of_one_place_are_one_table_of_the_leaderboard(capsys):
    for method, score in (("simcse", 0.7), ("ifcl", 0.8)):
        for seed in range(2):
            mteb_result(f"lab/{method}/seed{seed}", "STS12", {"default": score})
    folders = ("--results", "lab/simcse", "--results", "lab/ifcl")
    _, out, _ = cse("leaderboard", *folders, "--format", "csv", capsys=capsys)
    rows = [(row["encoder"], row["name"], float(row["mean"])) for row in csv.DictReader(out.splitlines())]
    assert rows == [("lab", "ifcl", pytest.approx(80)), ("lab", "simcse", pytest.approx(70))]


def test_tables_of_two_versions_of_a_task_say_which(capsys):
    for method, revision in (("old", "a" * 40), ("new", "b" * 40)):
        mteb_result(f"{method}/seed1", "STS12", {"default": 0.7}, revision=revision)
    _, out, _ = cse("leaderboard", "--results", "old", "--results", "new", "--json", capsys=capsys)
    headings = [table["heading"] for table in json.loads(out)["tables"]]
    assert headings == [f"{Path.cwd().name} [STS12: STS12/test/default ({digest})]" for digest in ("a" * 8, "b" * 8)]


def test_a_recipe_with_the_name_of_a_folder_stays_a_recipe(capsys):
    for seed in range(2):
        record("simcse_en", seed, noise=1.5)
        record("ifcl_en", seed)
    Path("simcse_en").mkdir()
    assert is_elsewhere("simcse_en")
    assert [side["made_from"] for side in document(capsys, "simcse_en", "ifcl_en")["sides"]] == ["", ""]


@pytest.mark.parametrize(
    ("lines", "heading", "says"),
    [
        ("a,0,t,1\na,0,t,2\n", HEAD, "two scores of a for seed 0 and t: r.csv, line 2, and r.csv, line 3"),
        ("a,0,t,1\na,zero,t,2\n", HEAD, "r.csv, line 3: the seed 'zero' is not a whole number"),
        ("a,0,t,\n", HEAD, "r.csv, line 2: the score '' is not a number"),
        ("a,0,t\n", HEAD, "r.csv, line 2 is incomplete"),
        ("a,0,t,1,2\n", HEAD, "r.csv, line 2 has more than 4 cells"),
        ("a,0,t,1\n", "method,sed,task,score\n", "r.csv, line 1: there is no column 'seed'. Did you mean 'sed'?"),
        ("a,0,t,1\n", HEAD, "cse compare requires at least two methods with finished runs, not 1"),
        ("a,0,t,1\nb,1,t,1\n", HEAD, "no shared seed: a has 0 and b has 1"),
    ],
)
def test_a_file_that_cannot_be_compared_is_refused(lines, heading, says):
    assert says in refused("compare", written(lines, heading)).message


def test_folders_that_cannot_be_compared_are_refused():
    assert "cannot read 'nothing.csv': No such file or directory" in refused("compare", "nothing.csv", "b.csv").message
    Path("empty").mkdir()
    assert "no results of mteb or sentence-transformers in 'empty'" in refused("compare", "empty", "b").message
    mteb_result("a/last", "STS12", {"default": 0.7})
    assert "the name of the folder 'a/last' has no seed" in refused("compare", "a", "b").message
    mteb_result("b/seed1", "STS12", {"default": 0.7})
    mteb_result("b/more-seed1", "STS12", {"default": 0.7})
    assert "'b/more-seed1' and 'b/seed1' both have seed 1" in refused("compare", "b", "c").message
    mteb_result("c/seed1", "STS12", {})
    evaluator_file("d/seed1", "similarity_evaluation_results.csv", "")
    assert "similarity_evaluation_results.csv' has no complete line of scores" in refused("compare", "d", "e").message
    for pattern in ("x=", "x=**z", "x=[z-a]"):
        assert "no results of mteb or sentence-transformers in" in refused("compare", pattern, "e").message
    assert "STS12.json' is not a result of mteb 1.12 or later" in refused("compare", "c", "d").message


@pytest.mark.slow
def test_nothing_that_trains_is_imported():
    program = (
        "import sys\nfrom cse_cli.__main__ import main\nsys.argv[1:] = ['compare', 'r.csv']\n"
        "try:\n    main()\nfinally:\n    assert not {'torch', 'transformers', 'mlflow'} & sys.modules.keys()\n"
    )
    written(two())
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert "ifcl is" in done.stdout
    assert "AssertionError" not in done.stderr


def test_a_method_has_one_experiment_for_all_its_seeds():
    simcse, ifcl = read_elsewhere(written(two()))
    assert len({run.experiment for run in simcse.results}) == 1
    assert simcse.latest.experiment != ifcl.latest.experiment
