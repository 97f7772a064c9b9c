import asyncio
import copy
import json
import math
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import ValidationError

from llama_retrieval_ext.embeddings.local import LocalEmbedding
from llama_retrieval_ext.errors import MissingDependencyError
from tests.cases import cases
from tests.instrumentation import recorded
from tests.quick import examples

ALONE = """
import logging, socket, sys, threading

def refuse(*args, **kwargs):
    raise AssertionError("the network was touched")

socket.socket.connect = refuse
socket.getaddrinfo = refuse
from llama_retrieval_ext.embeddings.local import LocalEmbedding
model = LocalEmbedding()
assert "wordllama" not in sys.modules, "making a model loads it"
loaded = threading.Event()

def log():  # at a level that nobody asked for
    while not loaded.wait(0.001):
        logging.getLogger("elsewhere").info("noise")

threading.Thread(target=log).start()
print(len(model.get_query_embedding("where is the law of the sea written?")))
loaded.set()
assert not logging.getLogger().handlers
"""


@pytest.fixture
def model() -> LocalEmbedding:
    return LocalEmbedding()


def length(vector: list[float]) -> float:
    return math.sqrt(sum(value * value for value in vector))


@pytest.mark.slow
@examples(50)
@given(st.lists(st.text(), max_size=4))
def test_every_vector_is_a_unit_vector_or_zero(texts: list[str]) -> None:
    for vector in LocalEmbedding().get_text_embedding_batch(texts):
        assert len(vector) == 256
        assert length(vector) == pytest.approx(1, abs=1e-5) or not any(vector)


@examples(50)
@given(st.lists(st.text(), min_size=1, max_size=4))
def test_a_vector_does_not_depend_on_the_batch(texts: list[str]) -> None:
    model = LocalEmbedding()
    alone = [model.get_text_embedding(text) for text in texts]
    assert model.get_text_embedding_batch(texts) == alone
    assert LocalEmbedding(embed_batch_size=1).get_text_embedding_batch(texts) == alone


@pytest.mark.slow
def test_vectors_are_those_of_wordllama(model: LocalEmbedding) -> None:
    wordllama = pytest.importorskip("wordllama")
    folder = Path(wordllama.__file__).parent
    stock = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    texts = ["Fire doors open outwards.", "安全生产法", "a", "one two three " * 50]
    np.testing.assert_allclose(
        model.get_text_embedding_batch(texts), stock.embed(texts, norm=True), atol=1e-5
    )


async def test_a_query_has_spans_and_events_only_for_those_who_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = LocalEmbedding()
    plain = opened.get_query_embedding("annual leave")
    with recorded() as recording:
        assert opened.get_query_embedding("annual leave") == plain
        assert await opened.aget_query_embedding("annual leave") == plain
    own = [span.method for span in recording.spans if span.instance is opened]
    assert own == ["get_query_embedding", "aget_query_embedding"]
    assert [event.class_name() for event in recording.events][-1] == "EmbeddingEndEvent"
    with monkeypatch.context() as patched:
        patched.setattr(BaseEmbedding, "get_query_embedding", None)
        assert opened.get_query_embedding("annual leave") == plain


@pytest.mark.slow
def test_ten_thousand_words_all_count(model: LocalEmbedding) -> None:
    long = "scaffold " * 10_000
    assert length(model.get_text_embedding(long)) == pytest.approx(1, abs=1e-5)
    assert model.get_text_embedding(long + "invoice " * 10_000) != model.get_text_embedding(long)


def test_a_badly_decoded_text_is_embedded(model: LocalEmbedding) -> None:
    text = b"caf\xe9 au lait".decode("utf-8", "surrogateescape")
    assert length(model.get_text_embedding(text)) == pytest.approx(1, abs=1e-5)


async def test_async_gives_what_sync_gives(model: LocalEmbedding) -> None:
    texts = ["a", "", "fire door", "安全"]
    assert await model.aget_text_embedding_batch(texts) == model.get_text_embedding_batch(texts)
    assert await model.aget_text_embedding("a") == model.get_text_embedding("a")
    assert await model.aget_query_embedding("a") == model.get_query_embedding("a")


@pytest.mark.slow
async def test_the_event_loop_runs_while_texts_are_embedded(model: LocalEmbedding) -> None:
    work = asyncio.create_task(model.aget_text_embedding_batch(["fire door " * 2_000] * 60))
    turns = 0
    while not work.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 5  # one or two if the embedding held the loop
    assert len(await work) == 60


def test_threads_share_one_model_and_agree(model: LocalEmbedding) -> None:
    texts = [f"article {number} of the law" for number in range(50)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(model.get_text_embedding, texts)) == model.get_text_embedding_batch(
            texts
        )


@cases("clone", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_embeds_alike(clone: object) -> None:
    model = LocalEmbedding(embed_batch_size=7)
    assert callable(clone)
    model.get_text_embedding("load it")
    assert len(pickle.dumps(model)) < 5_000
    twin = clone(model)
    assert twin.embed_batch_size == 7
    assert twin.get_text_embedding("fire door") == model.get_text_embedding("fire door")


def test_llamaindex_can_store_and_restore_it(model: LocalEmbedding) -> None:
    data = json.loads(model.to_json())
    assert (data["class_name"], data["model_name"]) == (
        "LocalEmbedding",
        "wordllama-l2-supercat-256",
    )
    assert LocalEmbedding.from_dict(data).to_dict() == model.to_dict()


def test_the_name_cannot_be_a_wrong_one(model: LocalEmbedding) -> None:
    with pytest.raises(ValidationError, match="wordllama-l2-supercat-256"):
        LocalEmbedding(model_name="bge-m3")
    with pytest.raises(ValidationError, match="frozen"):
        model.model_name = "bge-m3"


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    with pytest.raises(
        MissingDependencyError, match=r"pip install '\.\[local\]'.*llama-retrieval-ext\[local\]"
    ) as caught:
        LocalEmbedding()
    assert caught.value.extra == "local"


@pytest.mark.slow
def test_the_model_is_loaded_at_the_first_text_from_no_network_and_changes_no_logging() -> None:
    command = [sys.executable, "-c", ALONE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["256"], done.stderr
    assert (done.returncode, done.stderr) == (0, "")


async def test_a_query_is_embedded_while_all_threads_of_the_event_loop_are_busy(
    model: LocalEmbedding,
) -> None:
    loop, gate = asyncio.get_running_loop(), Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    busy = loop.run_in_executor(None, gate.wait, 20)
    async with asyncio.timeout(10):
        assert len(await model.aget_query_embedding("leave"))
    gate.set()
    await busy
