"""Released templates: catalogue, strict rendering, SMS segments."""
