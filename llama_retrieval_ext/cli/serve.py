"""`llama-retrieval serve` and `mcp`: a knowledge base for other programs."""

import os
from typing import TYPE_CHECKING, Annotated, Final

import typer

from llama_retrieval_ext import serve as servers
from llama_retrieval_ext.cli.options import EmbedModel, KbId, KbOptions, ReadOnly, Tenant, Url
from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError

if TYPE_CHECKING:
    from llama_index.core.llms import LLM

Host = Annotated[str, typer.Option(help="The address to listen at; others need --keys.")]
Port = Annotated[int, typer.Option(min=1, max=65_535, help="The port to listen at.")]
Keys = Annotated[
    str | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        help="API keys, and what each may see and do: a YAML file, or env:NAME for a variable "
        "that has the text of one. Without keys only this machine is answered.",
    ),
]
Concurrency = Annotated[int, typer.Option(min=1, help="Requests that are worked on at once.")]
LLMUrl = Annotated[
    str | None,
    typer.Option(
        "--llm-url",
        metavar="URL",
        help="A server compatible with OpenAI's, such as http://127.0.0.1:11434/v1, for answers, "
        "replies, insights and reports; left out, those answer 501.",
    ),
]
LLMModel = Annotated[
    str | None, typer.Option("--llm-model", metavar="NAME", help="The model at --llm-url.")
]
LLMKeyEnv = Annotated[
    str | None,
    typer.Option("--llm-key-env", metavar="NAME", help="The variable that has the key of the LLM."),
]
LLMContext = Annotated[
    int, typer.Option("--llm-context", min=1024, help="Tokens of prompt and answer together.")
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.001, help="Most seconds for a request.")]

_OPENAI_LIKE: Final = "llama-index-llms-openai-like>=0.8,<0.9"
_REFRESH_S: Final = 10.0  # interval at which a read-only server checks for writes
_NO_KEY: Final = "none"  # the client requires a key, even if the server does not


def serve(  # noqa: PLR0913 - a command's options are its parameters
    *,
    kb: Url,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    keys: Keys = None,
    tenant: Tenant = None,
    kb_id: KbId = None,
    embed_model: EmbedModel = "local",
    read_only: ReadOnly = False,
    create: Annotated[
        bool, typer.Option("--create", help="Make the knowledge base if it is not there.")
    ] = False,
    max_top_k: Annotated[int, typer.Option(min=1, help="Most hits of a search.")] = 100,
    max_body: Annotated[int, typer.Option(min=1, help="Most bytes of a request.")] = 8_000_000,
    concurrency: Concurrency = 32,
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
        max_body_bytes=max_body, max_top_k=max_top_k, concurrency=concurrency, timeout_s=timeout
    )
    loaded = None if keys is None else servers.ApiKeys.load(keys)
    llm = _llm(llm_url, llm_model, key_env=llm_key_env, context=llm_context, timeout_s=timeout)
    with options.open(must_exist=not create, needs_scope=False) as opened:
        servers.serve_http(
            opened, host=host, port=port, keys=loaded, scope=options.scope, limits=limits, llm=llm
        )


def mcp(  # noqa: PLR0913 - a command's options are its parameters
    *,
    kb: Url,
    tenant: Tenant = None,
    kb_id: KbId = None,
    embed_model: EmbedModel = "local",
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
    kb: str, embed_model: str, tenant: str | None, kb_id: str | None, *, read_only: bool
) -> KbOptions:
    refresh_s = _REFRESH_S if read_only else None
    return KbOptions(kb, embed_model, tenant, kb_id, read_only=read_only, refresh_s=refresh_s)


def _llm(
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
