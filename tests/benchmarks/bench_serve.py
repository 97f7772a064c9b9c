"""A load on the HTTP server: 200 clients of 20 tenants, 10,000 requests, each answer checked.

``python -m tests.benchmarks.bench_serve [REQUESTS [CLIENTS [KB_URL]]]``; the knowledge base is made
for it, in a folder that is gone afterwards unless a URL is given.
"""

import asyncio
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.serve.load import Load, load
from tests.serve.running import fill, keys_of, serving

TENANTS = [f"tenant{n}" for n in range(20)]
PER_TENANT = 500


def processor_s(pid: int) -> float:
    """Processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(requests: int, clients: int, url: str | None) -> tuple[Load, float]:
    """Serve a new knowledge base under load; the outcome, and the server's processor time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kb_url = url or f"embedded:{folder / 'kb'}"
        fill(kb_url, TENANTS, per_tenant=PER_TENANT)
        keys = folder / "keys.yaml"
        keys.write_text(keys_of(TENANTS), encoding="utf-8")
        with serving(kb_url, folder, "--keys", str(keys)) as server:
            before = processor_s(server.process.pid)
            outcome = asyncio.run(
                load(server.url, TENANTS, clients=clients, requests=requests, per_tenant=PER_TENANT)
            )
            processor = processor_s(server.process.pid) - before
            if server.stop() != 0:
                outcome.unexpected.append("the server did not stop well")
    return outcome, processor


def main() -> None:
    """Print throughput and latencies; end with 1 if an answer was not as it should be."""
    args = sys.argv[1:]
    requests = int(args[0]) if args else 10_000
    clients = int(args[1]) if len(args) > 1 else 200
    outcome, processor = run(requests, clients, args[2] if len(args) > 2 else None)
    print(f"{requests:,} requests by {clients} clients of {len(TENANTS)} tenants", end=", ")
    print(f"{len(TENANTS) * PER_TENANT:,} documents: {outcome.seconds:.1f} s", end=", ")
    print(f"{requests / outcome.seconds:.0f} requests/s")
    print(f"processor time of the server: {1e3 * processor / requests:.1f} ms a request")
    shares = {share: outcome.percentile(share) for share in (0.5, 0.9, 0.95, 0.99, 1.0)}
    print("latency, ms:", ", ".join(f"p{100 * s:g} {ms:.0f}" for s, ms in shares.items()))
    statuses: Counter[int] = Counter()
    for (_, status), count in outcome.statuses.items():
        statuses[status] += count
    print("statuses:", dict(sorted(statuses.items())))
    print(f"crossed answers: {len(outcome.crossed)}, unexpected: {len(outcome.unexpected)}")
    for problem in [*outcome.crossed, *outcome.unexpected][:10]:
        print(" ", problem)
    sys.exit(bool(outcome.crossed or outcome.unexpected))


if __name__ == "__main__":
    main()
