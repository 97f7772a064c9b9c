"""`llama-retrieval list`, `show`, `delete` and `info`: contents of a knowledge base."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

import llama_retrieval_ext as ext
from llama_retrieval_ext.cli.hits import show_passage
from llama_retrieval_ext.cli.options import EmbedModel, KbId, Target, Tenant, Url
from llama_retrieval_ext.cli.output import counted, say, say_table, three_digits
from llama_retrieval_ext.errors import ConfigurationError

if TYPE_CHECKING:
    from llama_retrieval_ext.ingest.ledger.ledger import StoredSource

T = TypeVar("T")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_UNITS = ("bytes", "kB", "MB", "GB", "TB")
_KILO = 1000


def list_(
    *,
    kb: Url,
    tenant: Tenant = None,
    kb_id: KbId = None,
    embed_model: EmbedModel = "local",
    as_json: AsJson = False,
) -> None:
    """List the files in a knowledge base, with counts of documents and passages.

    A document that comes from no file is listed by its id.
    """
    place = Target(kb, embed_model, tenant, kb_id)
    with place.reopen() as opened:
        sources = opened.sources(scope=place.scope)
    if as_json:
        say(json.dumps([_source_as_json(each) for each in sources], ensure_ascii=False, indent=2))
    elif not sources:
        say("no documents")
    else:
        say_table(*_source_table(sources))


def show(
    source: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A file, or the id of a document; see list.", show_default=False
        ),
    ],
    *,
    kb: Url,
    tenant: Tenant = None,
    kb_id: KbId = None,
    embed_model: EmbedModel = "local",
    as_json: AsJson = False,
) -> None:
    """Show the passages of a file or document, with their metadata."""
    place = Target(kb, embed_model, tenant, kb_id)
    with place.reopen() as opened:
        nodes = _apply(opened.get, source, opened, place)
    if as_json:
        from llama_retrieval_ext.results import passage_to_dict  # noqa: PLC0415 - imports slowly

        say(json.dumps([*map(passage_to_dict, nodes)], ensure_ascii=False, indent=2))
        return
    say(f"{source}: {counted(len(nodes), 'passage')}", style="bold")
    for number, node in enumerate(nodes, start=1):
        metadata = ", ".join(f"{key}={value}" for key, value in node.metadata.items())
        say(f"\n{number}  {metadata}", style="dim")
        show_passage(node.get_content(), "", full=True)


def delete(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            help="Files, or ids of documents; see list. A file need not exist any more.",
            show_default=False,
        ),
    ],
    *,
    kb: Url,
    tenant: Tenant = None,
    kb_id: KbId = None,
    embed_model: EmbedModel = "local",
) -> None:
    """Delete files or documents from a knowledge base. The files themselves stay.

    Without --tenant or --kb-id, only documents without a tenant or kb id are deleted.
    """
    place = Target(kb, embed_model, tenant, kb_id)
    with place.reopen() as opened:
        for source in sources:
            gone = _apply(opened.delete, source, opened, place)
            say(f"deleted {source}: {counted(gone, 'document')}")


def info(
    *,
    kb: Url,
    embed_model: EmbedModel = "local",
    as_json: AsJson = False,
) -> None:
    """Show engine, embedding model, counts and size of a knowledge base."""
    with Target(kb, embed_model).reopen(needs_scope=False) as opened:
        facts = opened.info()
    if as_json:
        say(json.dumps(asdict(facts), ensure_ascii=False, indent=2))
        return
    size = "on a server" if facts.size_bytes is None else _bytes(facts.size_bytes)
    dimension = f", {facts.dimension} dimensions" if facts.dimension else ""
    rows = {
        "URL": facts.url,
        "engine": facts.engine,
        "embedding model": f"{facts.embed_model}{dimension}",
        "files or sources": f"{facts.sources:,}",
        "documents": f"{facts.documents:,}",
        "passages": f"{facts.nodes:,}",
        "size": size,
        "requires a scope": "yes" if facts.require_scope else "no",
        "many tenants": "yes" if facts.many_tenants else "no",
        **({"graph": facts.graph} if facts.graph else {}),
    }
    width = max(map(len, rows)) + 2
    for name, value in rows.items():
        say(f"{name:<{width}}{value}")


def _source_table(
    sources: Sequence["StoredSource"],
) -> tuple[Sequence[str], Iterator[Sequence[str]]]:
    has_scopes = any(each.scope for each in sources)
    header = ["passages", "documents", *(["tenant", "kb id"] if has_scopes else []), "source"]
    return header, (
        [
            f"{each.nodes:,}",
            f"{each.documents:,}",
            *(_scope_of(each) if has_scopes else ()),
            each.source,
        ]
        for each in sources
    )


def _scope_of(source: "StoredSource") -> tuple[str, str]:
    if source.scope is None:
        return "", ""
    return source.scope.tenant_id or "", ", ".join(source.scope.kb_ids)


def _source_as_json(source: "StoredSource") -> dict[str, object]:
    tenant, kb_id = _scope_of(source)
    return {
        "source": source.source,
        "documents": source.documents,
        "passages": source.nodes,
        "tenant": tenant or None,
        "knowledge_base_id": kb_id or None,
    }


def _apply(action: Callable[..., T], source: str, kb: "ext.KnowledgeBase", place: Target) -> T:
    """Return the result of an action on a source; raise if there is no such source."""
    result = action(source, scope=place.scope)
    if not result:
        raise _unknown(kb, source, place)
    return result


def _unknown(kb: "ext.KnowledgeBase", source: str, place: Target) -> ConfigurationError:
    names = [each.source for each in kb.sources(scope=place.scope)]
    same_file = [name for name in names if Path(name).name == Path(source).name]
    close = same_file or get_close_matches(source, names, n=1)
    advice = f"did you mean {close[0]!r}?" if close else "list shows what there is"
    return ConfigurationError(f"{place.url} has no document {source!r}; {advice}")


def _bytes(size: int) -> str:
    """Return a size in decimal units."""
    number, unit = float(size), 0
    while number >= _KILO and unit < len(_UNITS) - 1:
        number, unit = number / _KILO, unit + 1
    return f"{three_digits(number)} {_UNITS[unit]}"
