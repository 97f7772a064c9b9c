"""The public names: what they are, what they say of themselves, and what importing them costs."""

import ast
import re
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import llama_retrieval_ext
from llama_retrieval_ext import errors, testing

pytestmark = pytest.mark.slow
ROOT = Path(llama_retrieval_ext.__file__).parent
REFERENCE = ROOT / "README.md"
# The folders that have public names; each name of theirs resolves at the top, too.
TIERS: list[ModuleType] = [
    import_module(f"llama_retrieval_ext.{name}")
    for name in (
        *("capabilities", "config", "embeddings", "errors", "evaluation", "execution", "graph"),
        *("knowledge_base", "pipeline", "retrievers", "serve", "services", "stages", "stores"),
        "text",
    )
]
LAZY = [llama_retrieval_ext, *(tier for tier in TIERS if tier is not errors), testing]
TOP: ModuleType = llama_retrieval_ext
ALL_NAMES = sorted({*TOP.__all__, *(name for package in TIERS for name in package.__all__)})
PROMISED = Path(__file__).parent / "public_names.txt"
# Every third-party package that an extra brings and the base does not.
OPTIONAL = {
    *("lxml", "office_oxide", "pandas", "pypdfium2", "python_calamine", "rjieba", "striprtf"),
    "wordllama",
    *("elasticsearch", "milvus_lite", "pymilvus", "qdrant_client"),
    *("ahocorasick_rs", "neo4j"),
    "termcolor",  # of the exporter to OpenTelemetry, whose own packages others load too
    *("fastapi", "mcp", "uvicorn", "watchfiles", "tree_sitter_language_pack"),
    *("ir_datasets", "ir_measures", "pytrec_eval", "ray"),
    *("hypothesis", "nbclient", "pytest", "ranx", "uvloop"),
}


def run_python(program: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def loaded_after(program: str) -> set[str]:
    modules = run_python(f"{program}\nimport sys\nprint(*{{m.split('.')[0] for m in sys.modules}})")
    return set(modules.split())


def test_public_names_of_a_package_are_sorted_and_can_be_completed() -> None:
    for package in (TOP, *TIERS):
        assert package.__all__ == sorted(set(package.__all__)), package
        assert set(package.__all__) <= set(dir(package)), package


def test_each_name_of_a_folder_is_the_same_one_at_the_top() -> None:
    for package in TIERS:
        for name in package.__all__:
            assert getattr(llama_retrieval_ext, name) is getattr(package, name)
    for name in TOP.__all__:
        assert name in ALL_NAMES


def test_each_name_is_in_one_folder() -> None:
    names = [name for package in TIERS for name in package.__all__]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_the_top_level_has_twenty_to_thirty_names() -> None:
    assert 20 <= len(TOP.__all__) <= 30


def test_the_classes_of_errors_are_all_public() -> None:
    tree = ast.parse(Path(str(errors.__file__)).read_text(encoding="utf-8"))
    assert errors.__all__ == sorted(n.name for n in tree.body if isinstance(n, ast.ClassDef))


def test_the_stub_of_the_top_has_the_names_of_each_folder() -> None:
    stub = (ROOT / "__init__.pyi").read_text(encoding="utf-8")
    stars = re.findall(r"^from ([\w.]+) import \*$", stub, flags=re.MULTILINE)
    assert sorted(stars) == sorted(package.__name__ for package in TIERS)


def test_each_public_name_is_there_and_says_what_it_is() -> None:
    for name in {*ALL_NAMES} - {"Plan"}:  # a type alias
        value = getattr(llama_retrieval_ext, name)
        assert value.__name__ == name
        # Its own, not the one of a base class or that dataclasses make.
        assert value.__doc__, name
        assert not value.__doc__.startswith(f"{name}("), name


def test_everything_can_be_imported_with_a_star() -> None:
    names: dict[str, object] = {}
    for package in [*LAZY, errors]:
        exec(f"from {package.__name__} import *", names)
    assert {name for package in LAZY for name in package.__all__} <= set(names)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'Retreiver'"):
        _ = llama_retrieval_ext.Retreiver  # type: ignore[attr-defined]


@pytest.mark.slow
def test_importing_the_package_loads_no_llama_index() -> None:
    assert not loaded_after("import llama_retrieval_ext") & {"llama_index", "numpy", "qdrant_edge"}


@pytest.mark.slow
def test_public_names_load_no_optional_dependency() -> None:
    loaded = loaded_after("import llama_retrieval_ext as e\n[getattr(e, n) for n in dir(e)]")
    assert "llama_index" in loaded
    assert not loaded & OPTIONAL


@pytest.mark.slow
def test_a_first_search_loads_only_what_it_needs() -> None:
    loaded = loaded_after(
        "from llama_index.core import Document\n"
        "from llama_retrieval_ext import KnowledgeBase\n"
        "from llama_retrieval_ext.testing import FakeEmbedding\n"
        "kb = KnowledgeBase.open('embedded::memory:', embed_model=FakeEmbedding())\n"
        "kb.add([Document(id_='a', text='annual leave')], show_progress=False)\n"
        "print(kb.search('leave'))"
    )
    assert "qdrant_edge" in loaded
    assert not loaded & {*OPTIONAL, "bm25s", "numba", "scipy", "plotly", "matplotlib"}


@pytest.mark.slow
def test_a_defect_of_ours_is_not_taken_for_a_missing_extra() -> None:
    printed = run_python(
        "import sys\n"
        "sys.modules['llama_retrieval_ext.embeddings.local'] = None\n"
        "import llama_retrieval_ext\n"
        "try: llama_retrieval_ext.LocalEmbedding\n"
        "except ImportError as error: print(type(error).__name__)\n"
    )
    assert printed.strip() == "ModuleNotFoundError"


def test_the_reference_lists_exactly_the_public_names() -> None:
    names = REFERENCE.read_text(encoding="utf-8").split("## All public names", 1)[1]
    listed = re.findall(r"^\| `(\w+)", names, flags=re.MULTILINE)
    assert sorted(listed) == ALL_NAMES


def test_a_public_name_is_removed_deliberately_only() -> None:
    gone = {*PROMISED.read_text(encoding="utf-8").split()} - {*ALL_NAMES}
    assert gone == set(), "see CONTRIBUTING.md, 'Public names': deprecate, then remove and list"


if __name__ == "__main__":  # before a release: promise what is public now, too
    names = {*PROMISED.read_text(encoding="utf-8").split(), *ALL_NAMES}
    PROMISED.write_text("\n".join([*sorted(names), ""]), encoding="utf-8")
