"""What an operator may write into the open."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from schemas.instruction import Instruction, InstructionAction
from tests.builders import T0


def _with(why: str) -> Instruction:
    fields = {"intent_id": "int-0001-test", "action": InstructionAction.COMPLETE, "operator": "ada"}
    return Instruction.model_validate({"instruction_id": "ins-1", "why": why, "at_ms": T0} | fields)


@pytest.mark.parametrize(
    "why",
    [
        "asked by ada@example.com",
        "asked by ada%40example.com",
        "see https://app.example/x",
        "see www.example.com",
        "called +44 7700 900123",
        "called 07700-900-123",
        "called (0)7700.900.123",
    ],
)
def test_an_operators_words_name_no_address_number_or_link(why: str) -> None:
    with pytest.raises(ValidationError) as found:
        _with(why)
    assert "must not hold an address" in str(found.value.errors(include_input=False))


@pytest.mark.parametrize(
    "why", ["ticket 48213, person phoned in", "done on 2026-12-01", "3 of 12 were late", "region GB is down"]
)
def test_tickets_dates_and_counts_may_stand_there(why: str) -> None:
    assert _with(why).why == why
