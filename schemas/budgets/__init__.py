"""The budgets that hold when a deployment names none of its own."""
