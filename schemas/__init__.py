"""The words: what every record, topic, template, policy and metric is called and may contain."""
