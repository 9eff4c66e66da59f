"""Faust made exact: chunks in, one Kafka transaction out, state back at librdkafka speed.

Bytes in, bytes out: it must not know what a record means. See `app.py` for the theory of operation.
"""
