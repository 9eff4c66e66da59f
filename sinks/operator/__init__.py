"""What an operator's command reads and writes."""
