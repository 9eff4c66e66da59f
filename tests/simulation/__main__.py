"""`python -m tests.simulation`: run worlds by seed, and show the first sentence that does not hold.

    python -m tests.simulation --seed 7                  # one world
    python -m tests.simulation --seed 7 --trace          # with everything that happened in it
    python -m tests.simulation --seeds 1000 --jobs 2     # a thousand, from --seed on
    python -m tests.simulation --until-failure           # until one goes wrong
    python -m tests.simulation --seeds 1000 --all        # every world that goes wrong, not only the first
    python -m tests.simulation --kept                    # the worlds of seeds.txt

Exit code 0: no violation. 1: the seed, the commit, the sentence and the smallest world are printed. 2: a
mistake in the command.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.simulation import seeds
from tests.simulation.faults import INTENTS, Options
from tests.simulation.run import Verdict, judge, shrink
from tests.simulation.world import ZERO_MS

EVERY_S = 2.0  # between two lines of progress
MINUTES_PER_HOUR = 60


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    minutes = int(given.hours * MINUTES_PER_HOUR) if given.hours else 8
    if given.kept:
        worlds: Iterable[Options] = seeds.kept().values()
    elif given.until_failure:
        worlds = (Options.drawn(s, intents=given.intents, minutes=minutes) for s in _from(given.seed))
    else:
        numbers = range(given.seed, given.seed + given.seeds)
        worlds = (Options.drawn(s, intents=given.intents, minutes=minutes) for s in numbers)
    return _run(worlds, given)


def _from(seed: int) -> Iterator[int]:
    while True:
        yield seed
        seed += 1


def _run(worlds: Iterable[Options], given: argparse.Namespace) -> int:
    started, told = time.monotonic(), time.monotonic()
    done, decisions, hours = 0, 0, 0.0
    faults: Counter[str] = Counter()
    points: Counter[str] = Counter()
    wrong: list[Verdict] = []
    for verdict in _verdicts(worlds, given):
        done, decisions, hours = done + 1, decisions + verdict.decisions, hours + verdict.hours
        faults.update(verdict.faults)
        points.update(verdict.points)
        if given.trace:
            _trace(verdict)
        if verdict.broken:
            wrong.append(verdict)
            if not given.all:
                break
            _name(verdict, given)
        if time.monotonic() - told > EVERY_S and not given.json:
            told = time.monotonic()
            print(f"{told - started:5.0f} s  {done} worlds, {decisions} decisions", flush=True)
    took = time.monotonic() - started
    found = {
        "worlds": done,
        "simulated_hours": round(hours, 1),
        "decisions": decisions,
        "seconds": round(took, 1),
        "faults": dict(sorted(faults.items())),
        "points": dict(sorted(points.items())),
        "worlds_gone_wrong": len(wrong),
        "violations": sum(len(verdict.broken) for verdict in wrong),
    }
    if given.json:
        print(json.dumps(found | ({"failed": _failed(wrong[0], given)} if wrong else {})))
    else:
        print(f"{done} worlds, {hours:.1f} simulated hours, {decisions} decisions, {took:.0f} s")
        for name, count in sorted(faults.items()):
            print(f"  {count:8}  {name}")
        if wrong:
            _show(wrong[0], given)
    return 1 if wrong else 0


def _verdicts(worlds: Iterable[Options], given: argparse.Namespace) -> Iterator[Verdict]:
    if given.jobs == 1:
        for options in worlds:
            yield judge(options, trace=given.trace)
        return
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        yield from pool.imap(judge, worlds, chunksize=4)


def _name(verdict: Verdict, given: argparse.Namespace) -> None:
    """One line at once, so that a run of hours can be read while it goes on; on stderr for programs."""
    names = ", ".join(sorted({name for name, _, _ in verdict.broken}))
    print(
        f"seed {verdict.options.seed} violates {names}",
        file=sys.stderr if given.json else sys.stdout,
        flush=True,
    )


def _failed(verdict: Verdict, given: argparse.Namespace) -> dict[str, object]:
    name, sentence, example = verdict.broken[0]
    small = verdict.options if given.no_shrink else shrink(verdict.options, name)
    return {"seed": verdict.options.seed, "commit": _commit(), "checker": name, "sentence": sentence,
            "example": example, "line": seeds.line(f"seed-{small.seed}", small, sentence)}  # fmt: skip


def _show(verdict: Verdict, given: argparse.Namespace) -> None:
    failed = _failed(verdict, given)
    print(f"\nseed {failed['seed']} at commit {failed['commit']} violates ({failed['checker']})")
    print(f"  {failed['sentence']}")
    for _, _, example in verdict.broken:
        print(f"    {example}")
    print(f"the smallest world in which it still does, for seeds.txt:\n  {failed['line']}")
    small = next(iter(seeds.read(str(failed["line"])).values()))
    _trace(judge(replace(small, minutes=verdict.options.minutes), trace=True))


def _trace(verdict: Verdict) -> None:
    for at_ms, text in verdict.notes:
        print(f"{(at_ms - ZERO_MS) / 1000:9.3f} s  {text}")


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False,
        cwd=Path(__file__).parent,
    )  # fmt: skip
    return found.stdout.strip() or "unknown"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--intents", type=int, default=INTENTS, help=f"intents per world (default {INTENTS})")
    parser.add_argument("--hours", type=float, help="how long faults go on (default 8 minutes)")
    parser.add_argument("--jobs", type=int, default=1, help="worlds at once")
    parser.add_argument("--trace", action="store_true", help="print what happened in each world")
    parser.add_argument("--until-failure", action="store_true", help="go on until a sentence is violated")
    parser.add_argument("--all", action="store_true", help="go on after a violation and name every world")
    parser.add_argument("--kept", action="store_true", help="the worlds of seeds.txt")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for the smallest world")
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
