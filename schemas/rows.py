"""Fast rows: the same fields in the same order as a record, built and encoded without validation.

For a writer whose values are right by construction (the core builds every decision from checked
records). A contract test holds the bytes against the pydantic record, which stays the only contract.
Measured on one decision: 32 µs as a pydantic model, 6 µs as a row. It must not be used for reading.
"""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import BaseModel


def _model(value: Any) -> msgspec.Raw:
    """A pydantic model inside a row, as its own canonical bytes."""
    return msgspec.Raw(value.__pydantic_serializer__.to_json(value, exclude_none=True))


encode = msgspec.json.Encoder(enc_hook=_model).encode


def row_of(model: type[BaseModel]) -> Any:
    """A frozen struct class with the model's fields: optional ones may be left out, the rest are required."""
    required: list[Any] = []
    for name, field in model.model_fields.items():
        optional = field.default is None and not field.is_required()
        required.append((name, Any, None) if optional else (name, Any))
    return msgspec.defstruct(
        f"{model.__name__}Row", required, kw_only=True, omit_defaults=True, frozen=True, gc=False
    )
