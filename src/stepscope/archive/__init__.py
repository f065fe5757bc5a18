"""ONE RUN, ONE DIRECTORY: raw bytes kept, columns beside them, a manifest."""
