"""Embedding models and cross-encoders that fastembed runs, by name or from a folder."""

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from hashlib import file_digest, sha256
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any, ClassVar, Final, NamedTuple

from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError
from llama_retrieval_ext.reordering import ScoreKind

_logger = logging.getLogger(__name__)
# Prevents concurrent threads from loading or downloading a model twice.
_loading = Lock()
# Texts per run of a model: 8 to 32 are equally fast on two cores, and memory grows with it.
_BATCH: Final = 16
_CPU_LIMIT: Final = Path("/sys/fs/cgroup/cpu.max")  # of a container
_WEIGHTS: Final = (
    *("onnx/model.onnx", "model.onnx", "onnx/model_optimized.onnx", "model_optimized.onnx"),
    *("onnx/model_quantized.onnx", "model_quantized.onnx", "onnx/model_int8.onnx"),
)
_NEEDED: Final = ("tokenizer.json", "tokenizer_config.json")
_POOLING: Final = "1_Pooling/config.json"
_PROMPTS: Final = "config_sentence_transformers.json"
_LIMITS: Final = "sentence_bert_config.json"
# Files that determine the result, besides the weights.
_SETTINGS: Final = (*_NEEDED, "special_tokens_map.json", "config.json", _POOLING, _PROMPTS, _LIMITS)
# Older and newer spelling, and fastembed's.
_POOLINGS: Final = {
    **dict.fromkeys(("pooling_mode_cls_token", "cls"), "CLS"),
    **dict.fromkeys(("pooling_mode_mean_tokens", "mean"), "MEAN"),
    **dict.fromkeys(("pooling_mode_lasttoken", "lasttoken"), "LAST_TOKEN"),
}
_SEARCHING: Final = "Represent this sentence for searching relevant passages: "
_TASK: Final = "Given a web search query, retrieve relevant passages that answer the query"
# Prompts for queries and texts of models that are much worse without them; fastembed adds none.
_KNOWN_PROMPTS: Final = {
    "intfloat/multilingual-e5": ("query: ", "passage: "),
    "nomic-ai/nomic-embed-text": ("search_query: ", "search_document: "),
    "snowflake/snowflake-arctic-embed": (_SEARCHING, ""),
    "mixedbread-ai/mxbai-embed": (_SEARCHING, ""),
    "google/embeddinggemma": ("task: search result | query: ", "title: none | text: "),
    "qwen/qwen3-embedding": (f"Instruct: {_TASK}\nQuery:", ""),
}


@dataclass(frozen=True, slots=True)
class EmbeddingSource:
    """An embedding model of fastembed, which is loaded or downloaded at the first text."""

    location: str  # its name at fastembed, or the absolute path of its folder
    name: str  # identifies its vectors: the name, or for a folder type, pooling and content hash
    dimension: int
    query_prompt: str = ""
    text_prompt: str = ""
    pooling: str = ""  # for a folder, how vectors of tokens become one

    @classmethod
    def of(cls, location: str) -> "EmbeddingSource":
        """Return the model with a name, or in a folder; raise `ConfigurationError` without one."""
        kind = _fastembed().TextEmbedding
        if is_path(location):
            return cls._in_folder(ModelFolder.at(location))
        described, name = _described(kind, location), location.lower()
        prompts = [both for start, both in _KNOWN_PROMPTS.items() if name.startswith(start)]
        return cls(
            described["model"], described["model"], described["dim"], *(prompts or [("", "")])[0]
        )

    @classmethod
    def _in_folder(cls, folder: "ModelFolder") -> "EmbeddingSource":
        settings, config = folder.json(_POOLING), folder.json("config.json")
        modes = [name for name in settings if "pooling_mode_" in name and settings[name]]
        modes += [settings["pooling_mode"]] if "pooling_mode" in settings else []
        pooling = _POOLINGS.get(modes[0], "") if len(modes) == 1 else ""
        dimension = settings.get("word_embedding_dimension", config.get("hidden_size"))
        if not pooling or not isinstance(dimension, int):
            raise ConfigurationError(
                f"{folder.path / _POOLING} must name the dimension and one pooling of cls, mean "
                "or lasttoken, which the model was trained with; copy it from the model's page, "
                'such as {"word_embedding_dimension": 384, "pooling_mode_mean_tokens": true}'
            )
        layers = {layer["type"].rpartition(".")[2] for layer in folder.json("modules.json")}
        if not layers <= {"Transformer", "Pooling", "Normalize"}:
            raise ConfigurationError(
                f"{folder.path}/modules.json names {', '.join(sorted(layers))}; of these layers "
                "fastembed runs Transformer, Pooling and Normalize. Use huggingface:NAME"
            )
        prompts = folder.json(_PROMPTS).get("prompts", {})
        text_prompt = prompts.get("document", prompts.get("passage", ""))
        name = f"{config.get('model_type', 'model')}-{pooling.lower()}-{dimension}@{folder.digest}"
        query_prompt = prompts.get("query", "")
        return cls(str(folder.path), name, dimension, query_prompt, text_prompt, pooling)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[list[float]]:
        """Return the vectors of texts, of length 1; raise `ConfigurationError` without a model."""
        with _loading:
            model = _embedding_model(self)
        prompt = self.query_prompt if query else self.text_prompt
        run = model.query_embed if query else model.passage_embed
        vectors = _by_length(
            [prompt + text for text in texts], lambda batch: run(batch, batch_size=_BATCH)
        )
        return [vector.tolist() for vector in vectors]


class Ranked(NamedTuple):
    """A document with its score, as in the package ``rerankers``."""

    doc_id: int
    score: float
    rank: int | None = None


class CrossEncoder:
    """A cross-encoder of fastembed, by name or in a folder, as a model of ``rerankers``."""

    score_kind: ClassVar[ScoreKind] = "logit"

    def __init__(self, location: str) -> None:
        kind = _fastembed("rerank.cross_encoder").TextCrossEncoder
        if is_path(location):
            folder = ModelFolder.at(location)
            self.location, self.name = str(folder.path), folder.digest
        else:
            self.location = self.name = _described(kind, location)["model"]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"

    def rank(self, query: str, docs: list[str], doc_ids: list[int]) -> list[Ranked]:
        """Return the logit of each document, in the given order."""
        with _loading:
            model = _cross_encoder(self.location, self.name)
        query = _clean(query)
        scores = _by_length(docs, lambda pair: model.rerank(query, pair, batch_size=_BATCH))
        return [Ranked(*pair) for pair in zip(doc_ids, scores, strict=True)]


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with the files of a model, the ONNX file in it, and the hash of their content."""

    path: Path
    weights: str
    digest: str

    @classmethod
    def at(cls, location: str) -> "ModelFolder":
        """Return the folder; raise `ConfigurationError` if it lacks a file."""
        path = Path(location).expanduser().resolve()
        names = [name for name in _WEIGHTS if (path / name).is_file()][:1]
        names = names or [str(file.relative_to(path)) for file in path.rglob("*.onnx")]
        missing = [name for name in _NEEDED if not (path / name).is_file()]
        if len(names) != 1:
            missing.insert(0, f"one of {', '.join(_WEIGHTS)}, or a single other ONNX file")
        if missing:
            raise ConfigurationError(
                f"{path} is not the folder of a model: it lacks {'; '.join(missing)}"
            )
        weights = path / names[0]
        files = sorted(weights.parent.glob(f"{weights.name}*"))  # with external data
        files += [path / name for name in _SETTINGS if (path / name).is_file()]
        versions = [(file, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        return cls(path, names[0], _digest(tuple(versions)))

    def json(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """Return the settings in a file; none if it does not exist."""
        file = self.path / name
        try:
            return json.loads(file.read_text("utf-8")) if file.is_file() else {}
        except ValueError as error:
            raise ConfigurationError(f"{file} is not JSON: {error}") from error


def is_path(location: str) -> bool:
    """Return whether a location is a path: it begins with ``.`` or ``~``, or is absolute."""
    return location.startswith((".", "~")) or Path(location).is_absolute()


@lru_cache(maxsize=16)
def _digest(versions: tuple[tuple[Path, int, int], ...]) -> str:
    total = sha256()
    for path, _, _ in versions:
        with path.open("rb") as file:
            total.update(path.name.encode() + b"\0" + file_digest(file, "sha256").digest())
    return total.hexdigest()[:16]


def _fastembed(module: str = "") -> ModuleType:
    try:
        import_module("fastembed")
    except ModuleNotFoundError as error:
        if error.name != "fastembed":
            raise
        raise MissingDependencyError("a model of fastembed", "models") from error
    import_module("loguru").logger.disable("fastembed")  # prints errors, which are raised below
    return import_module(f"fastembed.{module}".rstrip("."))


def _described(kind: Any, name: str) -> dict[str, Any]:  # noqa: ANN401 - fastembed is optional
    """Return fastembed's description of a model by its name, in any case."""
    models = {model["model"].lower(): model for model in kind.list_supported_models()}
    if name.lower() not in models:
        near = get_close_matches(name.lower(), models, n=1, cutoff=0.4)
        advice = f"did you mean {models[near[0]]['model']!r}? " if near else ""
        raise ConfigurationError(
            f"fastembed has no {kind.__name__} {name!r}; {advice}a folder is written "
            "'fastembed:./FOLDER'"
        )
    description: dict[str, Any] = models[name.lower()]
    return description


@lru_cache(maxsize=4)
def _embedding_model(source: EmbeddingSource) -> Any:  # noqa: ANN401 - fastembed is optional
    kind = _fastembed().TextEmbedding
    if not source.pooling:
        return _named(kind, source.name)
    folder = ModelFolder.at(source.location)
    pooling = _fastembed("common.model_description").PoolingType[source.pooling]
    settings = {"pooling": pooling, "normalization": True, "dim": source.dimension}
    model = _from_folder(kind, folder, source.name, settings)
    tokenizer, longest = model.model.tokenizer, folder.json(_LIMITS).get("max_seq_length")
    if longest and longest < tokenizer.truncation["max_length"]:
        tokenizer.enable_truncation(longest, direction=tokenizer.truncation["direction"])
    made = len(next(iter(model.embed(["a"]))))
    if made != source.dimension:
        raise ConfigurationError(
            f"{folder.path / _POOLING} names dimension {source.dimension}, and the model gives "
            f"vectors of dimension {made}; correct it"
        )
    return model


@lru_cache(maxsize=4)
def _cross_encoder(location: str, name: str) -> Any:  # noqa: ANN401 - fastembed is optional
    kind = _fastembed("rerank.cross_encoder").TextCrossEncoder
    if not is_path(location):
        return _named(kind, name)
    model = _from_folder(kind, ModelFolder.at(location), name, {})
    shape = model.model.model.get_outputs()[0].shape
    if shape[-1] != 1:
        raise ConfigurationError(
            f"the model in {location} gives scores of shape {shape}; a cross-encoder for reranking "
            "gives one a document"
        )
    return model


def _from_folder(kind: Any, folder: ModelFolder, name: str, settings: dict[str, Any]) -> Any:  # noqa: ANN401
    if all(model["model"].lower() != name.lower() for model in kind.list_supported_models()):
        nowhere = _fastembed("common.model_description").ModelSource(hf=name)
        kind.add_custom_model(name, sources=nowhere, model_file=folder.weights, **settings)
    try:
        return kind(name, threads=_cores(), specific_model_path=str(folder.path))
    except Exception as error:
        raise ConfigurationError(
            f"fastembed cannot load the model in {folder.path}: {error}"
        ) from error


def _named(kind: Any, name: str) -> Any:  # noqa: ANN401 - fastembed is optional
    """Return a model from fastembed's cache, or download it."""
    try:
        return kind(name, threads=_cores(), local_files_only=True)
    except ValueError:
        description = _described(kind, name)
    repository, size_mb = description["sources"]["hf"], description["size_in_GB"] * 1000
    try:  # fastembed itself would retry for 40 seconds, and not say why it failed
        import_module("huggingface_hub").model_info(repository, timeout=10)
        _logger.warning("downloading %s, about %.0f MB, from Hugging Face", name, size_mb)
        return kind(name, threads=_cores())
    except Exception as error:
        raise ConfigurationError(
            f"the model {name} (about {size_mb:.0f} MB) is not on this machine, and Hugging Face "
            f"cannot be reached ({type(error).__name__}). Bring the files of {repository} in a "
            "folder and write 'fastembed:./FOLDER', or copy the folder of FASTEMBED_CACHE_PATH "
            "from a machine that has it"
        ) from error


def _cores() -> int:
    """Return the number of cores that this process may use, also by the limit of a container."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = _CPU_LIMIT.read_text("utf-8").split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # none, or "max"
        return cores


def _by_length(texts: Sequence[str], run: Callable[[list[str]], Any]) -> list[Any]:
    """Return the results of a model, which pads the texts of a batch to the longest."""
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    results = dict(zip(order, run([_clean(texts[index]) for index in order]), strict=True))
    return [results[index] for index in range(len(texts))]


def _clean(text: str) -> str:
    # The tokenizer rejects lone surrogates, which a badly decoded file may contain.
    return text.encode("utf-8", "replace").decode("utf-8")
