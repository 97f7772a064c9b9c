"""`llama-retrieval serve` and `mcp`: a knowledge base for other programs."""

from typing import Annotated, Final

import typer

from llama_retrieval_ext import serve as servers
from llama_retrieval_ext.cli.options import (
    DEFAULT_KB,
    EmbedModel,
    KbId,
    KbOptions,
    LLMContext,
    LLMKeyEnv,
    LLMModel,
    LLMUrl,
    ReadOnly,
    Tenant,
    Timeout,
    Url,
    llm_of,
)

Host = Annotated[str, typer.Option(help="The address to listen at; others need --keys.")]
Port = Annotated[int, typer.Option(min=1, max=65_535, help="The port to listen at.")]
Keys = Annotated[
    str | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        help="API keys, and what each may see and do: a YAML file, or env:NAME for a variable "
        "that has the text of one. Without keys, only requests from this machine are accepted.",
    ),
]
Concurrency = Annotated[int, typer.Option(min=1, help="Maximum requests at the same time.")]
_REFRESH_S: Final = 10.0  # interval at which a read-only server checks for writes


def serve(  # noqa: PLR0913 - a command's options are its parameters
    *,
    kb: Url = DEFAULT_KB,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    keys: Keys = None,
    tenant: Tenant = None,
    kb_id: KbId = None,
    embed_model: EmbedModel = None,
    read_only: ReadOnly = False,
    create: Annotated[
        bool, typer.Option("--create", help="Create the knowledge base if it does not exist.")
    ] = False,
    max_top_k: Annotated[int, typer.Option(min=1, help="Maximum hits of a search.")] = 100,
    max_body: Annotated[int, typer.Option(min=1, help="Maximum bytes of a request.")] = 8_000_000,
    concurrency: Concurrency = 32,
    per_key: Annotated[
        int | None,
        typer.Option(
            min=1, help="Maximum of them for one key; default: half if there are several."
        ),
    ] = None,
    timeout: Timeout = 30.0,
    llm_url: LLMUrl = None,
    llm_model: LLMModel = None,
    llm_key_env: LLMKeyEnv = None,
    llm_context: LLMContext = 8192,
) -> None:
    """Serve a knowledge base over HTTP, with a page to search it.

    SIGTERM or Ctrl+C stops it: requests get ten seconds to end, and writes what they need.
    """
    options = _options(kb, embed_model, tenant, kb_id, read_only=read_only)
    limits = servers.ServeLimits(
        max_body_bytes=max_body,
        max_top_k=max_top_k,
        concurrency=concurrency,
        per_key=per_key,
        timeout_s=timeout,
    )
    loaded = None if keys is None else servers.ApiKeys.load(keys)
    llm = llm_of(llm_url, llm_model, key_env=llm_key_env, context=llm_context, timeout_s=timeout)
    with options.open(must_exist=not create, needs_scope=False) as opened:
        servers.serve_http(
            opened, host=host, port=port, keys=loaded, scope=options.scope, limits=limits, llm=llm
        )


def mcp(  # noqa: PLR0913 - a command's options are its parameters
    *,
    kb: Url = DEFAULT_KB,
    tenant: Tenant = None,
    kb_id: KbId = None,
    embed_model: EmbedModel = None,
    read_only: ReadOnly = False,
    about: Annotated[
        str, typer.Option(help="What is in the knowledge base, for the model that uses it.")
    ] = "",
    rules: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Rules over its graph; left out, those shipped."),
    ] = None,
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP at /mcp, instead of stdio.")
    ] = False,
    host: Host = "127.0.0.1",
    port: Port = 8001,
    keys: Keys = None,
    timeout: Timeout = 30.0,
) -> None:
    """Serve a knowledge base to agents over MCP: search, documents, and its graph if it has one.

    --tenant and --kb-id apply to every call, regardless of its arguments.
    """
    options = _options(kb, embed_model, tenant, kb_id, read_only=read_only)
    loaded = None if keys is None else servers.ApiKeys.load(keys)
    with options.reopen() as opened:
        servers.serve_mcp(
            opened,
            scope=options.scope,
            about=about,
            rules=rules,
            address=(host, port) if http else None,
            keys=loaded,
            limits=servers.ServeLimits(timeout_s=timeout),
        )


def _options(
    kb: str, embed_model: str | None, tenant: str | None, kb_id: str | None, *, read_only: bool
) -> KbOptions:
    refresh_s = _REFRESH_S if read_only else None
    return KbOptions(kb, embed_model, tenant, kb_id, read_only=read_only, refresh_s=refresh_s)
