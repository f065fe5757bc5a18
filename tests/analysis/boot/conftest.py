"""What holds of every log is checked by one module, found from the root."""

import sys
from pathlib import Path

# Test folders are no packages; as parts of a namespace they are found from the root.
sys.path.insert(0, str(Path(__file__).parents[3]))
