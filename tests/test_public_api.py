"""The public names: what they are, what they say of themselves, and what importing them costs."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import llama_retrieval_ext
from llama_retrieval_ext import __all__ as public_names

ROOT = Path(llama_retrieval_ext.__file__).parent
README = ROOT.parent / "README.md"
# Every third-party package that an extra brings and the base does not.
OPTIONAL = {
    *("bs4", "docx2txt", "pandas", "pypdf", "rjieba", "wordllama"),
    *("elasticsearch", "milvus_lite", "pymilvus", "qdrant_client"),
    *("ahocorasick_rs", "neo4j", "rapidfuzz"),
    *("hypothesis", "nbclient", "pytest", "ranx", "uvloop"),
}


def run_python(program: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def loaded_after(program: str) -> set[str]:
    told = run_python(f"{program}\nimport sys\nprint(*{{m.split('.')[0] for m in sys.modules}})")
    return set(told.split())


def type_checked_names() -> dict[str, str]:
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    blocks = [
        node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node)
    ]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {name.name: str(each.module) for each in imports for name in each.names}


def test_public_names_are_sorted_as_ruff_sorts_them() -> None:
    def ruff_order(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)

    assert public_names == sorted(set(public_names), key=ruff_order)


def test_name_table_and_type_checking_block_agree() -> None:
    modules = llama_retrieval_ext._MODULES
    table = {name: f"llama_retrieval_ext.{module}" for name, module in modules.items()}
    assert table == type_checked_names()


def test_public_names_are_the_table_and_the_errors() -> None:
    errors = set(public_names) - set(llama_retrieval_ext._MODULES)
    assert set(llama_retrieval_ext._MODULES) <= set(public_names)
    assert all(getattr(llama_retrieval_ext, name).__module__.endswith(".errors") for name in errors)


def test_public_names_are_listed_for_completion() -> None:
    assert set(public_names) <= set(dir(llama_retrieval_ext))


# A type alias has neither a name nor a docstring.
@pytest.mark.parametrize("name", sorted({*public_names} - {"Plan"}))
def test_public_name_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(llama_retrieval_ext, name)
    assert value.__name__ == name
    # Its own, not the one of a base class or that dataclasses make.
    assert value.__doc__
    assert not value.__doc__.startswith(f"{name}(")


def test_b5_everything_can_be_imported_at_once() -> None:
    names: dict[str, object] = {}
    exec("from llama_retrieval_ext import *", names)
    assert set(public_names) <= set(names)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'Retreiver'"):
        _ = llama_retrieval_ext.Retreiver  # type: ignore[attr-defined]


def test_importing_the_package_loads_no_llama_index() -> None:
    assert not loaded_after("import llama_retrieval_ext") & {"llama_index", "numpy", "qdrant_edge"}


def test_public_names_load_no_optional_dependency() -> None:
    loaded = loaded_after("import llama_retrieval_ext as e\n[getattr(e, n) for n in e.__all__]")
    assert "llama_index" in loaded
    assert not loaded & OPTIONAL


def test_missing_extra_is_named() -> None:
    told = run_python(
        "import sys\n"
        "sys.modules['wordllama'] = None\n"
        "from llama_retrieval_ext import LocalEmbedding, MissingDependencyError\n"
        "try: LocalEmbedding()\n"
        "except MissingDependencyError as error: print(error.extra, error, sep='|')\n"
    )
    extra, message = told.strip().split("|")
    assert extra == "local"
    assert "pip install '.[local]'" in message


def test_a_defect_of_ours_is_not_taken_for_a_missing_extra() -> None:
    told = run_python(
        "import sys\n"
        "sys.modules['llama_retrieval_ext.embeddings.local'] = None\n"
        "import llama_retrieval_ext\n"
        "try: llama_retrieval_ext.LocalEmbedding\n"
        "except ImportError as error: print(type(error).__name__)\n"
    )
    assert told.strip() == "ModuleNotFoundError"


def test_readme_lists_exactly_the_public_names() -> None:
    section = README.read_text(encoding="utf-8").split("## API", 1)[1].split("\n## ", 1)[0]
    listed = re.findall(r"^\| `(\w+)", section, flags=re.MULTILINE)
    assert sorted(listed) == sorted(public_names)


def test_changelog_tells_of_every_public_name() -> None:
    told = (ROOT.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    assert [name for name in public_names if f"`{name}`" not in told] == []
