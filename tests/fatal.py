"""Plants what librdkafka calls a fatal error in a producer of ours, by its own test hook, without a broker.

It must not be used outside tests, and it holds no expectation.
"""

from __future__ import annotations

import ctypes
from typing import Any

from confluent_kafka import cimpl

OUT_OF_ORDER = 45  # what a broker says to an idempotent producer whose numbers it lost


def plant(client: Any) -> None:
    """`client`: a Producer of confluent_kafka (a Consumer would hang at its end). Its handle is the first
    field after the object's header."""
    hook = ctypes.CDLL(cimpl.__file__).rd_kafka_test_fatal_error
    hook.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    handle = ctypes.c_void_p.from_address(id(client) + object.__basicsize__)
    assert hook(handle, OUT_OF_ORDER, b"planted") == 0
