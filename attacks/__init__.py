"""What a server can learn from its view of a run."""
