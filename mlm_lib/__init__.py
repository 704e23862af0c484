"""Masked language modelling, built from scratch: the package behind the lessons.

Each file holds one idea and names the lesson that builds it. Nothing is imported here,
so `import mlm_lib` costs nothing; import what you need: `from mlm_lib.masking import mask_tokens`.
"""

import warnings
from pathlib import Path

__version__ = "0.1.0"

_HERE = Path(__file__).resolve().parent
# An installed wheel carries the data inside the package; a checkout keeps them beside it.
DATA = next(
    (folder for folder in (_HERE / "data", _HERE.parent / "data") if folder.is_dir()),
    _HERE / "data",
)

# Without ipywidgets tqdm draws its bars as text and warns about it; the notebooks store the bars as text on purpose.
warnings.filterwarnings("ignore", message="IProgress not found")
