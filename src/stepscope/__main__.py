"""``python -m stepscope``."""

from stepscope.cli.main import entry

if __name__ == "__main__":
    entry()
