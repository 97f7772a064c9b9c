"""The commands that look at a knowledge base and change it: `llama-retrieval list` and others."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.filesize import pick_unit_and_suffix

import llama_retrieval_ext as ext
from llama_retrieval_ext.cli.options import DEFAULT_KB, Allowed, AsJson, EmbedModel, KbOptions, Url
from llama_retrieval_ext.cli.output import (
    say,
    say_aside,
    say_json,
    say_left_out,
    say_table,
    show_passage,
    three_digits,
)
from llama_retrieval_ext.errors import ConfigurationError, RetrievalExtError, describe
from llama_retrieval_ext.text.normalization import composed
from llama_retrieval_ext.wording import counted

if TYPE_CHECKING:
    from llama_retrieval_ext.knowledge_base.ledger.records import StoredSource

T = TypeVar("T")
_UNITS = ["bytes", "kB", "MB", "GB", "TB"]


def list_(*, as_json: AsJson = False, options: KbOptions) -> None:
    """List the files in a knowledge base, with counts.

    A document that comes from no file is listed by its id.
    """
    with options.open() as opened:
        sources = opened.sources(scope=options.scope)
    if as_json:
        say_json([_source_as_json(source) for source in sources])
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
    as_json: AsJson = False,
    options: KbOptions,
) -> None:
    """Show the passages of a file or document, with their metadata."""
    with options.open() as opened:
        nodes = _apply(opened.get, source, opened, options)
    if as_json:
        from llama_retrieval_ext.hits import passage_to_dict  # noqa: PLC0415 - imports slowly

        say_json([*map(passage_to_dict, nodes)])
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
            metavar="ID",
            help="Files, folders, patterns such as 'docs/*.md', or ids of documents; see list. "
            "A file may be gone from disk.",
            show_default=False,
        ),
    ],
    *,
    options: KbOptions,
) -> None:
    """Delete files or documents from a knowledge base. The files themselves stay.

    Without --tenant or --kb-id, only documents without a tenant or kb id are deleted.
    """
    with options.open() as opened:
        for name, count in _apply_to_each(opened.delete, sources, opened, options):
            say(f"deleted {name}: {counted(count, 'document')}")


def share(
    sources: Annotated[
        list[str], typer.Argument(metavar="ID", help="As for delete; see list.", show_default=False)
    ],
    *,
    allowed: Allowed = None,
    everyone: Annotated[
        bool, typer.Option("--everyone", help="Everyone in the scope may see them.")
    ] = False,
    options: KbOptions,
) -> None:
    """Change who may see files or documents.

    Nothing is embedded again.
    """
    if everyone == bool(allowed):
        raise ConfigurationError("name who may see them with --allowed NAME, or pass --everyone")
    with options.open() as opened:

        def shared(source: str, scope: "ext.Scope | None") -> int:
            is_there = bool(opened.get(source, scope=scope))
            return opened.share(source, allowed=allowed, scope=scope) if is_there else 0

        for name, count in _apply_to_each(shared, sources, opened, options):
            say(f"shared {name}: {counted(count, 'document')}")


def ranking(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="A YAML file with rules, which replace those of the scope."
        ),
    ] = None,
    *,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the rules of the scope.")] = False,
    as_json: AsJson = False,
    options: KbOptions,
) -> None:
    """Show or set the ranking rules of a scope: boosts and so on.

    Without --tenant or --kb-id they are for all.
    """
    if file is not None and clear:
        raise ConfigurationError("name a FILE with rules, or pass --clear, not both")
    with options.open() as opened:
        if file is not None or clear:
            rules = opened.set_ranking(file, scope=options.scope)
        else:
            rules = opened.ranking(scope=options.scope)
    say_json(rules.to_dict()) if as_json else say(rules.to_yaml() or "no rules")


def _apply_to_each(
    action: Callable[..., int], patterns: Sequence[str], kb: "ext.KnowledgeBase", options: KbOptions
) -> Iterator[tuple[str, int]]:
    """Yield each source that the patterns name, with the result of an action on it."""
    for pattern in patterns:
        for name in _matching(kb, pattern, options) or [pattern]:
            yield name, _apply(action, name, kb, options)


def _matching(kb: "ext.KnowledgeBase", pattern: str, options: KbOptions) -> list[str]:
    """Return the sources in a folder, or whose path matches a pattern; none for a plain id."""
    if not pattern:  # not the working directory
        return []
    sources = [
        (composed(source.source), source.source) for source in kb.sources(scope=options.scope)
    ]
    pattern = composed(pattern)
    path = str(Path(pattern).absolute())
    if any(sign in pattern for sign in "*?["):
        return [s for name, s in sources if fnmatch(name, path) or fnmatch(name, pattern)]
    if any(name == pattern for name, _ in sources):
        return []
    return [source for name, source in sources if Path(path) in Path(name).parents]


def check(*, kb: Url = DEFAULT_KB, embed_model: EmbedModel = None, as_json: AsJson = False) -> None:
    """Compare documents with what searches find.

    The exit code is 1 if some are damaged.
    """
    with KbOptions(url=kb, embed_model=embed_model).open(needs_scope=False) as opened:
        report = opened.check()
    say_json(report.to_dict()) if as_json else say(str(report))
    if not report.is_whole:
        raise typer.Exit(1)


def info(*, kb: Url = DEFAULT_KB, embed_model: EmbedModel = None, as_json: AsJson = False) -> None:
    """Show engine, embedding model, counts and size."""
    with KbOptions(url=kb, embed_model=embed_model).open(needs_scope=False) as opened:
        facts = opened.info()
    if as_json:
        say_json(asdict(facts))
        return
    size = "on a server"
    if facts.size_bytes is not None:
        unit, name = pick_unit_and_suffix(facts.size_bytes, _UNITS, 1000)
        size = f"{three_digits(facts.size_bytes / unit)} {name}"
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
        **({"splitting": facts.splitting} if facts.splitting else {}),
        "searched fields": ", ".join(f"{n} {weight:g}" for n, weight in facts.schema.text.items()),
        **({"not indexed": ", ".join(facts.unindexed)} if facts.unindexed else {}),
        **({"graph": facts.graph} if facts.graph else {}),
    }
    width = max(map(len, rows)) + 2
    for name, value in rows.items():
        say(f"{name:<{width}}{value}")


def _source_table(
    sources: Sequence["StoredSource"],
) -> tuple[Sequence[str], Iterator[Sequence[str]]]:
    has_scopes = any(source.scope for source in sources)
    header = ["passages", "documents", *(["tenant", "kb id"] if has_scopes else []), "source"]
    return header, (
        [
            f"{source.nodes:,}",
            f"{source.documents:,}",
            *(_scope_of(source) if has_scopes else ()),
            source.source,
        ]
        for source in sources
    )


def _scope_of(source: "StoredSource") -> tuple[str, str]:
    if source.scope is None:
        return "", ""
    return source.scope.tenant_id or "", ", ".join(source.scope.kb_ids or ())


def _source_as_json(source: "StoredSource") -> dict[str, object]:
    tenant, kb_id = _scope_of(source)
    return {
        "source": source.source,
        "documents": source.documents,
        "passages": source.nodes,
        "tenant_id": tenant or None,
        "kb_id": kb_id or None,
    }


def _apply(action: Callable[..., T], source: str, kb: "ext.KnowledgeBase", options: KbOptions) -> T:
    """Return the result of an action on a source; raise if there is no such source."""
    if result := action(source, scope=options.scope):
        return result
    names = sorted({stored.source for stored in kb.sources(scope=options.scope)})
    same_file = [name for name in names if Path(name).name == Path(source).name]
    close = same_file or get_close_matches(source, names, n=1)
    proposed = " or ".join(map(repr, close))
    advice = f"did you mean {proposed}?" if close else "list shows what there is"
    raise ConfigurationError(f"{options.url} has no document {source!r}; {advice}")


def copy(  # noqa: PLR0913 - a command's options are its parameters
    *,
    source: Annotated[
        str, typer.Option("--from", metavar="URL", help="The knowledge base.", show_default=False)
    ],
    target: Annotated[
        str,
        typer.Option(
            "--to", metavar="URL", help="The knowledge base to copy to.", show_default=False
        ),
    ],
    many_tenants: Annotated[
        bool,
        typer.Option(
            "--many-tenants",
            help="Store the data of each tenant together; applies when the copy is created.",
        ),
    ] = False,
    mirror: Annotated[
        bool,
        typer.Option(
            "--mirror", help="Delete documents from the copy that the source does not have."
        ),
    ] = False,
    graph: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The graph of the copy; needed if the source has one."),
    ] = None,
    embed_model: EmbedModel = None,
    judgements: Annotated[
        str | None, typer.Option(metavar="FILE", help="Labelled questions to compare models by.")
    ] = None,
    compare: Annotated[
        bool, typer.Option(help="Compare the models if the new one differs.")
    ] = True,
) -> None:
    """Copy a knowledge base to another engine or model.

    You can run it again: it skips existing documents, and with --mirror it deletes documents that
    the source does not have. The source is only read.
    """
    report = ext.copy_knowledge_base(
        source,
        target,
        many_tenants=many_tenants or None,
        mirror=mirror,
        graph=graph,
        show_progress=sys.stderr.isatty(),
        embed_model=embed_model,
    )
    say(str(report))
    if report.only_at_target:
        say_aside("to remove what is only at the target, add --mirror")
    say_left_out({name: describe(error) for name, error in report.failures.items()})
    if report.failures:
        raise typer.Exit(1)
    if embed_model is not None and compare:
        _compare_models(source, target, embed_model, judgements)


def _compare_models(source: str, target: str, embed_model: str, judgements: str | None) -> None:
    """Say which model searches better; the copy is done, so a failure is only said."""
    from llama_retrieval_ext.evaluation.model_comparison import compare_models  # noqa: PLC0415 - imports slowly

    try:
        with (
            ext.KnowledgeBase.open(source) as old,
            ext.KnowledgeBase.open(target, embed_model=embed_model) as new,
        ):
            for comparison in compare_models(old, new, judgements):
                say(str(comparison))
    except RetrievalExtError as error:
        say(f"not compared: {describe(error)}")


def remove(
    url: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="The knowledge base; or --kb URL.")
    ] = None,
    *,
    kb: Annotated[str | None, typer.Option("--kb", metavar="URL", help="The same.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
) -> None:
    """Remove a knowledge base with all its documents and their data.

    It does not remove other folders or databases, or a knowledge base with an active writer. After
    an interruption, run it again.
    """
    if (url is None) == (kb is None):
        raise ConfigurationError("name the knowledge base to remove once: URL, or --kb URL")
    url = url or kb or ""
    if not yes:
        from llama_retrieval_ext.knowledge_base import storage  # noqa: PLC0415 - imports slowly

        storage.open_storage(url, storage.RequestedSetup(must_exist=True, may_create=False)).close()
        if not sys.stdin.isatty():
            raise ConfigurationError(f"to remove {url} without being asked, add --yes")
        typer.confirm(f"Remove {url} with all its documents?", abort=True)
    ext.KnowledgeBase.remove(url)
    say(f"removed {url}")
