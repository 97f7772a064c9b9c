"""Tasks on a Ray cluster that read and prepare documents, and actors that write them."""

import pickle
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import ray
from llama_index.core.utils import get_tokenizer
from ray.exceptions import (
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    WorkerCrashedError,
)

from llama_retrieval_ext.errors import ConfigurationError, IngestionError, describe
from llama_retrieval_ext.knowledge_base.adding import Addition
from llama_retrieval_ext.knowledge_base.documents import Allowed, SourceDocument
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey
from llama_retrieval_ext.knowledge_base.preparation import Group, Preparation, PreparedBatch
from llama_retrieval_ext.knowledge_base.readers.files import Reading, read_files
from llama_retrieval_ext.knowledge_base.readers.texts import NO_TEXT
from llama_retrieval_ext.knowledge_base.report import IngestionReport
from llama_retrieval_ext.scope import Scope

T = TypeVar("T")

# Errors of a dead worker after Ray's retries.
_LOST = (WorkerCrashedError, RayActorError, OutOfMemoryError, ObjectLostError)


class Work(NamedTuple):
    """A batch of documents that is being prepared."""

    weight: int  # by which it advances the progress bar
    keys: Sequence[DocumentKey]  # of the documents that have changed
    result: Any  # the `PreparedBatch`, or the report of its writer; None if nothing has changed


class Cluster:
    """Prepares the documents of one `Addition` on a Ray cluster, in their order."""

    def __init__(self, addition: Addition, task_options: Mapping[str, Any]) -> None:
        self._addition = addition
        try:
            # In a list, so that Ray passes the reference to tasks: each process loads a model once.
            self._preparation = [ray.put(addition.parts.preparation)]
        except (TypeError, pickle.PicklingError) as error:
            raise ConfigurationError(
                f"the embedding model or a transformation cannot be sent to workers ({error}); "
                "give the model by its notation, such as 'local', and transformations that pickle"
            ) from error
        # Otherwise Ray ends a process that has used a GPU, and its model is loaded again.
        self._prepare = ray.remote(**{"max_calls": 0, **task_options})(_prepare)

    def leave_out(self, reading: Reading) -> None:
        """Record the files that cannot be read."""
        self._addition.tally.merge(_left_out(reading))

    def of_files(self, batches: Iterable[Sequence[Path]], encoding: str) -> Iterator[Work]:
        """Return the work on files, which tasks read."""
        read: Any = ray.remote(num_returns=2)(_read)
        given = self._addition
        begun = self._ahead(
            (files, *read.remote(self._preparation, given.scope, given.allowed, encoding, files))
            for files in batches
        )
        return self._ahead(self._looked_up(*batch) for batch in begun)

    def of_groups(self, batches: Iterable[Sequence[Group]]) -> Iterator[Work]:
        """Return the work on documents and nodes of this process."""

        def work() -> Iterator[Work]:
            for batch in batches:
                changed = self._addition.changed(self._addition.identified(batch))
                yield self._work(len(batch), changed, changed)

        return self._ahead(work())

    def written(
        self,
        work: Iterable[Work],
        n_writers: int,
        target: tuple[str, Mapping[str, Any], Scope | None],
    ) -> Iterator[Work]:
        """Return the work with results that actors write; actors restart if they die."""
        kind: Any = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=3)(_WriterActor)
        writers = [kind.remote(*target) for _ in range(n_writers)]
        return self._ahead(
            part if part.result is None else part._replace(result=writer.write.remote(part.result))
            for part, writer in zip(work, cycle(writers), strict=False)
        )

    def finish(self, work: Work) -> None:
        """Write the remaining documents and record the outcomes."""
        if work.result is None:
            return
        try:
            result = _got(work.result)
        except _LOST as error:
            result = _lost([key.ref for key in work.keys], error)
        if isinstance(result, IngestionReport):
            self._addition.tally.merge(result)
        else:
            self._addition.store(result)

    def _looked_up(self, files: Sequence[Path], documents: Any, identified: Any) -> Work:  # noqa: ANN401
        try:
            marks, report = _got(identified)
        except _LOST as error:
            marks, report = [], _lost(files, error)
        self._addition.tally.merge(report)
        return self._work(len(files), documents, self._addition.changed(marks))

    def _work(self, weight: int, documents: Any, changed: Sequence[SourceDocument]) -> Work:  # noqa: ANN401
        keys = [document.key for document in changed]
        if not keys:
            return Work(weight, keys, None)
        versions = [(document.key, document.version) for document in changed]
        return Work(weight, keys, self._prepare.remote(self._preparation, documents, versions))

    def _ahead(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items in order; start enough of them to keep all CPUs busy."""
        begun: deque[T] = deque()
        for item in items:
            begun.append(item)
            resources = ray.cluster_resources()  # type: ignore[no-untyped-call]  # they may change
            while len(begun) > 2 * max(1, resources.get("CPU", 1)):
                yield begun.popleft()
        yield from begun


def _got(reference: Any) -> Any:  # noqa: ANN401 - whatever the task returned
    try:
        return ray.get(reference)
    except RayTaskError as error:
        raise error.cause from error


def _lost(names: Iterable[object], error: Exception) -> IngestionReport:
    why = IngestionError(f"its worker died each time that it was tried: {describe(error)}", {})
    return IngestionReport(failures={str(name): why for name in names})


def _left_out(reading: Reading) -> IngestionReport:
    reasons = {str(file): why for file, why in reading.left_out.items()}
    failures = {name: IngestionError(why, {}) for name, why in reasons.items() if why != NO_TEXT}
    return IngestionReport(
        failures=failures, skipped=dict.fromkeys(reasons.keys() - failures, NO_TEXT)
    )


@lru_cache(maxsize=1)
def _fetched(reference: Any) -> Preparation:  # noqa: ANN401 - a reference
    # A splitter's tokenizer is pickled by name, and tiktoken would download the encoding.
    # LlamaIndex ships it, and makes tiktoken use it in `get_tokenizer`.
    get_tokenizer()
    preparation: Preparation = ray.get(reference)
    return preparation


def _read(
    preparation: Sequence[Any],
    scope: Mapping[str, str],
    allowed: Allowed,
    encoding: str,
    files: Sequence[Path],
) -> tuple[list[SourceDocument], tuple[list[SourceDocument], IngestionReport]]:
    """Return the documents, their keys and digests for the driver, and the failures."""
    reading = Reading()
    failures: dict[str, Exception] = {}

    def failed(ref: str, error: Exception) -> None:
        failures[ref] = _portable(error)

    groups = ([document] for document in read_files(files, reading, encoding))
    documents = _fetched(*preparation).identified(groups, scope, failed, allowed)
    marks = [
        SourceDocument(document.key, (), document.digest, document.allowed)
        for document in documents
    ]
    left_out = _left_out(reading)
    failures.update(left_out.failures)
    return documents, (marks, IngestionReport(failures=failures, skipped=left_out.skipped))


def _prepare(
    preparation: Sequence[Any],
    documents: Sequence[SourceDocument],
    versions: Sequence[tuple[DocumentKey, str]],
) -> PreparedBatch:
    by_version = {(document.key, document.version): document for document in documents}
    batch = _fetched(*preparation).prepared([by_version[version] for version in versions])
    return replace(batch, results={key: _portable(result) for key, result in batch.results.items()})


def _portable(result: T) -> T | IngestionError:
    """Return the result, or a picklable error if it cannot be pickled."""
    try:
        sent = pickle.dumps(result)
        if isinstance(result, Exception):
            pickle.loads(sent)  # noqa: S301 - made here
    except Exception as error:  # noqa: BLE001 - whatever its class does
        return IngestionError(describe(result if isinstance(result, Exception) else error), {})
    return result


class _WriterActor:
    """Actor that writes to a knowledge base on a server."""

    def __init__(self, url: str, settings: Mapping[str, Any], scope: Scope | None) -> None:
        self._kb = KnowledgeBase.open(url, **settings)
        self._scope = scope

    def write(self, batch: PreparedBatch) -> IngestionReport:
        addition = self._kb._addition(self._scope)  # noqa: SLF001 - an actor of the same package
        addition.store(batch)
        return addition.tally.report()
