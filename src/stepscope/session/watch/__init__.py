"""WATCHING: host, processes and the engine's metrics beside the load."""
