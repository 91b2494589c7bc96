"""What import-linter and ruff cannot say: homes of a library, once-used helpers, no branch on a method's name."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from registry import REGISTRIES

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.xdist_group("code")  # each file is parsed once
KINDS = {registry.kind for registry in REGISTRIES}
HEAVY = ("torch", "transformers", "mlflow", "datasets", "pandas", "scipy", "optuna")
METHODS = {
    "simcse",
    "ifcl",
    "mocose",
    "focal_infonce",
    "conisi",
    "consert",
    "diffcse",
    "dclr",
    "whitening",
    "bert_flow",
    "esimcse",
    "glove",
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for top in ("cse_cli", "registry") for path in sorted((ROOT / top).rglob("*.py"))}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text(encoding="utf-8"), filename=str(FILES[module]))


@cache
def nodes(module: str) -> list[ast.AST]:
    return list(ast.walk(tree(module)))


def package(module: str) -> str:
    return module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]


def imported(module: str, node: ast.AST) -> Iterator[str]:
    """Yield the full names of what one import statement brings in; `from a import b` is a.b where that is a module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parts = package(module).split(".")
        above = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
        base = ".".join(part for part in (above, node.module or "") if part)
        for alias in node.names:
            yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in FILES else base


@cache
def imports(module: str) -> set[str]:
    """Return everything a module imports, inside functions too."""
    return {name for node in nodes(module) for name in imported(module, node)}


def at_top(module: str) -> set[str]:
    """Return what importing a module imports at once: nothing in functions, under TYPE_CHECKING and as a program."""
    found: set[str] = set()
    waiting: list[ast.AST] = [tree(module)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and any(name in ast.unparse(node.test) for name in ("TYPE_CHECKING", "__name__")):
            waiting += node.orelse
            continue
        found.update(imported(module, node))
        waiting += ast.iter_child_nodes(node)
    return found


def tops(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


VIEWS = (
    r"cse_cli\.(doctor|core\.(console|tables)|\w+\.(\w+_)?view|data\.\w+|tuning\.live|jobs\.(plan|screen|study)"
    r"|runs\.(command|details|listing)|reproduce\.command)"
)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("library", "homes"),
    [
        ("rich", VIEWS),
        ("typer", r"cse_cli\.(app|doctor|\w+\.command|recipe\.completion)"),
        ("matplotlib", r"cse_cli\.core\.plotting|cse_cli\.analysis\.(pages|curves|\w*figures?)|cse_cli\.tuning\.plots"),
    ],
)
def test_a_library_is_imported_in_its_place_only(library, homes):
    strangers = [m for m in FILES if library in tops(imports(m)) and not re.fullmatch(homes, m)]
    assert strangers == []


def kind_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 2 and parts[0] == "registry" and parts[1] in KINDS else None


@cache
def is_component(module: str) -> bool:
    """Tell whether a module registers something; other files of the folder are helpers."""
    decorators = (d for node in nodes(module) if isinstance(node, ast.ClassDef) for d in node.decorator_list)
    return kind_of(module) is not None and any(".register(" in ast.unparse(decorator) for decorator in decorators)


def test_components_never_import_each_other_across_kinds():
    assert sum(is_component(module) for module in FILES) == sum(e.distribution == "cse" for r in REGISTRIES for e in r)
    across = [
        (module, name)
        for module in FILES
        if kind_of(module)
        for name in imports(module)
        if name in FILES and is_component(name) and kind_of(name) != kind_of(module)
    ]
    assert across == []


def test_components_do_not_touch_the_machinery_that_reads_them():
    machinery = {"registry.core", "registry.signature", "registry.testing"}
    assert [(m, n) for m in FILES if kind_of(m) for n in imports(m) & machinery] == []


def test_cse_cli_names_no_component_module():
    """What can be composed is found through the registries, so that a new file needs no other change."""
    named = [(m, n) for m in FILES if m.startswith("cse_cli") for n in imports(m) if n in FILES and is_component(n)]
    assert named == []


def test_no_import_cycles():
    graph = {module: {n for n in at_top(module) if n in FILES and n != module} for module in FILES}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join((*path[path.index(module) :], module))
        if module not in done:
            for name in sorted(graph[module]):
                visit(name, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_commands_import_heavy_libraries_inside_functions_only():
    light = [
        m
        for m in FILES
        if m.endswith(".command") or m in ("cse_cli.app", "cse_cli.__main__", "cse_cli.core.paths", "cse_cli.doctor")
    ]
    assert len(light) > 3
    assert [(m, n) for m in light for n in tops(at_top(m)) if n in HEAVY] == []
    behind = {m: {n for n in at_top(m) if n in FILES} for m in light}
    assert [(m, n, h) for m, names in behind.items() for n in names for h in tops(at_top(n)) if h in HEAVY] == []


def test_recipes_hold_no_python():
    assert list((ROOT / "recipes").rglob("*.py")) == []


def functions(module: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in nodes(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def is_short(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether the body has at most four lines without its docstring."""
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    return bool(body) and (body[-1].end_lineno or 0) - body[0].lineno < 4


@cache
def counts(module: str) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Return how often a module defines, names and calls each function. A string may name one, too."""
    named, called = Counter(), Counter()
    for node in nodes(module):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) | ast.Constant(value=str(name)):
                named[name] += 1
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                called[name] += 1
    return Counter(node.name for node in functions(module)), named, called


@cache
def named_in_tests() -> set[str]:
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    return {name for text in texts for name in re.findall(r"(?:\.|\bimport |, )(_[a-z]\w*)", text)}


def is_once_used(module: str, owner: ast.Module | ast.ClassDef, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is private, without decorators, short, and named at one place, which calls it."""
    (defined, named, called), name = counts(module), node.name
    if not re.match("_[a-z]", name) or node.decorator_list or not is_short(node) or name in named_in_tests():
        return False
    others = [counts(other) for other in FILES if other != module]
    if isinstance(owner, ast.ClassDef):
        elsewhere = any(theirs[name] for theirs, _, _ in others)  # a subclass may override it
    else:
        elsewhere = any(used[name] and not theirs[name] for theirs, used, _ in others)
    return called[name] == named[name] == defined[name] == 1 and not elsewhere


def once_used_helpers() -> dict[str, list[str]]:
    """Return file → its private functions of at most four lines with one caller, which nothing else names."""
    found: dict[str, list[str]] = {}
    for module in FILES:
        for owner in (node for node in nodes(module) if isinstance(node, ast.Module | ast.ClassDef)):
            for node in owner.body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_once_used(module, owner, node):
                    found.setdefault(str(FILES[module].relative_to(ROOT)), []).append(node.name)
    return found


NOT_YET = (
    "cse_cli/data/table_text.py",
    "cse_cli/evaluation/evaluate.py",
    "cse_cli/recipe/cells.py",
    "cse_cli/recipe/view.py",
    "cse_cli/training/checkpoint.py",
)
"""Files that still have such functions."""


def test_a_short_private_function_with_one_caller_is_written_there():
    """A file that is not in `NOT_YET` has none, and one that lost its last one leaves the list."""
    assert tuple(sorted(once_used_helpers())) == NOT_YET


def test_files_are_read_line_by_line():
    """`str.splitlines` also splits at U+2028 and its like, which stand inside sentences."""
    split = [
        (module, node.lineno)
        for module in FILES
        for node in nodes(module)
        if isinstance(node, ast.Attribute) and node.attr == "splitlines" and ".read" in ast.unparse(node.value)
    ]
    assert split == []


def branches(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a node that decide something: what is compared, matched or looked up."""
    match node:
        case ast.Compare():
            return [node.left, *node.comparators]
        case ast.MatchValue():
            return [node.value]
        case ast.Dict():
            return [key for key in node.keys if key is not None]
        case ast.Call(func=ast.Attribute(attr="startswith" | "endswith" | "find" | "index")):
            return list(node.args)
        case _:
            return []


def compared(module: str) -> Iterator[str]:
    """Yield every text a module's decisions depend on."""
    for node in nodes(module):
        for place in branches(node):
            for leaf in ast.walk(place):
                if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str):
                    yield leaf.value


ALLOWED = {
    ("cse_cli.recipe.positions", "pair"): "what the TOML grammar calls a key and its value",
}


def test_no_branch_on_a_method_outside_the_registry():
    names = {entry.name for registry in REGISTRIES for entry in registry}
    classes = {entry.cls.__name__ for registry in REGISTRIES for entry in registry}
    recipes = {path.stem for path in (ROOT / "recipes").rglob("*.toml")}
    assert {"info_nce", "transformer", "sts"} <= names
    forbidden = names | classes | recipes | METHODS
    found = {(m, text) for m in FILES if m.startswith("cse_cli") for text in compared(m) if text in forbidden}
    assert found - set(ALLOWED) == set()


MUST_HAVE = {
    "from_pretrained": "trust_remote_code=False",
    "SentenceTransformer": "trust_remote_code=False", "torch.load": "weights_only=True",
}  # fmt: skip


def test_nothing_is_loaded_that_could_be_a_program() -> None:
    seen = set()
    for module in FILES:
        for call in (node for node in nodes(module) if isinstance(node, ast.Call)):
            name = ast.unparse(call.func)
            given = {ast.unparse(keyword) for keyword in call.keywords}
            assert "allow_pickle=True" not in given, f"{module}:{call.lineno}"
            for called, needed in MUST_HAVE.items():
                if name == called or name.endswith(f".{called}"):
                    seen.add(called)
                    assert needed in given, f"{module}:{call.lineno}: {name} without {needed}"
    assert seen == set(MUST_HAVE)


ERRORS = {
    "CseError", "MissingError", "UnknownNameError", "RunFailedError", "TrackingError", "DiskError", "StopRequested",
}  # fmt: skip
CODE = re.compile(r"[a-z]+(_[a-z0-9]+)*(\.[a-z0-9]+(_[a-z0-9]+)*)+")


def test_every_error_has_a_code():
    without = []
    for module in FILES:
        for node in nodes(module):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS:
                (code,) = [word.value for word in node.keywords if word.arg == "code"] or [None]
                literal = isinstance(code, ast.Constant) and CODE.fullmatch(str(code.value))
                if not literal and not isinstance(code, ast.Attribute | ast.Name):
                    without.append(f"{FILES[module].relative_to(ROOT)}:{node.lineno}")
    assert without == []
