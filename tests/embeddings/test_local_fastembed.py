"""`FastEmbedding` with the real weights of MiniLM, from a folder."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from llama_index.core.schema import Document
from numpy.typing import NDArray

from llama_retrieval_ext.embeddings.local import FastEmbedding
from llama_retrieval_ext.embeddings.resolve import embed_model_name, resolve_embed_model
from llama_retrieval_ext.errors import ConfigurationError, ModelMismatchError
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from tests.onnx_models import cached, minilm, settings

pytestmark = pytest.mark.slow  # loads the model

DATA = Path(__file__).parents[3] / "shared" / "data"
LEAVE = "Every employee has 25 days of annual leave."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return minilm(tmp_path_factory.mktemp("models") / "minilm")


@pytest.fixture
def changed(folder: Path, tmp_path: Path) -> Path:
    """A copy of the folder, to change."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.fixture(scope="module")
def model(folder: Path) -> FastEmbedding:
    return FastEmbedding(str(folder))


def cosines(left: NDArray[np.floating], right: NDArray[np.floating]) -> NDArray[np.floating]:
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    products = np.sum(left * right, axis=1)
    return np.asarray(products / lengths)


def test_vectors_of_minilm_are_those_of_sentence_transformers(model: FastEmbedding) -> None:
    name = "musique_train100"
    if not (DATA / name).exists():
        pytest.skip("needs the saved vectors in ../shared/data")
    lines = (DATA / name / "corpus.jsonl").read_text("utf-8").splitlines()[:8]
    rows = [json.loads(line) for line in lines]
    texts = [f"{row.get('title', '')} {row['text']}".strip() for row in rows]
    saved = np.load(DATA / name / "corpus.minilm.npy")[:8].astype(np.float64)
    made = np.array(model.get_text_embedding_batch(texts))
    assert cosines(made, saved).mean() >= 0.999


def test_order_and_batches_change_vectors_by_no_more_than_the_rounding_of_int8(
    model: FastEmbedding,
) -> None:
    texts = [LEAVE, "Tax.", "", "Salary is paid monthly. " * 40, "caf\udce9"]
    together = np.array(model.get_text_embedding_batch(texts))
    alone = np.array([model.get_text_embedding(text) for text in texts])
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(len(texts)), abs=1e-5)
    assert cosines(together, alone).min() > 0.99


async def test_async_sync_and_a_pickled_copy_embed_alike(model: FastEmbedding) -> None:
    query = model.get_query_embedding(LEAVE)
    assert await model.aget_query_embedding(LEAVE) == query
    assert pickle.loads(pickle.dumps(model)).get_query_embedding(LEAVE) == query
    assert len(pickle.dumps(model)) < 5_000
    restored = FastEmbedding.from_dict(model.to_dict())
    assert (repr(restored), restored.model_name) == (repr(model), model.model_name)


def test_texts_are_cut_at_the_length_that_the_folder_names(model: FastEmbedding) -> None:
    long = "salary " * 254
    assert model.get_text_embedding(long) == model.get_text_embedding(long + "leave " * 50)


def test_prompts_of_the_folder_are_put_before_queries_and_texts(
    model: FastEmbedding, changed: Path
) -> None:
    prompts = {"query": "query: ", "document": "passage: "}
    settings(changed, {"config_sentence_transformers.json": {"prompts": prompts}})
    prompted = FastEmbedding(str(changed))
    assert prompted.get_query_embedding("leave") == model.get_query_embedding("query: leave")
    assert prompted.get_text_embedding("leave") == model.get_text_embedding("passage: leave")
    assert prompted.model_name != model.model_name


def test_a_knowledge_base_knows_the_content_of_the_folder(
    folder: Path, changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    monkeypatch.chdir(folder.parent)
    with KnowledgeBase.open(url, embed_model=f"fastembed:./{folder.name}") as kb:
        kb.add([Document(id_="leave", text=LEAVE), Document(text="Tax.")], show_progress=False)
    monkeypatch.chdir("/")
    with KnowledgeBase.open(url) as kb:
        assert kb.search("holidays", "vector", top_k=1)[0].text == LEAVE
        assert kb.info().embed_model.startswith("FastEmbedding:bert-mean-384@")
    KnowledgeBase.open(url, embed_model=f"fastembed:{changed}").close()  # the same content
    settings(changed, {"tokenizer_config.json": {"model_max_length": 128, "pad_token": "[PAD]"}})
    with pytest.raises(ModelMismatchError, match="bert-mean-384@"):
        KnowledgeBase.open(url, embed_model=f"fastembed:{changed}")


def test_a_recorded_folder_whose_content_changed_is_refused(changed: Path, tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    with KnowledgeBase.open(url, embed_model=f"fastembed:{changed}") as kb:
        kb.add([Document(text=LEAVE)], show_progress=False)
    settings(changed, {"tokenizer_config.json": {"model_max_length": 128, "pad_token": "[PAD]"}})
    with (
        KnowledgeBase.open(url) as kb,
        pytest.raises(ConfigurationError, match="its record builds 'FastEmbedding:bert"),
    ):
        kb.search("holidays", "vector")


def test_a_name_works_without_a_network_if_its_cache_was_copied(
    folder: Path, model: FastEmbedding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    cached(tmp_path, "Qdrant/all-MiniLM-L6-v2-onnx", folder, "model.onnx")
    named = resolve_embed_model("fastembed:sentence-transformers/all-MiniLM-L6-v2")
    assert named.get_text_embedding(LEAVE) == pytest.approx(model.get_text_embedding(LEAVE))
    assert embed_model_name(named) == "FastEmbedding:sentence-transformers/all-MiniLM-L6-v2"


def test_a_dimension_that_the_model_does_not_give_is_refused(changed: Path) -> None:
    pooling = {"word_embedding_dimension": 512, "pooling_mode": "mean"}
    settings(changed, {"1_Pooling/config.json": pooling})
    with pytest.raises(ConfigurationError, match=r"names dimension 512, .* of dimension 384"):
        FastEmbedding(str(changed)).get_text_embedding("leave")
