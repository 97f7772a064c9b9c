"""Options for the location of a knowledge base and the scope of a command."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

import llama_retrieval_ext as ext
from llama_retrieval_ext.errors import (
    ConfigurationError,
    MissingDependencyError,
    ModelRequiredError,
)
from llama_retrieval_ext.urls import Location

if TYPE_CHECKING:
    from llama_index.core.llms import LLM

DEFAULT_KB: Final = "embedded:./kb"
_KB_VARIABLE: Final = "LLAMA_RETRIEVAL_KB"


def _checked_url(url: str) -> str:
    """Return the URL of a knowledge base; raise for a plain path."""
    if ":" not in url and any(sign in url for sign in "./\\~"):
        raise ConfigurationError(
            f"{url!r} is not the URL of a knowledge base; did you mean embedded:{url}?"
        )
    return url


Url = Annotated[
    str,
    typer.Option(
        "--kb",
        metavar="URL",
        envvar=_KB_VARIABLE,
        callback=_checked_url,
        help="The knowledge base: embedded:DIRECTORY, qdrant://HOST:6333/NAME, qdrant:DIRECTORY, "
        "milvus://HOST:19530/NAME, milvus:FILE.db, or elasticsearch://HOST:9200/NAME; "
        "qdrants://, milvuss:// and elasticsearchs:// for TLS.",
    ),
]
EmbedModel = Annotated[
    str | None,
    typer.Option(
        "--embed-model",
        metavar="MODEL",
        help="local (no network, good for English prose), fastembed:NAME, fastembed:./FOLDER, "
        "huggingface:NAME, openai:NAME or ollama:NAME. Default: the one that the knowledge base "
        "records, and local for a new one.",
    ),
]
Tenant = Annotated[
    str | None,
    typer.Option("--tenant", metavar="ID", help="The tenant: reads and writes only its documents."),
]
KbId = Annotated[
    str | None,
    typer.Option(
        "--kb-id", metavar="ID", help="The knowledge base id: reads and writes only its documents."
    ),
]
Allowed = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed",
        metavar="NAME",
        help="Who may see the documents: a user or a group, such as group:hr; can be repeated.",
        show_default=False,
    ),
]
Include = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Of folders, read only files whose name, or path in the folder, matches: '*.md', "
        "'manuals/*'. May be repeated: any of them.",
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN", help="Of folders, skip files and folders that match. May be repeated."
    ),
]
Encoding = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Encoding of texts that are not in UTF-8: latin-1, cp1252, ...",
        show_default=False,
    ),
]
FollowSymlinks = Annotated[
    bool,
    typer.Option(
        "--follow-symlinks", help="Read files outside of a folder to which links in it lead."
    ),
]
GraphUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Create it with a graph, for search --mode graph: graph:DIRECTORY or "
        "neo4j://HOST:7687/DATABASE?user_env=NAME&password_env=NAME; recorded in it.",
    ),
]
RequireScope = Annotated[
    bool,
    typer.Option(
        "--require-scope",
        help="Create a knowledge base that rejects calls without --tenant or --kb-id.",
    ),
]
LLMUrl = Annotated[
    str | None,
    typer.Option(
        "--llm-url",
        metavar="URL",
        envvar="LLAMA_RETRIEVAL_LLM_URL",
        help="A server compatible with OpenAI's, such as http://127.0.0.1:11434/v1, for answers, "
        "replies, insights and reports.",
    ),
]
LLMModel = Annotated[
    str | None,
    typer.Option(
        "--llm-model",
        metavar="NAME",
        envvar="LLAMA_RETRIEVAL_LLM_MODEL",
        help="The model at --llm-url.",
    ),
]
LLMKeyEnv = Annotated[
    str | None,
    typer.Option("--llm-key-env", metavar="NAME", help="The variable that has the key of the LLM."),
]
LLMContext = Annotated[
    int, typer.Option("--llm-context", min=1024, help="Tokens of prompt and answer together.")
]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.001, help="Maximum seconds for a request.")
]
_DEFAULT_MODEL: Final = "local"
_OPENAI_LIKE: Final = "llama-index-llms-openai-like>=0.8,<0.9"
_NO_KEY: Final = "none"  # the client requires a key, even if the server does not
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
    embed_model: str | None
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
        if must_exist and self.folder is not None and not self.folder.exists():
            raise ConfigurationError(
                f"there is no knowledge base at {self.url}; create it: llama-retrieval ingest PATH "
                f"--kb {self.url}"
            )
        try:
            opened = self._opened(self.embed_model, must_exist=must_exist)
        except ModelRequiredError:  # it is new
            opened = self._opened(_DEFAULT_MODEL, must_exist=must_exist)
        if needs_scope and opened.require_scope and self.scope is None:
            opened.close()
            raise ConfigurationError(f"{self.url} requires a scope: add --tenant or --kb-id")
        return opened

    def _opened(self, model: str | None, *, must_exist: bool) -> "ext.KnowledgeBase":
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
            return opened_with(self.graph)
        except ext.GraphRequiredError as error:  # the graph of its creation
            return opened_with(error.graph)

    def reopen(self, *, needs_scope: bool = True) -> "ext.KnowledgeBase":
        """Return an existing knowledge base: a typing error must not create an empty one."""
        return self.open(must_exist=True, needs_scope=needs_scope)


def llm_of(
    url: str | None, model: str | None, *, key_env: str | None, context: int, timeout_s: float
) -> "LLM | None":
    """Return the LLM of the options; None if they name none."""
    if url is None and model is None and key_env is None:
        return None
    if not url or not model:
        raise ConfigurationError(
            "an LLM has both --llm-url URL and --llm-model NAME; add the other"
        )
    key = _NO_KEY if key_env is None else os.environ.get(key_env)
    if not key:
        raise ConfigurationError(f"--llm-key-env names the variable {key_env!r}, which is unset")
    try:
        from llama_index.llms.openai_like import OpenAILike  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise MissingDependencyError("--llm-url", package=_OPENAI_LIKE) from error
    return OpenAILike(
        model=model,
        api_base=url,
        api_key=key,
        is_chat_model=True,
        context_window=context,
        timeout=timeout_s,
    )
