"""`cse run` from the outside: what is asked, what is refused, what is printed and left behind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cse_cli.core.devices import Compute
from cse_cli.jobs.request import RunRequest
from cse_cli.listing.inventory import small_version
from cse_cli.runs.index import read_run
from cse_cli.runs.record import read_recipe
from cse_cli.training.train_step import StepOutput, TrainStep
from tests.cse_cli.jobs.conftest import Run
from tests.support.command import refused
from tests.support.errors import refuses
from tests.support.programs import results
from tests.support.records import only_run, states

pytestmark = pytest.mark.usefixtures("few_pairs", "undrawn")


def throw(error: Exception) -> Callable[..., StepOutput]:
    def thrown(*_: Any) -> StepOutput:
        raise error

    return thrown


# What is asked for.


@pytest.mark.parametrize(("asked", "seeds"), [("2", [0, 1]), ("1,5,7", [1, 5, 7]), ("1", [0])])
def test_seeds(asked, seeds, file):
    jobs = RunRequest([file], seeds=asked).jobs()
    assert [(job.seed, job.loaded.recipe.train.seed) for job in jobs] == [(seed, seed) for seed in seeds]
    assert len({job.loaded.recipe.hash() for job in jobs}) == 1


@pytest.mark.parametrize(
    ("options", "code"),
    [
        *((["--seeds", wrong], "jobs.invalid_seeds") for wrong in ("0", "-1", "1,1", "1,-2", "9,", "x", "")),
        *((["--seeds", wrong], "jobs.invalid_seeds") for wrong in (f"1,{2**32}", "1000000000")),
        (["--seed", "1", "--seeds", "3"], "jobs.exclusive_options"),
        (["--processes", "2", "--workers", "2"], "jobs.exclusive_options"),
        (["--tag", "paper"], "jobs.invalid_tag"),
        (["--tag", "a@b=1"], "jobs.invalid_tag"),
        (["--tag", "cse.seed=4"], "jobs.reserved_tag"),
        (["--tag", "avg=99"], "jobs.reserved_tag"),
    ],
)
def test_refused_options(options, code, file, home):
    error = refused("run", file, *options)
    assert (error.code, error.exit_code) == (code, 2)
    assert options[-1] in error.message or options[-2] in error.message
    assert not (home / "runs").exists()


def test_a_seed_and_an_override_replace_the_recipe_s_own(file):
    assert [job.seed for job in RunRequest([file]).jobs()] == [3]
    (job,) = RunRequest([file], overrides=["train.steps=2"], seed=9).jobs()
    assert (job.seed, job.loaded.recipe.train.seed, job.loaded.recipe.train.steps) == (9, 9, 2)


@pytest.mark.slow
def test_a_name_tags_and_a_group(file, run, monkeypatch):
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "thesis/one")
    labels = ["--name", "baseline", "--tag", "for=the paper", "--tag", "draft=2"]
    _, out, _ = run(file, *labels, "--json")
    (one,) = results(out)
    about = read_run(str(one.run_id)).about
    assert (about.name, about.group) == ("baseline", "thesis/one")
    assert about.tags == {"for": "the paper", "draft": "2"}

    jobs = RunRequest([file], overrides=["train.steps=2"], seeds="2", name="two").jobs()
    assert [job.run_name for job in jobs] == ["two: small seed 0", "two: small seed 1"]
    assert [job.loaded.changes for job in jobs] == [("train.steps=2",)] * 2


# What is printed.


def test_tables_on_stdout_progress_on_stderr(file, run):
    code, out, err = run(file, "--seeds", "2", "--set", "evaluate.eval_on_start=true")
    rows = out.split("\n")
    assert code == 0
    assert rows[0].strip() == "small · Small [red]one"
    assert rows[1].split() == ["dev", "step", "time"]
    names = [row.split()[0] for row in rows[2:8] if not row.startswith("  ±")]  # absent if both seeds are equal
    assert names[:5] == ["untrained", "seed", "seed", "mean", "gain"]
    assert "dev.spearman" in err
    assert "dev.spearman" not in out
    for seed in (0, 1):
        assert f"small · Small [red]one · seed {seed}" in err
        assert f"\nfinished {seed + 1} of 2 · small seed {seed} · dev " in err
    assert err.count("model = load_model(") == 1


@pytest.mark.slow
def test_quiet_prints_results_alone(file, run):
    code, out, err = run(file, "-q")
    assert (code, err) == (0, "")
    assert out.startswith("small · ")


@pytest.mark.slow
def test_one_experiment_named_twice_is_one_run(file, folder, run):
    (folder / "copy.toml").write_text((folder / file).read_text())
    code, out, _ = run(file, file, "copy.toml", "--json")
    assert (code, len(results(out))) == (0, 1)
    assert states() == ["FINISHED"]


@pytest.mark.slow
def test_a_dry_run_leaves_nothing_but_the_cache(file, folder, run, home):
    before = sorted(folder.iterdir())
    code, out, _ = run(file, "--dry-run", "--seeds", "2")
    assert code == 0
    assert [line for line in out.split("\n") if line.startswith("small")] == [
        "small · Small [red]one · seed 0", "small · Small [red]one · seed 1",
    ]  # fmt: skip
    assert "3 steps of 4 sentences" in out
    assert "view anchor    encoder online" in out
    assert "[CLS]" in out
    assert [path.name for path in home.iterdir()] == ["cache"]
    assert sorted(folder.iterdir()) == before


@pytest.mark.slow
def test_a_dry_run_as_json(file, run, home):
    document = json.loads(run(file, "--dry-run", "--json")[1])
    (plan,) = document["plans"]
    assert (document["schema_version"], plan["recipe"], plan["steps"], plan["sentences"], plan["seed"]) == (
        1,
        "small",
        3,
        20,
        3,
    )
    assert plan["views"]["anchor"]["shape"][0] == 4
    assert plan["views"]["anchor"] == plan["views"]["positive"]
    assert plan["trained"] == plan["weights"] > 0


# When something goes wrong.


def test_all_recipes_are_checked_before_the_first_starts(file, folder, run, home):
    (folder / "bad.toml").write_text('extends = "small.toml"\n[train]\nsteps = "many"\n')
    code, out, err = run(file, "bad.toml")
    assert (code, out) == (2, "")
    assert "bad.toml:3:9: train.steps" in err
    assert not home.exists()


@pytest.mark.slow
def test_one_that_fails_does_not_stop_the_others(file, folder, run):
    (folder / "bad.toml").write_text('extends = "small.toml"\n[encoders.online]\nmodel = "/no/such/model"\n')
    code, out, err = run("bad.toml", file, "--json")
    assert code == 3
    assert [one.recipe for one in results(out)] == ["small"]
    assert "error: run 1 of 2: bad seed 3: " in err
    assert "/no/such/model" in err
    assert states() == ["FINISHED"]


@pytest.mark.slow
def test_text_longer_than_the_model_takes_is_refused(file):
    error = refused("run", file, "--set", "data.max_length=100", "--device", "cpu")
    assert "data.max_length = 100, but encoder 'online' supports at most 64 tokens" in error.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("take", "said"),
    [
        (throw(torch.OutOfMemoryError("Tried to allocate 2.00 GiB.")), "Tried to allocate 2.00 GiB."),
        (throw(MemoryError()), "out of memory"),
        (lambda *_: torch.empty(10**14), "cannot allocate 400,000.0 GB"),
    ],
)
def test_memory_that_is_not_there_is_a_message(take, said, file, run, monkeypatch):
    monkeypatch.setattr(TrainStep, "take", take)
    code, out, err = run(file)
    assert (code, out) == (1, "")
    assert f"{said}\n  → lower train.batch_size" in err
    assert "Traceback" not in err
    assert states() == ["FAILED"]


# Resuming.


@pytest.fixture
def stopped(file: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    """Stop a run by Ctrl-C before its third step; return its ID."""
    take = TrainStep.take

    def stopping(self: TrainStep, done: int, *rest: Any) -> StepOutput:
        if done == 2:
            raise KeyboardInterrupt
        return take(self, done, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(TrainStep, "take", stopping)
        code, out, err = run(file, "--seed", "8")
    one = only_run()
    assert (code, out) == (130, "")
    assert err.rstrip().split("\n")[-1].endswith(f"cse run --resume {one.about.short}")
    assert one.state == "STOPPED"
    return one.run_id


@pytest.mark.slow
def test_ctrl_c_before_the_first_step_leaves_no_record(file, run, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("cse_cli.training.run.record_inputs", interrupted)
        code, _, err = run(file)
    assert (code, err.splitlines()[-1]) == (130, "stopped before the first step")
    assert "Traceback" not in err
    assert states() == []
    assert run(file)[0] == 0
    assert states() == ["FINISHED"]


def test_a_resumed_run_ends_like_an_unbroken_one(stopped, file, run):
    _, out, _ = run(file, "--seed", "8", "--again", "--json")
    (whole,) = results(out)
    code, out, err = run("--resume", stopped[:6], "--json")  # the named run, though another one is finished
    (resumed,) = results(out)
    assert code == 0
    assert "resuming after step 2" in err
    same = {"finished", "started", "seconds", "sentences_per_second", "speed", "run_id"}
    assert resumed.model_dump(exclude=same) == whole.model_dump(exclude=same)
    assert resumed.run_id == stopped != whole.run_id
    assert states() == ["FINISHED", "FINISHED"]


@pytest.mark.slow
def test_the_same_command_resumes_too(stopped, file, run):
    code, out, err = run(file, "--seed", "8", "--json")
    assert (code, [one.run_id for one in results(out)]) == (0, [stopped])
    assert "resuming after step 2" in err
    assert states() == ["FINISHED"]


@pytest.mark.slow
def test_a_run_goes_on_in_the_precision_of_its_start(file, run, monkeypatch):
    """As a run of an older version, which could select bf16 on a CPU."""
    with monkeypatch.context() as patched:
        for place in ("jobs.job", "training.run"):
            patched.setattr(f"cse_cli.{place}.choose", lambda *_: Compute(torch.device("cpu"), "bf16"))
        patched.setattr(TrainStep, "take", throw(KeyboardInterrupt()))
        code, _, err = run(file)
    assert code == 130
    assert "· bf16\n" in err
    begun = only_run()
    assert begun.about.precision == "bf16"
    assert json.loads((begun.about.path / "environment.json").read_text())["precision"] == "bf16"
    code, out, err = run(file, "--json")
    (result,) = results(out)
    assert (code, result.run_id, result.precision) == (0, begun.run_id, "bf16")
    assert "· bf16\n" in err
    again = run(file, "--again", "--json")[1]
    assert results(again)[0].precision == "fp32"


@pytest.mark.slow
def test_precision_is_a_setting_and_auto_names_the_faster_one(file, run, monkeypatch):
    monkeypatch.setattr("cse_cli.core.devices.has_bf16_instructions", lambda: True)
    hint = "\n  this processor has instructions for bf16: --precision bf16 is faster, with other digits\n"
    found = {}
    for precision in ("auto", "fp32", "bf16"):
        _, out, err = run(file, "--set", "train.precision=fp16", "--precision", precision, "--json")
        (found[precision],) = results(out)
        assert (hint in err) == (precision == "auto")
        assert read_recipe(str(found[precision].run_id))["train"]["precision"] == precision
    assert [one.precision for one in found.values()] == ["fp32", "fp32", "bf16"]
    assert len({one.experiment for one in found.values()}) == 3


@pytest.mark.slow
def test_resume_of_a_finished_run_shows_its_result_unless_it_is_damaged(stopped, home, run):
    _, first, _ = run("--resume", stopped, "--json")
    code, again, err = run("--resume", stopped, "--json")
    assert (code, again) == (0, first)
    assert f"run {stopped[:8]} of " in err
    assert states() == ["FINISHED"]
    (home / "runs" / stopped / "result.json").write_text("{}")
    error = refused("run", "--resume", stopped)
    assert (error.code, stopped[:8] in error.message, "result.json" in error.message) == (
        "runs.not_resumable",
        True,
        True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("finished", [False, True])
def test_changed_settings_are_named_with_both_values(finished, stopped, file, run):
    if finished:
        assert run("--resume", stopped)[0] == 0
    code, out, err = run(
        file, "--resume", stopped, "--set", "train.learning_rate=0.5", "--set", "losses.info_nce.temperature=0.2",
        "--set", "title=Other",
    )  # fmt: skip
    assert (code, out) == (2, "")
    lines = err[err.index("error: ") :].split("\n")
    assert f"cannot resume run {stopped[:8]}" in lines[0]
    assert lines[1:3] == ["  train.learning_rate: 3e-05 → 0.5", "  losses.info_nce.temperature: 0.05 → 0.2"]
    assert lines[3].startswith("  → ")
    assert states() == ["FINISHED" if finished else "STOPPED"]


@pytest.mark.slow
def test_a_resumed_run_needs_no_recipe_file_keeps_its_seed_and_may_have_other_prose(stopped, file, folder, run):
    (folder / file).unlink()
    assert "  train.seed: 8 → 9\n" in run("--resume", stopped, "--seed", "9")[2]
    code, out, _ = run("--resume", stopped, "--set", "title=Other", "--set", "description=more", "--json")
    (one,) = results(out)
    assert (code, one.recipe, one.seed) == (0, "small", 8)


@pytest.mark.slow
@pytest.mark.parametrize("more", [["--seeds", "3"], ["other.toml"]])
def test_resume_takes_one_run(more, stopped, file):
    assert refused("run", file, *more, "--resume", stopped).code == "jobs.resume_several"


@pytest.mark.slow
def test_an_unknown_run_id(stopped):
    wrong = stopped[:6] + ("0" if stopped[6] != "0" else "1") + stopped[7]
    with refuses("runs.unknown_run", f"'{wrong}'", f"Did you mean '{stopped[:8]}'?", "cse runs ls"):
        raise refused("run", "--resume", wrong)


def test_a_recipe_that_lacks_data_names_its_small_version(home):
    error = refused("run", "simcse_en")
    assert error.exit_code == 3
    assert str(error).endswith("\n  → without them: cse run mini/simcse_en")


def test_only_a_small_version_that_is_ready_is_named(home, monkeypatch):
    assert small_version("no_such_recipe") is None
    monkeypatch.setattr("cse_cli.listing.inventory.requirements", lambda recipe: [])
    assert small_version("simcse_en") == "mini/simcse_en"


@pytest.mark.slow
def test_patience_ends_a_training_that_no_longer_improves(file, run):
    """With a learning rate near 0 all scores are equal, so the first one stays the best."""
    settings = ["train.steps=8", "train.evaluate_every=1", "train.learning_rate=1e-30", "train.patience=2"]
    code, out, err = run(file, *(word for text in settings for word in ("--set", text)))
    (stop,) = [line for line in out.splitlines() if "stopped early" in line]
    assert code == 0
    assert re.fullmatch(r"seed \d+ stopped early at step 3: no better \w+\.\w+ in 2 evaluations since step 1", stop)
    assert stop.partition(" stopped")[2] in err
    found = only_run().result
    assert found is not None
    assert (found.steps, found.early_stop.step, sorted(found.curve)) == (8, 3, [0, 1, 2, 3])
