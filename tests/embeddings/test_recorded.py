"""What is recorded of an embedding model, and the model that is built from it."""

import json
import pickle
import sys
import threading
from types import ModuleType
from typing import Any

import pytest
from llama_index.core import MockEmbedding
from llama_index.core.instrumentation.events.embedding import EmbeddingStartEvent
from pydantic import Field

from llama_retrieval_ext.embeddings.local import LocalEmbedding
from llama_retrieval_ext.embeddings.recorded import RecordedEmbedding, model_record
from llama_retrieval_ext.embeddings.resolve import embed_model_dimension, embed_model_name
from llama_retrieval_ext.errors import ConfigurationError
from tests import instrumentation

SERVER = "http://gpu:11434/v1"


class OllamaEmbedding(MockEmbedding):
    """The fields of the integration's class that matter here."""

    base_url: str = "http://localhost:11434"
    api_key: str = Field(default="", exclude=True)
    query_instruction: str | None = None

    def __init__(self, model_name: str, **settings: Any) -> None:
        super().__init__(embed_dim=3, model_name=model_name)
        for name, value in settings.items():
            setattr(self, name, value)


@pytest.fixture
def ollama(monkeypatch: pytest.MonkeyPatch) -> type[OllamaEmbedding]:
    module = ModuleType("llama_index.embeddings.ollama")
    module.OllamaEmbedding = OllamaEmbedding  # type: ignore[attr-defined]  # of a stand-in
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(OllamaEmbedding, "__module__", f"{module.__name__}.base")
    monkeypatch.setattr(
        OllamaEmbedding.model_fields["embed_dim"], "default", 3
    )  # the mock's dimension is no setting of the integration
    return OllamaEmbedding


def recorded(record: str, name: str) -> RecordedEmbedding:
    return RecordedEmbedding(recorded_name=name, record=record)


async def test_each_call_of_a_recorded_model_is_one_event_with_the_name_of_the_model() -> None:
    model = recorded(model_record(LocalEmbedding()), embed_model_name(LocalEmbedding()))
    with instrumentation.recorded() as recording:
        model.get_query_embedding("leave")
        await model.aget_query_embedding("leave")
        model.get_text_embedding("leave")
        await model.aget_text_embedding("leave")
        model.get_text_embedding_batch(["leave"])
        await model.aget_text_embedding_batch(["leave"])
    starts = [event for event in recording.events if isinstance(event, EmbeddingStartEvent)]
    assert [start.model_dict["class_name"] for start in starts] == ["LocalEmbedding"] * 6
    assert {type(span.instance) for span in recording.spans} == {LocalEmbedding}


async def test_a_model_is_built_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    builders: list[threading.Thread] = []

    def build(**_: object) -> MockEmbedding:
        builders.append(threading.current_thread())
        return MockEmbedding(embed_dim=2)

    monkeypatch.setattr("llama_retrieval_ext.embeddings.recorded.build_embed_model", build)
    model = recorded("{}", embed_model_name(MockEmbedding(embed_dim=2)))
    assert await model.aget_query_embedding("leave") == [0.5, 0.5]
    assert threading.main_thread() not in builders


@pytest.mark.parametrize("url", [SERVER, "http://user:secret@gpu:11434/v1?key=secret"])
def test_the_record_has_provider_model_and_base_url_but_no_key(
    ollama: type[OllamaEmbedding], url: str
) -> None:
    record = model_record(ollama("bge-m3", base_url=url, api_key="secret"))
    assert json.loads(record) == {"provider": "ollama", "model": "bge-m3", "base_url": SERVER}


def test_a_notation_is_recorded_as_it_is(ollama: type[OllamaEmbedding]) -> None:
    record = model_record(ollama("bge-m3:latest"), "ollama:bge-m3:latest")
    assert json.loads(record) == {"provider": "ollama", "model": "bge-m3:latest", "base_url": ""}


def test_a_model_with_settings_that_change_its_vectors_is_not_recorded(
    ollama: type[OllamaEmbedding],
) -> None:
    assert model_record(ollama("bge-m3", query_instruction="query: ")) == ""
    assert model_record(MockEmbedding(3)) == ""


def test_the_recorded_model_is_built_at_its_first_use(
    ollama: type[OllamaEmbedding], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = model_record(ollama("bge-m3", base_url=SERVER))
    model = recorded(record, "OllamaEmbedding:bge-m3")
    assert model.get_text_embedding_batch(["a", "b"]) == [[0.5] * 3] * 2
    built = model.model()
    assert isinstance(built, ollama)
    assert (built.model_name, built.base_url) == ("bge-m3", SERVER)
    assert model_record(model) == record
    monkeypatch.setitem(sys.modules, "llama_index.embeddings.ollama", None)
    assert model.get_query_embedding("a") == [0.5] * 3  # not built again


async def test_the_recorded_model_embeds_as_the_model_does() -> None:
    local = LocalEmbedding()
    model = recorded(model_record(local), embed_model_name(local))
    assert embed_model_name(model) == embed_model_name(local)
    assert model.get_query_embedding("leave") == local.get_query_embedding("leave")
    sent = pickle.loads(pickle.dumps(model))
    assert sent.get_query_embedding("leave") == local.get_query_embedding("leave")
    assert model.get_text_embedding("leave") == local.get_text_embedding("leave")
    assert await model.aget_query_embedding("leave") == local.get_query_embedding("leave")
    assert await model.aget_text_embedding_batch(["leave"]) == [local.get_text_embedding("leave")]


def test_a_model_without_a_record_says_how_to_open_the_knowledge_base() -> None:
    model = RecordedEmbedding(recorded_name="MockEmbedding", dimension=4)
    assert embed_model_dimension(model) == 4
    with pytest.raises(ConfigurationError, match=r"'MockEmbedding'.*open it with embed_model="):
        model.get_query_embedding("leave")


def test_a_record_that_builds_another_model_is_refused() -> None:
    model = recorded(model_record(LocalEmbedding()), "LocalEmbedding:of another release")
    with pytest.raises(ConfigurationError, match="its record builds 'LocalEmbedding:wordllama"):
        model.get_query_embedding("leave")
