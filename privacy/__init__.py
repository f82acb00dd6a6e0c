"""Privacy machinery that knows nothing of FedGR: claims, and the channels on which loss proxies travel."""
