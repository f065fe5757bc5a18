"""From config.json to weights and caches."""
