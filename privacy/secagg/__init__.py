"""Pairwise-masked secure sums (Bonawitz et al. 2017; Bell et al. 2020). Imports nothing of the rest of the project."""
