"""Released documents: JSON Schemas, the AsyncAPI document, their manifest. They never change."""
