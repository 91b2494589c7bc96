"""Documentation is true: it builds, generated pages are current, and links, commands, recipes and examples exist."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import inspect
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import textwrap
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import typer

from cse_cli.app import app
from cse_cli.recipe.files import all_recipes
from registry import REGISTRIES, papers
from registry.resources import catalog
from tests.conftest import ROOT

PAGES = sorted(
    [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
)
SITE = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
CODE = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SETUP = ["pip install -e . && cse run recipes/quickstart.toml", 'pip install -e ".[test]" && pytest']


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.mark.docs
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed (extra 'docs')")
def test_the_site_builds_strictly(tmp_path):
    site = Path(os.environ.get("CI_SITE") or tmp_path / "site")
    if not site.exists():  # `.ci/run docs` has built it
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
        environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (site / "reference" / "losses" / "index.html").is_file()
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img|iframe)\b[^>]*?(?:src|href)="(?:https?:)?//([^"/]+)', text(page))
        assert loaded == [], f"{page}: the site loads nothing from elsewhere"
        left = [found[0] for found in MARKUP.finditer(prose(text(page)))]
        assert left == [], f"{page}: equation or markup that is not rendered"
    assert "-&gt; list[Result]" in re.sub(r"<[^>]*>", "", text(site / "python" / "index.html"))


MARKUP = re.compile(r".{0,30}(?:\$(?!CSE_)|\\[a-zA-Z]{2,}|\*\*|`).{0,30}")
"""Markup of an equation or of Markdown, which a reader of a built page does not see. `$CSE_DATA` is a variable."""


def prose(page):
    """Return the text of a built page without code and equations."""
    article = page.partition("<article")[2].partition("</article>")[0]
    shown = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", article, flags=re.DOTALL)
    equations = r'<(span|div) class="arithmatex">\\[(\[].*?\\[)\]]</\1>'
    return re.sub(r"<[^>]*>", "", re.sub(equations, "", shown, flags=re.DOTALL))


@pytest.mark.parametrize("written", ["$$\na = b\n$$", "Of $a$ and $b$.", "\n$$\n\\lceil m \\rceil\n$$"])
def test_an_equation_that_is_not_rendered_is_found(written):
    assert MARKUP.search(prose(f"<article><p>{written}</p></article>"))
    rendered = '<div class="arithmatex">\\[\n\\lceil m \\rceil\n\\]</div> <code>$x</code> $CSE_DATA'
    assert not MARKUP.search(prose(f"<article><p>{rendered}</p></article>"))


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in text(page)], ids=lambda page: page.stem)
def test_examples_import_the_names_that_they_use(page):
    """An earlier example of the page may have imported them."""
    known = {*dir(builtins), "self"}
    for language, code in CODE.findall(text(page)):
        if language != "python":
            continue
        nodes = list(ast.walk(ast.parse(code)))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        known |= {node.id for node in names if not isinstance(node.ctx, ast.Load)}
        known |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        known |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        imports = [alias for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]
        known |= {(alias.asname or alias.name).partition(".")[0] for alias in imports}
        assert {node.id for node in names} <= known, code


def test_long_comments_in_examples_are_not_cut():
    """The rule of the page wraps examples with comments. Pygments marks these with the class `c1`."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    assert ".highlight:has(.c1) code { white-space: pre-wrap; }" in text(ROOT / "docs" / "assets" / "site.css")
    for language, code in (("console", "$ cse list  # all"), ("toml", "a = 1  # one"), ("python", "a = 1  # one")):
        assert '<span class="c1">#' in highlight(code, get_lexer_by_name(language), HtmlFormatter())


SETS_EQUATIONS = """
const katex = require(process.argv[1]);
const pages = JSON.parse(require("fs").readFileSync(0));
for (const [page, equations] of Object.entries(pages))
  for (const tex of equations)
    try { katex.renderToString(tex, { throwOnError: true, strict: "error" }); }
    catch (error) { console.log(`${page}: ${error.message}`); }
"""


@pytest.mark.docs
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_every_equation_can_be_set():
    equations = {}
    for page in (ROOT / "docs").rglob("*.md"):
        written = re.sub(r"```.*?```|`[^`\n]*`", "", text(page), flags=re.DOTALL)
        found = re.findall(r"\$\$\n(.*?)\$\$", written, re.DOTALL)
        found += re.findall(r"(?<!\$)\$(?! )([^$\n]+)(?<! )\$", re.sub(r"\$\$.*?\$\$", "", written, flags=re.DOTALL))
        equations[page.name] = found
    assert sum(map(len, equations.values())) > 150
    command = ["node", "-e", SETS_EQUATIONS, str(ROOT / "docs" / "assets" / "katex" / "katex.min.js")]
    done = subprocess.run(command, input=json.dumps(equations), capture_output=True, text=True, check=True)
    assert done.stdout == ""


METHODS = sorted(page for page in (ROOT / "docs" / "methods").glob("*.md") if page.name != "index.md")


@pytest.mark.parametrize("page", METHODS, ids=lambda page: page.stem)
def test_every_doubtful_point_names_its_switch(page):
    points = [line.strip().strip("|").split(" |") for line in text(page).splitlines() if line.startswith("| <a id=")]
    assert points
    for cells in points:
        assert len(cells) == 4, cells
        assert re.search(r"^(misprint, no switch|no switch: \w)|`[^`]+`|\]\(#", cells[3].strip()), cells


@pytest.mark.docs
def test_generated_pages_are_current():
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"run `python docs/generate.py`:\n{done.stdout}{done.stderr}"


def test_the_reference_is_complete():
    for registry in REGISTRIES:
        page = text(ROOT / "docs" / "reference" / f"{registry.kind}.md")
        assert all(f"\n## {entry.name}\n" in page for entry in registry if entry.distribution == "cse")
    assert text(ROOT / "docs" / "reference" / "datasets.md").count("\n## ") == len(catalog.names())
    tables = sum(len(papers.load(key).tables) for key in papers.names())
    assert text(ROOT / "docs" / "reference" / "papers.md").count("\n### ") == tables


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere_or_are_well_formed(page):
    written = CODE.sub("", text(page))
    for target in LINK.findall(written) + re.findall(r"<(https?://[^>]*)>", written):
        if "://" not in target:
            assert (page.parent / target.partition("#")[0]).exists(), target
            continue
        parts = urlsplit(target)
        assert parts.scheme in ("http", "https")
        assert re.fullmatch(r"[\w.-]+\.[a-z]{2,}", parts.hostname or ""), target
        assert not re.search(r"\s", target)


def test_a_terminal_is_drawn_without_a_font_from_elsewhere():
    picture = runpy.run_path(str(ROOT / "docs" / "terminal.py"))["picture"]
    drawn = picture("$ cse run quickstart\n\x1b[32mbest\x1b[0m\n", "cse")
    assert "quickstart" in drawn
    assert "best" in drawn
    for image in (drawn, text(ROOT / "docs" / "assets" / "quickstart.svg")):
        assert "font-face" not in image
        assert re.findall(r'(?:href|src)="http|url\(["\']?http', image) == []


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w/-]+\.md", text(ROOT / "mkdocs.yml")))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}


def test_the_leaderboard_page_has_the_papers_rows_and_ours():
    page = text(ROOT / "docs" / "results" / "leaderboard.md")
    assert "| SimCSE-BERT-base | 76.25 | 68.40 |" in page
    ours = re.search(r"\| ESimCSE \| 5 \| ([\d.]+ ± [\d.]+) \|", text(ROOT / "docs" / "results" / "one_budget.md"))
    assert ours is not None
    assert re.search(rf"\| ESimCSE \| {ours[1]} \| \S+ \| `mini/esimcse_en` \|", page)


@cache
def command_names() -> frozenset[str]:
    """Return "run", "data", "data list", …"""
    found = set()
    for name, command in typer.main.get_command(app).commands.items():
        found |= {name, *(f"{name} {child}" for child in getattr(command, "commands", {}))}
    return frozenset(found)


def groups() -> set[str]:
    return {name.partition(" ")[0] for name in command_names() if " " in name}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_command_mentioned_exists(page):
    # The changelog names commands that existed at a release, and those that were removed since.
    now = re.sub(r"(?ms)^### Removed.*", "", text(page)) if page.name == "CHANGELOG.md" else text(page)
    mentioned = re.findall(r"(?:`|^\$ |^|&& )cse ([a-z]+)(?: ([a-z]+))?", now, re.MULTILINE)
    unknown = []
    for verb, second in mentioned:
        name = f"{verb} {second}" if verb in groups() and second else verb
        if name not in command_names():
            unknown.append(f"cse {name}")
    assert unknown == []


MESSAGES = sorted(path for folder in ("cse_cli", "registry") for path in (ROOT / folder).rglob("*.py"))


def test_every_command_in_messages_and_cards_exists():
    named = {}
    for path in [*MESSAGES, ROOT / "CITATION.cff", *(ROOT / "recipes").rglob("*.toml")]:
        for verb, second in re.findall(r"(?:`|run |→ |: |  )cse ([a-z]+)(?: ([a-z]+))?", text(path)):
            named[f"{verb} {second}" if verb in groups() and second else verb] = path
    assert len(named) > 20
    sentences = {"does", "has", "sets"}  # "…: cse sets it itself"
    assert {name: path for name, path in named.items() if name not in command_names() | sentences} == {}


ADDRESS = re.compile(r"pypi\.org|pip install[^\n`]*cse-registry|github\.com/[\w.-]+/cse(?:-registry)?\b")
"""Addresses of this project. None exists before its first release."""


def test_nothing_names_an_address_that_does_not_exist():
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    others = [ROOT / "CITATION.cff", ROOT / "SECURITY.md", ROOT / "mkdocs.yml", *(ROOT / "docs").rglob("*.ipynb")]
    found = {str(path): ADDRESS.findall(text(path)) for path in [*MESSAGES, *pages, *others]}
    assert {path: addresses for path, addresses in found.items() if addresses} == {}
    written = ("[cse](https://pypi.org/project/cse-registry/)", "pip install 'cse-registry[ui]'", "github.com/me/cse")
    assert all(map(ADDRESS.search, written))


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_recipe_and_file_mentioned_exists(page):
    written = text(page)
    named = set(re.findall(r"`((?:mini/)?(?:simcse|ifcl)_\w+)`", written))
    named |= set(re.findall(r"recipes/([\w/]+)\.toml", written))
    missing = {name for name in named if not (ROOT / "recipes" / f"{name}.toml").exists()}
    assert missing <= PROPOSED_RECIPES
    files = re.findall(r"`((?:cse_cli|registry|tests|docs|recipes)/[\w/.]+\.(?:py|toml|md))`", written)
    assert [file for file in files if not (ROOT / file).exists() and file not in PROPOSED] == []


PROPOSED_RECIPES = {"studies/queue_short"}
PROPOSED = {
    "registry/losses/uniformity.py",
    "tests/registry/losses/test_uniformity.py",
    "registry/evaluators/norm_spread.py",
    "tests/registry/evaluators/test_norm_spread.py",
    "registry/datasets/daily50.toml",
    *(f"recipes/{name}.toml" for name in PROPOSED_RECIPES),
}
"""What an example tells the reader to write."""


def test_every_promise_of_safety_names_tests_that_there_are():
    named = re.findall(r"`(tests/\S+\.py)::(test_\w+)`", (ROOT / "docs" / "security.md").read_text("utf-8"))
    assert len(named) > 20
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text("utf-8"), f"{file} has no {test}"


def test_the_tours_functions_are_where_it_says():
    stops = re.findall(r"`(cse_cli/[\w/]+\.py|registry/[\w/]+\.py)` · `([\w.]+)`", text(ROOT / "docs" / "tour.md"))
    assert len(stops) >= 6
    for file, name in stops:
        source = text(ROOT / file)
        assert all(re.search(rf"^ *(def|class) {part}\b", source, re.MULTILINE) for part in name.split(".")), (
            file,
            name,
        )


def test_cited_method_sheets_exist():
    cited = set()
    for folder in ("registry", "recipes", "cse_cli"):
        for path in (p for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".toml")):
            cited |= set(re.findall(r"methods/(\w+\.md)", text(path)))
    assert {"ifcl.md", "simcse.md"} <= cited
    assert cited <= {path.name for path in (ROOT / "docs" / "methods").glob("*.md")}


@cache
def doubtful_points() -> dict[str, str]:
    """Return a point such as "A13" → the method page that has it, by its anchor in the list of that page."""
    row = re.compile(r'^\| <a id="([a-z]+\d+)"></a>([A-Z]+\d+) \|', re.MULTILINE)
    found = {}
    for page in (ROOT / "docs" / "methods").glob("*.md"):
        for anchor, point in row.findall(text(page)):
            assert anchor == point.lower()
            assert point not in found, f"{point} is on {found[point]} and {page.name}"
            found[point] = page.name
    return found


def points_in(written: str) -> set[str]:
    """Return what looks like a doubtful point: a letter of a method page and a number."""
    letters = {point.rstrip("0123456789") for point in doubtful_points()}
    return set(re.findall(rf"(?<!-)\b(?:{'|'.join(sorted(letters))})\d+\b(?! weight| norm)", written))


def test_cited_doubtful_points_exist():
    comments = " ".join(
        line.partition("#")[2] for recipe in (ROOT / "recipes").rglob("*.toml") for line in text(recipe).split("\n")
    )
    docstrings = " ".join(inspect.getdoc(entry.cls) or "" for registry in REGISTRIES for entry in registry)
    cited = points_in(comments) | points_in(docstrings)
    assert len(cited) > 50
    assert cited <= doubtful_points().keys()


@pytest.mark.parametrize("page", SITE, ids=[str(page.relative_to(ROOT)) for page in SITE])
def test_doubtful_points_are_linked_to_what_they_say(page):
    linked = re.findall(r"\[([A-Z]+\d+)\]\(([^)]*)\)", text(page))
    for point, target in linked:
        path, _, anchor = target.partition("#")
        assert (Path(path).name or page.name, anchor) == (doubtful_points().get(point), point.lower())
    bare = re.sub(r"```.*?```|`[^`\n]*`|\[[^\]]*\]\([^)]*\)|<a id[^>]*></a>\w+", "", text(page), flags=re.DOTALL)
    assert points_in(bare) & doubtful_points().keys() == set()


def test_the_readme_has_exactly_two_set_up_commands():
    section = text(ROOT / "README.md").partition("## Set up")[2].partition("\n## ")[0]
    assert [block.strip() for _, block in CODE.findall(section)] == SETUP


def test_ci_installs_and_tests_as_the_readme_says():
    ci = text(ROOT / ".ci" / "run")
    install, test = SETUP[1].split(" && ")
    assert install.replace("install", "install --quiet") in ci
    assert re.search(rf"(?m)^ *{test}$", ci)
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def example(language: str) -> str:
    section = text(ROOT / "CONTRIBUTING.md").partition("## Add a loss in one file")[2].partition("\n## ")[0]
    (block,) = [code for name, code in CODE.findall(section) if name == language]
    return block


def test_the_tutorials_loss_is_the_one_that_is_tested():
    page = text(ROOT / "docs" / "tutorials" / "own_loss.md")
    assert example("python").rstrip() in page
    assert "[losses.uniformity]\nweight = 0.1\n" in example("toml")
    assert "[losses.uniformity]\nweight = 0.1\n" in page


@pytest.mark.process
def test_the_tutorials_commands_about_the_loss_print_what_the_page_shows(tmp_path):
    page = text(ROOT / "docs" / "tutorials" / "own_loss.md")
    (tmp_path / "uniformity.py").write_text(example("python"), encoding="utf-8")
    (recipe,) = [code for name, code in CODE.findall(page) if name == "toml"]
    (tmp_path / "uniform.toml").write_text(recipe, encoding="utf-8")
    shown = "".join(code for name, code in CODE.findall(page) if name == "console")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    for command in ("show uniformity", "check uniform.toml"):
        words = [*command.split(), "--plugin", "uniformity.py"]
        done = subprocess.run(
            [sys.executable, "-m", "cse_cli", *words],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert f"$ cse {' '.join(words)}\n{done.stdout}" in shown, done.stderr


@pytest.mark.process
def test_the_loss_in_one_file_works_with_no_other_change(tmp_path):
    """The file lies beside the other losses, as far as imports can tell; a recipe uses it; nothing else is touched."""
    source = example("python")
    assert source.count("\n") <= 40
    (tmp_path / "uniformity.py").write_text(source, encoding="utf-8")
    (tmp_path / "mine.toml").write_text(example("toml"), encoding="utf-8")
    program = f"""
        import math
        import torch
        import registry.losses
        registry.losses.__path__.append({str(tmp_path)!r})
        from cse_cli.recipe.load import load
        from registry import LOSSES
        recipe = load({str(tmp_path / "mine.toml")!r}).recipe
        part = recipe.losses["uniformity"]
        assert (part.weight, dict(part.params)) == (0.1, {{"sharpness": 2.0}}), part
        loss = LOSSES["uniformity"].build(part.params)
        vectors = torch.tensor([[2.0, 0.0], [0.0, 3.0]], requires_grad=True)
        value = loss(vectors)
        assert math.isclose(value.item(), -4.0, rel_tol=1e-6), value
        value.backward()
        assert vectors.grad.shape == (2, 2)
        assert LOSSES["uniformity"].file == {str(tmp_path / "uniformity.py")!r}
        print(LOSSES["uniformity"].summary)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Spread the embeddings over the unit sphere.\n"


@pytest.mark.slow
def test_the_settings_of_every_command_are_valid():
    """What `--set` and `--unset` make of a shipped recipe, in all commands that a page shows."""
    from cse_cli.recipe.load import load

    shown = re.compile(r"^\$ cse (?:run|check) ([\w/]+)((?: --(?:un)?set .*)+)", re.MULTILINE)
    checked = 0
    for page in PAGES:
        commands = re.sub(r"\\\n\s*", "", text(page))
        for name, options in shown.findall(commands):
            if name in all_recipes() and "daily50" not in options:
                words = shlex.split(options, comments=True)
                pairs = list(pairwise(words))
                overrides = [value for option, value in pairs if option == "--set"]
                assert load(name, overrides, [key for option, key in pairs if option == "--unset"]).changes
                checked += 1
    assert checked >= 20


@pytest.mark.slow
def test_toml_examples_of_whole_recipes_are_valid(tmp_path):
    from cse_cli.recipe.load import load

    checked = 0
    for page in PAGES:
        for language, block in CODE.findall(text(page)):
            if (
                language == "toml"
                and re.search(r"^(schema|extends) = ", block, re.MULTILINE)
                and "[study]" not in block
                and not re.search("uniformity|norm_spread", block)
            ):
                path = tmp_path / f"example{checked}.toml"
                path.write_text(block, encoding="utf-8")
                assert load(str(path)).recipe.title
                checked += 1
    assert checked >= 1


SHORT = [
    word
    for value in ("train.steps=2", "train.batch_size=8", "train.evaluate_every=0", "evaluate.limit=20")
    for word in ("--set", value)
]


@pytest.mark.docs
@pytest.mark.usefixtures("undrawn")
def test_the_composition_runs(tmp_path, monkeypatch, capsys):
    """The recipe and the commands of docs/compose.md, with few steps."""
    from tests.support.command import cse

    monkeypatch.chdir(tmp_path)
    page = text(ROOT / "docs" / "compose.md")
    (tmp_path / "my_ifcl.toml").write_text(CODE.search(page)[2], encoding="utf-8")
    commands = re.findall(r"^\$ cse (.*)$", page, re.MULTILINE)
    assert [command.partition(" ")[0] for command in commands] == ["check", "run"]
    for command in commands:
        code, _, err = cse(*shlex.split(command), *(SHORT if command.startswith("run") else []), capsys=capsys)
        assert code == 0, f"cse {command}\n{err}"


@pytest.mark.docs
@pytest.mark.usefixtures("undrawn")
def test_the_commands_about_pairs_run(tmp_path, monkeypatch, capsys):
    """In their order, in one directory, with a part of the example's pairs and few steps."""
    from tests.support.command import cse

    monkeypatch.chdir(tmp_path)
    rows = text(ROOT / "recipes" / "examples" / "pairs.csv").splitlines(keepends=True)
    (tmp_path / "mine.csv").write_text("".join(rows[:60]), encoding="utf-8")
    commands = re.findall(r"^\$ cse (.*)$", text(ROOT / "docs" / "pairs.md"), re.MULTILINE)
    assert len(commands) == 5
    (mining,) = [block for language, block in CODE.findall(text(ROOT / "docs" / "pairs.md")) if language == "python"]
    assert mining.count("all-MiniLM-L6-v2") == 1
    for command in commands:
        words = shlex.split(command)
        if "data.file=hard.jsonl" in words:  # the lines of Python above it, with the package's encoder as the teacher
            exec(mining.replace("all-MiniLM-L6-v2", str(ROOT / "registry" / "pretrained" / "mini_en")), {})
        words += SHORT if words[0] == "run" else []
        code, _, err = cse(*words, capsys=capsys)
        assert code == 0, f"cse {command}\n{err}"
    mined = [json.loads(line) for line in text(tmp_path / "hard.jsonl").splitlines()]
    assert len(mined) > 100
    assert mined[0].keys() == {"anchor", "positive", "negative"}


def printed_by(name: str, capsys: pytest.CaptureFixture[str], before: str = "", after: str = "") -> list[str]:
    """Return the output of each code cell after the installation. `after` replaces `before` in the code."""
    installation, *cells = json.loads((ROOT / "docs" / "reference" / name).read_text())["cells"]
    assert installation["source"] == ["%pip install -q -e ../.."]
    names: dict[str, object] = {}
    printed = []
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]).replace(before, after), names)
            printed.append(capsys.readouterr().out)
    return printed


@pytest.mark.docs
@pytest.mark.usefixtures("undrawn")
def test_every_cell_of_the_page_about_python_runs_and_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    trained, cosines, scored, table = printed_by("python.ipynb", capsys, '"train.steps": 30', '"train.steps": 2')
    assert trained.splitlines()[0].startswith("SimCSE")
    assert "test.spearman" in trained
    assert [line.split()[number].strip("[]") for number, line in enumerate(cosines.splitlines())] == ["1.", "1.", "1."]
    assert "mini_en" in scored
    assert "measured" in table


@pytest.mark.docs
@pytest.mark.usefixtures("undrawn")
def test_every_cell_of_the_first_run_runs_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    setting = '"train.precision": "fp32"'
    scores, ranking = printed_by("first_run.ipynb", capsys, setting, f'{setting}, "train.steps": 2')
    assert scores.splitlines()[1].split()[::2] == ["65.64", "52.73"]
    assert len(ranking.splitlines()) == 4
    assert ranking.splitlines()[0].endswith("It will rain tomorrow.")
