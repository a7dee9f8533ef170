"""Whether `compare` comes out right: (late, late) do not differ, (late, early) do.

python -m tests.benchmarks.compare_settings [rounds [seconds]]

Of a thing and itself one comparison in twenty finds a difference: that is what 95 % means.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from service.analysis.compare.comparison import Comparison
from service.commands import compare
from tests.benchmarks.measure import batchscope

PAIRS = (("late", "late", False), ("late", "early", True))


def compared(url: str, a: str, b: str, rounds: str, seconds: str) -> Comparison:
    with TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        sides = ["--a", f"formation={a}", "--b", f"formation={b}"]
        load = ["--pattern", "poisson", "--rate", "4", "--duration", seconds, "--rounds", rounds, "--seed", "7"]
        if compare.main(["--url", url, *sides, *load, "--json", str(result)]):
            raise SystemExit("The comparison could not be carried out.")
        return msgspec.json.decode(result.read_bytes(), type=Comparison)


def main() -> None:
    rounds, seconds = (*sys.argv[1:], *("4", "10")[len(sys.argv) - 1 :])
    as_expected = True
    with batchscope() as ready:
        for a, b, differ in PAIRS:
            decisive = compared(ready.url, a, b, rounds, seconds).decisive
            came_out_right = decisive is not None and decisive.is_real == differ
            print(f"{a}, {b}: {'right' if came_out_right else 'WRONG'}\n")
            as_expected &= came_out_right
    sys.exit(0 if as_expected else 1)


if __name__ == "__main__":
    main()
