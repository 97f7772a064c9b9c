"""Imports that import-linter cannot see: strings that name our own modules."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

import llama_retrieval_ext
from tests.cases import cases

ROOT = Path(llama_retrieval_ext.__file__).parent
# The only files that may import a module of ours by its name in a string.
BY_NAME = {
    "lazy.py": "public names on first use, and views when a value is shown",
    "config/registry.py": "the modules with the definitions of names",
    "stores/open.py": "the engine of a URL",
    "graph/open.py": "the graph engine of a URL",
}


IMPORTING = {"import_module", "optional_module"}


def imports_by_name(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return any(name in text for name in IMPORTING) and any(
        isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) in IMPORTING
        and "llama_retrieval_ext" in ast.unparse(node.args[0])
        for node in ast.walk(ast.parse(text))
    )


@pytest.mark.slow
def test_only_the_listed_files_import_our_modules_by_name() -> None:
    found = {
        path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if imports_by_name(path)
    }
    assert found | {"lazy.py"} == BY_NAME.keys()


VIEWS = sorted(
    view
    for path in ROOT.rglob("*.py")
    for view in re.findall(r'_view: ClassVar\[str\] = "(.+)"', path.read_text(encoding="utf-8"))
)


@cases("view", VIEWS)
def test_the_functions_of_a_view_exist(view: str) -> None:
    module, _, prefix = view.partition(".")
    display = import_module(f"llama_retrieval_ext.display.{module}")
    assert callable(getattr(display, f"{prefix}_html"))
    assert callable(getattr(display, f"{prefix}_console"))
