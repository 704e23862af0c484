"""Masked language modelling, built from scratch: the package behind the lessons.

Each file at the top names the lesson that builds it; what no lesson builds stands in `engine`.
Nothing is imported here, so `import mlm_lib` costs nothing; import what you need:
`from mlm_lib.masking import mask_tokens`.
"""

import warnings
from pathlib import Path

__version__ = "0.1.0"

_HERE = Path(__file__).resolve().parent
# An installed wheel carries the data inside the package; a checkout keeps them beside it.
DATA = _HERE / "data" if (_HERE / "data").is_dir() else _HERE.parent / "data"

# Without ipywidgets tqdm draws its bars as text, as the notebooks store them, and warns of it.
warnings.filterwarnings("ignore", message="IProgress not found")
