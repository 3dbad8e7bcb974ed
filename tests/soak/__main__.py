"""Everything at once from many threads for a long time: `python -m tests.soak --minutes 60 --threads 8`."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from tests.soak.samples import MOST_AN_HOUR, trends
from tests.soak.soak import Soak, for_minutes

DESCRIPTION = """Calls, compilations, cache hits, loads, replicated runs, custom calls, wrong arguments, handlers that
raise, time limits and cancellations from many threads; beside them forks, children that exit in the middle of runs,
are suspended and continued, or interrupted in bursts. Between rounds the process is measured: memory, threads, files,
/dev/shm, the runtime's pool. Growth is that of a line fitted to the last two thirds of the time; more than may be, by
three times its error, or any fault, makes the exit code 1."""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--round", type=float, default=5, metavar="SECONDS", help="between measurements (default: 5)")
    parser.add_argument("--report", type=Path, help="a file for all measurements, as JSON")
    return parser.parse_args()


def show(soak: Soak) -> bool:
    """Prints the tables; whether all is well."""
    for name, count in soak.done.most_common():
        print(f"{count:10,}  {name}")
    found = trends(soak.samples)
    print(f"\n{'':9} {'first':>15} {'last':>15} {'an hour':>15} {'error':>13}   over {len(soak.samples)} measurements")
    for t in found:
        told = "GROWS" if t.grows else f"at most {MOST_AN_HOUR[t.name]:,}"
        print(f"{t.name:9} {t.first:15,.0f} {t.last:15,.0f} {t.an_hour:15,.0f} {t.error:13,.0f}   {told}")
    for fault in soak.faults[:20]:
        print(f"FAULT: {fault}", file=sys.stderr)
    return not soak.faults and not any(t.grows for t in found)


def main() -> int:
    options = parse()
    soak = Soak(options.threads, options.seed)

    def told(soak: Soak) -> None:
        if sys.stderr.isatty():
            last = soak.samples[-1]
            text = f"\r{len(soak.samples)} rounds, {last.rss >> 20} MiB, {len(soak.faults)} faults "
            print(text, end="", file=sys.stderr)
        if options.report:
            found = {"done": soak.done, "faults": soak.faults, "samples": [asdict(s) for s in soak.samples]}
            options.report.write_text(json.dumps(found))

    for_minutes(soak, options.minutes, options.round, told)
    return 0 if show(soak) else 1


if __name__ == "__main__":
    sys.exit(main())
