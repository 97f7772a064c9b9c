"""`Reembedding`: another embedding model for stored texts, with an estimate of the work."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from time import perf_counter
from typing import Final

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.utils import get_tokenizer
from tqdm import tqdm  # type: ignore[import-untyped]

from llama_retrieval_ext.embeddings.recorded import model_record
from llama_retrieval_ext.embeddings.resolve import (
    embed_model_dimension,
    embed_model_name,
    resolve_embed_model,
)
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.documents import batched
from llama_retrieval_ext.knowledge_base.ledger.ledger import Entry, KnowledgeBaseConfig
from llama_retrieval_ext.knowledge_base.ledger.prepared import Prepared
from llama_retrieval_ext.knowledge_base.preparation import Embedder

# Nodes per batch: an interrupted copy repeats at most one, and the first gives the time.
_BATCH: Final = 100


@dataclass(frozen=True, slots=True)
class Estimate:
    """What it takes to embed nodes.

    Examples:
        >>> print(Estimate("FastEmbedding:bge", 12_340, 2_100_000, 412.0))
        12,340 nodes, about 2,100,000 tokens with FastEmbedding:bge, about 412 s

    """

    model: str
    n_nodes: int
    n_tokens: int
    seconds: float | None = None  # None before the first batch

    def __str__(self) -> str:
        time = "" if self.seconds is None else f", about {self.seconds:,.0f} s"
        return f"{self.n_nodes:,} nodes, about {self.n_tokens:,} tokens with {self.model}{time}"


class Reembedding:
    """Embeds the nodes of a knowledge base with another model.

    Args:
        embed_model: The model, or its name.
        show: Whether to write the estimate to standard error.
    """

    def __init__(self, embed_model: str | BaseEmbedding, *, show: bool) -> None:
        self.model = resolve_embed_model(embed_model)
        self.name = embed_model_name(self.model)
        self._record = model_record(self.model, embed_model if isinstance(embed_model, str) else "")
        self._embedder = Embedder(self.model)
        self._show = show
        self._estimate: Estimate | None = None

    @property
    def dimension(self) -> int | None:
        """The dimension of the new vectors; None before the first, if the model declares none."""
        return self._embedder.dimension or embed_model_dimension(self.model)

    def config(self, copied: KnowledgeBaseConfig) -> KnowledgeBaseConfig:
        """Return the configuration of the target; calibrations belong to the old vectors."""
        return replace(copied, embed_model=self.name, model_record=self._record, calibrations="")

    def estimate(self, entries: Sequence[Entry], sample: Sequence[BaseNode]) -> None:
        """Show the number of nodes and tokens, by a sample of the nodes."""
        count = get_tokenizer()
        tokens = fmean([len(count(_text_of(node))) for node in sample] or [0.0])
        n_nodes = sum(entry.n_nodes for entry in entries)
        self._tell(Estimate(self.name, n_nodes, round(tokens * n_nodes)))

    def batches(self, entries: Sequence[Entry]) -> Iterator[list[Entry]]:
        """Yield documents in small batches; show the time that is left after the first."""
        started, n_done = perf_counter(), 0
        for batch in batched(entries, lambda entry: entry.n_nodes, _BATCH):
            yield batch
            if n_done == 0 and self._estimate is not None:
                n_done = sum(entry.n_nodes for entry in batch)
                left = self._estimate.n_nodes - n_done
                per_node = (perf_counter() - started) / max(n_done, 1)
                self._tell(replace(self._estimate, seconds=per_node * left))

    def embedded(self, documents: Sequence[Prepared]) -> list[Prepared | Exception]:
        """Return the documents with new embeddings, or the error of each."""
        results = iter(
            self._embedder.embedded([_bare(each) for each in documents if _has_text(each)])
        )
        return [next(results) if _has_text(each) else _textless(each) for each in documents]

    def _tell(self, estimate: Estimate) -> None:
        self._estimate = estimate
        if self._show:
            tqdm.write(f"Embedding {estimate}", file=sys.stderr)


def _text_of(node: BaseNode) -> str:
    return node.get_content(MetadataMode.EMBED)


def _has_text(document: Prepared) -> bool:
    return all(node.get_content(MetadataMode.NONE).strip() for node in document.nodes)


def _bare(document: Prepared) -> Prepared:
    bare = [node.model_copy(update={"embedding": None}) for node in document.nodes]
    return replace(document, nodes=tuple(bare))


def _textless(document: Prepared) -> ConfigurationError:
    return ConfigurationError(
        f"document {document.key.ref!r} has a node without text, whose embedding came from "
        "elsewhere; add it to the new knowledge base with an embedding of the new model"
    )
