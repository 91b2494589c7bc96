"""Rules of the code that ruff and import-linter cannot check. One pass over the syntax trees serves all of them.

    python .ci/code.py      prints `file:line: problem` for each violation; exit code 1 if there is one

To add a rule, write a generator of (module, line, problem) and add it to `RULES`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from registry import REGISTRIES  # noqa: E402

Problem = tuple[str, int, str]
Function = ast.FunctionDef | ast.AsyncFunctionDef

HEAVY = ("torch", "transformers", "mlflow", "datasets", "pandas", "scipy", "optuna")
"""Libraries that commands import inside functions, so that `cse --help` is quick."""
HOMES = {
    "rich": (
        r"cse_cli\.(cli\.(doctor|runs)|core\.(console|tables)|\w+\.(\w+_)?view|data\.requirements"
        r"|jobs\.(plan|reproduce|screen|study)|runs\.(details|listing))"
    ),
    "typer": r"cse_cli\.(app|cli\.\w+|recipe\.completion)",
    "matplotlib": r"cse_cli\.(adapt\.view|core\.plotting|analysis\.(pages|curves|\w*figures?)|tuning\.plots)",
}
"""Library → modules that may import it."""
METHODS = {
    "simcse", "ifcl", "mocose", "focal_infonce", "conisi", "consert", "diffcse", "dclr", "whitening", "bert_flow",
    "esimcse", "glove",
}  # fmt: skip
"""Names of methods, on which no decision outside the registry depends."""
ALLOWED = {("cse_cli.recipe.sources", "pair"): "what the TOML grammar calls a key and its value"}
MUST_HAVE = {
    "from_pretrained": "trust_remote_code=False", "SentenceTransformer": "trust_remote_code=False",
    "torch.load": "weights_only=True",
}  # fmt: skip
"""Function that loads files → argument without which they could execute a program."""
ERRORS = {
    "CseError", "MissingError", "UnknownNameError", "RunFailedError", "TrackingError", "DiskError", "StopRequested",
}  # fmt: skip
ENDINGS = ERRORS | {name.rpartition(".")[2] for name in MUST_HAVE}
CODE = re.compile(r"[a-z]+(_[a-z0-9]+)*(\.[a-z0-9]+(_[a-z0-9]+)*)+")


def module_name(path: Path) -> str:
    """Return the full name of a module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for top in ("cse_cli", "registry") for path in sorted((ROOT / top).rglob("*.py"))}
KINDS = {registry.kind for registry in REGISTRIES}


@cache
def tree(module: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(FILES[module].read_text(encoding="utf-8"), filename=str(FILES[module]))


@cache
def nodes(module: str) -> list[ast.AST]:
    """Return all nodes of a module."""
    return list(ast.walk(tree(module)))


def imported(module: str, node: ast.AST) -> Iterator[str]:
    """Yield the full names that an import statement imports. `from a import b` is a.b if that is a module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]
        parts = package.split(".")
        above = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
        base = ".".join(part for part in (above, node.module or "") if part)
        for alias in node.names:
            yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in FILES else base


@cache
def imports(module: str) -> dict[str, int]:
    """Return name → line of everything that a module imports, inside functions too."""
    statements = (node for node in nodes(module) if isinstance(node, ast.Import | ast.ImportFrom))
    return {name: node.lineno for node in statements for name in imported(module, node)}


@cache
def at_top(module: str) -> set[str]:
    """Return the imports of a module outside functions, TYPE_CHECKING and `__main__`."""
    found: set[str] = set()
    waiting: list[ast.AST] = [tree(module)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function | ast.Lambda):
            continue
        if isinstance(node, ast.If) and any(name in ast.unparse(node.test) for name in ("TYPE_CHECKING", "__name__")):
            waiting += node.orelse
            continue
        found.update(imported(module, node))
        waiting += ast.iter_child_nodes(node)
    return found


def kind_of(module: str) -> str | None:
    """Return the kind of the components in a module's directory."""
    parts = module.split(".")
    return parts[1] if len(parts) > 2 and parts[0] == "registry" and parts[1] in KINDS else None


@cache
def components(module: str) -> list[str]:
    """Return the classes that a module registers. Other modules of the directory are helpers."""
    if kind_of(module) is None:
        return []
    classes = (node for node in nodes(module) if isinstance(node, ast.ClassDef))
    return [one.name for one in classes if any(".register(" in ast.unparse(each) for each in one.decorator_list)]


def homes_of_libraries() -> Iterator[Problem]:
    """A library is imported in its place only."""
    for module in FILES:
        for name, line in imports(module).items():
            home = HOMES.get(name.partition(".")[0])
            if home is not None and not re.fullmatch(home, module):
                yield module, line, f"imports {name}, which has its place elsewhere"


def light_commands() -> Iterator[Problem]:
    """Commands import heavy libraries inside functions only."""
    others = ("cse_cli.app", "cse_cli.__main__", "cse_cli.core.paths")
    for module in (one for one in FILES if one.startswith("cse_cli.cli.") or one in others):
        behind = {module} | {name for name in at_top(module) if name in FILES}
        for each in sorted(behind):
            for name in sorted({name.partition(".")[0] for name in at_top(each)} & {*HEAVY}):
                yield module, 1, f"imports {name}{'' if each == module else f' through {each}'} when it is imported"


def separate_components() -> Iterator[Problem]:
    """Components of different kinds do not import each other, nor what reads them, and `cse_cli` imports none."""
    machinery = {"registry.machinery.core", "registry.machinery.signature", "registry.testing"}
    registered = sum(len(components(module)) for module in FILES)
    if registered != sum(entry.distribution == "cse" for registry in REGISTRIES for entry in registry):
        yield "registry", 1, f"{registered} classes are found, which is not the number of components"
    for file in (ROOT / "recipes").rglob("*.py"):
        yield "registry", 1, f"{file} is Python: recipes contain none"
    for module in FILES:
        for name, line in imports(module).items():
            is_component = name in FILES and bool(components(name))
            if kind_of(module) and (name in machinery or (is_component and kind_of(name) != kind_of(module))):
                yield module, line, f"a component imports {name}"
            elif module.startswith("cse_cli") and is_component:
                yield module, line, f"imports the component {name}: find it through its registry"


def cycles() -> Iterator[Problem]:
    """No modules import each other in a circle."""
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> Iterator[Problem]:
        if module in path:
            yield module, 1, f"circular import: {' → '.join((*path[path.index(module) :], module))}"
        elif module not in done:
            for name in sorted(at_top(module) & FILES.keys() - {module}):
                yield from visit(name, (*path, module))
            done.add(module)

    for module in FILES:
        yield from visit(module, ())


@cache
def counts(module: str) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Return how often a module defines, names and calls each function. A string may name one, too."""
    defined, named, called = Counter[str](), Counter[str](), Counter[str]()
    for node in nodes(module):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                defined[name] += 1
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) | ast.Constant(value=str(name)):
                named[name] += 1
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                called[name] += 1
    return defined, named, called


def short_helpers() -> Iterator[Problem]:
    """A private function of at most four lines with one caller belongs into its caller."""
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    in_tests = {name for text in texts for name in re.findall(r"(?:\.|\bimport |, )(_[a-z]\w*)", text)}
    for module in FILES:
        (defined, named, called), others = counts(module), [counts(one) for one in FILES if one != module]
        for owner in (node for node in nodes(module) if isinstance(node, ast.Module | ast.ClassDef)):
            for node in owner.body:
                if not isinstance(node, Function) or not re.match("_[a-z]", node.name) or node.decorator_list:
                    continue
                body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
                is_short, name = bool(body) and (body[-1].end_lineno or 0) - body[0].lineno < 4, node.name
                if not is_short or name in in_tests or not called[name] == named[name] == defined[name] == 1:
                    continue
                if isinstance(owner, ast.ClassDef):  # a subclass may override it
                    elsewhere = any(theirs[name] for theirs, _, _ in others)
                else:
                    elsewhere = any(used[name] and not theirs[name] for theirs, used, _ in others)
                if not elsewhere:
                    yield module, node.lineno, f"{name} is short and has one caller: write it there"


def lines_of_files() -> Iterator[Problem]:
    """Files are read line by line: `str.splitlines` also splits at U+2028 and its like, which are inside sentences."""
    for module in FILES:
        for node in nodes(module):
            if isinstance(node, ast.Attribute) and node.attr == "splitlines" and ".read" in ast.unparse(node.value):
                yield module, node.lineno, "use `split` with a line feed: `splitlines` splits inside sentences"


def no_branch_on_a_method() -> Iterator[Problem]:
    """No decision outside the registry depends on the name of a method, a component or a recipe."""
    forbidden = METHODS | {name for registry in REGISTRIES for name in registry.names()}
    forbidden |= {name for module in FILES for name in components(module)}
    forbidden |= {path.stem for path in (ROOT / "recipes").rglob("*.toml")}
    for module in (one for one in FILES if one.startswith("cse_cli")):
        for node in nodes(module):
            places: list[ast.AST] = []
            match node:
                case ast.Compare():
                    places = [node.left, *node.comparators]
                case ast.MatchValue():
                    places = [node.value]
                case ast.Dict():
                    places = [key for key in node.keys if key is not None]
                case ast.Call(func=ast.Attribute(attr="startswith" | "endswith" | "find" | "index")):
                    places = list(node.args)
            for leaf in (leaf for place in places for leaf in ast.walk(place)):
                text = leaf.value if isinstance(leaf, ast.Constant) else None
                if isinstance(text, str) and text in forbidden and (module, text) not in ALLOWED:
                    yield module, leaf.lineno, f"depends on the name '{text}'"


def calls() -> Iterator[Problem]:
    """Nothing is loaded that could be a program, and every error has a literal code."""
    unseen = {*MUST_HAVE}
    for module in FILES:
        for call in (node for node in nodes(module) if isinstance(node, ast.Call)):
            last = getattr(call.func, "attr", getattr(call.func, "id", ""))
            if last not in ENDINGS and not any(word.arg == "allow_pickle" for word in call.keywords):
                continue
            name, given = ast.unparse(call.func), {ast.unparse(keyword) for keyword in call.keywords}
            if "allow_pickle=True" in given:
                yield module, call.lineno, "allow_pickle=True executes code of a file"
            for called, needed in MUST_HAVE.items():
                if name == called or name.endswith(f".{called}"):
                    unseen.discard(called)
                    if needed not in given:
                        yield module, call.lineno, f"{name} without {needed}"
            if name in ERRORS:
                code = next((word.value for word in call.keywords if word.arg == "code"), None)
                is_literal = isinstance(code, ast.Constant) and CODE.fullmatch(str(code.value))
                if not is_literal and not isinstance(code, ast.Attribute | ast.Name):
                    yield module, call.lineno, f"{name} without a code such as code='runs.busy'"
    for called in unseen:
        yield "registry", 1, f"nothing calls {called}: correct MUST_HAVE of .ci/code.py"


RULES = (
    homes_of_libraries, light_commands, separate_components, cycles, short_helpers, lines_of_files,
    no_branch_on_a_method, calls,
)  # fmt: skip


def main() -> int:
    """Print all violations, and return the exit code."""
    found = sorted({problem for rule in RULES for problem in rule()})
    for module, line, problem in found:
        print(f"{FILES[module].relative_to(ROOT)}:{line}: {problem}")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
