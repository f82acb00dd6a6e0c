"""Sources, label noise, partitions and views."""
