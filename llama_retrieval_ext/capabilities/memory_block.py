"""`MemoryBlock`: a user's memories as a LlamaIndex memory block."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory import BaseMemoryBlock
from llama_index.core.utils import get_tokenizer

from llama_retrieval_ext.capabilities.memory_storage import Memory
from llama_retrieval_ext.query import Scope

# Number of latest messages that form the query.
_RECENT = 3


@runtime_checkable
class Remembering(Protocol):
    """The methods of a `MemoryManager` that a block calls."""

    def aremember(
        self, text: str, *, metadata: Mapping[str, Any] | None = None, scope: Scope | None = None
    ) -> Awaitable[Memory]:
        """Store a memory."""
        ...

    def aretrieve(
        self, query: str, *, top_k: int = 5, scope: Scope | None = None
    ) -> Awaitable[list[Memory]]:
        """Return the memories most similar to a query."""
        ...


class MemoryBlock(BaseMemoryBlock[str]):
    """LlamaIndex block that stores messages leaving short-term memory and recalls memories.

    Created by ``MemoryManager.as_memory_block``, for
    ``llama_index.core.memory.Memory.from_defaults(memory_blocks=[...])``.

    Args:
        manager: Stores and recalls the memories.
        scope: Their scope; None for the manager's.
        top_k: Number of memories to recall.

    Examples:
        >>> from llama_index.core import MockEmbedding
        >>> from llama_retrieval_ext import KnowledgeBase, MemoryManager
        >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
        ...     block = MemoryManager(kb).as_memory_block(scope=Scope("anna"))
        >>> block.name, block.scope
        ('memories', Scope(tenant_id='anna'))

    """

    name: str = "memories"
    manager: Remembering
    scope: Scope | None = None
    top_k: int = 5

    async def _aget(
        self,
        messages: list[ChatMessage] | None = None,
        **_: Any,  # noqa: ANN401 - LlamaIndex's
    ) -> str:
        query = "\n".join(_texts(messages or [])[-_RECENT:])
        if not query:
            return ""
        memories = await self.manager.aretrieve(query, top_k=self.top_k, scope=self.scope)
        return "\n".join(f"{each.timestamp:%Y-%m-%d}: {each.text}" for each in memories)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        for message in messages:
            session_id = message.additional_kwargs.get("session_id")
            metadata = {} if session_id is None else {"session_id": session_id}
            for text in _texts([message]):
                await self.manager.aremember(text, metadata=metadata, scope=self.scope)

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Return the content without its last lines; None if nothing is left."""
        tokenize = get_tokenizer()
        lines = content.split("\n")
        before = len(tokenize(content))
        while lines and before - len(tokenize("\n".join(lines))) < tokens_to_truncate:
            lines.pop()
        return "\n".join(lines) or None


def _texts(messages: Sequence[ChatMessage]) -> list[str]:
    """Return the texts of the user's messages."""
    texts = (each.content or "" for each in messages if each.role == MessageRole.USER)
    return [text for text in texts if text.strip()]
