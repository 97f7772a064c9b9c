"""What a knowledge base records about itself, and who may open it."""

from dataclasses import dataclass, replace

from llama_retrieval_ext.errors import (
    ConfigurationError,
    ModelMismatchError,
    StoreFormatError,
    StoreUnavailableError,
)

# 2: the ledger keeps the source of each document.
FORMAT = 2


@dataclass(frozen=True, slots=True)
class Manifest:
    """How a knowledge base is set up.

    Attributes:
        embed_model: Name of the embedding model that made its vectors.
        tokenizer: Settings of the tokenizer of its keyword search; empty where the engine has its
            own.
        require_scope: Whether queries without a scope are refused; None, which is never recorded,
            to leave it as it is.
        dimension: Of its vectors; None until there are some. Of what is asked for: of the vectors
            that the embedding model makes, where it says so.
        format: Version of the ledger.
        removing: Whether its removal was begun.
        params: Settings for the engine as JSON, for when it makes the collection; empty for none.
    """

    embed_model: str
    tokenizer: str = ""
    require_scope: bool | None = False
    dimension: int | None = None
    format: int = FORMAT
    removing: bool = False
    params: str = ""

    def check_format(self, where: str) -> None:
        """Nothing, if this version can read it.

        Raises:
            StoreFormatError: It was written by a newer version.
        """
        if self.format > FORMAT:
            raise StoreFormatError(
                f"{where} has format {self.format}, this version reads up to {FORMAT}; "
                "upgrade llama-retrieval-ext"
            )

    def opened(self, asked: "Manifest", where: str) -> "Manifest":
        """What stays recorded when a knowledge base is opened.

        Args:
            asked: What the one who opens it says. A scope may be required that the knowledge base
                does not ask for; it is then required of this caller alone.
            where: The knowledge base, for messages.

        Raises:
            StoreFormatError: It was written by a newer version.
            StoreUnavailableError: It is being removed.
            ModelMismatchError: It was made with another embedding model, or one whose vectors have
                another dimension.
            ConfigurationError: It requires a scope, and the caller does not; or its keyword search
                has another tokenizer.
        """
        self.check_format(where)
        if self.removing:
            raise StoreUnavailableError(
                f"{where} is being removed, or who began to has died; finish it with "
                f"KnowledgeBase.remove, or: llama-retrieval remove {where}"
            )
        if self.embed_model != asked.embed_model:
            raise ModelMismatchError(
                f"{where} was made with the embedding model {self.embed_model!r}, and is opened "
                f"with {asked.embed_model!r}; open it with the first, or make a new knowledge base"
            )
        if None not in (self.dimension, asked.dimension) and self.dimension != asked.dimension:
            raise ModelMismatchError(
                f"{where} holds vectors of dimension {self.dimension}, and is opened with "
                f"{asked.embed_model!r}, which makes vectors of dimension {asked.dimension}; "
                "open it with the model that made those, or make a new knowledge base"
            )
        if self.require_scope and asked.require_scope is False:
            raise ConfigurationError(
                f"{where} was made with require_scope=True, and is opened with "
                "require_scope=False; leave it out, and give queries a scope (on the command line: "
                "--tenant or --kb-id)"
            )
        if self.dimension is None:  # nothing has been indexed yet
            return replace(self, tokenizer=asked.tokenizer, params=asked.params)
        if self.tokenizer != asked.tokenizer:
            raise ConfigurationError(
                f"{where} was indexed with the tokenizer {self.tokenizer}, and is opened with "
                f"{asked.tokenizer}; leave tokenizer= out, or make a new knowledge base"
            )
        return self

    def as_new(self) -> "Manifest":
        """What is recorded of it where a knowledge base is set up, before anything is in it."""
        return replace(self, dimension=None, require_scope=bool(self.require_scope), format=FORMAT)
