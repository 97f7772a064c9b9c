"""Names of retrievers with their parameters and defaults."""

from pathlib import Path
from typing import get_args

import pytest

from llama_retrieval_ext import config
from llama_retrieval_ext.config import Registry
from llama_retrieval_ext.knowledge_base.kinds import (
    CompositeKind,
    GraphArguments,
    GraphKind,
    PresetArguments,
    PresetKind,
    SearchKind,
    StoreArguments,
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


@pytest.mark.parametrize(
    ("names", "arguments"),
    [
        (get_args(StoreKind), StoreArguments),
        (get_args(GraphKind), GraphArguments),
        (get_args(PresetKind), PresetArguments),
    ],
)
def test_type_checkers_know_each_parameter_of_the_table(
    names: tuple[str, ...], arguments: type
) -> None:
    registry = Registry()
    needed = {p for name in names for p in registry.definition(name).parameters}
    common = {"filters", "scope", "name", "similarity_top_k", "fields"}
    assert set(arguments.__annotations__) - needed <= common
    # What a search takes with each question, and parameters of another retriever.
    later = {"chapter", "engineering_type", "processes"}
    inner = {"seed_params", "base_retriever_params"}
    assert needed <= {*arguments.__annotations__, *later, *inner}
