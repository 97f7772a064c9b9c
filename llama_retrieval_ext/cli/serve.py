"""`llama-retrieval serve` and `mcp`: a knowledge base for other programs."""

from typing import TYPE_CHECKING, Annotated

import typer

from llama_retrieval_ext.cli.options import EmbedModel, KbId, Target, Tenant, Url

if TYPE_CHECKING:
    from llama_retrieval_ext.serve import ApiKeys

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
Timeout = Annotated[float, typer.Option("--timeout", min=0.001, help="Most seconds for a request.")]


def serve(  # noqa: PLR0913 - a command's options are its parameters
    *,
    kb: Url,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    keys: Keys = None,
    tenant: Tenant = None,
    kb_id: KbId = None,
    embed_model: EmbedModel = "local",
    create: Annotated[
        bool, typer.Option("--create", help="Make the knowledge base if it is not there.")
    ] = False,
    max_top_k: Annotated[int, typer.Option(min=1, help="Most hits of a search.")] = 100,
    max_body: Annotated[int, typer.Option(min=1, help="Most bytes of a request.")] = 8_000_000,
    concurrency: Concurrency = 32,
    timeout: Timeout = 30.0,
) -> None:
    """Serve a knowledge base over HTTP, with a page to search it.

    SIGTERM or Ctrl+C stops it: requests get ten seconds to end, and writes what they need.
    """
    from llama_retrieval_ext.serve import ServeLimits, serve_http  # noqa: PLC0415 - LlamaIndex

    place = Target(kb, embed_model, tenant, kb_id)
    limits = ServeLimits(
        max_body_bytes=max_body, max_top_k=max_top_k, concurrency=concurrency, timeout_s=timeout
    )
    loaded = _keys(keys)
    with place.open(must_exist=not create, needs_scope=False) as opened:
        serve_http(opened, host=host, port=port, keys=loaded, scope=place.scope, limits=limits)


def mcp(  # noqa: PLR0913 - a command's options are its parameters
    *,
    kb: Url,
    tenant: Tenant = None,
    kb_id: KbId = None,
    embed_model: EmbedModel = "local",
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

    What --tenant and --kb-id say holds for every call, whatever its arguments.
    """
    from llama_retrieval_ext.serve import ServeLimits, serve_mcp  # noqa: PLC0415 - LlamaIndex

    place = Target(kb, embed_model, tenant, kb_id)
    loaded = _keys(keys)
    with place.reopen() as opened:
        serve_mcp(
            opened,
            scope=place.scope,
            about=about,
            rules=rules,
            address=(host, port) if http else None,
            keys=loaded,
            limits=ServeLimits(timeout_s=timeout),
        )


def _keys(source: str | None) -> "ApiKeys | None":
    from llama_retrieval_ext.serve import ApiKeys  # noqa: PLC0415 - LlamaIndex

    return None if source is None else ApiKeys.load(source)
