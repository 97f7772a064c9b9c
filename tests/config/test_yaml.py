"""Pipelines as YAML: the identity, advice with lines, secrets, and files that mean harm."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llama_retrieval_ext import KnowledgeBase, Top
from llama_retrieval_ext.config import (
    Registry,
    from_yaml,
    load_pipeline,
    pipeline_schema,
    to_yaml,
    validate_yaml,
)
from llama_retrieval_ext.config.spec import class_definitions
from llama_retrieval_ext.errors import ConfigFileError, ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.pipeline.tree import children_of
from llama_retrieval_ext.testing import FakeEmbedding
from tests.cases import cases
from tests.config.files import BOUND, document
from tests.quick import examples


@cases(
    ("text", "line", "words"),
    [
        (document("{type: hybird}"), 2, "did you mean 'hybrid'?"),
        ("version: 1\npipeline:\n  type: hybrid\n  dense_wieght: 1\n", 4, "mean 'dense_weight'?"),
        (document("{type: dense, top_k: many}"), 2, "whole number of at least 1, got 'many'"),
        (document("{type: dense, top_k: 0}"), 2, "'top_k' of 'dense' must be a whole number of"),
        ("version: 1\npipeline:\n  type: Top\n  k: 0\n", 4, "number of at least 1, got 0"),
        (document("{type: Top}"), 2, "'Top' needs the parameter 'k'"),
        (document("{type: Pipeline, source: {type: Top, k: 1}}"), 2, "dense"),
        (document("{type: Dedupe, by: context}"), 2, "'content'"),
        (document("{type: fusion, mode: rff}"), 2, "one of ['rrf', 'weighted']"),
        ("version: 2\npipeline: {type: dense}\n", 1, "write version: 1"),
        ("version: 1\npipline: {type: dense}\n", 2, "did you mean 'pipeline'?"),
        ("version: 1\npipeline: [1]\n", 2, "a mapping with 'type'"),
        (document("{type: dense, top_k: 1, top_k: 2}"), 2, "there twice"),
        (document("{type: &x dense, top_k: *x}"), 2, "references (& and *)"),
        (document("!!python/object/apply:os.system ['true']"), 2, "tags (!)"),
        (document("{type: !!python/name:os.system x}"), 2, "no value"),
        (document("{type: llama_index.core.VectorStoreIndex}"), 2, "there is no type"),
        (document("{type: dense, embedding_config: {provider: os.path}}"), 2, "pattern"),
        (
            document("{type: VectorRetriever, filters: {type: MetadataFilters, filters: [1]}}"),
            2,
            "",
        ),
        ("", 1, "empty"),
        ("- a\n- b: [", 3, "not valid YAML"),
    ],
)
def test_a_problem_of_a_yaml_file_is_reported_with_its_line_and_advice(
    text: str, line: int, words: str
) -> None:
    found = validate_yaml(text, BOUND)
    assert any(each.startswith(f"line {line}, column") and words in each for each in found), found
    with pytest.raises(ConfigFileError, match=rf"p\.yaml, line {line}, "):
        from_yaml(text, BOUND, file="p.yaml")


def test_all_problems_of_a_yaml_file_are_reported_in_their_order() -> None:
    text = (
        "version: 1\npipeline:\n  type: Pipeline\n  source: {type: dense, tpo_k: 1}\n"
        "  refines: [{type: Top, k: x}, {type: MMMR}]\n"
    )
    found = validate_yaml(text, BOUND)
    assert [each.split(":")[0] for each in found] == [
        "line 4, column 25, pipeline.source.tpo_k",
        "line 5, column 28, pipeline.refines.0.k",
        "line 5, column 39, pipeline.refines.1.type",
    ]


def test_validation_of_yaml_opens_no_store(tmp_path: Path) -> None:
    store = tmp_path / "kb"
    text = document(
        f"{{type: VectorRetriever, store: 'embedded:{store}', embed_model: {{ref: embed_model}}}}"
    )
    assert validate_yaml(text, Registry()) == []
    assert not store.exists()


def test_a_secret_must_not_stand_in_a_file_and_is_not_repeated() -> None:
    written = document("{type: dense, embedding_config: {provider: openai, api_key: sk-12345}}")
    (problem,) = validate_yaml(written, BOUND)
    assert "write api_key: {env: NAME}" in problem
    assert "sk-12345" not in problem


@pytest.mark.slow
def test_the_schema_knows_every_type_and_accepts_what_is_written() -> None:
    schema: dict[str, Any] = pipeline_schema(BOUND)
    json.dumps(schema)
    assert {*BOUND.names, *class_definitions(), "basic", "auto"} <= set(schema["$defs"])
    hybrid = schema["$defs"]["hybrid"]
    assert hybrid["properties"]["dense_weight"]["default"] == 0.7
    assert hybrid["additionalProperties"] is False
    assert "name of the variable" in schema["$defs"]["EnvironmentReference"]["description"]
    references = set(_references(schema))
    assert references <= {f"#/$defs/{name}" for name in schema["$defs"]}


def _references(schema: object) -> list[str]:
    if isinstance(schema, list):
        return [ref for name in schema for ref in _references(name)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
    return own + [ref for each in schema.values() for ref in _references(each)]


def test_a_file_is_loaded_only_if_it_describes_a_retriever(
    tmp_path: Path, registry: Registry
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(document("{type: bm25, top_k: 2}"))
    assert len(load_pipeline(file, registry).retrieve("leave")) == 2
    file.write_text(document("{type: Top, k: 2}"))
    with pytest.raises(ConfigFileError, match="a retriever is needed"):
        load_pipeline(file, registry)
    with pytest.raises(ConfigFileError, match=r"none\.yaml, the file cannot be read: No such"):
        load_pipeline(tmp_path / "none.yaml", registry)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigFileError, match="cannot be read"):
        load_pipeline(file, registry)


def test_a_knowledge_base_is_enough_and_its_defaults_count(tmp_path: Path) -> None:
    file = tmp_path / "hybrid.yaml"
    file.write_text(document("{type: fallback, retrievers: [{type: hybrid}, hybrid]}"))
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        assert validate_yaml(file.read_text(), kb) == []
        hybrid = kb.retriever("hybrid")
        for loaded in (load_pipeline(file, kb), from_yaml(file.read_text(), kb)):
            assert [repr(each) for each in children_of(loaded)] == [repr(hybrid)] * 2
        of_registry = load_pipeline(file, Registry().bind(kb))
        assert "alpha=0.7" in repr(of_registry)
        pipeline = hybrid >> Top(3)
        assert repr(from_yaml(to_yaml(pipeline, kb), kb)) == repr(pipeline)
        assert validate_yaml(document("{type: hybird}"), kb)
    strict = KnowledgeBase.open(
        "embedded::memory:", embed_model=FakeEmbedding(), require_scope=True
    )
    with strict as kb, pytest.raises(ScopeRequiredError):
        from_yaml(document("{type: hybrid}"), kb).retrieve("leave")
    with pytest.raises(ConfigurationError, match="kb must be of type KnowledgeBase"):
        from_yaml(document("{type: hybrid}"), "kb")  # type: ignore[arg-type]


@pytest.mark.slow
def test_yaml_bombs_are_refused_at_once() -> None:
    laughs = "a: &a [x, x]\n" + "\n".join(f"b{n}: &b{n} [*a, *a]" for n in range(50))
    began = time.process_time()
    for text in (
        laughs,
        "[" * 100_000,
        document("{" * 5_000),
        "a: " * 60_000,
        "- " * 100_000,
        "x" * 10**7,
        document("[" + "{type: Top, k: 1}," * 3_000 + "]"),
        document(f"{{type: Top, k: {'9' * 5_000}}}"),
        document("{type: RouteRule, route: a, pattern: '" + "(" * 9_000 + "'}"),
        document("{type: RouteRule, route: a, pattern: '(?P<a>'}"),
    ):
        assert validate_yaml(text, BOUND), text[:60]
    assert time.process_time() - began < 20


keys = st.sampled_from(
    [*list(class_definitions())[:30], *BOUND.names, "type", "ref", "env", "map", "k", "stages"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | keys
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4) | keys, inner, max_size=4)
        | st.builds(
            lambda name, fields: {"type": name, **fields},
            st.sampled_from([*class_definitions(), *BOUND.names]),
            st.dictionaries(
                st.sampled_from(["k", "store", "top_k", "weights", "retrievers", "fusion", "name"]),
                inner,
                max_size=3,
            ),
        )
    ),
    max_leaves=12,
)
FUZZ = settings(
    examples(60),
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.mark.slow
@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@\n \t\0?,\\1.~é", max_size=80))
@FUZZ
def test_any_yaml_text_is_valid_or_has_problems_with_lines(text: str) -> None:
    found = validate_yaml(f"version: 1\npipeline: {text}", BOUND)
    assert all(each.startswith("line ") for each in found)


@pytest.mark.slow
@given(trees)
@FUZZ
def test_any_yaml_document_builds_or_is_a_configuration_error(tree: object) -> None:
    if "store" in repr(tree) or "rules" in repr(tree):  # these open what they name
        return
    text = yaml.safe_dump({"version": 1, "pipeline": tree}, allow_unicode=True)
    with suppress(ConfigFileError):
        from_yaml(text, BOUND)
