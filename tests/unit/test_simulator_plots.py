"""Magic recipients and written plots: who they mean, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import phonenumbers
import pytest

from compose.simulator import plots
from compose.simulator.plots import EMAIL_PLOTS, SMS_PLOTS, plot_for
from compose.simulator.script import LOOKUP_ONLY, Answer, Plot, Status, Step
from schemas.destinations import PhoneNumber


def test_magic_addresses_choose_their_plot_with_and_without_a_tag() -> None:
    for name, plot in EMAIL_PLOTS.items():
        assert plot_for(f"{name}@example.com", seed=1) is plot
        assert plot_for(f"{name}+anything-7@example.com", seed=1) is plot


def test_magic_numbers_choose_their_plot_by_their_last_three_digits() -> None:
    for digits, plot in SMS_PLOTS.items():
        for rest in range(10 ** (3 - len(digits))):
            number = f"+447700900{digits}{rest:0{3 - len(digits)}d}"
            assert plot_for(number, seed=1) is plot
            PhoneNumber.parse(number)


@pytest.mark.parametrize("digit", [d for d in SMS_PLOTS if len(d) == 1])
def test_numbers_for_fiction_in_north_america_are_valid_and_chosen_by_their_digit(digit: str) -> None:
    number = f"+120255501{digit}3"
    assert phonenumbers.is_valid_number(phonenumbers.parse(number))
    assert plot_for(number, seed=1) is SMS_PLOTS[digit]


def test_every_magic_recipient_is_in_the_table_that_people_read() -> None:
    documented = str(plots.__doc__)
    for name in EMAIL_PLOTS:
        assert f" {name} " in documented.replace(",", " ").replace("\n", " "), name
    for digits in SMS_PLOTS:
        assert digits + "n" * (3 - len(digits)) in documented, digits


def test_every_answer_to_a_submission_but_a_complaint_has_a_magic_recipient() -> None:
    used = {s.answer for p in (*EMAIL_PLOTS.values(), *SMS_PLOTS.values()) for s in p.submits}
    assert set(Answer) - LOOKUP_ONLY - used == {Answer.COMPLAINED}


@pytest.mark.parametrize(
    ("recipient", "times"),
    [
        ("slow+90s-x", [90_000]),
        ("slow+250ms", [250]),
        ("slow+2m.x", [120_000]),
        ("slow+3safe", [30_000]),  # a word, not a time
        ("slow", [30_000]),
        ("bounce+3s-x", [3_000]),
        ("latebounce+10s-x", [10_000, 11_500]),
        ("temporary+9s-x", [200, 700, 1_500]),
    ],
)
def test_a_tag_that_begins_with_a_time_moves_the_statuses(recipient: str, times: list[int]) -> None:
    assert [s.after_ms for s in plot_for(f"{recipient}@example.com", seed=1).statuses] == times


@pytest.mark.parametrize(
    ("recipient", "faults"),
    [("throttle", 2), ("throttle-5", 5), ("lost-2+x", 2), ("throttledate-3", 3), ("delivered-3", 0)],
)
def test_a_count_says_how_many_submissions_meet_the_fault(recipient: str, faults: int) -> None:
    found = [s.answer for s in plot_for(f"{recipient}@example.com", seed=1).submits]
    assert found == [found[0]] * faults + [Answer.ACCEPT]


def test_an_invalid_recipient_stays_invalid_whatever_its_count() -> None:
    assert plot_for("invalid-2@example.com", seed=1).submits == (Step(Answer.INVALID),)


def test_ordinary_recipients_are_drawn_by_weight_from_the_seed_alone() -> None:
    people = [f"person{n}@example.com" for n in range(2_000)]
    drawn = [plot_for(p, seed=3) for p in people]
    assert drawn == [plot_for(p, seed=3) for p in reversed(people)][::-1]
    assert drawn != [plot_for(p, seed=4) for p in people]
    delivered = Counter(p is EMAIL_PLOTS["delivered"] for p in drawn)[True]
    assert 1_400 < delivered < 1_600  # 15 of 20
    assert {id(plot_for(p, seed=3, weights={"never": 1})) for p in people} == {id(EMAIL_PLOTS["never"])}
    halves = Counter(id(plot_for(p, seed=3, weights={"never": 1, "slow": 1})) for p in people)
    assert min(halves[id(EMAIL_PLOTS[name])] for name in ("never", "slow")) > 900
    assert plot_for("+447700900945", seed=3) in SMS_PLOTS.values()


def test_a_plot_is_read_from_plain_data() -> None:
    text = """{"submits": ["lose", {"answer": "throttle", "retry_after_s": 3, "as_date": true}, "accept"],
               "statuses": [[0, null], [400, "bounced", "mailbox_unknown"], {"after_ms": 900, "token": 7}],
               "lookups": ["not_found"], "visible_after_ms": 50}"""
    assert Plot.from_dict(json.loads(text)) == Plot(
        (Step(Answer.LOSE), Step(Answer.THROTTLE, 3, as_date=True), Step()),
        (Status(0, None), Status(400, "bounced", "mailbox_unknown"), Status(900, 7)),
        (Step(Answer.NOT_FOUND),),
        50,
    )
    assert Plot.from_dict({}) == Plot()


@pytest.mark.parametrize("plot", [*EMAIL_PLOTS.values(), *SMS_PLOTS.values()])
def test_every_plot_survives_being_written_down(plot: Plot) -> None:
    assert Plot.from_dict(json.loads(json.dumps(plot.to_dict()))) == plot


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"submit": []}, "submit"),
        ({"submits": []}, "at least one"),
        ({"submits": "accept"}, "submits is a list"),
        ({"submits": ["explode"]}, "explode"),
        ({"submits": ["not_found"]}, "look-ups only"),
        ({"submits": [{"answer": "throttle", "retry_after_s": -1}]}, "not negative"),
        ({"submits": [{"answer": "throttle", "retry_after_s": 1.5}]}, "whole"),
        ({"submits": [{"answer": "throttle", "after": 1}]}, "a step has"),
        ({"submits": [{"answer": "throttle", "retry_after_text": "a\r\nb"}]}, "printable"),
        ({"submits": [7]}, "a step is"),
        ({"statuses": [[5, "a"], [4, "b"]]}, "in the order"),
        ({"statuses": [[-1, "a"]]}, "a status is"),
        ({"statuses": [["soon", "a"]]}, "a status is"),
        ({"statuses": [[1, ["a"]]]}, "token"),
        ({"statuses": [[n, "a"] for n in range(101)]}, "at most 100"),
        ({"visible_after_ms": True}, "visible_after_ms"),
    ],
)
def test_a_plot_that_makes_no_sense_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Plot.from_dict(fields)
