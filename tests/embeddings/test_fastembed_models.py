"""Folders and names of models for fastembed, without loading one."""

import sys
from pathlib import Path
from typing import Any

import pytest

from llama_retrieval_ext.embeddings import fastembed_models
from llama_retrieval_ext.embeddings.fastembed_models import (
    CrossEncoder,
    EmbeddingSource,
    ModelFolder,
)
from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError
from tests.cases import cases
from tests.onnx_models import cached, cross_encoder, settings

POOLING = "1_Pooling/config.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json", "model.onnx"):
        (tmp_path / name).write_text("{}")
    settings(tmp_path, {POOLING: {"word_embedding_dimension": 8, "pooling_mode": "cls"}})
    return tmp_path


@pytest.mark.slow
@cases("name", ["model.onnx", "tokenizer.json", "tokenizer_config.json"])
def test_a_folder_without_a_file_is_refused_by_its_name(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ConfigurationError, match=f"lacks .*{name}"):
        EmbeddingSource.of(str(folder))


@pytest.mark.parametrize(
    "weights", ["onnx/model.onnx", "model_quantized.onnx", "mine.onnx", "onnx/mine.onnx"]
)
def test_weights_are_found_where_exports_put_them(folder: Path, weights: str) -> None:
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / weights)
    assert ModelFolder.at(str(folder)).weights == weights


@cases(
    ("content", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "CLS"),
        ({"pooling_mode_mean_tokens": True, "include_prompt": True}, "MEAN"),
        ({"pooling_mode": "lasttoken"}, "LAST_TOKEN"),
    ],
)
def test_pooling_is_read_from_either_spelling(
    folder: Path, content: dict[str, Any], pooling: str
) -> None:
    settings(folder, {POOLING: {"word_embedding_dimension": 8, **content}})
    assert EmbeddingSource.of(str(folder)).pooling == pooling


@cases(
    "content",
    [
        {"pooling_mode": "max", "word_embedding_dimension": 8},
        {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True, "hidden_size": 8},
        {"pooling_mode": "mean"},
        {},
    ],
)
def test_a_folder_that_leaves_pooling_or_dimension_open_is_refused(
    folder: Path, content: dict[str, Any]
) -> None:
    settings(folder, {POOLING: content})
    with pytest.raises(ConfigurationError, match="must name the dimension and one pooling"):
        EmbeddingSource.of(str(folder))


def test_a_model_with_layers_after_the_pooling_is_refused(folder: Path) -> None:
    settings(folder, {"modules.json": [{"type": "sentence_transformers.models.Dense"}]})
    with pytest.raises(ConfigurationError, match=r"modules\.json .*Dense"):
        EmbeddingSource.of(str(folder))


def test_broken_settings_are_refused_with_their_file(folder: Path) -> None:
    (folder / POOLING).write_text("{")
    with pytest.raises(ConfigurationError, match=r"1_Pooling/config\.json is not JSON"):
        EmbeddingSource.of(str(folder))


@cases("name", ["model.onnx", "model.onnx_data", "tokenizer.json", POOLING])
def test_the_hash_covers_each_file_that_determines_vectors(folder: Path, name: str) -> None:
    (folder / "model.onnx_data").write_text("weights")
    before = ModelFolder.at(str(folder)).digest
    (folder / "README.md").write_text("not the model")
    assert ModelFolder.at(str(folder)).digest == before
    (folder / name).write_text("something else")
    assert ModelFolder.at(str(folder)).digest != before


@cases(
    ("name", "query", "text"),
    [
        ("intfloat/multilingual-e5-large", "query: ", "passage: "),
        ("BAAI/bge-small-zh-v1.5", "", ""),
    ],
)
def test_a_name_is_known_with_dimension_and_prompts_before_it_is_downloaded(
    name: str, query: str, text: str
) -> None:
    source = EmbeddingSource.of(name.upper())
    assert (source.name, source.query_prompt, source.text_prompt) == (name, query, text)
    assert source.dimension in {512, 1024}


@cases("kind", [EmbeddingSource.of, CrossEncoder])
def test_a_misspelt_name_gets_the_nearest(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean '.*base"):
        kind("BAAI/bge-reranker-bas" if kind is CrossEncoder else "BAAI/bge-base-en-v15")


def test_a_model_that_is_neither_here_nor_in_reach_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    with pytest.raises(ConfigurationError, match=r"about 90 MB.*cannot be reached.*\./FOLDER"):
        EmbeddingSource.of("BAAI/bge-small-zh-v1.5").embed(["年假"])


class Downloadable:
    """A class of models of fastembed whose one model is not in the cache."""

    @staticmethod
    def list_supported_models() -> list[dict[str, object]]:
        return [{"model": "maker/model", "sources": {"hf": "maker/onnx"}, "size_in_GB": 0.25}]

    def __init__(self, name: str, *, threads: int, local_files_only: bool = False) -> None:
        assert threads >= 1
        if local_files_only:
            raise ValueError(f"could not find {name}")


def test_the_size_of_a_download_is_logged_before_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "model_info", lambda name, timeout: asked.append(name))
    fastembed_models._named(Downloadable, "maker/model")
    assert asked == ["maker/onnx"]
    assert caplog.messages == ["downloading maker/model, about 250 MB, from Hugging Face"]


@cases(("limit", "cores"), [("150000 100000", 1), ("max 100000", 8), ("9900000 100000", 8)])
def test_threads_are_bound_to_the_cores_of_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, cores: int
) -> None:
    (tmp_path / "cpu.max").write_text(limit)
    monkeypatch.setattr(fastembed_models, "_CPU_LIMIT", tmp_path / "cpu.max")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(8), raising=False)
    assert fastembed_models._cores() == cores


@pytest.mark.parametrize("kind", [EmbeddingSource.of, CrossEncoder])
def test_without_the_extra_the_error_names_it(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(MissingDependencyError, match=r"llama-retrieval-ext\[models\]"):
        kind("BAAI/bge-reranker-base")


@pytest.mark.slow
def test_a_cross_encoder_scores_documents_in_their_order(tmp_path: Path) -> None:
    model = CrossEncoder(str(cross_encoder(tmp_path / "model")))
    docs = ["salary is paid monthly", "annual leave days " * 3, "", "sick leave"] * 20
    ranked = model.rank("annual leave", docs, [*range(80)])
    assert [(each.doc_id, each.score) for each in ranked[:4]] == [(0, -3), (1, 9), (2, -3), (3, -1)]
    assert [each.score for each in ranked] == [-3, 9, -3, -1] * 20


@pytest.mark.slow
def test_a_cross_encoder_is_found_by_name_in_a_copied_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    name = "Xenova/ms-marco-MiniLM-L-6-v2"
    cached(tmp_path, name, cross_encoder(tmp_path / "model"), "onnx/model.onnx")
    (ranked,) = CrossEncoder(name.lower()).rank("annual leave", ["annual leave"], [7])
    assert ranked == (7, 1.0, None)


@pytest.mark.slow
def test_a_model_with_several_labels_is_no_cross_encoder_for_reranking(tmp_path: Path) -> None:
    model = CrossEncoder(str(cross_encoder(tmp_path / "model", labels=3)))
    with pytest.raises(ConfigurationError, match="gives one a document"):
        model.rank("annual leave", ["sick leave"], [0])


@pytest.mark.slow
def test_a_file_that_is_no_model_is_refused_with_its_folder(tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "model")
    (folder / "model.onnx").write_bytes(b"no model")
    with pytest.raises(ConfigurationError, match=r"fastembed cannot load the model in .*/model"):
        CrossEncoder(str(folder)).rank("annual leave", ["sick leave"], [0])
