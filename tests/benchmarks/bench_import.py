"""What importing the package adds to importing LlamaIndex."""

import statistics
import subprocess
import sys

_TIMED = """
import time, llama_index.core
start = time.perf_counter()
import llama_retrieval_ext
print(time.perf_counter() - start)
"""


def seconds() -> float:
    """One measurement, in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", _TIMED], capture_output=True, check=True, text=True
    )
    return float(done.stdout)


if __name__ == "__main__":
    median = statistics.median(seconds() for _ in range(5))
    print(f"import llama_retrieval_ext after llama_index.core: {median * 1e3:.1f} ms (goal <= 100)")
