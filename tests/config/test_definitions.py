"""Names of retrievers with their parameters and defaults."""

from pathlib import Path
from typing import get_args

from llama_retrieval_ext import config
from llama_retrieval_ext.config import Registry
from llama_retrieval_ext.knowledge_base.kinds import (
    CompositeKind,
    GraphKind,
    PresetKind,
    RetrieverArguments,
    SearchKind,
    StoreKind,
)

PRESETS = ("basic", "advanced", "semantic", "auto")


def test_the_table_in_the_readme_has_each_name_with_its_parameters_and_fields() -> None:
    readme = (Path(config.__file__).parent / "README.md").read_text(encoding="utf-8")
    registry = Registry()
    for name in (*registry.names, *PRESETS):
        definition = registry.definition(name)
        defaults = (f"`{key}={p.default!r}`" for key, p in definition.parameters.items())
        (row,) = [line for line in readme.splitlines() if line.startswith(f"| `{name}` | `")]
        _, _, parameters, _, fields, _ = row.split("|")
        assert parameters.strip() == ", ".join(defaults)
        assert fields.strip() == ", ".join(f"`{field}`" for field in definition.fields)


def test_type_checkers_know_each_name_of_the_table() -> None:
    kinds = {*get_args(SearchKind), *get_args(CompositeKind)}
    assert kinds == {*Registry().names, *PRESETS}


def test_type_checkers_know_each_parameter_of_the_table() -> None:
    registry = Registry()
    names = (*get_args(StoreKind), *get_args(GraphKind), *get_args(PresetKind))
    taken = {parameter for name in names for parameter in registry.definition(name).parameters}
    arguments = RetrieverArguments.__annotations__.keys()
    time = {"as_of", "known_at"}
    assert arguments - taken == {"filters", "scope", "name", "similarity_top_k", *time}
    # What a search takes with each question, and parameters of another retriever.
    later = {"chapter", "engineering_type", "processes"}
    assert taken <= {*arguments, *later, "seed_params", "base_retriever_params"}
