"""Fixtures of more than one module here."""

from __future__ import annotations

import pytest

from tests.dispatcher_bench import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()
