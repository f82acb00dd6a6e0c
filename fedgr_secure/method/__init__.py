"""FedGR itself: proxies, sieve, refinement, teacher, objective, and the two halves. No I/O."""
