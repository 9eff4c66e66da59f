"""librdkafka's serialised consumer-group metadata, built by hand.

confluent-kafka hands `send_offsets_to_transaction` an opaque `bytes`: magic, generation (native
int32), group id, member id, a flag "no instance id" and, when that is 0, the instance id; strings are
NUL terminated. aiokafka is our member of the group, so only we know these values. A layout that
changed must be found at start (`self_check`) and not at the first commit.
"""

from __future__ import annotations

import struct

from confluent_kafka import Consumer

from streams.engine.errors import SelfCheckFailed

MAGIC = b"CGMDv2:"
_NO_INSTANCE, _INSTANCE = b"\1", b"\0"


def encode(group_id: str, generation: int, member_id: str, instance_id: str | None = None) -> bytes:
    """Metadata that makes the broker check the generation.

    Raises ValueError for generation -1 or an empty member: with those the broker checks nothing.
    """
    if generation < 0 or not member_id:
        raise ValueError("not a member of the group: this would commit unfenced")
    return _encode(group_id, generation, member_id, instance_id)


def self_check() -> None:
    """Compare our layout with what librdkafka makes. Raises SelfCheckFailed."""
    for instance in (None, "instance-1"):
        conf = {"bootstrap.servers": "", "group.id": "check", "log_level": 0}
        if instance:
            conf["group.instance.id"] = instance
        consumer = Consumer(conf)
        try:
            theirs = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        if theirs != _encode("check", -1, "", instance):
            raise SelfCheckFailed([f"librdkafka's group metadata has an unknown layout: {theirs!r}"])


def _encode(group_id: str, generation: int, member_id: str, instance_id: str | None) -> bytes:
    out = MAGIC + struct.pack("=i", generation)
    out += group_id.encode() + b"\0" + member_id.encode() + b"\0"
    if instance_id is None:
        return out + _NO_INSTANCE
    return out + _INSTANCE + instance_id.encode() + b"\0"
