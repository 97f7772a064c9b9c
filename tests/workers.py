"""How tests are divided among the workers of pytest-xdist (``-n``).

A file stays together, for the sake of its fixtures; what has a server for itself goes to one
worker.
"""

from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# A fixture whose tests delete all there is on its server.
_EXCLUSIVE = "neo4j_url"


class Files(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives out files in the order of the collection: what is slow comes first there."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return _scope(self.config.rootpath / nodeid.partition("::")[0])


@cache
def _scope(file: Path) -> str:
    return _EXCLUSIVE if _EXCLUSIVE in file.read_text(encoding="utf-8") else str(file)
