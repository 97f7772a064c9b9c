"""Options for the location of a knowledge base and the scope of a command."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

import llama_retrieval_ext as ext
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.urls import Location

Url = Annotated[
    str,
    typer.Option(
        "--kb",
        metavar="URL",
        help="The knowledge base: embedded:DIRECTORY, qdrant://HOST:6333/NAME, qdrant:DIRECTORY, "
        "milvus://HOST:19530/NAME, milvus:FILE.db, or elasticsearch://HOST:9200/NAME; "
        "qdrants://, milvuss:// and elasticsearchs:// for TLS.",
        show_default=False,
    ),
]
EmbedModel = Annotated[
    str,
    typer.Option(
        "--embed-model",
        metavar="MODEL",
        help="local (no network, good for English prose), huggingface:NAME, fastembed:NAME, "
        "openai:NAME or ollama:NAME; always the one the knowledge base was made with.",
    ),
]
Tenant = Annotated[
    str | None, typer.Option("--tenant", metavar="ID", help="Only what belongs to this tenant.")
]
KbId = Annotated[
    str | None,
    typer.Option("--kb-id", metavar="ID", help="Only what belongs to this knowledge base id."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ReadOnly = Annotated[
    bool,
    typer.Option(
        "--read-only",
        help="Search a copy of embedded:DIRECTORY while another process writes to it.",
    ),
]


def scope_of(tenant_id: str | None, kb_id: str | None) -> "ext.Scope | None":
    """Return the scope of ``--tenant`` and ``--kb-id``; None without them."""
    if tenant_id is None and kb_id is None:
        return None
    return ext.Scope(tenant_id, kb_ids=[] if kb_id is None else [kb_id])


@dataclass(frozen=True)
class KbOptions:
    """Location of a knowledge base, and the scope of a command."""

    url: str
    embed_model: str
    tenant_id: str | None = None
    kb_id: str | None = None
    require_scope: bool = False
    graph: str | None = None
    read_only: bool = False
    refresh_s: float | None = None

    @property
    def folder(self) -> Path | None:
        """The folder of a knowledge base on this machine."""
        return Location.of(self.url).path

    @property
    def is_in_memory(self) -> bool:
        """Whether the knowledge base is lost when the program ends."""
        return Location.of(self.url).is_in_memory

    @property
    def scope(self) -> "ext.Scope | None":
        """The scope of the options; None without them."""
        return scope_of(self.tenant_id, self.kb_id)

    def open(self, *, must_exist: bool = False, needs_scope: bool = True) -> "ext.KnowledgeBase":
        """Return the knowledge base, created unless it must exist; check its need of a scope."""
        if self.require_scope and self.scope is None:
            raise ConfigurationError("--require-scope needs a scope: add --tenant or --kb-id")
        model = ext.resolve_embed_model(self.embed_model)

        def opened_with(graph: str | None) -> "ext.KnowledgeBase":
            return ext.KnowledgeBase.open(
                self.url,
                embed_model=model,
                require_scope=self.require_scope or None,
                must_exist=must_exist,
                graph=graph,
                read_only=self.read_only,
                refresh_s=self.refresh_s,
            )

        try:
            opened = opened_with(self.graph)
        except ext.GraphRequiredError as error:  # the graph of its creation
            opened = opened_with(error.graph)
        if needs_scope and opened.require_scope and self.scope is None:
            opened.close()
            raise ConfigurationError(f"{self.url} requires a scope: add --tenant or --kb-id")
        return opened

    def reopen(self, *, needs_scope: bool = True) -> "ext.KnowledgeBase":
        """Return an existing knowledge base: a typing error must not create an empty one."""
        return self.open(must_exist=True, needs_scope=needs_scope)
