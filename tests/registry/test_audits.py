"""Comparisons of methods with equations and code, and the badges that follow from them."""

import ast
import re
import tomllib
from collections import Counter
from functools import cache
from itertools import chain

import pytest
from pydantic import ValidationError

from cse_cli.recipe.schema import Train
from registry.papers import audits as module
from registry.papers import badge_of
from registry.papers.audits import SHARED, Audit, audits
from tests.conftest import ROOT

METHODS = ROOT / "docs" / "methods"
WITHOUT = {
    "augmentation_quality_en": "evaluates augmenters, which are those of IFCL",
    "augmentation_quality_zh": "evaluates augmenters, which are those of IFCL",
    "bsl_en_roberta": "settings for this encoder are unknown (BS8)",
    "focal_infonce_dclr_en": "the paper does not state all settings (F11)",
    "focal_infonce_diffcse_en": "the paper does not state all settings (F11)",
    "pretrain_mini_en": "a recipe of this project",
    "quickstart": "a recipe of this project",
    "roberta_whitening_en": "the compared code has no English RoBERTa",
    "roberta_whitening_en_large": "the compared code has no English RoBERTa",
    "simcse_en_eurobert": "a recipe of this project",
    "simcse_en_gemma3": "a recipe of this project",
    "simcse_en_modernbert": "a recipe of this project",
    "simcse_en_qwen3": "a recipe of this project",
    "simcse_zh": "SimCSE with settings that IFCL does not specify",
    "simcse_zh_cstsb": "SimCSE with settings that IFCL does not specify",
    "static_en_trained": "the training code of potion was not read",
}
"""Recipe that no file names → reason."""
ONE = """
method = "DCLR"
recipes = ["dclr_en", "dclr_en_large"]
equations = ["tests/registry/losses/test_info_nce.py::test_dclr_as_released"]

[[code]]
repository = "RUCAIBox/DCLR"
commit = "e2c3430c9ad17146cea4b0aea21ecbc76c6f5885"
authors = true
read = 2026-11-25
by = "cse"
compared = 3
agree = 2
points = ["temperature", "evaluation after the last step"]
without = ["optimizer", "ε of AdamW", "precision", "last batch", "text of the evaluation"]

[[code.differences]]
point = "weights"
code = "simcse/models.py:708"
here = "they multiply the exponential instead of the logit"
page = "N1"
switch = "losses.info_nce.weight_on=logit"
"""
CHECKPOINT = """
[[checkpoint]]
recipe = "dclr_en"
model = "owner/name"
scores = { stsb = 80.126 }
command = "cse eval owner/name"
date = 2026-11-25
machine = "one GPU, fp32"
"""
TRAJECTORY = """
[[trajectory]]
recipe = "dclr_en"
repository = "RUCAIBox/DCLR"
commit = "e2c3430c9ad17146cea4b0aea21ecbc76c6f5885"
date = 2026-11-28
steps = 30
settings = ["train.epsilon_before_correction=true"]
repaired = ["it reads another folder"]
fp32 = { loss = 3.7e-6, norm = 1.3e-5, rate = 1.2e-16, weights = 1.1e-5 }
fp64 = { loss = 8.9e-15, norm = 1.1e-14, rate = 1.2e-16, weights = 2.0e-14 }
"""


def audit(text: str = ONE) -> Audit:
    return Audit.model_validate({**tomllib.loads(text), "page": "dclr"})


@cache
def functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@cache
def points() -> Counter[str]:
    """Return the anchor of each doubtful point → number of rows with it."""
    pages = (page.read_text(encoding="utf-8") for page in METHODS.glob("*.md"))
    return Counter(point for page in pages for point in re.findall(r'\| <a id="(\w+)"></a>', page))


@pytest.mark.parametrize("found", audits().values(), ids=lambda audit: audit.page)
def test_files_name_what_exists(found):
    assert (METHODS / f"{found.page}.md").is_file()
    assert [name for name in found.recipes if not (ROOT / "recipes" / f"{name}.toml").is_file()] == []
    tests = [name.split("::") for name in found.equations]
    assert [name for path, name in tests if not (ROOT / path).is_file() or name not in functions(path)] == []
    named = [one.page for code in found.code for one in code.differences if one.page]
    assert [point for point in named if points()[point.lower()] != 1] == []
    switches = [one.switch for code in found.code for one in code.differences if one.switch and one.point in SHARED]
    assert {one.removeprefix("train.").partition("=")[0] for one in switches} <= Train.model_fields.keys()
    for code in found.code:
        assert code.compared == code.agree + len(code.differences)
        assert len(code.points) == code.agree
        answers = Counter([*code.points, *code.without, *(one.point for one in code.differences)])
        assert [point for point, times in answers.items() if times > 1] == []
        assert [point for point in SHARED if point not in answers] == [], "a shared point has no answer"
        assert set(code.without) <= set(SHARED)
    covered = {name for code in found.code for name in code.recipes}
    assert covered | {one.recipe for one in (*found.checkpoint, *found.trajectory)} <= set(found.recipes)
    read = {(code.repository, code.commit) for code in found.code if code.authors}
    assert {(one.repository, one.commit) for one in found.trajectory} <= read


def test_every_recipe_of_the_package_is_in_one_file_or_has_a_reason_and_no_page_says_more():
    named = [name for one in audits().values() for name in one.recipes]
    assert len(named) == len(set(named))
    assert set(named).isdisjoint(WITHOUT)
    shipped = {path.stem for path in (ROOT / "recipes").glob("*.toml")}
    assert shipped == {*named, *WITHOUT}
    today = list(chain.from_iterable(one.checkpoint for one in audits().values()))
    page = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    assert ("no authors' checkpoint was scored with `cse`" in page) == (not today)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("e2c3430c9ad17146cea4b0aea21ecbc76c6f5885", "e2c3430", "commit"),
        ("RUCAIBox/DCLR", "https://github.com/RUCAIBox/DCLR", "repository"),
        ("authors = true", "authors = true\nwhose = 'theirs'", "whose"),
        ('point = "weights"', 'point = ""', "point"),
        ('["dclr_en", "dclr_en_large"]', "[]", "recipes"),
        ("::test_dclr_as_released", "", "equations"),
        ("steps = 30", "steps = 0", "steps"),
        ("fp32 = { loss = 3.7e-6,", "fp32 = {", "fp32.loss"),
        ("fp64 = { loss = 8.9e-15", "fp64 = { loss = -8.9e-15", "fp64.loss"),
        ("fp64", "bf16", "bf16"),
    ],
)
def test_wrong_files_are_refused(old, new, message):
    text = ONE + TRAJECTORY
    found = audit(text)
    assert (found.code[0].compared, found.trajectory[0].steps) == (3, 30)
    assert old in text
    with pytest.raises(ValidationError, match=re.escape(message)):
        audit(text.replace(old, new))


def badge_with(monkeypatch, text):
    monkeypatch.setattr(module, "audits", lambda: {"dclr": audit(text)})
    return badge_of("dclr_en")


def test_badge_of_a_comparison_and_of_equations_only(monkeypatch):
    badge = badge_with(monkeypatch, ONE)
    assert badge
    assert badge.line == "equations, code 2/3 @e2c3430"
    assert badge.lines == (
        "equations: 1 test with the formula written out",
        "code: RUCAIBox/DCLR @e2c3430 (the authors' code), 2 of 3 points agree, read 2026-11-25 by cse",
        "differences: 1, see N1 in docs/methods/dclr.md",
        "not checked: trajectory, authors' checkpoint, reported number with cse",
    )
    assert badge.document()["code"][0]["differences"][0]["page"] == "N1"
    assert not badge_of("mini/dclr_en")  # it only extends a recipe of the file
    badge = badge_with(monkeypatch, ONE.partition("[[code]]")[0])
    assert badge.line == "equations"
    assert badge.lines[-1] == "not checked: code, trajectory, authors' checkpoint, reported number with cse"


def test_badge_of_other_code_and_a_checkpoint(monkeypatch):
    text = ONE.replace("authors = true", "authors = false").replace('page = "N1"', "") + CHECKPOINT
    badge = badge_with(monkeypatch, text)
    assert badge.line == "equations, other code 2/3 @e2c3430, checkpoint"
    assert "code of others" in badge.lines[1]
    assert badge.lines[2:] == (
        "differences: 1, see registry/papers/audits/dclr.toml",
        "checkpoint: owner/name, stsb 80.13 (2026-11-25, one GPU, fp32)",
        "not checked: trajectory, reported number with cse",
    )
    assert not badge_of("dclr_en_large").checkpoints


def test_badge_of_a_trajectory(monkeypatch):
    badge = badge_with(monkeypatch, ONE + TRAJECTORY)
    assert badge.line == "equations, code 2/3 @e2c3430, trajectory 4e-6"
    assert badge.lines[-2:] == (
        "trajectory: DCLR@e2c3430, 30 steps, 4e-6",
        "not checked: authors' checkpoint, reported number with cse",
    )
    (found,) = badge.document()["trajectories"]
    assert (found["repository"], found["date"], found["steps"]) == ("RUCAIBox/DCLR", "2026-11-28", 30)
    assert (found["fp64"]["loss"], found["both"], found["scores"]) == (8.9e-15, [], None)
    assert not badge_of("dclr_en_large").trajectories
    assert badge_with(monkeypatch, ONE.partition("equations")[0] + TRAJECTORY)


def test_code_of_other_recipes_is_not_in_the_badge(monkeypatch):
    other = ONE.replace("authors = true", 'authors = true\nrecipes = ["dclr_en_large"]')
    assert badge_with(monkeypatch, other).line == "equations"
    assert (badge_of("no_such_recipe").line, bool(badge_of("no_such_recipe"))) == ("", False)
    assert badge_of("dclr_en_large").line == "equations, code 2/3 @e2c3430"


def test_runs_of_others_and_measured_recipes():
    badge = badge_of("simcse_en")
    assert badge.others[0].n == 50
    assert badge.line.endswith("55 runs by others")
    assert any(line.startswith("50 runs by others, not with cse: 75.11 (73.16 to 76.70), ") for line in badge.lines)
    assert badge.lines[-1].endswith("reported number with cse")
    badge = badge_of("mini/simcse_en")
    assert badge.line == "12 seeds here"
    assert badge.lines[0].endswith("for a recipe that no paper reports")
