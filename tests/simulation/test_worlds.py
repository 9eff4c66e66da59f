"""Small worlds in every run; a whole three hundred by `make simulate`, ten thousand by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation import seeds
from tests.simulation.__main__ import main
from tests.simulation.faults import FAULTS, Options
from tests.simulation.fibers import Fibers
from tests.simulation.run import Verdict, judge
from tests.simulation.world import World

FEW = range(1, 9)


def _told(verdict: Verdict) -> str:
    return "\n".join(f"{name}: {sentence}: {text}" for name, sentence, text in verdict.broken)


@pytest.mark.parametrize("seed", FEW)
def test_nothing_wrong_happens_in_a_world_that_breaks_everything(seed: int) -> None:
    verdict = judge(Options.drawn(seed))
    assert not verdict.broken, _told(verdict)
    assert verdict.decisions > 0


@pytest.mark.parametrize("name", sorted(seeds.kept()))
def test_a_world_that_went_wrong_once_does_not_again(name: str) -> None:
    verdict = judge(seeds.kept()[name])
    assert not verdict.broken, _told(verdict)


def test_the_same_seed_gives_the_same_decisions_and_the_same_ledger() -> None:
    first, second = (judge(Options.drawn(3, intents=6)) for _ in range(2))
    assert first.digest == second.digest
    assert first.faults == second.faults


def test_another_seed_gives_another_world() -> None:
    assert judge(Options.drawn(3, intents=6)).digest != judge(Options.drawn(4, intents=6)).digest


def test_every_fault_happens_in_some_world_of_a_hundred() -> None:
    drawn: set[str] = set()
    for seed in range(100):
        drawn |= set(Options.drawn(seed).chances)
    assert drawn == set(FAULTS)


def test_a_world_leaves_no_call_waiting() -> None:
    world = World(Options.drawn(5, intents=4))
    world.run()
    fibers: Fibers = world.fibers
    assert fibers.waiting == 0


def test_kept_seeds_are_read_as_they_are_written() -> None:
    options = Options.drawn(11, intents=3)
    text = seeds.line("a-name", options, "why")
    assert seeds.read(text)["a-name"].chances == options.chances
    with pytest.raises(ValueError, match="line 1"):
        seeds.read("a-name eleven")
    with pytest.raises(ValueError, match="unknown faults: no\\.such"):
        seeds.read("a-name 11 5 no.such=0.5")


def test_the_command_says_how_many_worlds_and_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "10", "--seeds", "1", "--intents", "4"]) == 0
    assert "1 worlds" in capsys.readouterr().out


def test_with_all_every_world_that_goes_wrong_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def odd_ones_break(options: Options, *, trace: bool = False) -> Verdict:
        broken = (("one_message", "one message", "two"),) if options.seed % 2 else ()
        return replace(judge(options, trace=trace), broken=broken)

    monkeypatch.setattr("tests.simulation.__main__.judge", odd_ones_break)
    command = ["--seed", "11", "--seeds", "3", "--intents", "2", "--no-shrink"]
    assert main(command) == 1
    assert "seed 13" not in capsys.readouterr().out
    assert main([*command, "--all"]) == 1
    out = capsys.readouterr().out
    assert "seed 11 violates one_message" in out
    assert "seed 12" not in out
    assert "seed 13 violates one_message" in out
