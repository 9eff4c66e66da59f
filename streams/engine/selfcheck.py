"""Are the libraries the ones this engine overrides from the inside?

Private names of Faust, mode and aiokafka are used on purpose, at exactly pinned versions. This must run
before anything is started, and name every difference at once.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from streams.engine import group_metadata
from streams.engine.errors import SelfCheckFailed

VERSIONS = {
    "faust-streaming": "0.15.3",
    "aiokafka": "0.14.0",
    "mode-streaming": "0.7.1",
    "confluent-kafka": "2.16.1",
}

# module:attribute path -> parameters of the function, or None when it only has to exist
NAMES: dict[str, tuple[str, ...] | None] = {
    "faust.transport.drivers.aiokafka:Consumer._new_consumer_thread": ("self",),
    "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread._create_worker_consumer": ("self", "transport"),
    "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread._fetch_records": (
        "self", "consumer", "active_partitions", "timeout", "max_records"),
    "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread._ensure_consumer": ("self",),
    "faust.transport.drivers.aiokafka:ConsumerRebalanceListener.on_partitions_assigned": ("self", "assigned"),
    "faust.transport.drivers.aiokafka:ensure_aiokafka_TP": None,
    "faust.transport.consumer:Consumer._drain_messages": ("self", "fetcher"),
    "faust.transport.consumer:Consumer._wait_next_records": ("self", "timeout"),
    "faust.transport.consumer:Consumer.on_partitions_revoked": ("self", "revoked"),
    "faust.transport.consumer:Consumer.perform_seek": ("self",),
    "faust.transport.consumer:Consumer.commit": ("self", "topics", "start_new_transaction"),
    "faust.transport.consumer:Consumer.wait_empty": ("self",),
    "faust.transport.consumer:Consumer.verify_all_partitions_active": ("self",),
    "faust.transport.consumer:Consumer.resume_partitions": ("self", "tps"),
    "faust.transport.consumer:Consumer.stop_flow": ("self",),
    "faust.transport.consumer:Consumer.resume_flow": ("self",),
    "faust.transport.consumer:Consumer.flow_active": None,
    "faust.tables.recovery:Recovery._build_highwaters": ("self", "consumer", "tps", "destination", "title"),
    "faust.tables.recovery:Recovery._build_offsets": ("self", "consumer", "tps", "destination", "title"),
    "faust.tables.recovery:Recovery._seek_offsets": ("self", "consumer", "tps", "offsets", "title"),
    "faust.tables.recovery:Recovery.on_recovery_completed": ("self", "generation_id"),
    "faust.tables.recovery:Recovery._set_recovery_started": ("self",),
    "faust.tables.recovery:Recovery._set_recovery_ended": ("self",),
    "faust.tables.manager:TableManager.recovery": None,
    "faust.stores.base:Store": None,
    "mode.worker:Worker._install_signal_handlers_unix": ("self",),
    "mode.worker:Worker._setup_logging": ("self",),
    "mode.services:Service.crash": ("self", "reason"),
    "aiokafka.consumer.fetcher:Fetcher._proc_fetch_request": ("self", "assignment", "node_id", "request"),
    "aiokafka.consumer.fetcher:MemoryRecords": None,
    "aiokafka.record.default_records:_DefaultRecordBatchPy._read_msg": ("self", "decode_varint"),
    "aiokafka.record.default_records:_DefaultRecordPy": None,
    "aiokafka.consumer.subscription_state:Assignment.state_value": ("self", "tp"),
    "aiokafka.consumer.subscription_state:TopicPartitionState.position": None,
    "aiokafka.consumer.subscription_state:TopicPartitionState.has_valid_position": None,
}  # fmt: skip

# Attributes that exist on instances only: looked for in what __init__ assigns.
ASSIGNED = {
    "aiokafka.consumer.consumer:AIOKafkaConsumer": (
        "_isolation_level",
        "_fetch_max_wait_ms",
        "_subscription",
    ),
    "aiokafka.consumer.subscription_state:TopicPartitionState": ("highwater", "lso", "timestamp"),
}

# Without these the pure-Python paths acknowledge records they skipped at a rebalance (FAUST trap 10).
ACCELERATORS = ("faust.streams:_CStreamIterator", "faust.transport.conductor:ConductorHandler")


def check_libraries() -> None:
    """Compare versions, overridden names, accelerators and the metadata layout. Raises SelfCheckFailed."""
    differences = [*_versions(VERSIONS), *_names(NAMES), *_assigned(ASSIGNED), *_accelerators(ACCELERATORS)]
    if differences:
        raise SelfCheckFailed(differences)
    group_metadata.self_check()


def check_settings(conf: Any, wanted: Mapping[str, Any]) -> None:
    """Compare Faust's effective settings with what it was told. Raises SelfCheckFailed."""
    differences = []
    for name, value in wanted.items():
        if name in _NOT_COMPARED:
            continue
        found = getattr(conf, name)
        found = getattr(found, "value", found)  # enums
        if isinstance(value, float):
            found = float(found)
        if found != value:
            differences.append(f"Faust setting {name} is {found!r} and must be {value!r}")
    brokers = sorted(str(url) for url in conf.broker)
    if brokers != sorted(wanted["broker"].split(";")):
        differences.append("Faust setting broker is not what the engine was given")
    if differences:
        raise SelfCheckFailed(differences)


_NOT_COMPARED = frozenset({"env", "env_prefix", "broker", "datadir"})


def _versions(wanted: Mapping[str, str]) -> list[str]:
    found = {name: _version(name) for name in wanted}
    return [
        f"{name} is {found[name]}, built for {version}"
        for name, version in wanted.items()
        if found[name] != version
    ]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _names(wanted: Mapping[str, tuple[str, ...] | None]) -> list[str]:
    differences = []
    for path, parameters in wanted.items():
        found = _resolve(path)
        if found is None:
            differences.append(f"{path} does not exist")
        elif parameters is not None:
            present = tuple(inspect.signature(found).parameters)
            if present != parameters:
                differences.append(f"{path} takes {', '.join(present)}; expected {', '.join(parameters)}")
    return differences


def _assigned(wanted: Mapping[str, tuple[str, ...]]) -> list[str]:
    differences = []
    for path, attributes in wanted.items():
        found = _resolve(path)
        known = found.__init__.__code__.co_names if found is not None else ()
        differences += [f"{path} has no {name}" for name in attributes if name not in known]
    return differences


def _accelerators(wanted: tuple[str, ...]) -> list[str]:
    return [
        f"{path} is not compiled (is NO_CYTHON set, or the wheel pure Python?)"
        for path in wanted
        if _resolve(path) is None
    ]


def _resolve(path: str) -> Any:
    module, _, attributes = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in attributes.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError):
        return None
    return found
