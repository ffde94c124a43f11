"""`python scripts/notebook_outputs.py NOTEBOOK`: run a notebook's cells and keep what they print and draw in it.

No Jupyter is needed: cells run one after another in this process, and pictures are those that `plt.show()` would show.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from PIL import Image

DPI = 45


def with_outputs(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run the cells of a notebook; return it with their outputs."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = sys.modules["__main__"].__dict__  # as in a kernel: cells may name their classes `__main__.Name`
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(code, 1):
        outputs: list[dict[str, Any]] = []
        setattr(plt, "show", lambda outputs=outputs: outputs.append(_picture(plt)))  # noqa: B010
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(io.StringIO()):  # logs are no part of a notebook
            exec(compile("".join(cell["source"]), f"cell {count}", "exec"), names)
        text = printed.getvalue().splitlines(keepends=True)
        stream = [{"name": "stdout", "output_type": "stream", "text": text}] if text else []
        cell |= {"execution_count": count, "outputs": [*stream, *outputs]}
    return notebook


def _picture(plt: Any) -> dict[str, Any]:
    """Return the current figure as an output, and close it."""
    drawn = io.BytesIO()
    plt.savefig(drawn, format="png", dpi=DPI, bbox_inches="tight", metadata={"Software": None})
    plt.close()
    drawn.seek(0)
    few = io.BytesIO()  # few colours are a quarter of the size
    Image.open(drawn).convert("RGB").quantize(16).save(few, format="png", optimize=True)
    image = base64.b64encode(few.getvalue()).decode()
    data = {"image/png": image, "text/plain": ["<Figure>"]}
    return {"data": data, "metadata": {}, "output_type": "display_data"}


def main(arguments: list[str]) -> int:
    """Write the outputs into the notebooks that are named."""
    for name in arguments:
        file = Path(name)
        notebook = with_outputs(json.loads(file.read_text(encoding="utf-8")))
        file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0 if arguments else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
