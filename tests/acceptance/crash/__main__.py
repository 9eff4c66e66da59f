"""`python -m tests.acceptance.crash`: kill and freeze everything at every boundary, and print one table.

Exit 0 only when everything was reached and the four proofs hold after every run.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tempfile
import time
from pathlib import Path

from compose.clock import SystemClock
from compose.demo.proofs import Proof
from compose.local.stack import Stack
from compose.output import DOES_NOT_HOLD, OK, say, show_json
from tests.acceptance.crash import outages
from tests.acceptance.crash.stage import Stage, everything, staged
from tests.acceptance.crash.table import Line, as_dict, show_table

PER_S = 8.0  # intents; two busy cores take it with every process running


def main() -> int:
    """Exit code as the product's commands have it."""
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.crash", description=__doc__)
    parser.add_argument("--runs", type=int, default=1, help="how often each happens")
    parser.add_argument(
        "--only",
        action="append",
        help="pattern over «process point SIGNAL» and outages; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    parser.add_argument("--folder", type=Path, help="keep the stack and its logs here")
    given = parser.parse_args()
    if given.folder is not None:
        return _on(given.folder, given)
    with tempfile.TemporaryDirectory(prefix="backstop-crash-") as folder:
        Path(folder).chmod(0o755)
        return _on(Path(folder), given)


def _on(folder: Path, given: argparse.Namespace) -> int:
    run_id = f"crash{SystemClock().now_ms() % 10**8:08d}"
    started = time.monotonic()
    stack = Stack(folder)
    stack.start(say)
    try:
        here = (folder / run_id).resolve()
        with staged(stack, here, run_id=run_id, per_s=PER_S, say=say) as stage:
            say(f"logs of this run: {here}")
            lines, proofs = _play(stage, runs=given.runs, only=given.only or ["*"])
            intents = len(stage.load.intents)
    finally:
        stack.stop(say)
    seconds = time.monotonic() - started
    if given.json:
        show_json(as_dict(lines, proofs, intents=intents, seconds=seconds))
    else:
        show_table(lines, proofs, intents=intents, seconds=seconds)
    return OK if all(line.held == line.runs for line in lines) else DOES_NOT_HOLD


def _play(stage: Stage, *, runs: int, only: list[str]) -> tuple[list[Line], list[Proof]]:
    wanted = [
        (boundary, how)
        for boundary, how in everything()
        if _asked(f"{boundary.process} {boundary.point} {how.value}", only)
    ]
    lines = {
        f"{b.process} {b.point} {how.value}": Line(f"{b.point}: {b.when}", b.process, how.value)
        for b, how in wanted
    }
    proofs: list[Proof] = []
    for number in range(runs if wanted else 0):
        stage.say(f"run {number + 1} of {runs}: {len(wanted)} strikes")
        outcome = stage.play(wanted)
        proofs = outcome.proofs
        _say_proofs(stage, proofs)
        for name, line in lines.items():
            line.runs += 1
            line.not_reached += name in outcome.unreached
            line.held += name not in outcome.unreached and outcome.books_hold
            if name in outcome.next_ms:
                line.next_decision_s.append(outcome.next_ms[name] / 1000)
    found = list(lines.values())
    for outage in outages.OUTAGES:
        if not _asked(outage.name, only):
            continue
        line = Line(outage.name, outage.process, outage.signal)
        found.append(line)
        for number in range(runs):
            stage.say(f"{outage.name}, run {number + 1} of {runs}")
            ended = outages.play(stage, outage)
            proofs = ended.proofs
            _say_proofs(stage, proofs)
            line.runs += 1
            line.held += ended.holds
            line.next_decision_s += ended.next_decision_s
            line.lag_zero_s += ended.lag_zero_s
    return found, proofs


def _asked(name: str, only: list[str]) -> bool:
    return any(fnmatch.fnmatch(name, f"*{pattern}*") for pattern in only)


def _say_proofs(stage: Stage, proofs: list[Proof]) -> None:
    for number, proof in enumerate(proofs, 1):
        if not proof.holds:
            stage.say(f"  proof {number} FAILS: {proof.sentence}")
            for against in proof.against:
                stage.say(f"    {against}")


if __name__ == "__main__":
    sys.exit(main())
