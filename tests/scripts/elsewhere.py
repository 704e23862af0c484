"""`elsewhere.py NOTEBOOK SETTINGS DEVICE`: executes a lesson with settings, on a device."""
import json, sys, time
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent.parent))
device = sys.argv[3]
if device == "pretend":
    import pretended_device
import matplotlib
matplotlib.use("agg")
import nbformat
from classroom.runner import execute, fresh_names
book = nbformat.read(sys.argv[1], as_version=4)
settings = json.loads(sys.argv[2]) | {"DEVICE": device}
names = fresh_names()
for n, cell in enumerate(book.cells):
    if cell.cell_type != "code": continue
    print("=== cell", n, flush=True)
    try:
        execute(cell.source, f"cell {n}", names)
    except BaseException as e:
        print("FAILED", n, type(e).__name__, str(e)[:600]); 
        import traceback
        traceback.print_exc()
        if "--on" not in sys.argv: sys.exit(1)
    if "parameters" in cell.metadata.get("tags", []):
        names.update(settings)
