"""Workers that die, and parts that cannot be sent to them."""

import threading
from typing import Any

import pytest
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import TransformComponent
from pydantic import PrivateAttr

from llama_retrieval_ext.errors import ConfigurationError
from tests.knowledge_base.ray.workers import (
    EMBEDDED,
    N_BATCH,
    Ingest,
    ObstructedEmbedding,
    added,
    many,
    stored,
)

pytestmark = [
    pytest.mark.slow,
    # Ray's own: the pipes and logs of the processes that it starts, and its data sets' settings.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning:ray.*"),
]


@EMBEDDED
def test_batches_of_a_killed_worker_are_prepared_again(
    ingest: Ingest, open_kb: Any, obstructed: ObstructedEmbedding
) -> None:
    documents = many(2 * N_BATCH, d70="deadly", d71="one or two|three or four|five or six")
    # LlamaIndex leaves the function out when it pickles a splitter.
    bars = SentenceSplitter(
        chunk_size=5, chunk_overlap=0, chunking_tokenizer_fn=lambda text: text.split("|")
    )
    (obstructed.folder / "deadly").touch()
    report = ingest(iter(documents), transformations=[bars])
    assert not (obstructed.folder / "deadly").exists()
    assert (report.added, report.failures) == (len(documents), {})
    with open_kb(embed_model=obstructed) as kb:
        assert stored(kb) == added(documents, obstructed, transformations=[bars])
        assert [node.get_content() for node in kb.get("d71")][1] == "three or four"


@EMBEDDED
def test_documents_that_kill_each_worker_are_reported_and_the_others_stored(ingest: Ingest) -> None:
    report = ingest(many(2 * N_BATCH + 1, d70="poison"), task_options={"max_retries": 0})
    assert set(report.failures) == {f"d{i}" for i in range(N_BATCH, 2 * N_BATCH)}
    assert "worker died" in str(report.failures["d70"])
    assert report.added == N_BATCH + 1


class Locked(TransformComponent):
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    def __call__(self, nodes: Any, **_: Any) -> Any:
        return nodes


@EMBEDDED
def test_a_model_that_cannot_be_pickled_is_refused(ingest: Ingest) -> None:
    with pytest.raises(ConfigurationError, match="cannot be sent to workers"):
        ingest(many(1), transformations=[Locked()])
