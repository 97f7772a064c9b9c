"""Options that several commands share, in groups: a command takes a group as one parameter."""

import inspect
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeVar, get_origin

import typer

import llama_retrieval_ext as ext
from llama_retrieval_ext.errors import ConfigurationError, ModelRequiredError, optional_module
from llama_retrieval_ext.urls import Location

if TYPE_CHECKING:
    from llama_index.core.llms import LLM

T = TypeVar("T")

DEFAULT_KB: Final = "embedded:./kb"
_KB_VARIABLE: Final = "LLAMA_RETRIEVAL_KB"


Url = Annotated[
    str,
    typer.Option(
        "--kb",
        metavar="URL",
        envvar=_KB_VARIABLE,
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
Allowed = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed",
        metavar="NAME",
        help="Who may see the documents: a user or a group, such as group:hr. May be repeated.",
        show_default=False,
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.001, help="Maximum seconds for a request.")
]
_DEFAULT_MODEL: Final = "local"
_OPENAI_LIKE: Final = "llama-index-llms-openai-like>=0.8,<0.9"
_NO_KEY: Final = "none"  # the client requires a key, even if the server does not
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def path_argument(metavar: str, text: str) -> Any:  # noqa: ANN401 - of Typer
    """Return an argument that is a path; an empty one would be the working directory."""

    def parsed(path: str) -> Path:
        if not path:
            raise typer.BadParameter("the path is empty; write . for the working directory")
        return Path(path)

    return typer.Argument(parser=parsed, metavar=metavar, help=text, show_default=False)


def key_values(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Return the values by key of an option that is written KEY=VALUE."""
    values: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise ConfigurationError(f"got {option} {pair!r}; write KEY=VALUE")
        values[key.strip()] = value.strip()
    return values


def _json_values(pairs: Sequence[str]) -> dict[str, object]:
    """Return settings of an engine; a value that is no JSON is a string."""
    values: dict[str, object] = {}
    for name, value in key_values(pairs, "--store-param").items():
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return values


def field_weights(pairs: Sequence[str]) -> dict[str, float] | None:
    """Return the weights of fields; None without any."""
    weights: dict[str, float] = {}
    for name, value in key_values(pairs, "--field").items():
        try:
            weights[name] = float(value)
        except ValueError as error:
            raise ConfigurationError(
                f"--field {name}={value}: {value!r} is no weight; write --field {name}=1"
            ) from error
    return weights or None


def with_groups(command: Callable[..., T]) -> Callable[..., T]:
    """Return a command with the options of its parameters that are groups, in their places."""
    signature = inspect.signature(command)
    groups = {
        name: {
            option.name: inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=option.default
                if option.default_factory is MISSING
                else option.default_factory(),
                annotation=option.type,
            )
            for option in fields(parameter.annotation)
            if get_origin(option.type) is Annotated
        }
        for name, parameter in signature.parameters.items()
        if is_dataclass(parameter.annotation)
    }

    @wraps(command)
    def run(**given: object) -> T:
        for name, options in groups.items():
            values = {option: given.pop(option) for option in options}
            given[name] = signature.parameters[name].annotation(**values)
        return command(**given)

    parameters = [
        option
        for name, parameter in signature.parameters.items()
        for option in (groups[name].values() if name in groups else [parameter])
    ]
    vars(run)["__signature__"] = signature.replace(parameters=parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@dataclass(frozen=True)
class FileOptions:
    """Which files of folders are read, and how."""

    include: Annotated[
        list[str],
        typer.Option(
            metavar="PATTERN",
            help="Of folders, read only files whose name, or path in the folder, matches: '*.md', "
            "'manuals/*'. May be repeated: any of them.",
        ),
    ] = field(default_factory=list)
    exclude: Annotated[
        list[str],
        typer.Option(
            metavar="PATTERN",
            help="Of folders, skip files and folders that match. May be repeated.",
        ),
    ] = field(default_factory=list)
    encoding: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Encoding of texts that are not in UTF-8: latin-1, cp1252, ...",
            show_default=False,
        ),
    ] = ""
    follow_symlinks: Annotated[
        bool,
        typer.Option(
            "--follow-symlinks", help="Read files outside of a folder to which links in it lead."
        ),
    ] = False


@dataclass(frozen=True)
class ScopeOptions:
    """Whose documents a command reads and writes."""

    tenant_id: Annotated[
        str | None,
        typer.Option(
            "--tenant", metavar="ID", help="The tenant: reads and writes only its documents."
        ),
    ] = None
    kb_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="The knowledge base id: reads and writes only its documents."
        ),
    ] = None

    @property
    def scope(self) -> "ext.Scope | None":
        """The scope of the options; None without them."""
        if self.tenant_id is None and self.kb_id is None:
            return None
        return ext.Scope(self.tenant_id, kb_ids=None if self.kb_id is None else [self.kb_id])


AsOf = Annotated[
    str | None, typer.Option(metavar="DATE", help="What held then: 2021-09-01, an instant, or now.")
]
KnownAt = Annotated[
    str | None, typer.Option(metavar="DATE", help="What was known then, for audits.")
]
Validity = Annotated[
    str | None,
    typer.Option(
        metavar="text", help="Read from the text of each document from when until when it holds."
    ),
]


@dataclass(frozen=True)
class GraphOptions(ScopeOptions):
    """Whose part of a graph a command reads, and as of when."""

    as_of: AsOf = None
    known_at: KnownAt = None

    @property
    def scope(self) -> "ext.Scope | None":
        """The scope of the options; None without them."""
        from llama_retrieval_ext.scope import at_time  # noqa: PLC0415 - imports LlamaIndex

        return at_time(super().scope, self.as_of, self.known_at)


@dataclass(frozen=True, kw_only=True)
class KbOptions(ScopeOptions):
    """Location of a knowledge base, and the scope of a command."""

    refresh_s: ClassVar[float | None] = None  # interval at which a copy is renewed

    url: Url = DEFAULT_KB
    embed_model: EmbedModel = None
    # Options of the groups below.
    graph: str | None = None
    require_scope: bool = False
    store_params: Sequence[str] = ()
    fields: Sequence[str] = ()
    read_only: bool = False

    @property
    def folder(self) -> Path | None:
        """The folder of a knowledge base on this machine."""
        return Location.of(self.url).path

    @property
    def is_in_memory(self) -> bool:
        """Whether the knowledge base is lost when the program ends."""
        return Location.of(self.url).is_in_memory

    def open(self, *, must_exist: bool = True, needs_scope: bool = True) -> "ext.KnowledgeBase":
        """Return the knowledge base, created unless it must exist; check its need of a scope."""
        if self.require_scope and self.scope is None:
            raise ConfigurationError("--require-scope needs a scope: add --tenant or --kb-id")
        try:
            opened = self._opened(self.embed_model, must_exist=must_exist)
        except ModelRequiredError:  # it is new
            opened = self._opened(_DEFAULT_MODEL, must_exist=must_exist)
        if needs_scope and opened.require_scope and self.scope is None:
            opened.close()
            raise ConfigurationError(f"{self.url} requires a scope; pass scope=Scope(...)")
        return opened

    def _opened(self, model: str | None, *, must_exist: bool) -> "ext.KnowledgeBase":
        weights = field_weights(self.fields)
        schema = None if weights is None else ext.Schema(text=weights)

        def opened_with(graph: str | None) -> "ext.KnowledgeBase":
            return ext.KnowledgeBase.open(
                self.url,
                embed_model=model,
                require_scope=self.require_scope or None,
                must_exist=must_exist,
                graph=graph,
                schema=schema,
                store_params=_json_values(self.store_params) or None,
                read_only=self.read_only,
                refresh_s=self.refresh_s if self.read_only else None,
            )

        try:
            return opened_with(self.graph)
        except ext.GraphRequiredError as error:  # the graph of its creation
            return opened_with(error.graph)


@dataclass(frozen=True)
class ReaderOptions(KbOptions):
    """Options of commands that only read."""

    read_only: Annotated[
        bool,
        typer.Option(
            "--read-only",
            help="Search a copy of embedded:DIRECTORY while another process writes to it.",
        ),
    ] = False


@dataclass(frozen=True)
class QueryOptions(ReaderOptions):
    """Options of commands that search, as the caller or as somebody else would."""

    principals: Annotated[
        list[str],
        typer.Option(
            "--principal",
            metavar="NAME",
            help="Read what this user or group may see, as user:ann. May be repeated: any of them.",
        ),
    ] = field(default_factory=list)
    as_of: AsOf = None
    known_at: KnownAt = None

    @property
    def scope(self) -> "ext.Scope | None":
        """The scope of the options, with the principals and the time; None without them."""
        from llama_retrieval_ext.scope import at_time  # noqa: PLC0415 - imports LlamaIndex

        scope, names = super().scope, self.principals
        if names:
            scope = replace(scope, principals=names) if scope else ext.Scope(principals=names)
        return at_time(scope, self.as_of, self.known_at)


@dataclass(frozen=True)
class WriterOptions(KbOptions):
    """Options of commands that add documents, and can create the knowledge base."""

    graph: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Create it with a graph, for search --mode graph: graph:DIRECTORY or "
            "neo4j://HOST:7687/DATABASE?user_env=NAME&password_env=NAME; recorded in it.",
        ),
    ] = None
    require_scope: Annotated[
        bool,
        typer.Option(
            "--require-scope",
            help="Create a knowledge base that rejects calls without --tenant or --kb-id.",
        ),
    ] = False
    store_params: Annotated[
        list[str],
        typer.Option(
            "--store-param",
            metavar="NAME=VALUE",
            help="A setting of the engine: index=hnsw, min_free_bytes=0, ... May be repeated.",
        ),
    ] = field(default_factory=list)
    fields: Annotated[
        list[str],
        typer.Option(
            "--field",
            metavar="NAME=WEIGHT",
            help="A field that keyword search weighs: title=3, director=1.5, ... May be repeated; "
            "recorded.",
        ),
    ] = field(default_factory=list)


@dataclass(frozen=True)
class LLMOptions:
    """The language model of a command."""

    llm_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="LLAMA_RETRIEVAL_LLM_URL",
            help="A server compatible with OpenAI's, such as http://127.0.0.1:11434/v1, for "
            "answers, replies, insights and reports.",
        ),
    ] = None
    llm_model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", envvar="LLAMA_RETRIEVAL_LLM_MODEL", help="The model at --llm-url."
        ),
    ] = None
    llm_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The variable that has the key of the LLM.")
    ] = None
    llm_context: Annotated[
        int, typer.Option(min=1024, help="Tokens of prompt and answer together.")
    ] = 8192
    timeout_s: Timeout = 60.0

    def llm(self) -> "LLM | None":
        """Return the LLM of the options; None if they name none."""
        if self.llm_url is None and self.llm_model is None and self.llm_key_env is None:
            return None
        if not self.llm_url or not self.llm_model:
            raise ConfigurationError(
                "an LLM has both --llm-url URL and --llm-model NAME; add the other"
            )
        key = _NO_KEY if self.llm_key_env is None else os.environ.get(self.llm_key_env)
        if not key:
            raise ConfigurationError(
                f"--llm-key-env names the variable {self.llm_key_env!r}, which is unset"
            )
        module = optional_module("llama_index.llms.openai_like", "--llm-url", package=_OPENAI_LIKE)
        llm: LLM = module.OpenAILike(
            model=self.llm_model,
            api_base=self.llm_url,
            api_key=key,
            is_chat_model=True,
            context_window=self.llm_context,
            timeout=self.timeout_s,
        )
        return llm
