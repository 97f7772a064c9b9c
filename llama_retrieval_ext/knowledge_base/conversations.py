"""`ConversationParser`: the messages of a conversation as nodes, found by what was said before."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final, TypeAlias

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.node_parser.node_utils import build_nodes_from_splits
from llama_index.core.schema import BaseNode, Document, MetadataMode, TextNode
from pydantic import Field, TypeAdapter, ValidationError

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.passages import PositionedParser
from llama_retrieval_ext.scope import SESSION_KEY, SPEAKER_KEY
from llama_retrieval_ext.stages.expand import speaker_of
from llama_retrieval_ext.text.relative_dates import words_of

# LlamaIndex's message, or a row: the speaker, the text and perhaps the time.
Message: TypeAlias = ChatMessage | Sequence[object]

# Metadata of a message.
SAID_KEY: Final = "time"
DATE_KEY: Final = "date"
CONTEXT_KEY: Final = "context"
# Searched along with the text of a message. Not the speakers of its context: a name would stand
# for both people in nearly every node.
_SEARCHED: Final = (SPEAKER_KEY, DATE_KEY, CONTEXT_KEY)
# Messages before a message that are searched with it. Measured: see tests/benchmarks/README.md.
WINDOW: Final = 2
# Characters of an earlier message that count: its end, next to which the answer stands.
_LONGEST: Final = 1_000
_ROWS: Final = TypeAdapter(list[tuple[str, str, str]])


def context_of(texts: Iterable[str]) -> str:
    """Return the messages before a message as the context that is searched with it."""
    return "\n".join(" ".join(text.split())[-_LONGEST:] for text in texts)


def searched_with_context(node: TextNode) -> TextNode:
    """Return a message that is searched with its speaker, date and context, and shown alone.

    The message comes first, because models cut long texts at the end.
    """
    update = {
        "excluded_embed_metadata_keys": [key for key in node.metadata if key not in _SEARCHED],
        "metadata_template": "{value}",
        "text_template": "{content}\n\n{metadata_str}",
    }
    return node.model_copy(update=update)


class ConversationParser(PositionedParser):
    """LlamaIndex node parser: one node for each message, searched with the messages before it.

    A message means little alone ("Yes, last May!"). The text of a node is the message; its metadata
    have ``session_id``, ``speaker``, ``time``, ``date`` and ``context``, the messages before it.
    Its position is that in the conversation as lines ``speaker: message``, which `Expand` shows.
    Speaker, date and context are embedded and searched by keyword with the text, so that a question
    that names a person or a month prefers their messages. Empty messages are left out.

    Args:
        window: Number of messages before a message that are searched with it.

    Examples:
        >>> rows = [("Ann", "Did you finish the pottery course?"), ("Bob", "Yes, last May!")]
        >>> nodes = ConversationParser().get_nodes_from_messages(rows, session_id="monday")
        >>> nodes[1].text, nodes[1].metadata["speaker"], nodes[1].metadata["context"]
        ('Yes, last May!', 'Bob', 'Did you finish the pottery course?')

    """

    window: int = Field(default=WINDOW, ge=0)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serialises this class."""
        return "ConversationParser"

    @staticmethod
    def document(
        messages: Iterable[Message],
        *,
        session_id: str,
        metadata: Mapping[str, object] | None = None,
    ) -> Document:
        """Return a conversation as a document, for ``kb.add`` with this parser.

        Args:
            messages: LlamaIndex's messages, whose speaker is ``speaker`` in ``additional_kwargs``
                or else their role, and whose time is ``time`` there; or rows of speaker, text and
                time, which may be missing: a ``datetime`` or text. In the order of the
                conversation.
            session_id: Id of the conversation, and of the document.
            metadata: Further fields of every message.

        Raises:
            ConfigurationError: A message is no message.
        """
        text = json.dumps([_row(message) for message in messages], ensure_ascii=False)
        fields = {**(metadata or {}), SESSION_KEY: session_id}
        return Document(id_=session_id, text=text, metadata=fields)

    def get_nodes_from_messages(
        self,
        messages: Iterable[Message],
        *,
        session_id: str,
        metadata: Mapping[str, object] | None = None,
    ) -> list[BaseNode]:
        """Return the nodes of a conversation; the arguments are those of `document`."""
        document = self.document(messages, session_id=session_id, metadata=metadata)
        return self.get_nodes_from_documents([document])

    def _parse_nodes(
        self,
        nodes: Sequence[BaseNode],
        show_progress: bool = False,  # noqa: ARG002, FBT001, FBT002 - LlamaIndex's signature
        **_: object,
    ) -> list[BaseNode]:
        return [part for node in nodes for part in self._nodes_of(node)]

    def _nodes_of(self, conversation: BaseNode) -> list[TextNode]:
        rows = [row for row in _rows_of(conversation) if row[1].strip()]
        texts = [text for _, text, _ in rows]
        nodes = build_nodes_from_splits(texts, conversation, id_func=self.id_func)
        start = 0
        for at, (node, (speaker, text, time)) in enumerate(zip(nodes, rows, strict=True)):
            context = context_of(texts[max(0, at - self.window) : at])
            date = time
            with suppress(ValueError):  # it is no ISO 8601
                date = words_of(datetime.fromisoformat(time))
            named = {SPEAKER_KEY: speaker, SAID_KEY: time, DATE_KEY: date, CONTEXT_KEY: context}
            named = {key: value for key, value in named.items() if value}
            node.metadata = {**conversation.metadata, **named}
            node.start_char_idx = start + len(speaker_of(node))
            node.end_char_idx = node.start_char_idx + len(text)
            start = node.end_char_idx + len("\n")
        return [searched_with_context(node) for node in nodes]


def _row(message: Message) -> tuple[str, str, str]:
    """Return the speaker, the text and the time of a message; the time is empty without one."""
    if isinstance(message, ChatMessage):
        given = message.additional_kwargs
        speaker = given.get(SPEAKER_KEY, message.role.value)
        message = (speaker, message.content or "", given.get(SAID_KEY))
    match message if isinstance(message, list | tuple) else ():
        case [str(speaker), str(text)] | [str(speaker), str(text), None]:
            return speaker, text, ""
        case [str(speaker), str(text), str(time)]:
            return speaker, text, time
        case [str(speaker), str(text), datetime() as moment]:
            return speaker, text, moment.isoformat()
    raise ConfigurationError(
        f"a message is a ChatMessage, or a row such as ('Ann', 'Hello', datetime(...)), got "
        f"{message!r}"
    )


def _rows_of(conversation: BaseNode) -> list[tuple[str, str, str]]:
    try:
        return _ROWS.validate_json(conversation.get_content(MetadataMode.NONE))
    except ValidationError as error:
        raise ConfigurationError(
            f"document {conversation.node_id!r} is no conversation; make one with "
            "ConversationParser.document(messages, session_id=...)"
        ) from error
