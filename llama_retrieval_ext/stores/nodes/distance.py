"""How embeddings are compared."""

from typing import Literal, TypeAlias

Distance: TypeAlias = Literal["cosine", "dot", "euclid"]
