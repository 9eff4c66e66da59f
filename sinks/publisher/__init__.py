"""What a service imports to publish intents: `from sinks.publisher import IntentPublisher, NewIntent`."""

from sinks.publisher.intents import IntentPublisher, NewIntent

__all__ = ["IntentPublisher", "NewIntent"]
