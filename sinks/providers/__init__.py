"""The provider port and its adapters."""
