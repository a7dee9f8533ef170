"""What sealing batches early costs: latency under Poisson arrivals, `early` beside `late`, same arrivals, one service.

python -m tests.benchmarks.early_and_late [seconds [rate]]
"""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request

from tests.benchmarks.measure import ask_for_completion, batchscope, poisson


def change(url: str, **settings: object) -> None:
    request = urllib.request.Request(f"{url}/batching", json.dumps(settings).encode(), method="PUT")
    urllib.request.urlopen(request).close()


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 40.0
    rate_per_s = float(sys.argv[2]) if len(sys.argv) > 2 else 4.0
    with batchscope() as ready:
        p95_s = {}
        print(f"Poisson {rate_per_s:g}/s for {seconds:g} s, 24 tokens a request, {ready.model}, {ready.device}")
        for formation in ("late", "early"):
            change(ready.url, formation=formation, max_batch_size=16, batch_wait_timeout_s=0.05)
            measured = asyncio.run(poisson(ask_for_completion(ready.url, ignore_eos=True), rate_per_s, seconds))
            p95_s[formation] = measured.percentile_s(95)
            print(
                f"{formation:6} {len(measured.latencies_s):4} requests   "
                f"p50 {measured.percentile_s(50):6.2f} s   p95 {p95_s[formation]:6.2f} s"
            )
        print(f"p95 late / early {p95_s['late'] / p95_s['early']:.3f}")


if __name__ == "__main__":
    main()
