import sys
from pathlib import Path

# The scripted server is a module beside these tests; test folders are no packages.
sys.path.insert(0, str(Path(__file__).parent))
