"""The controls topic as a board: the last record per name holds. It must not talk to a cluster."""

from __future__ import annotations

from schemas.codec import Undecodable, decode
from schemas.control import Control, Controls
from schemas.record import TopicKind


class ControlBoard:
    """Feed it every record of the topic, from the beginning."""

    def __init__(self) -> None:
        self._latest: dict[str, Control] = {}
        self._offset = -1

    def take(self, key: bytes | None, value: bytes | None, offset: int) -> Undecodable | None:
        """Note one record; why it was ignored when it is not a control."""
        self._offset = max(self._offset, offset)
        control = decode(TopicKind.CONTROLS, key, value)
        if isinstance(control, Undecodable):
            return control
        if isinstance(control, Control):
            self._latest[control.name] = control
        return None

    @property
    def controls(self) -> Controls:
        return Controls.of(self._latest, offset=self._offset)
