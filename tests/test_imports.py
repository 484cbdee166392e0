"""Imports go one way: everything imports to its left only, folders on one level do not import each other."""

import ast
from pathlib import Path

import fewshift

PACKAGE = Path(fewshift.__file__).parent
LEVELS = [
    {"errors", "progress", "types", "__init__"},
    {"core"},
    {"nets", "data"},
    {"methods", "training", "evaluation"},
    {"presets"},
    {"estimator"},
    {"web", "benchmarks"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: depth for depth, names in enumerate(LEVELS) for name in names}


def imports_of(path: Path) -> set[str]:
    """The top-level parts of fewshift that a file imports, wherever in the file the import stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module] if node.module != "fewshift" else [f"fewshift.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {
            n.split(".")[1] for n in names if n.startswith("fewshift.") and not n.endswith("__version__")
        }
    return found


def test_imports_go_one_way() -> None:
    checked = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        if path == PACKAGE / "__init__.py":
            continue  # the public names come from everywhere, lazily
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for other in imports_of(path):
            assert other in LEVEL, f"{path}: fewshift.{other} has no place in the order of imports"
            allowed = other == part or LEVEL[other] < LEVEL[part] or LEVEL[part] == 0
            assert allowed, f"{path} imports fewshift.{other}, which is not to its left"
        checked += 1
    assert checked > 10


def test_the_core_reads_no_files() -> None:
    for path in (PACKAGE / "core").glob("*.py"):
        modules = {n.split(".")[0] for n in _absolute_imports(path)}
        assert modules <= {
            "__future__",
            "abc",
            "collections",
            "dataclasses",
            "functools",
            "math",
            "typing",
            "torch",
            "fewshift",
        }


def _absolute_imports(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    froms = {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)}
    return froms | {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
