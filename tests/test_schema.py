"""Tests of `Schema`: what is searched with which weight, what is refused, and its data."""

import pickle

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import Schema
from llama_retrieval_ext.errors import ConfigurationError, RetrievalExtError
from llama_retrieval_ext.schema import DEFAULT_SCHEMA
from tests.cases import cases

FILM = TextNode(
    text="An engineer survives on an island.",
    metadata={
        "title": "Cast Away",
        "actors": ["Tom Hanks", "Helen Hunt"],
        "year": 2000,
        "heading_path": "Films > Drama",
        "tenant_id": "acme",
        "allowed": ["user:ann"],
    },
)


def test_each_field_has_its_text_and_everything_has_the_others() -> None:
    schema = Schema(text={"title": 3, "actors": 1.5, "headings": 1, "text": 0.5})
    assert schema.texts(FILM) == {
        "title": "Cast Away",
        "actors": "Tom Hanks\nHelen Hunt",
        "headings": "Films > Drama",
        "text": FILM.text,
        "*": "year: 2000",
    }
    assert DEFAULT_SCHEMA.texts(FILM) == {
        "title": "Cast Away",
        "headings": "Films > Drama",
        "*": "actors: ['Tom Hanks', 'Helen Hunt']\nyear: 2000\n" + FILM.text,
    }


def test_only_a_declared_field_is_searched_against_excluded_metadata_keys() -> None:
    node = FILM.model_copy(update={"excluded_embed_metadata_keys": ["title", "actors", "year"]})
    assert DEFAULT_SCHEMA.texts(node)["title"] == ""
    texts = Schema(text={"title": 1}).texts(node)
    assert (texts["title"], "Hanks" in texts["*"]) == ("Cast Away", False)


def test_a_field_that_is_missing_or_has_no_text_is_empty() -> None:
    node = TextNode(text="", metadata={"a": None, "b": True, "c": {"x": "y"}, "d": ["e", None, 1]})
    texts = Schema(text=dict.fromkeys("abcd", 1) | {"text": 1}).texts(node)
    assert {name: texts[name] for name in "abcd"} == {"a": "", "b": "", "c": "", "d": "e\n1"}


def test_weights_are_those_of_the_schema_or_of_the_query() -> None:
    schema = Schema(text={"title": 3, "tags": 0})
    assert schema.weights() == {"title": 3.0, "*": 2.0}
    assert schema.weights({"tags": 1, "title": 0}) == {"tags": 1.0}
    assert Schema(text={"title": 3, "*": 0}).weights() == {"title": 3.0}


@cases(
    ("arguments", "message"),
    [
        ({"text": {}}, "at least one field"),
        ({"text": ["title"]}, "such as {'title': 3, 'text': 1}, got ['title']"),
        ({"text": {"title": -1}}, "the weight of 'title' must be a number of 0 or more, got -1"),
        ({"text": {"title": True}}, "got True"),
        ({"text": {"title": float("nan")}}, "got nan"),
        ({"text": {"title": 0}}, "no weight is above 0"),
        ({"text": {"": 1}}, "a field has a name"),
        ({"text": {"tenant_id": 1}}, "'tenant_id' belongs to the scope"),
        ({"facets": "genres"}, "facets must be a list of metadata keys, got 'genres'"),
        ({"facets": ["allowed"]}, "'allowed' belongs to the scope"),
        ({"numbers": ["year"], "dates": ["year"]}, "'year' is in numbers and in dates"),
        ({"texts": {"title": 1}}, "has no argument 'texts'; write text="),
    ],
)
def test_an_invalid_schema_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(RetrievalExtError) as error:
        Schema(**arguments)  # type: ignore[arg-type]
    assert message in str(error.value)


@cases(
    ("fields", "message"),
    [
        ({"titel": 1}, "'titel', which is not searched; the searched fields are 'title'"),
        ({"title": "3"}, "the weight of 'title' must be a number of 0 or more, got '3'"),
        ({}, "fields must map at least one field to its weight"),
    ],
)
def test_invalid_weights_of_a_query_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        Schema(text={"title": 1, "text": 1}).weights(fields)
    assert message in str(error.value)


def test_a_schema_is_a_value() -> None:
    schema = Schema(text={"title": 3, "text": 0.5}, facets=["genres"], numbers=["year"])
    for copy in (Schema.from_dict(schema.to_dict()), pickle.loads(pickle.dumps(schema))):
        assert (copy, hash(copy), repr(copy)) == (schema, hash(schema), repr(schema))
    assert schema != Schema(text={"title": 2, "text": 0.5}, facets=["genres"], numbers=["year"])
    with pytest.raises(ConfigurationError, match="a schema has no 'facet'; write 'facets'"):
        Schema.from_dict({"facet": ["genres"]})
