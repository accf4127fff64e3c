"""Draws docs/images/step.svg: three training steps by category, over events, from their recording.

python tools/docs/draw_step.py docs/images/step.svg
"""

import dataclasses
import sys
import tempfile
from pathlib import Path

import run_page
import torch

import peakline
from peakline import _html

TOUR = Path(__file__).parents[2] / "docs/tour.md"


def main() -> None:
    program = next(block for block in run_page.blocks(TOUR) if block.name == "train.py")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(program.text)
        sys.path.insert(0, folder)
        from train import GPT, train  # type: ignore[import-not-found]

        with peakline.virtual_gpu("h200") as run, torch.device("cuda"):
            train(GPT(), batch=8)
    # The clock on the wall says how quick this machine is; events say what the program does.
    points = [dataclasses.replace(point, time_ns=point.event) for point in run.timeline()]
    drawing = _html.timeline_svg(points).replace('fill="currentColor"', 'fill="#1c2733"')
    drawing = drawing.replace("currentColor", "#1c2733")
    background = '<rect width="100%" height="100%" fill="#fff"/>'
    head, title, rest = drawing.partition("<title>memory over the run</title>")
    Path(sys.argv[1]).write_text(f"{head}{title}{background}{rest}\n")


if __name__ == "__main__":
    main()
