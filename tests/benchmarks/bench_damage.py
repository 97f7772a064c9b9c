"""What a damaged file of an embedded knowledge base does.

    python -m tests.benchmarks.bench_damage

Arguments: the number of trials (200), the seed (1).
"""

import sys
import tempfile
from pathlib import Path

from tests.knowledge_base.damage import ENDS, Trials, counted


def main(n: int = 200, seed: int = 1) -> None:
    """Print the outcomes after a clean end and after a kill, and each one that is not allowed."""
    with tempfile.TemporaryDirectory() as folder, Trials(Path(folder)) as trials:
        for end in ENDS:
            results = [*trials.run(n, end=end, seed=seed)]
            print(end, dict(counted(results)), flush=True)
            for kind, name, outcome in results:
                if outcome not in ("same", "error"):
                    print("  ", kind, name, outcome, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
