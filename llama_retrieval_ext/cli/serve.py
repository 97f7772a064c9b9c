"""`llama-retrieval serve` and `mcp`, `skill` and `docs`: for other programs and agents."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import llama_retrieval_ext as ext
from llama_retrieval_ext import serve as servers
from llama_retrieval_ext.cli.options import KbOptions, LLMOptions, ReaderOptions, Timeout
from llama_retrieval_ext.cli.output import say
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.samples.pages import SKILL, llms_full_txt, llms_txt, page_documents

if TYPE_CHECKING:
    from llama_retrieval_ext.serve.guard import App

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
_ABOUT_PAGES: Final = "The pages of the Python package llama_retrieval_ext; begin with SKILL.md."
_WORKER: Final = "LLAMA_RETRIEVAL_WORKER"  # the variable with the options of workers


@dataclass(frozen=True)
class ServedOptions(ReaderOptions):
    """Options of a knowledge base that is served."""

    refresh_s = 10.0


@dataclass(frozen=True)
class ServerLLMOptions(LLMOptions):
    """The language model of a server."""

    timeout_s: Timeout = 30.0


@dataclass(frozen=True)
class LimitOptions:
    """Limits of the requests of a server; arguments of `ServeLimits`."""

    max_top_k: Annotated[int, typer.Option(min=1, help="Maximum hits of a search.")] = 100
    max_body_bytes: Annotated[
        int, typer.Option("--max-body", min=1, help="Maximum bytes of a request.")
    ] = 8_000_000
    concurrency: Annotated[
        int, typer.Option(min=1, help="Maximum requests at the same time, of each worker.")
    ] = 32


def serve(  # noqa: PLR0913 - a command's options are its parameters
    *,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    keys: Keys = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the knowledge base if it does not exist.")
    ] = False,
    workers: Annotated[
        int,
        typer.Option(
            min=1, help="Processes; several for a knowledge base on a server, or with --read-only."
        ),
    ] = 1,
    limits: LimitOptions,
    model: ServerLLMOptions,
    options: ServedOptions,
) -> None:
    """Serve a knowledge base over HTTP, with a page to search it.

    SIGTERM or Ctrl+C stops it: requests get ten seconds to end, and writes what they need.
    """
    server = _Server(options, keys, limits, model)
    if workers > 1:
        _check_shared(options, workers)
    arguments = server.arguments()
    with options.open(must_exist=not create, needs_scope=False) as opened:
        if workers == 1:
            servers.serve_http(opened, host=host, port=port, **arguments)
            return
    from llama_retrieval_ext.serve.entry import serve_workers  # noqa: PLC0415 - slow to import

    # Here it was only checked: each worker opens it.
    os.environ[_WORKER] = json.dumps(asdict(server))
    serve_workers(
        f"{__name__}:worker", host=host, port=port, keys=arguments["keys"], workers=workers
    )


@dataclass(frozen=True)
class _Server:
    """Options of a process that serves."""

    kb: ServedOptions
    keys: str | None
    limits: LimitOptions
    model: LLMOptions

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `create_app`."""
        return {
            "keys": None if self.keys is None else servers.ApiKeys.load(self.keys),
            "scope": self.kb.scope,
            "limits": servers.ServeLimits(**asdict(self.limits), timeout_s=self.model.timeout_s),
            "llm": self.model.llm(),
        }


def _check_shared(options: KbOptions, workers: int) -> None:
    """Raise if several processes cannot open a knowledge base."""
    if options.is_in_memory or (options.folder is not None and not options.read_only):
        raise ConfigurationError(
            f"--workers {workers}: {options.url} is written by one process; add "
            "--read-only, so that each worker searches a copy of embedded:DIRECTORY, or use a "
            "knowledge base on a server, which takes any number"
        )


def worker() -> "App":
    """Return the application of one of several processes; its options are in the environment."""
    from llama_retrieval_ext.serve.server import worker_app  # noqa: PLC0415 - an extra

    settings = json.loads(os.environ[_WORKER])
    server = _Server(
        ServedOptions(**settings["kb"]),
        settings["keys"],
        LimitOptions(**settings["limits"]),
        LLMOptions(**settings["model"]),
    )
    return worker_app(
        lambda stack: servers.create_app(
            stack.enter_context(server.kb.open(needs_scope=False)), **server.arguments()
        )
    )


def mcp(  # noqa: PLR0913 - a command's options are its parameters
    *,
    about: Annotated[
        str, typer.Option(help="What is in the knowledge base, for the model that uses it.")
    ] = "",
    rules: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Rules over its graph; left out, those shipped."),
    ] = None,
    docs: Annotated[
        bool, typer.Option("--docs", help="Serve the pages of this package, in place of --kb.")
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP at /mcp, instead of stdio.")
    ] = False,
    host: Host = "127.0.0.1",
    port: Port = 8001,
    keys: Keys = None,
    timeout: Timeout = 30.0,
    options: ServedOptions,
) -> None:
    """Serve a knowledge base to agents over MCP.

    They can search, read documents, and use its graph if it has one. --tenant and
    --kb-id apply to every call, regardless of its arguments.
    """
    loaded = None if keys is None else servers.ApiKeys.load(keys)
    if docs and (rules is not None or options.scope is not None):
        raise ConfigurationError("--docs has no graph and no tenants: leave out --rules and scopes")
    with _pages() if docs else options.open() as opened:
        servers.serve_mcp(
            opened,
            scope=options.scope,
            about=about or (_ABOUT_PAGES if docs else ""),
            rules=rules,
            address=(host, port) if http else None,
            keys=loaded,
            limits=servers.ServeLimits(timeout_s=timeout),
        )


def _pages() -> "ext.KnowledgeBase":
    """Return the pages of this package as a knowledge base in memory."""
    opened = ext.KnowledgeBase.open("embedded::memory:", embed_model="local")
    opened.add(page_documents(), show_progress=False)
    return opened


def skill(
    *,
    install: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write it into this folder of skills, such as .claude/skills."
        ),
    ] = None,
) -> None:
    """Print or install the skill that teaches agents this."""
    text = SKILL.read_text(encoding="utf-8")
    if install is None:
        say(text)
        return
    _write(install / "llama-retrieval-ext" / SKILL.name, text)


def docs(
    *,
    to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write llms.txt and llms-full.txt there.")
    ] = None,
) -> None:
    """Print llms.txt, the index of the pages, or write all."""
    if to is None:
        say(llms_txt())
        return
    _write(to / "llms.txt", llms_txt())
    _write(to / "llms-full.txt", llms_full_txt())


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    say(f"wrote {path}")
