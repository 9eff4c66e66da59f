"""Does an attempt that was not sent, or was refused, always say why: the class of the reason decides."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from schemas.attempt import NEEDS_REASON, Attempt, AttemptState
from schemas.codec import Undecodable, decode
from schemas.reasons import Reason
from schemas.record import TopicKind
from sinks.providers.base import SubmitResult
from tests.builders import ID, attempt


@pytest.mark.parametrize("state", AttemptState)
def test_what_was_not_sent_or_refused_says_why(state: AttemptState) -> None:
    fields = attempt(0, state).model_dump() | {"reason": None}
    if state in NEEDS_REASON:
        with pytest.raises(ValidationError, match=f"an attempt that is {state.value} has a reason"):
            Attempt.model_validate(fields)
    else:
        assert Attempt.model_validate(fields).reason is None


def test_one_on_the_topic_without_a_reason_is_a_dead_letter() -> None:
    told = attempt(0, AttemptState.HELD).to_bytes()
    without = told.replace(b'"reason":"control_paused",', b"")
    assert without != told
    found = decode(TopicKind.ATTEMPTS, ID.encode(), without)
    assert isinstance(found, Undecodable)
    assert found.reason is Reason.INVALID_FIELD


@pytest.mark.parametrize("state", AttemptState)
def test_an_adapter_cannot_leave_it_out_either(state: AttemptState) -> None:
    if state in NEEDS_REASON:
        with pytest.raises(ValueError, match="without a reason"):
            SubmitResult(state)
    else:
        assert SubmitResult(state).reason is None
