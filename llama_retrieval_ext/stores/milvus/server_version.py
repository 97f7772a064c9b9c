"""Which servers will do."""

import re
from typing import Final

from llama_retrieval_ext.errors import ConfigurationError

_LITE: Final = "milvus_lite"
# The first with BM25. Milvus 2.3 dies of a collection with sparse vectors, which it does not know.
_OLDEST: Final = (2, 5)
_NUMBERS: Final = re.compile(r"v?(\d+)\.(\d+)")


def is_lite(version: str) -> bool:
    """Whether it is Milvus Lite that tells this version."""
    return version.startswith(_LITE)


def check_version(version: str, where: str) -> None:
    """Nothing, unless a server says that it is too old.

    Args:
        version: As the server tells it; of one without numbers nothing is known.
        where: The server, as it may be shown.

    Raises:
        ConfigurationError: It is.

    Examples:
        >>> check_version("v2.6.4", "http://db:19530")
        >>> check_version("v2.3.5-lite", "http://db:19530")
        Traceback (most recent call last):
        llama_retrieval_ext.errors.ConfigurationError: Milvus at http://db:19530 is v2.3.5-lite, \
and must be 2.5 or newer, for keyword search; use a newer server, or a file of Milvus Lite: \
milvus:./file.db

    """
    numbers = _NUMBERS.match(version)
    if not is_lite(version) and numbers and tuple(map(int, numbers.groups())) < _OLDEST:
        raise ConfigurationError(
            f"Milvus at {where} is {version}, and must be {'.'.join(map(str, _OLDEST))} or newer, "
            "for keyword search; use a newer server, or a file of Milvus Lite: milvus:./file.db"
        )
