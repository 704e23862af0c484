"""Masked language modelling, built from scratch: the package behind the lessons.

Each file in this folder belongs to a lesson, whose first cell names it: most of them are built in
that lesson, and a few, such as `checks` and `plots`, are only used. What the lessons use but do not
explain line by line is in the folder `engine`: batches, files, logs, checkpoints.

`import mlm_lib` imports nothing else and takes no time. Import what you need::

    from mlm_lib.masking import mask_tokens
"""

import warnings
from pathlib import Path

__version__ = "0.1.0"

_HERE = Path(__file__).resolve().parent
# An installed package has the data inside its folder. In a copy of the repository they are beside.
DATA = _HERE / "data" if (_HERE / "data").is_dir() else _HERE.parent / "data"

# Without ipywidgets, tqdm draws progress bars as text and warns of it. The notebooks want the text.
warnings.filterwarnings("ignore", message="IProgress not found")
