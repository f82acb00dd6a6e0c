"""The published methods that FedGR is compared with, one file each."""
