"""`ingest_with_ray` against `add`, in turns, on a warm local cluster: medians.

    python tests/benchmarks/bench_ray.py [MEGABYTES] [ROUNDS]

Both read the same files into a new embedded knowledge base with `LocalEmbedding`, 512-token chunks.
Ray's workers yield to all other processes (nice 15), which on a busy machine would measure those.
"""

import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import ray

from llama_retrieval_ext import KnowledgeBase, LocalEmbedding, ingest_with_ray, read_documents

FILE_BYTES = 10_000


def write_files(folder: Path, megabytes: float) -> None:
    rng = random.Random(0)
    words = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(5000)
    ]
    for number in range(int(megabytes * 1e6 / FILE_BYTES)):
        text = ""
        while len(text) < FILE_BYTES:
            text += " ".join(rng.choices(words, k=14)).capitalize() + rng.choice(
                [". ", ". ", ".\n\n"]
            )
        (folder / f"{number}.md").write_text(text)


def run_add(docs: Path, url: str) -> str:
    with KnowledgeBase.open(url, embed_model=LocalEmbedding()) as kb:
        return str(kb.add(read_documents(docs), show_progress=False))


def run_ray(docs: Path, url: str) -> str:
    return str(ingest_with_ray(docs, url, embed_model=LocalEmbedding(), show_progress=False))


def main(megabytes: float, rounds: int) -> None:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    docs = folder / "docs"
    docs.mkdir()
    write_files(docs, megabytes)
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - as Ray spells it
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=2**28, log_to_driver=False)
    runs = {"add": run_add, "ray": run_ray}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):  # the first warms up: workers start, tokenizers load
        for name, run in runs.items():
            started = time.perf_counter()
            report = run(docs, f"embedded:{folder / name}")
            took = time.perf_counter() - started
            shutil.rmtree(folder / name)
            print(f"{name}: {took:.1f} s, load {os.getloadavg()[0]:.0f}: {report}", flush=True)
            if number:
                seconds[name].append(took)
    for name, each in seconds.items():
        print(f"{name}: median {statistics.median(each):.2f} s of {rounds}")
    print(f"ray / add: {statistics.median(seconds['ray']) / statistics.median(seconds['add']):.2f}")
    ray.shutdown()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(
        float(sys.argv[1]) if len(sys.argv) > 1 else 8, int(sys.argv[2]) if len(sys.argv) > 2 else 3
    )
