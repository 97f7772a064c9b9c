"""Names of retrievers with their parameters and defaults, and the parts that they are made of."""

from pathlib import Path
from typing import get_args

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext import KnowledgeBase, config
from llama_retrieval_ext.arguments import arguments_of
from llama_retrieval_ext.config import Registry, RegistryParts
from llama_retrieval_ext.config.spec import class_definitions
from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError
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


def test_every_class_that_a_file_may_name_is_a_part_of_pipelines() -> None:
    # No opener of files or sockets, and nothing that calls what a file names.
    for name, definition in class_definitions().items():
        assert definition.kind.__module__.startswith(("llama_retrieval_ext.", "llama_index.core."))
        assert name not in {"KnowledgeBase", "EmbeddedGraph", "EmbeddedVectorStore"}


def test_the_weights_of_hybrid_are_the_designs_except_in_a_knowledge_base(
    registry: Registry, kb: KnowledgeBase
) -> None:
    def alpha(retriever: BaseRetriever) -> object:
        return arguments_of(retriever).get("alpha")

    assert alpha(registry.get_retriever("hybrid")) == pytest.approx(0.7)
    assert alpha(kb.retriever("hybrid")) is None
    assert alpha(kb.retriever("hybrid", dense_weight=0.7, sparse_weight=0.3)) == pytest.approx(0.7)
    (inner,) = kb.retriever("rerank").children
    assert alpha(inner) is None
    assert "dense_weight=0.7" in str(KnowledgeBase.retriever.__doc__)


def test_a_part_that_was_not_bound_is_named() -> None:
    registry = Registry()
    for name, words in (("dense", "registry.bind"), ("basic", "registry.bind")):
        with pytest.raises(ConfigurationError, match=words):
            registry.get_retriever(name)
    with pytest.raises(ConfigurationError, match="'retriever' or 'preset'"):
        registry.get("retrievers", "dense")  # type: ignore[arg-type]


def test_an_error_of_a_registered_function_keeps_its_cause(registry: Registry) -> None:
    @registry.register_retriever("broken")
    def broken(parts: RegistryParts) -> BaseRetriever:
        del parts
        raise ConfigurationError("there is no such model") from OSError("404")

    with pytest.raises(ConfigurationError, match="no such model") as raised:
        registry.get_retriever("broken")
    assert isinstance(raised.value.__cause__, OSError)


@pytest.mark.slow
def test_a_cross_encoder_that_is_not_installed_is_named(registry: Registry) -> None:
    with pytest.raises(MissingDependencyError, match="sentence-transformers"):
        registry.get_retriever("rerank", rerank_model="cross-encoder/ms-marco-MiniLM-L-6-v2")
    with pytest.raises(ConfigurationError, match="no such folder"):  # not of that package
        registry.get_retriever("rerank", rerank_model="fastembed:./no such folder")


def test_filters_of_a_knowledge_bases_retriever_reach_retrievers_inside(kb: KnowledgeBase) -> None:
    only = MetadataFilters(filters=[MetadataFilter(key="tenant_id", value="globex")])
    for name in ("fusion", "rerank", "llama_bm25", "fallback", "basic", "router"):
        made = kb.retriever(name, filters=only)
        assert {hit.text[:6] for hit in made.retrieve("annual leave")} == {"globex"}, name
