"""torch's own viewer on a snapshot that peakline exported: does it draw it?

    peakline export run.peak --to snapshot -o run.pickle
    python tools/memory_viz_check.py run.pickle --viewer MemoryViz.js --d3 d3.min.js

`torch.cuda._memory_viz` makes the pages of its trace plot and segment plot. They load their script
and d3 from a CDN; here both come from files: `--viewer` is torch/utils/viz/MemoryViz.js (what it
imports lies beside it), `--d3` the file dist/d3.min.js of npm's package d3, in the version that the
viewer names. Chromium draws the pages, without network, and the shapes in them are counted.
Exits with 0 when both plots have shapes.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

PLOTS = {"trace": "trace_plot", "segment": "segment_plot"}
_NAMESPACE = re.compile(r'^import \* as d3 from "https://[^"]*";', re.MULTILINE)
_NAMES = re.compile(r'^import (\{[^}]*\}) from "https://[^"]*";', re.MULTILINE)
_VIEWER_URL = re.compile(r'"https://[^"]*/MemoryViz\.js"')


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def make_page(snapshot: Path, plot: str, folder: Path) -> Path:
    page = folder / f"{plot}.html"
    command = [sys.executable, "-m", "torch.cuda._memory_viz", PLOTS[plot], str(snapshot)]
    subprocess.run([*command, "-o", str(page)], check=True, capture_output=True)
    text, replaced = _VIEWER_URL.subn('"/MemoryViz.js"', page.read_text())
    if not replaced:
        sys.exit(f"{plot}: torch's page names no viewer at a CDN, so there is nothing to answer")
    page.write_text(text.replace("<head>", '<head><script src="/d3.js"></script>', 1))
    return page


def lay_out(viewer: Path, d3: Path, folder: Path) -> None:
    """The viewer with d3 from the page, and whatever it imports from beside it."""
    text = _NAMESPACE.sub("const d3 = window.d3;", viewer.read_text())
    (folder / "MemoryViz.js").write_text(_NAMES.sub(r"const \1 = window.d3;", text))
    for name in re.findall(r'from "\./([\w.]+)"', text):
        shutil.copy(viewer.parent / name, folder / name)
    shutil.copy(d3, folder / "d3.js")


def draw(address: str, picture: Path | None) -> str:
    """The page's elements after it has drawn itself."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("Chromium is not installed")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,900"]
    command += [
        "--virtual-time-budget=20000",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ]
    if picture is not None:
        subprocess.run(
            [*command, f"--screenshot={picture}", address], capture_output=True, timeout=120
        )
    done = subprocess.run(
        [*command, "--dump-dom", address], capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("snapshot", type=Path)
    parser.add_argument("--viewer", type=Path, required=True)
    parser.add_argument("--d3", type=Path, required=True)
    parser.add_argument("--pictures", type=Path, help="a folder for what Chromium saw")
    args = parser.parse_args()
    empty = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lay_out(args.viewer, args.d3, folder)
        handler = functools.partial(_Quiet, directory=name)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            for plot in PLOTS:
                page = make_page(args.snapshot, plot, folder)
                picture = args.pictures / f"{plot}.png" if args.pictures else None
                seen = draw(f"http://127.0.0.1:{server.server_port}/{page.name}", picture)
                shapes = {
                    kind: seen.count(f"<{kind}") for kind in ("polygon", "rect", "path", "text")
                }
                words = ", ".join(f"{count} {kind}" for kind, count in shapes.items() if count)
                print(f"{plot} plot: {words or 'nothing was drawn'}")
                empty |= not (shapes["polygon"] or shapes["rect"])
            server.shutdown()
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main())
