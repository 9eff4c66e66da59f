"""`python -m tests.benchmarks`: our worker, stock Faust and a plain loop side by side on a real broker.

Times are reported, never judged; the exit code is 1 when the worker's books do not balance.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from compose.local.broker import Broker
from tests.benchmarks import report
from tests.benchmarks.contest import comeback, race

STOCK_SHARE = 5  # of the records: at 1 000 records/s stock would need 200 s for 200 000


def say(sentence: str) -> None:
    """Progress, apart from the result."""
    print(f"… {sentence}", file=sys.stderr, flush=True)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000, help="input records; 0: no race")
    parser.add_argument("--intents", type=int, help="default: one per ten records")
    parser.add_argument("--stock-records", type=int, help="for stock Faust; default: a fifth")
    parser.add_argument("--states", type=int, default=200_000, help="states to recover; 0: no recovery")
    parser.add_argument("--stock-states", type=int, help="for stock Faust; default: the same")
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")
    return parser.parse_args()


def main() -> int:
    asked = options()
    records, states = asked.records, asked.states
    intents = asked.intents or max(1, records // 10)
    stock_records = min(records, asked.stock_records or max(1, records // STOCK_SHARE))
    about = report.machine()
    raced = came_back = None
    with tempfile.TemporaryDirectory(prefix="backstop-bench-") as name:
        folder = Path(name)
        broker = Broker(folder / "kafka")
        broker.start(say)
        try:
            if records:
                raced = race(
                    broker.bootstrap, folder, records=records, intents=intents,
                    stock_records=stock_records, say=say,
                )  # fmt: skip
            if states:
                came_back = comeback(
                    broker.bootstrap,
                    folder,
                    states=states,
                    stock_states=asked.stock_states or states,
                    say=say,
                )
        finally:
            broker.stop()
    if asked.json:
        print(json.dumps(report.as_json(about, raced, came_back), indent=2))
    else:
        print("\n".join(report.lines(about, raced, came_back)))
    return 0 if raced is None or raced.books.balanced else 1


if __name__ == "__main__":
    sys.exit(main())
