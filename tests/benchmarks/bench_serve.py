"""A load on the HTTP server: 200 clients of 20 tenants, 10,000 requests, each answer checked.

``python -m tests.benchmarks.bench_serve [REQUESTS [CLIENTS [KB_URL]]]``; the knowledge base is made
for it, in a folder that is gone afterwards unless a URL is given. ``--workers 2`` for several
processes; ``--turns 5 --trees ../wt-old .`` to measure the servers of working trees in turns, with
this client, and to print their medians last.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.serve.load import Load, load
from tests.serve.running import fill, keys_of, serving

TENANTS = [f"tenant{n}" for n in range(20)]
PER_TENANT = 500
_FILL = "import sys; from tests.serve.running import fill; fill({url!r}, {tenants}, per_tenant={n})"


def processor_s(pid: int) -> float:
    """Processor time that a process and its children have taken."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return own + sum(map(processor_s, map(int, children)))


def run(
    requests: int, clients: int, url: str | None, *options: str, tree: Path | None = None
) -> tuple[Load, float]:
    """Serve a new knowledge base under load; the outcome, and the server's processor time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kb_url = url or f"embedded:{folder / 'kb'}"
        if tree is None:
            fill(kb_url, TENANTS, per_tenant=PER_TENANT)
        else:  # by the code that serves it
            program = _FILL.format(url=kb_url, tenants=TENANTS, n=PER_TENANT)
            env = {**os.environ, "PYTHONPATH": str(tree)}
            subprocess.run([sys.executable, "-c", program], cwd=tree, env=env, check=True)
        keys = folder / "keys.yaml"
        keys.write_text(keys_of(TENANTS), encoding="utf-8")
        with serving(kb_url, folder, "--keys", str(keys), *options, tree=tree) as server:
            before = processor_s(server.process.pid)
            outcome = asyncio.run(
                load(server.url, TENANTS, clients=clients, requests=requests, per_tenant=PER_TENANT)
            )
            processor = processor_s(server.process.pid) - before
            if server.stop() != 0:
                outcome.unexpected.append("the server did not stop well")
    return outcome, processor


def show(outcome: Load, processor: float, requests: int) -> tuple[float, float, float, float]:
    """Print throughput and latencies; return requests/s, processor ms, p95 and p99."""
    rate, took = requests / outcome.seconds, 1e3 * processor / requests
    print(f"{outcome.seconds:.1f} s, {rate:.0f} requests/s, load {os.getloadavg()[0]:.0f}")
    print(f"processor time of the server: {took:.1f} ms a request")
    shares = {share: outcome.percentile(share) for share in (0.5, 0.9, 0.95, 0.99, 1.0)}
    print("latency, ms:", ", ".join(f"p{100 * s:g} {ms:.0f}" for s, ms in shares.items()))
    statuses: Counter[int] = Counter()
    for (_, status), count in outcome.statuses.items():
        statuses[status] += count
    print("statuses:", dict(sorted(statuses.items())))
    print(f"crossed answers: {len(outcome.crossed)}, unexpected: {len(outcome.unexpected)}")
    for problem in [*outcome.crossed, *outcome.unexpected][:10]:
        print(" ", problem)
    return rate, took, shares[0.95], shares[0.99]


def main() -> None:
    """Measure; end with 1 if an answer was not as it should be."""
    parser = argparse.ArgumentParser()
    parser.add_argument("requests", type=int, nargs="?", default=10_000)
    parser.add_argument("clients", type=int, nargs="?", default=200)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--workers", default="1")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--trees", type=Path, nargs="*", default=[None])
    args = parser.parse_args()
    options = [] if args.workers == "1" else ["--workers", args.workers]
    found: dict[Path | None, list[tuple[float, float, float, float]]] = {}
    failed = False
    print(f"{args.requests:,} requests by {args.clients} clients of {len(TENANTS)} tenants")
    for _ in range(args.turns):
        for tree in args.trees:
            where = None if tree is None else tree.resolve()
            print(f"\n{where or 'this tree'}")
            outcome, processor = run(args.requests, args.clients, args.url, *options, tree=where)
            figures = show(outcome, processor, args.requests)
            found.setdefault(tree, []).append(figures)
            failed |= bool(outcome.crossed or outcome.unexpected)
    for tree, each in found.items() if args.turns > 1 else ():
        rate, took, p95, p99 = (statistics.median(column) for column in zip(*each, strict=True))
        print(f"{tree}: {rate:.0f} requests/s, {took:.1f} ms, p95 {p95:.0f}, p99 {p99:.0f}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
