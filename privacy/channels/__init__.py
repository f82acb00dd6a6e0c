"""How loss proxies reach the server."""
