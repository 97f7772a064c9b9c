"""`Reembedding`: another embedding model for stored texts, with an estimate of the work."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from time import perf_counter
from typing import IO, Final

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
from llama_retrieval_ext.knowledge_base.ledger.prepared import (
    Prepared,
    SpooledDocument,
    Writable,
    content_of,
)
from llama_retrieval_ext.knowledge_base.preparation import Embedder
from llama_retrieval_ext.wording import counted

# Nodes per batch: an interrupted copy repeats at most one, and the first gives the time.
_BATCH: Final = 100


class Reembedding:
    """Embeds the nodes of a knowledge base with another model; can show an estimate on stderr."""

    def __init__(self, embed_model: str | BaseEmbedding, *, show: bool) -> None:
        self.model = resolve_embed_model(embed_model)
        self.name = embed_model_name(self.model)
        self._record = model_record(self.model, embed_model if isinstance(embed_model, str) else "")
        self._embedder = Embedder(self.model)
        self._show = show

    @property
    def dimension(self) -> int | None:
        """The dimension of the new vectors; None before the first, if the model declares none."""
        return self._embedder.dimension or embed_model_dimension(self.model)

    def config(self, copied: KnowledgeBaseConfig) -> KnowledgeBaseConfig:
        """Return the configuration of the target; calibrations belong to the old vectors."""
        return replace(copied, embed_model=self.name, model_record=self._record, calibrations="")

    def batches(
        self, entries: Sequence[Entry], sample: Sequence[BaseNode]
    ) -> Iterator[list[Entry]]:
        """Yield documents in batches; show an estimate before, with the time after the first.

        The number of tokens is estimated from a sample of the nodes.
        """
        if not entries:
            return
        count, total = get_tokenizer(), sum(entry.n_nodes for entry in entries)
        tokens = fmean([len(count(node.get_content(MetadataMode.EMBED))) for node in sample] or [0])
        work = f"{counted(total, 'node')}, about {tokens * total:,.0f} tokens with {self.name}"
        self._tell(work)
        started, n_done = perf_counter(), 0
        for batch in batched(entries, lambda entry: entry.n_nodes, _BATCH):
            yield batch
            if n_done == 0:
                n_done = max(1, sum(entry.n_nodes for entry in batch))
                seconds = (perf_counter() - started) / n_done * (total - n_done)
                self._tell(f"{work}, about {seconds:,.0f} s more")

    def embedded(
        self, documents: Sequence[Writable], file: IO[bytes]
    ) -> list[Writable | Exception]:
        """Return the documents with new embeddings, long ones in the file, or the error of each."""
        short = iter(self._parts([each for each in documents if isinstance(each, Prepared)]))
        return [
            next(short) if isinstance(each, Prepared) else self._long(each, file)
            for each in documents
        ]

    def _long(self, document: SpooledDocument, file: IO[bytes]) -> SpooledDocument | Exception:
        made = SpooledDocument(document.key, content_of(document.digest), document.allowed, file)
        for part in document.parts():
            (result,) = self._parts([part])
            if isinstance(result, Exception):
                return result
            made.append(result)
        return made

    def _parts(self, parts: Sequence[Prepared]) -> list[Prepared | Exception]:
        bare = [_bare(each) for each in parts if _has_text(each)]
        results = iter(self._embedder.embedded(bare))
        return [next(results) if _has_text(each) else _textless(each) for each in parts]

    def _tell(self, estimate: str) -> None:
        if self._show:
            tqdm.write(f"Embedding {estimate}", file=sys.stderr)


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
