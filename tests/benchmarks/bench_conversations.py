"""Messages found by what was said around them: ``python -m tests.benchmarks.bench_conversations``.

Recall@10 and reciprocal rank of the reply that answers a question, over generated conversations in
English and Chinese, `LocalEmbedding`: messages alone, with the two before them, and with speaker
and date as well; then questions with relative dates, as they are and resolved; then the time of
`MemoryManager.retrieve` over some thousand messages.
"""

import re
import statistics
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from llama_index.core.schema import BaseNode, MetadataMode

from llama_retrieval_ext import HybridRetriever, LocalEmbedding, MemoryManager, Retriever
from llama_retrieval_ext.knowledge_base import ConversationParser
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.text.relative_dates import dates_in
from tests.benchmarks.conversation_set import CHINESE, ENGLISH, Conversations, conversations

# Name of a variant, messages before, and metadata that are not searched.
VARIANTS: Final = (
    ("alone", 0, ("speaker", "date")),
    ("with two before", 2, ("speaker", "date")),
    ("and the speaker", 2, ("date",)),
    ("and the date", 2, ()),
)
_SEEDS: Final = 5
# The month in a question of the set, and what replaces it, with the days until it is asked.
_MONTH: Final = r"in \w+ 2023|2023年\d+月"
_RELATIVE: Final = (
    {"yesterday": 1, "three days ago": 3, "two weeks ago": 14, "last {said:%B}": 365},
    {"昨天": 1, "三天前": 3, "两周前": 14, "去年{said.month}月": 365},
)
_MESSAGES: Final = 3_000


def nodes_of(talk: Conversations, window: int, hidden: Sequence[str]) -> list[BaseNode]:
    """Return the messages of all sessions, with their embeddings."""
    parser, model = ConversationParser(window=window), LocalEmbedding()
    nodes: list[BaseNode] = []
    for name, rows in talk.sessions.items():
        for number, node in enumerate(parser.get_nodes_from_messages(rows, session_id=name)):
            node.id_ = f"{name}-{number}"
            node.excluded_embed_metadata_keys += hidden
            nodes.append(node)
    texts = [node.get_content(MetadataMode.EMBED) for node in nodes]
    for node, vector in zip(nodes, model.get_text_embedding_batch(texts), strict=True):
        node.embedding = vector
    return nodes


def ranks(talk: Conversations, retriever: Retriever) -> dict[str, list[int | None]]:
    """Return the rank of each answer in the first ten, by the kind of the question."""
    found: dict[str, list[int | None]] = {"speaker": [], "date": []}
    for question in talk.questions:
        ids = [hit.node_id for hit in retriever.search(question.text)]
        answer = f"{question.session}-{question.at}"
        found[question.kind].append(ids.index(answer) + 1 if answer in ids else None)
    return found


def quality() -> None:
    """Print recall@10 and the mean reciprocal rank of each variant."""
    for language in (ENGLISH, CHINESE):
        talks = [conversations(language, seed=seed) for seed in range(_SEEDS)]
        count = sum(len(talk.questions) for talk in talks)
        print(f"{'English' if language is ENGLISH else 'Chinese'}, {count} questions")
        for name, window, hidden in VARIANTS:
            found: dict[str, list[int | None]] = {}
            for talk in talks:
                with EmbeddedVectorStore(":memory:") as store:
                    store.add(nodes_of(talk, window, hidden))
                    model = LocalEmbedding()
                    retrievers: dict[str, Retriever] = {
                        "keyword": KeywordRetriever(store),
                        "vector": VectorRetriever(store, embed_model=model),
                        "hybrid": HybridRetriever(store, embed_model=model),
                    }
                    for each, retriever in retrievers.items():
                        for kind, some in ranks(talk, retriever).items():
                            found.setdefault(f"{each}, {kind}", []).extend(some)
            print(f"{name:16}", *(f"| {each}: {_summary(own)}" for each, own in found.items()))


def relative_dates() -> None:
    """Print the same for dated questions that name the time of the message by a relative date."""
    for language in (ENGLISH, CHINESE):
        talks = [conversations(language, seed=seed) for seed in range(_SEEDS)]
        found: dict[str, list[int | None]] = {}
        for talk in talks:
            with EmbeddedVectorStore(":memory:") as store:
                store.add(nodes_of(talk, 2, ()))
                retriever = HybridRetriever(store, embed_model=LocalEmbedding())
                for question in (
                    question for question in talk.questions if question.kind == "date"
                ):
                    said = talk.sessions[question.session][question.at][2].date()
                    for words, days in _RELATIVE[language is CHINESE].items():
                        asked = said + timedelta(days=days)
                        text = re.sub(_MONTH, words.format(said=said), question.text)
                        resolved = " ".join([text, *dates_in(text, asked)])
                        for name, each in (("as it is", text), ("resolved", resolved)):
                            ids = [hit.node_id for hit in retriever.search(each)]
                            answer = f"{question.session}-{question.at}"
                            rank = ids.index(answer) + 1 if answer in ids else None
                            found.setdefault(f"{words}, {name}", []).append(rank)
        for name, ranks_ in found.items():
            print(f"{name:30} {_summary(ranks_)}")


def _summary(found: Sequence[int | None]) -> str:
    recall = sum(rank is not None for rank in found) / len(found)
    reciprocal = sum(1 / rank for rank in found if rank) / len(found)
    return f"{recall:.3f} {reciprocal:.3f}"


def speed() -> None:
    """Print the time in which a message is found."""
    with EmbeddedVectorStore(":memory:") as store:
        manager = MemoryManager(store, embed_model=LocalEmbedding())
        for number in range(_MESSAGES // 20):
            for turn in range(20):
                manager.remember(f"Message {turn} about topic {number}", metadata={"n": turn})
        clock: list[float] = []
        for number in range(300):
            start = time.process_time()
            manager.retrieve(f"topic {number % 100}")
            clock.append(time.process_time() - start)
    print(f"found among {_MESSAGES}: {statistics.median(clock) * 1e3:.2f} ms of processor time")


if __name__ == "__main__":
    quality()
    relative_dates()
    speed()
