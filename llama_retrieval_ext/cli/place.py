"""The options that say where a knowledge base is, and on whose behalf it is used."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

import llama_retrieval_ext as ext

Url = Annotated[
    str,
    typer.Option(
        "--kb",
        metavar="URL",
        help="The knowledge base: embedded:DIRECTORY.",
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
    str | None,
    typer.Option("--tenant", metavar="ID", help="Only what belongs to this tenant."),
]
KbId = Annotated[
    str | None,
    typer.Option("--kb-id", metavar="ID", help="Only what belongs to this knowledge base id."),
]


@dataclass(frozen=True)
class Place:
    """Where a knowledge base is, and on whose behalf it is used."""

    url: str
    embed_model: str
    tenant_id: str | None = None
    kb_id: str | None = None

    @property
    def folder(self) -> Path | None:
        """The directory of an embedded knowledge base on disk."""
        engine, _, place = self.url.partition(":")
        return Path(place).resolve() if engine == "embedded" and place != ":memory:" else None

    @property
    def scope(self) -> "ext.Scope | None":
        """Who is asking; None if nobody said."""
        if self.tenant_id is None and self.kb_id is None:
            return None
        return ext.Scope(self.tenant_id, kb_ids=[] if self.kb_id is None else [self.kb_id])

    def open(self) -> "ext.KnowledgeBase":
        """The knowledge base, made if it is not there."""
        model = ext.resolve_embed_model(self.embed_model)
        return ext.KnowledgeBase.open(self.url, embed_model=model)

    def reopen(self) -> "ext.KnowledgeBase":
        """The knowledge base, which must be there: a typing error must not make an empty one.

        Raises:
            ConfigurationError: It is not there.
        """
        if self.folder is not None and not self.folder.is_dir():
            raise ext.ConfigurationError(
                f"there is no knowledge base at {self.folder}; "
                f"make it with: llama-retrieval ingest PATH --kb {self.url}"
            )
        return self.open()
