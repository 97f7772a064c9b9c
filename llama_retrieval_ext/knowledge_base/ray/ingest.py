"""`ingest_with_ray`: `KnowledgeBase.add` on several machines."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, Document

from llama_retrieval_ext.checks import check_count, checked_call
from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError
from llama_retrieval_ext.knowledge_base.documents import Allowed, batched
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.knowledge_base.preparation import (
    BATCH_WEIGHT,
    grouped,
    progress,
    weight_of,
)
from llama_retrieval_ext.knowledge_base.readers.encodings import check_encoding
from llama_retrieval_ext.knowledge_base.readers.files import Reading, find_files
from llama_retrieval_ext.knowledge_base.report import IngestionReport
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.urls import Location

if TYPE_CHECKING:
    from ray.data import Dataset

    from llama_retrieval_ext.knowledge_base.ray.cluster import Cluster, Work

# A task reads 64 files or 4 MB: seconds of work, and cheap to repeat when a worker dies.
_FILES = 64
_FILE_BYTES = 4 * 2**20 // _FILES


@checked_call
def ingest_with_ray(  # noqa: PLR0913 - what is added, to what, and how, in one call
    documents: "str | Path | Collection[str | Path] | Iterable[BaseNode] | Dataset",
    url: str,
    *,
    embed_model: str | BaseEmbedding | None = None,
    scope: Scope | None = None,
    allowed: Allowed = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    encoding: str = "",
    n_writers: int = 1,
    task_options: Mapping[str, Any] | None = None,
    show_progress: bool = True,
    **options: Any,  # noqa: ANN401 - those of KnowledgeBase.open, which checks them
) -> IngestionReport:
    """Add documents to a knowledge base; read, split and embed them on a Ray cluster.

    It stores the same nodes under the same ids as ``KnowledgeBase.add``. Unchanged documents are
    neither split nor embedded, but their files are read to compare them. If a process was killed,
    the same call continues. If a worker dies, another one prepares its batch again, up to three
    times; then its documents are reported as failures, and the others are stored.

    It uses the cluster that ``ray.init`` has connected to; else the cluster in ``RAY_ADDRESS``;
    else Ray starts one on this machine. Its nodes need this package.

    Args:
        documents: Files, as for `read_documents`, on a disk that all nodes of the cluster can read;
            LlamaIndex documents or nodes, as for ``KnowledgeBase.add``; or a Ray ``Dataset``, whose
            rows have an ``id`` and a ``text``, and whose other columns become metadata.
        url: As for ``KnowledgeBase.open``, which creates it if there is none.
        embed_model: As for ``KnowledgeBase.open``. Each worker process gets a copy.
        scope: The tenant or knowledge base, or both, that the documents belong to.
        allowed: Who may see the documents, as for ``KnowledgeBase.add``; a function of a document
            runs on the workers if these read the files.
        include: Patterns of files to read, as for `read_documents`.
        exclude: Patterns of files to skip.
        encoding: Encoding of texts that are not in UTF-8, as for `read_documents`.
        n_writers: Number of processes that write, at least 1. With 1, this process writes. More
            need an engine on a server, and the graph, if any, on a server.
        task_options: Ray's options for a task that splits and embeds, such as ``{"num_gpus": 0.5}``
            or ``{"memory": 4 * 2**30}``; by default each takes one CPU.
        show_progress: Whether to show a progress bar on standard error; it counts files if given.
        **options: The other arguments of ``KnowledgeBase.open``.

    Returns:
        The outcome of each document. Files that cannot be read are among the failures.

    Raises:
        ConfigurationError: An argument is invalid or cannot be sent to other processes, or rows
            have no id or text.
        ScopeRequiredError: The knowledge base requires a scope.
        ModelMismatchError: The embedding model gives vectors of another dimension.
        StoreUnavailableError: The store rejects writes; documents added before stay.
        MissingDependencyError: The extra ``ray`` is not installed.

    Examples:
        >>> ingest_with_ray("docs", "embedded::memory:", embed_model="local")
        Traceback (most recent call last):
        ...
        llama_retrieval_ext.errors.ConfigurationError: what goes into embedded::memory: ...

    """
    check_count(n_writers, "n_writers")
    location = Location.of(url)
    if location.is_in_memory:
        raise ConfigurationError(
            f"what goes into {url} is gone when this returns; write 'embedded:./kb', for instance"
        )
    if n_writers > 1 and not location.is_on_server:
        raise ConfigurationError(
            f"n_writers={n_writers}, and one process at a time can write to {url}; leave it out, "
            "or use an engine on a server"
        )
    settings = {"embed_model": embed_model, **options}
    with KnowledgeBase.open(url, **settings) as kb:
        addition = kb._addition(scope, allowed)  # noqa: SLF001 - a function of the same package
        cluster = _cluster_type()(addition, task_options or {})
        selection = {"include": include, "exclude": exclude, "leave_out": location.path}
        items, work = _source(documents, cluster, selection, check_encoding(encoding))
        if n_writers > 1:
            work = cluster.written(work, n_writers, (url, settings, scope))
        with progress(items, show=show_progress) as advance:
            for part in work:
                cluster.finish(part)
                advance(part.weight)
    return addition.tally.report()


def _cluster_type() -> "type[Cluster]":
    try:
        from llama_retrieval_ext.knowledge_base.ray.cluster import Cluster  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise MissingDependencyError("ingest_with_ray", "ray") from error
    return Cluster


def _source(
    documents: Any,  # noqa: ANN401 - any of three kinds, told apart here
    cluster: "Cluster",
    selection: Mapping[str, Any],
    encoding: str,
) -> tuple[Iterable[object], "Iterator[Work]"]:
    """Return the items for the progress bar, and the work."""
    if hasattr(documents, "iter_rows"):
        documents = map(_document, documents.iter_rows())
    if isinstance(documents, str | Path):
        documents = [documents]
    several = isinstance(documents, Collection)
    if several and any(isinstance(document, str | Path) for document in islice(documents, 1)):
        reading = Reading()
        files = find_files(documents, reading, **selection)
        cluster.leave_out(reading)
        return files, cluster.of_files(batched(files, _file_weight, _FILES), encoding)
    if selection["include"] or selection["exclude"] or encoding:
        raise ConfigurationError(
            "include, exclude and encoding are for files; pass paths with them"
        )
    groups = grouped(documents)
    return groups, cluster.of_groups(batched(groups, weight_of, BATCH_WEIGHT))


def _document(row: dict[str, Any]) -> Document:
    id_, text = row.pop("id", None), row.pop("text", None)
    if not isinstance(id_, str) or not isinstance(text, str):
        raise ConfigurationError(
            f"rows of the data set need an 'id' and a 'text', both strings, got {id_!r} and "
            f"{type(text).__name__}; rename columns with Dataset.rename_columns"
        )
    metadata = {name: value for name, value in row.items() if value is not None}
    return Document(id_=id_, text=text, metadata=metadata)


def _file_weight(file: Path) -> int:
    try:
        return 1 + file.stat().st_size // _FILE_BYTES
    except OSError:  # its reader raises the error
        return 1
